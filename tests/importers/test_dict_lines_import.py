"""Python dicts that trainers print."""

import math
from pathlib import Path

import pytest
from console_logs import imported, mutated, points, unread, write

from barograph.base.errors import LogError
from barograph.importers.formats.consoles.dict_lines import dicts_in
from barograph.importers.opening import open_run
from barograph.importers.reading.lines import LineReader

SUMMARY = "{'train_runtime': 12.5, 'train_samples_per_second': 0.3, 'train_loss': 0.125, 'epoch': 0.5}"


def row(step: int, **others: object) -> dict[str, object]:
    return {"loss": step / 7, "grad_norm": 0.5, "learning_rate": 1e-06 / step, "reward": -1 / 3, **others}


def bar(done: int, total: int, title: str = "") -> str:
    return f"{title}{100 * done // total:3}%|{'█' * 3}▌      | {done}/{total} [00:{done:02}<01:00,  1.00s/it]"


def test_rows_are_counted_where_no_step_is_printed(tmp_path: Path):
    """Values are exactly those that were printed, and a person is told."""
    lines = ["noise", "Actions: {'PASS': 8}", *(str(row(n, epoch=n / 100)) for n in range(1, 5)), SUMMARY]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "loss") == {n: n / 7 for n in range(1, 5)}
    assert points(view, "reward") == dict.fromkeys(range(1, 5), -1 / 3)
    assert points(view, "train_loss") == {5: 0.125}
    assert "PASS" not in view.names()
    assert view.origin is not None
    assert view.origin.notes == ("the log has no steps: they are counted from the order of its rows",)
    assert (view.status.word, view.status.reason) == ("finished", "line 7: the trainer printed its summary")
    assert view.info.producer == "transformers"
    assert unread(view) == []


def test_values_that_are_texts_and_values_that_are_not_finite_are_numbers(tmp_path: Path):
    """Newer versions of transformers print texts; NumPy and PyTorch print calls."""
    lines = [
        "{'loss': '0.125', 'grad_norm': 'nan', 'learning_rate': '1e-06', 'note': 'a text', 'epoch': '0.01'}",
        "{'loss': nan, 'grad_norm': inf, 'kl': np.float64(0.5), 'reward': tensor(-2.5, device='cuda:0'), 'flag': True}",
        "{'loss': None, 'grad_norm': -inf, 'list': [1, 2], 'inner': {'a': 1}}",
    ]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "loss")[1] == 0.125
    assert math.isnan(points(view, "loss")[2])
    assert points(view, "learning_rate") == {1: 1e-06}
    grad = points(view, "grad_norm")
    assert math.isnan(grad[1])
    assert (grad[2], grad[3]) == (math.inf, -math.inf)
    assert points(view, "kl") == {2: 0.5}
    assert points(view, "reward") == {2: -2.5}
    assert points(view, "flag") == {2: 1.0}
    assert points(view, "inner/a") == {3: 1.0}
    assert "note" not in view.names()


def test_a_dict_that_a_terminal_wrapped_is_put_together(tmp_path: Path):
    """Also if the log ends in the middle of it, and goes on later."""
    text = str(row(1, **{f"rewards/function_{n}/mean": n / 3 for n in range(30)}))
    pieces = [text[n : n + 80] for n in range(0, len(text), 80)]
    path = write(tmp_path / "a.log", [*pieces, *pieces[:3]])
    view = imported(path)
    assert points(view, "rewards/function_29/mean") == {1: 29 / 3}
    write(path, pieces[3:], "a")
    view = imported(path)
    assert points(view, "rewards/function_29/mean") == {1: 29 / 3, 2: 29 / 3}
    assert view.info.producer == "trl"
    assert unread(view) == []


def test_the_progress_bar_tells_the_step(tmp_path: Path):
    """Not the bars of other things: they have a title, or another total."""
    first = f"\r{bar(0, 200)}\r{bar(10, 200)}\r{' ' * 40}\r{row(10, epoch=0.1)}"
    second = f"\r{bar(10, 200)}\r{bar(8, 8, 'Processed prompts: ')}\r{bar(20, 200)}\r{' ' * 40}\r{row(20, epoch=0.2)}"
    evaluation = f"\r{bar(3, 13)}\r{bar(13, 13)}\r{{'eval_loss': 0.5, 'eval_runtime': 2.0, 'epoch': 0.2}}"
    lines = [
        first,
        second,
        evaluation,
        " 14% 29/200 [1:59:13<00:57, 9.55s/it] 15% 30/200 [1:59:23<00:47, 9.55s/it]",
        str(row(30, epoch=0.3)),
        f"{bar(40, 200)}{row(40, epoch=0.4)}",
    ]
    view = imported(write(tmp_path / "a.log", [*lines, SUMMARY]))
    assert points(view, "loss") == {n: n / 7 for n in (10, 20, 30, 40)}
    assert points(view, "eval_loss") == {20: 0.5}
    assert points(view, "train_loss") == {40: 0.125}
    assert view.origin is not None
    assert view.origin.notes == ("steps are read from the progress bar before a row",)


