"""``trainer_state.json``, alone and in output directories with checkpoints and completions."""

import csv
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import barograph
from barograph.answers.open_run import RunLocation
from barograph.answers.runs.listed_run import facts_record
from barograph.apps.cli import main
from barograph.importers.logs import log_at, logs_at
from barograph.journal.read.status import glance

REALRUNS = Path(os.environ.get("BAROGRAPH_REALRUNS") or Path(__file__).parents[3] / "shared" / "realruns")
LONG_AGO = 1_600_000_000.0


def history(*steps: int, **more: float | None) -> list[dict[str, Any]]:
    return [{"epoch": step / 100, "loss": 1 / step, "reward": step / 7, **more, "step": step} for step in steps]


def state(log_history: list[dict[str, Any]], **more: Any) -> str:
    last = log_history[-1]["step"] if log_history else 0
    found = {"best_metric": None, "epoch": 0.5, "global_step": last, "log_history": log_history, "max_steps": 100}
    return json.dumps({**found, "num_train_epochs": 3, **more}, indent=2, sort_keys=True) + "\n"


def write(path: Path, text: str) -> Path:
    """Write a file that was not changed lately."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def points(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


@pytest.mark.parametrize("name", ["trainer_state.json", "history of the run.json", "x"])
def test_the_history_is_read_whatever_the_file_is_called(tmp_path: Path, name: str):
    """Rows of training and evaluation share a step."""
    rows = [*history(10, 20, 30), {"eval_loss": 0.25, "epoch": 0.3, "step": 30}]
    view = barograph.open(write(tmp_path / "out" / name, state(rows)))
    assert points(view, "loss") == {10: 0.1, 20: 0.05, 30: 1 / 30}
    assert points(view, "eval_loss") == {30: 0.25}
    assert "step" not in view.names()
    assert view.config["num_train_epochs"] == 3
    assert (view.status.word, view.origin and view.origin.format) == ("finished", "trainer_state")


def test_a_log_without_times_has_no_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """All its rows have the time of the file: that it took no time is not known."""
    log = write(tmp_path / "out" / "trainer_state.json", state(history(10, 20, 30)))
    assert main(["import", str(log), "--dir", str(tmp_path / "runs"), "--name", "imported"]) == 0
    folder = next((tmp_path / "runs").glob("*/*/run.json")).parent
    assert facts_record(RunLocation("imported", folder), glance(folder))["seconds"] is None
    capsys.readouterr()
    main(["show", "imported", "--dir", str(tmp_path / "runs")])
    main(["ls", "--dir", str(tmp_path / "runs")])
    text = capsys.readouterr().out
    assert "0ms" not in text
    assert "steps 10 – 30 · –" in text
    assert main(["query", str(folder), "seconds = none"]) == 0


def test_values_that_are_not_finite_survive(tmp_path: Path):
    """Python writes NaN and Infinity into JSON; a null is NaN among numbers."""
    rows = [*history(1, 2, 3), {"loss": math.nan, "reward": math.inf, "step": 4}, {"loss": None, "step": 5}]
    view = barograph.open(write(tmp_path / "trainer_state.json", state(rows)))
    assert points(view, "reward")[4] == math.inf
    assert math.isnan(points(view, "loss")[4])
    assert math.isnan(points(view, "loss")[5])


@pytest.mark.parametrize(
    ("rows", "more", "word", "reason"),
    [
        (history(50, 100), {}, "finished", "step 100 of 100"),
        (history(50), {}, "finished", "the last checkpoint is of step 50 of 100"),
        ([*history(50), {"train_runtime": 12.5, "train_loss": 0.5, "step": 50}], {}, "finished", "wrote its summary"),
        (history(50), {"max_steps": -1}, "finished", "does not tell"),
    ],
)
def test_the_end_is_told_by_the_summary_or_the_last_step(
    tmp_path: Path, rows: list[dict[str, Any]], more: dict[str, Any], word: str, reason: str
):
    """Not by the time of the file."""
    status = barograph.open(write(tmp_path / "trainer_state.json", state(rows, **more))).status
    assert status.word == word
    assert reason in status.reason


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
def test_the_rows_before_a_cut_are_kept(tmp_path: Path, cut: float):
    """A message says from which line on the rest is missing."""
    text = state(history(*range(1, 101)))
    view = barograph.open(write(tmp_path / "trainer_state.json", text[: round(len(text) * cut)]))
    found = points(view, "loss")
    assert found == {step: 1 / step for step in range(1, len(found) + 1)}
    assert cut * 90 < len(found) < 100
    assert "the rest is damaged or missing: line" in view.damage()[0]


def test_the_rows_before_damaged_bytes_are_kept(tmp_path: Path):
    """Later ones are not guessed."""
    text = state(history(1, 2, 3)).replace('"step": 2', '"step": \x002')
    view = barograph.open(write(tmp_path / "trainer_state.json", text))
    assert points(view, "loss") == {1: 1.0}
    assert len(view.damage()) == 1


# -- output directories --------------------------------------------------------------------------------------------


def output_dir(path: Path, *checkpoints: int) -> Path:
    for last in checkpoints:
        write(path / f"checkpoint-{last}" / "trainer_state.json", state(history(*range(10, last + 1, 10))))
        (path / f"checkpoint-{last}" / "training_args.bin").write_bytes(b"\x80\x02cos\nsystem\n(S'exit 1'\ntR.")
    return path


def test_the_newest_checkpoint_of_an_output_directory_counts(tmp_path: Path):
    """By its step, not by the order of names."""
    view = barograph.open(output_dir(tmp_path / "runs" / "my-run", 80, 90, 100))
    assert list(points(view, "loss")) == list(range(10, 101, 10))
    assert (view.name, view.info.project) == ("my-run", "runs")
    assert view.status.reason == "step 100 of 100"


def test_the_state_beside_the_checkpoints_counts_where_it_is_newer(tmp_path: Path):
    """``trainer.save_state()`` writes one with the summary."""
    folder = output_dir(tmp_path / "out", 20)
    rows = [*history(10, 20), {"train_runtime": 5.0, "step": 20}]
    write(folder / "trainer_state.json", state(rows))
    assert points(barograph.open(folder), "train_runtime") == {20: 5.0}
    output_dir(folder, 30)
    assert list(points(barograph.open(folder), "loss")) == [10, 20, 30]


def test_a_new_checkpoint_adds_only_its_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The text of the others is compared, not parsed."""
    from barograph.importers.formats.trainer_state import Reader

    recorded: list[Any] = []
    record = Reader._record
    monkeypatch.setattr(Reader, "_record", lambda self, entry, out: (recorded.append(entry), record(self, entry, out)))
    folder = output_dir(tmp_path / "out", 50)
    view = barograph.open(folder)
    assert len(recorded) == 5
    output_dir(folder, 70)
    assert view.refresh()
    assert [entry["step"] for entry in recorded[5:]] == [60, 70]
    assert list(points(view, "loss")) == list(range(10, 71, 10))


