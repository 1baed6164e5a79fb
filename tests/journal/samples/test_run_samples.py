"""Tests of submitting samples from a training loop."""

import math
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import barograph
from barograph.base.model import Sample


def read(run: barograph.Run, **filters: object) -> list[Sample]:
    return barograph.open(run.path).samples(**filters)  # type: ignore[arg-type]


def completions(run: barograph.Run, **filters: object) -> list[str]:
    return [sample.completion for sample in read(run, **filters)]


def test_a_sample_is_read_as_it_was_given():
    """Texts, rewards by component, advantage, length, finish reason, task, run, group and weight version."""
    run = barograph.init()
    run.sample(
        prompt="What is 2 + 2?", completion="4", reward=1.5, rewards={"accuracy": 1.0, "format": 0.5}, advantage=-0.25,
        length=3, finish_reason="stop", task="sum-1", run=0, group="g", weight_version=7,
    )  # fmt: skip
    run.commit(12)
    [sample] = read(run)
    assert sample == Sample(
        "What is 2 + 2?", "4", (), 1.5, {"accuracy": 1.0, "format": 0.5}, -0.25, 3, "stop", "sum-1", "0", "g", 7, 12,
        sample.time,
    )  # fmt: skip
    assert abs(sample.time - run.info.created) < 60


def test_messages_replace_prompt_and_completion():
    """Also if prompt and completion are lists of messages."""
    run = barograph.init()
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello", "tool_calls": [{"n": 1}]}]
    run.sample(messages=chat)
    chat.append({"role": "user", "content": "later"})
    run.sample(prompt=chat[:1], completion=chat[1:2])
    run.sample(prompt="hi", completion=chat[1:2])
    run.commit(0)
    assert [sample.messages for sample in read(run)] == [tuple(chat[:2])] * 3


def test_samples_without_a_step_belong_to_the_next_commit_and_others_to_theirs():
    """A step ahead waits for its commit; one that is over, or is never committed, is not lost."""
    run = barograph.init()
    run.sample("p", "open")
    run.sample("p", "ahead", step=5)
    run.commit(3)
    assert completions(run) == ["open"]
    run.sample("p", "late", step=1)
    run.commit(5)
    run.sample("p", "never committed", step=9)
    run.sample("p", "left over")
    run.finish()
    assert [(sample.step, sample.completion) for sample in read(run)] == [
        (1, "late"), (3, "open"), (5, "ahead"), (6, "left over"), (9, "never committed"),
    ]  # fmt: skip


def test_open_samples_and_those_of_the_step_share_one_budget():
    """Both ways of naming a step may be mixed."""
    run = barograph.init(samples_per_step=6)
    for n in range(20):
        run.sample("p", f"open {n}")
        run.sample("p", f"named {n}", step=4)
    run.commit(4)
    view = barograph.open(run.path)
    assert (len(view.samples()), view.sample_census().seen) == (6, 40)


def test_steps_without_a_commit_do_not_accumulate():
    """A loop that names every step and never commits still has its samples on disk."""
    run = barograph.init()
    for step in range(20):
        run.sample("p", f"c{step}", step=step)
    assert completions(run) == [f"c{step}" for step in range(12)]
    run.finish()
    assert len(read(run)) == 20


def test_the_budget_is_a_setting(capsys: pytest.CaptureFixture[str]):
    """The most informative are kept; zero keeps none, and a negative budget is rejected."""
    run = barograph.init(samples_per_step=8, sample_bytes_per_step=2000)
    run.samples([{"prompt": "p", "completion": "x" * 300, "reward": n} for n in range(100)])
    run.commit(0)
    census = barograph.open(run.path).sample_census()
    assert (census.seen, census.rewards) == (100, (0.0, 99.0))
    assert 2 <= census.kept <= 6
    for nothing in ({"samples_per_step": 0}, {"sample_bytes_per_step": 0}):
        empty = barograph.init(**nothing)  # type: ignore[arg-type]
        empty.sample("p", "c")
        empty.finish()
        assert read(empty) == []
    with pytest.raises(barograph.SettingsError, match="samples_per_step: expected 0 or more, got -1"):
        barograph.init(samples_per_step=-1)


def test_numbers_of_numpy_and_torch_are_numbers():
    """Scalars of any library; NaN stays NaN."""
    run = barograph.init()
    run.sample("p", "c", reward=torch.tensor(0.5), advantage=np.float32(2), length=np.int64(9), task=np.int32(4))
    run.sample("p", "nan", reward=float("nan"), rewards={"a": torch.tensor(1.0, dtype=torch.bfloat16)})
    run.commit(0)
    first, second = read(run)
    assert (first.reward, first.advantage, first.length, first.task) == (0.5, 2.0, 9, "4")
    assert second.reward is not None
    assert math.isnan(second.reward)
    assert second.rewards == {"a": 1.0}