def test_a_step_in_the_dict_or_before_it_is_taken(tmp_path: Path):
    """It is no metric then."""
    view = imported(write(tmp_path / "a.log", ["{'step': 5, 'reward': 1.0}", "{'step': 6, 'reward': 2.0}"]))
    assert view.names() == ["reward"]
    assert points(view, "reward") == {5: 1.0, 6: 2.0}
    swift = "{'loss': 0.5, 'epoch': 0.1, 'global_step/max_steps': '5/100', 'percentage': '5.00%', 'elapsed_time': '9s'}"
    view = imported(write(tmp_path / "c.log", [swift, swift.replace("5/100", "10/100")]))
    assert points(view, "loss") == {5: 0.5, 10: 0.5}
    assert (view.names(), view.info.producer) == (["loss", "epoch"], "ms-swift")
    lines = ["2025-03-22 23:18:51,500 INFO Step 7/20: {'reward': 1.0}", "[rank0] iteration 9 | {'reward': 2.0}"]
    view = imported(write(tmp_path / "b.log", lines))
    assert points(view, "reward") == {7: 1.0, 9: 2.0}
    assert view.series("reward").times[0] == pytest.approx(1742685531.5)


def test_logging_steps_that_are_printed_count_the_steps(tmp_path: Path):
    """Evaluations and the summary belong to the last step."""
    lines = [
        "GRPOConfig(output_dir='x', logging_steps=5, max_steps=10)",
        str(row(5)),
        "{'eval_loss': 1.0}",
        str(row(10)),
        SUMMARY,
    ]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "loss") == {5: 5 / 7, 10: 10 / 7}
    assert points(view, "eval_loss") == {5: 1.0}
    assert points(view, "train_loss") == {10: 0.125}
    assert view.info.producer == "trl/grpo"
    assert view.origin is not None
    assert view.origin.notes == ("the log has no steps: they are counted with logging_steps = 5",)


def test_another_training_is_another_attempt(tmp_path: Path):
    """After a summary, or where the epoch falls; an evaluation after the summary is none."""
    once = [str(row(n, epoch=n / 10)) for n in (1, 2, 3)]
    view = imported(write(tmp_path / "a.log", [*once, SUMMARY, "{'eval_loss': 1.0, 'epoch': 0.5}", *once[:2]]))
    assert len(view.writers()) == 2
    assert points(view, "loss", attempt=1) == {n: n / 7 for n in (1, 2, 3)}
    assert points(view, "loss", attempt=2) == {n: n / 7 for n in (1, 2)}
    assert "the log does not tell" in view.status.reason
    view = imported(write(tmp_path / "b.log", [*once, *once]))
    assert len(view.writers()) == 2
    with_bars = [f"\r{bar(n, 9)}\r{row(n)}" for n in (1, 2, 3, 1, 2)]
    view = imported(write(tmp_path / "c.log", with_bars))
    assert len(view.writers()) == 2


def test_what_comes_after_the_summary_does_not_change_the_end(tmp_path: Path):
    """An evaluation that was cancelled is no end of the training."""
    lines = [
        str(row(1)),
        SUMMARY,
        "{'eval_loss': 1.0}",
        "error: *** STEP 3.0 ON gh CANCELLED AT 2026-03-08T09:02:22 ***",
    ]
    assert imported(write(tmp_path / "a.log", lines)).status.word == "finished"
    assert imported(write(tmp_path / "b.log", [lines[0], lines[3]])).status.word == "killed"


def test_what_is_no_dict_is_reported_with_its_line(tmp_path: Path):
    """One that does not end, and one that has an object in it; other dicts are no matter."""
    lines = ["{'loss': 1.0, 'kl'", str(row(1)), "{'loss': <object at 0x7f>, 'a': 1}", "{'x': <object>}", "{'y': "]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "loss") == {1: 1 / 7}
    assert [message.split(":")[0] for message in unread(view)] == ["line 1", "line 3"]


def test_several_dicts_in_a_line_are_several_rows(tmp_path: Path):
    """Processes share a terminal."""
    view = imported(write(tmp_path / "a.log", [f"{row(1)}{row(2)} and {row(3)}", "{'loss': 1.0, 'kind': 'a } b'}"]))
    assert points(view, "loss") == {1: 1 / 7, 2: 2 / 7, 3: 3 / 7, 4: 1.0}
    assert list(dicts_in("{'a': {'b': 1}} {'c")) == [(0, 15, {"a": {"b": 1}}), (16, None, None)]
    assert list(dicts_in("{'a': x} {'b': 1}")) == [(0, 8, None), (9, 17, {"b": 1})]


def test_other_dicts_are_no_log(tmp_path: Path):
    """A file that has dicts, but none of metrics, is refused."""
    with pytest.raises(LogError, match="without metrics"):
        open_run(write(tmp_path / "a.txt", ["{'name': 'x'}", "tokens: {'bos_token_id': None, 'pad_token_id': 7}"] * 9))


def test_a_second_opening_looks_only_at_new_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The number of lines that are looked at is that of the new ones."""
    path = write(tmp_path / "a.log", [str(row(n)) for n in range(1, 101)])
    imported(path)
    looked_at: list[int] = []
    read_line = LineReader._read_line

    def count(self: LineReader, line: object, out: object) -> object:
        looked_at.append(line.number)  # type: ignore[attr-defined]
        return read_line(self, line, out)  # type: ignore[arg-type]

    monkeypatch.setattr(LineReader, "_read_line", count)
    write(path, [str(row(101)), str(row(102))], "a")
    view = imported(path)
    assert looked_at == [101, 102]
    assert len(points(view, "loss")) == 102


def test_mutated_dicts_raise_nothing(tmp_path: Path):
    """Whatever bytes are changed, removed or repeated, the log opens or is refused with a message."""
    lines = [f"\r{bar(n, 99)}\r{row(n, epoch=n / 100)}" for n in range(1, 40)]
    data = write(tmp_path / "whole.log", [*lines, SUMMARY]).read_bytes()
    assert sum("loss" in view.names() for view in mutated(data, tmp_path)) > 40