def test_a_run_that_was_resumed_from_an_earlier_checkpoint_has_its_new_history(tmp_path: Path):
    """The newest checkpoint has been written again."""
    folder = output_dir(tmp_path / "out", 50, 100)
    view = barograph.open(folder)
    rows = [*history(10, 20, 30, 40, 50), *history(60, 70, 80, 90, 100, loss=9.0)]
    write(folder / "checkpoint-100" / "trainer_state.json", state(rows))
    assert view.refresh()
    assert points(view, "loss") == {**{step: 1 / step for step in range(10, 51, 10)},
                                    **dict.fromkeys(range(60, 101, 10), 9.0)}  # fmt: skip


def test_a_state_that_is_being_written_is_read_when_it_is_complete(tmp_path: Path):
    """Half of it is no damage."""
    text = state(history(*range(1, 101)))
    path = tmp_path / "trainer_state.json"
    path.write_text(text[: len(text) // 2])
    view = barograph.open(path)
    path.write_text(text)
    assert view.refresh()
    assert len(points(view, "loss")) == 100
    assert view.damage() == []


def test_an_output_directory_is_one_run_and_one_checkpoint_is_another(tmp_path: Path):
    """Event files in it are a run of their own; the directory itself is opened as the trainer's."""
    folder = output_dir(tmp_path / "out", 10, 20)
    write(folder / "other" / "metrics.jsonl", '{"step": 1, "loss": 0.5}\n')
    assert [log.path for log in logs_at(tmp_path / "out")] == [folder, folder / "other" / "metrics.jsonl"]
    assert log_at(folder).path == folder
    view = barograph.open(folder / "checkpoint-10")
    assert list(points(view, "loss")) == [10]
    assert view.name == "out"


@pytest.mark.parametrize(
    ("tags", "producer"),
    [
        (["generated_from_trainer", "trl", "grpo"], "trl/grpo"),
        (["trl", "unsloth", "dpo"], "trl/dpo"),
        (["trl", "reward-trainer"], "trl/reward"),
        (["trl", "something-new"], "trl"),
        (["llama-factory", "full"], "llama-factory"),
        (["grpo"], ""),
    ],
)
def test_the_model_card_tells_the_trainer(tmp_path: Path, tags: list[str], producer: str):
    """Its tags do; other text in it does not."""
    folder = output_dir(tmp_path / "out", 10)
    lines = ["---", "base_model: Qwen/Qwen3-8B", "tags:", *(f"- {tag}" for tag in tags), "licence: license", "---"]
    (folder / "README.md").write_text("\n".join([*lines, "- trl", "- ppo"]))
    view = barograph.open(folder)
    assert view.info.producer == producer
    assert view.config["base_model"] == "Qwen/Qwen3-8B"


def test_names_of_every_trainer_alone_are_those_of_transformers(tmp_path: Path):
    """With names of a reward, the other names decide."""
    plain = [{"loss": 0.5, "grad_norm": 1.0, "learning_rate": 1e-6, "epoch": 0.1, "step": 1}]
    assert barograph.open(write(tmp_path / "a.json", state(plain))).info.producer == "transformers"
    assert barograph.open(write(tmp_path / "b.json", state(history(1)))).info.producer == ""


# -- completions ---------------------------------------------------------------------------------------------------


def completions(folder: Path, step: int, **columns: Any) -> Path:
    table = {
        "step": [step, step],
        "prompt": ["1+1?", "2+2?"],
        "completion": ["2", "5"],
        "correct": [1.0, 0.0],
        "format": [0.5, None],
        "tokens": [3, 4],
        "advantage": [0.7, -0.7],
        **columns,
    }
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(table).to_parquet(path)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def test_completions_are_samples(tmp_path: Path):
    """The history tells which columns are rewards."""
    rows = [{"rewards/correct/mean": 0.5, "rewards/format/mean": 0.5, "step": 10}]
    write(tmp_path / "out" / "checkpoint-10" / "trainer_state.json", state(rows))
    completions(tmp_path / "out", 10)
    first, second = barograph.open(tmp_path / "out").samples()
    assert (first.step, first.prompt, first.completion, first.advantage) == (10, "1+1?", "2", 0.7)
    assert first.rewards == {"correct": 1.0, "format": 0.5}
    assert second.rewards["correct"] == 0.0
    assert first.reward is None


def test_completions_may_be_lists_of_messages(tmp_path: Path):
    """As chat templates need them."""
    folder = output_dir(tmp_path / "out", 10)
    ask, answer = [{"role": "user", "content": "1+1?"}], [{"role": "assistant", "content": "2"}]
    completions(folder, 10, prompt=[ask, ask], completion=[answer, answer])
    sample = barograph.open(folder).samples()[0]
    assert [message["content"] for message in sample.messages] == ["1+1?", "2"]


def test_new_completions_are_added_and_changed_ones_are_read_again(tmp_path: Path):
    """None is doubled."""
    folder = output_dir(tmp_path / "out", 10)
    completions(folder, 10)
    view = barograph.open(folder)
    completions(folder, 20)
    assert view.refresh()
    assert sorted(sample.step for sample in view.samples()) == [10, 10, 20, 20]
    completions(folder, 10, completion=["another, longer text", "5"])
    assert view.refresh()
    assert sorted(sample.step for sample in view.samples()) == [10, 10, 20, 20]


def test_damaged_completions_cost_only_themselves(tmp_path: Path):
    """The message names the file."""
    folder = output_dir(tmp_path / "out", 10)
    completions(folder, 10)
    write(folder / "completions" / "completions_00020.parquet", "PAR1 not really PAR1")
    view = barograph.open(folder)
    assert len(view.samples()) == 2
    assert "completions_00020.parquet" in view.damage()[0]
    assert points(view, "loss") == {10: 0.1}


def test_without_pyarrow_the_rest_is_read_and_what_to_install_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Once it is installed, the completions are read."""
    folder = output_dir(tmp_path / "out", 10)
    completions(folder, 10)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        patch.setattr("barograph.importers.imported._is_installed", lambda package: False)
        view = barograph.open(folder)
        assert points(view, "loss") == {10: 0.1}
        assert re.search(r"pip install '.*\[parquet\]'", view.damage()[0])
    view = barograph.open(folder)
    assert len(view.samples()) == 2
    assert view.damage() == []


# -- real runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["trl-f1sim-800", "trl-text2sql-1000", "trl-unslothgrpo-250"])
def test_real_states_have_the_values_of_their_series(run: str):
    """Key by key, step by step, to the digits of the reference."""
    if not (REALRUNS / run).is_dir():
        pytest.skip(f"{REALRUNS} has no {run}")
    [path] = (REALRUNS / run).glob("*.json")
    view = barograph.open(path)
    with (REALRUNS / run / "series.csv").open() as file:
        reference = list(csv.DictReader(file))
    assert sorted([*view.names(), "step"]) == sorted(reference[0])
    for name in view.names():
        expected = {int(row["step"]): float(row[name]) for row in reference if row[name]}
        assert points(view, name) == pytest.approx(expected, rel=1e-5, abs=0), name
    assert view.damage() == []
    assert view.status.word == "finished"