def test_a_bad_field_does_not_lose_the_text(capsys: pytest.CaptureFixture[str]):
    """It is left out, counted and reported once; an unknown name is reported with the nearest one."""
    run = barograph.init()
    for _ in range(3):
        run.sample("p", "c", reward="high", length=1.5, rewards={"a": 1, "b": [1, 2]}, rewrd=1, task=["x"], step=0)
    run.sample(prompt=3, completion="kept", messages="hi", weight_version=10**30, step=0)
    run.finish()
    assert completions(run) == ["c", "c", "c", "kept"]
    assert read(run)[0].rewards == {"a": 1.0}
    skipped = barograph.open(run.path).skipped()
    assert skipped["sample.reward"] == ("value is a string, not a number", 3)
    assert skipped["sample.rewrd"] == ("not a field of a sample (did you mean 'reward'?)", 3)
    assert {"sample.length", "sample.rewards/b", "sample.task", "sample.prompt", "sample.messages"} <= set(skipped)
    assert capsys.readouterr().err.count("skipped 'sample.rewrd'") == 1


def test_components_without_a_total_leave_the_reward_empty():
    """No total is computed; filters use the component if there is exactly one."""
    run = barograph.init()
    run.sample("p", "one", rewards={"accuracy": 0.9})
    run.sample("p", "two", rewards={"accuracy": 0.9, "format": 0.9})
    run.commit(0)
    assert [sample.reward for sample in read(run)] == [None, None]
    assert completions(run, min_reward=0.5) == ["one"]


def test_columns_and_rows_in_bulk():
    """Sequences, arrays and tensors by name; single values apply to all rows."""
    run = barograph.init()
    run.samples(
        {
            "prompt": "same",
            "completion": ["a", "b", "c"],
            "reward": torch.tensor([0.0, 0.5, 1.0]),
            "rewards": {"accuracy": np.array([0, 1, 1]), "format": [0.5, 0.5, 0.5]},
            "length": np.array([3, 2, 1]),
            "task": ("x", "y", "z"),
            "weight_version": 4,
        },
        step=2,
    )
    rows: Iterator[object] = iter([{"completion": "row", "reward": 2}, Sample("p", "record", step=3), None, "text"])
    run.samples(rows, step=2)  # type: ignore[arg-type]
    run.commit(2)
    run.finish()
    assert [(s.completion, s.reward, s.length, s.task) for s in read(run, step=2)][:3] == [
        ("a", 0.0, 3, "x"), ("b", 0.5, 2, "y"), ("c", 1.0, 1, "z"),
    ]  # fmt: skip
    assert {s.weight_version for s in read(run, task="x")} == {4}
    assert read(run, task="y")[0].rewards == {"accuracy": 1.0, "format": 0.5}
    assert set(completions(run)) == {"a", "b", "c", "row", "record"}
    assert completions(run, step=3) == ["record"]
    assert barograph.open(run.path).skipped()["sample"][1] == 2


def test_a_reward_in_parts_is_its_components():
    """A mapping as ``reward``, one by one and in columns; where there are ``rewards`` too it is refused."""
    run = barograph.init()
    run.sample(completion="one", reward={"format": 1.0, "correct": 0})
    run.samples({"completion": ["two", "three"], "reward": {"format": [0.5, 1.0], "correct": 1.0}})
    run.sample(completion="four", reward={"format": 1.0}, rewards={"correct": 1.0})
    run.commit(0)
    run.finish()
    found = {sample.completion: (sample.reward, sample.rewards) for sample in barograph.open(run.path).samples()}
    assert found == {
        "one": (None, {"format": 1.0, "correct": 0.0}),
        "two": (None, {"format": 0.5, "correct": 1.0}),
        "three": (None, {"format": 1.0, "correct": 1.0}),
        "four": (None, {"correct": 1.0}),
    }


def test_a_response_is_a_completion():
    """Trinity's column is read as ours, one by one and in bulk; beside a completion it is a column."""
    run = barograph.init(project="p")
    run.sample(prompt="p", response="one")
    run.samples({"prompt": ["p", "p"], "response": ["two", "three"]})
    run.samples([{"response": "four"}, {"completion": "five", "response": "six"}])
    run.commit(0)
    run.finish()
    view = barograph.open(run.path)
    assert sorted(sample.completion for sample in view.samples()) == ["five", "four", "one", "three", "two"]
    (both,) = (sample for sample in view.samples() if sample.completion == "five")
    assert both.columns == {"response": "six"}
    assert not view.skipped()


def test_a_column_of_another_length_is_left_out(capsys: pytest.CaptureFixture[str]):
    """The texts determine the number of samples."""
    run = barograph.init()
    run.samples({"completion": ["a", "b"], "reward": [1.0, 2.0, 3.0], "prompts": ["x", "y"]})
    run.commit(0)
    assert [(s.completion, s.reward) for s in read(run)] == [("a", None), ("b", None)]
    shown = capsys.readouterr().err
    assert "skipped 'sample.reward': column has 3 entries, expected 2" in shown
    assert "did you mean 'prompt'?" in shown


class Wicked:
    """An object whose attributes raise."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_sampling_never_raises(capsys: pytest.CaptureFixture[str]):
    """For any argument the training goes on, and its rows are written."""

    def broken() -> Iterator[dict[str, object]]:
        yield {"completion": "first"}
        raise OSError("gone")

    run = barograph.init()
    for wrong in (None, 3, "text", [1], [None], {"completion": Wicked()}, {}, broken(), Wicked()):
        run.samples(wrong)  # type: ignore[arg-type]
    run.samples({"completion": ["beside"], "reward": Wicked()})
    run.sample("p", "good", reward=Wicked(), messages=[Wicked(), {"content": Wicked()}], step="x")  # type: ignore[arg-type]
    run.log({"x": 1.0})
    run.commit(0)
    run.finish()
    run.sample("p", "after")
    run.finish()
    assert {"first", "good", "beside"} <= set(completions(run))
    assert barograph.open(run.path).series("x").last == 1.0
    assert "run.sample after finish: the sample is not recorded" in capsys.readouterr().err


def test_threads_submit_to_one_run():
    """Calls from several threads are all counted."""
    run = barograph.init()

    def work(number: int) -> None:
        for n in range(200):
            run.sample("p", f"{number} {n}", reward=n)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.commit(0)
    census = barograph.open(run.path).sample_census()
    assert (census.kept, census.seen) == (64, 800)


def _child(run: barograph.Run) -> None:
    run.sample("p", "of the child", step=0)
    run.commit(0)


def test_a_forked_child_has_samples_of_its_own():
    """The parent's samples are written once, by the parent."""
    run = barograph.init()
    run.sample("p", "of the parent")
    process = multiprocessing.get_context("fork").Process(target=_child, args=(run,))
    process.start()
    process.join()
    run.commit(0)
    assert sorted(completions(run)) == ["of the child", "of the parent"]


FIRST = textwrap.dedent("""
    import threading, barograph
    run, together = barograph.init(id="first", samples_per_step=1000), threading.Barrier(12)

    def offer(worker):
        together.wait()
        for number in range(10):
            run.sample("p", f"{worker}-{number}")

    threads = [threading.Thread(target=offer, args=(worker,)) for worker in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.commit(0)
""")


def test_threads_that_submit_first_at_once_lose_nothing(tmp_path: Path):
    """In a separate process, where all threads wait for the first import and then continue at once."""
    subprocess.run([sys.executable, "-c", FIRST], env={**os.environ, "BAROGRAPH_DIR": str(tmp_path)}, check=True)
    assert len(barograph.open("first", dir=tmp_path).samples()) == 120


def test_committed_samples_survive_a_kill(tmp_path: Path):
    """Samples are on disk when commit has returned."""
    code = (
        "import os, barograph; run = barograph.init(id='k'); run.sample('p', 'c'); run.commit(0)"
        "; os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "BAROGRAPH_DIR": str(tmp_path)}, check=False)
    assert [sample.completion for sample in barograph.open("k", dir=tmp_path).samples()] == ["c"]


def test_a_disabled_run_accepts_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Every call is a no-op: nothing is written."""
    monkeypatch.setenv("BAROGRAPH_MODE", "disabled")
    run = barograph.init()
    run.sample("p", "c", reward=1.0)
    run.samples([{"completion": "c"}], step=3)
    run.finish()
    assert not (tmp_path / "runs").exists()


def test_sampling_loads_no_heavy_package(tmp_path: Path):
    """Recording samples uses the standard library alone."""
    code = (
        f"import sys, barograph\nrun = barograph.init(dir={str(tmp_path)!r})\nrun.sample('p', 'c', reward=1.0)\n"
        "run.commit(0)\nrun.finish()\nprint({'numpy', 'torch', 'rich', 'sqlite3'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
