"""Jupyter notebooks: the trainer's table and printed lines in outputs, settings in the code."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from barograph.base.errors import LogError
from barograph.importers.opening import open_run
from barograph.importers.reading.notebook_cells import setup_in
from barograph.importers.recorder import Recorder

NAMES = ["Step", "Training Loss", "reward", "completions / mean_length", "rewards / right / mean"]


def row(step: int, seed: float = 0.0) -> list[Any]:
    return [step, step / 8 + seed, -0.5 + seed, 200.0 + step, math.nan if step == 3 else 1.0]


def html(rows: list[list[Any]], names: list[str] = NAMES, total: int = 5) -> str:
    """Return a table as transformers' NotebookTrainingTracker shows it."""
    cells = "".join(
        "<tr>\n" + "".join(f"<td>{x:.6f}</td>\n" if isinstance(x, float) else f"<td>{x}</td>\n" for x in r) + "</tr>\n"
        for r in rows
    )
    head = "".join(f"<th>{name}</th>\n" for name in names)
    done = f"{len(rows)}/{total}"
    bar = f"<div>\n<progress value='{len(rows)}' max='{total}'></progress>\n[{done} 00:10, Epoch 0/1]</div>"
    return f'{bar}\n<table border="1">\n<thead>\n<tr>{head}</tr></thead><tbody>{cells}</tbody></table><p>'


def shown(text: str, kind: str = "text/html") -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {kind: text.splitlines(keepends=True)}}


def printed(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)}


def cell(*outputs: dict[str, Any], source: str = "") -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": [source], "outputs": list(outputs)}


def write(path: Path, *cells: dict[str, Any]) -> Path:
    notebook = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook, indent=1))
    return path


def test_the_table_of_the_trainer_is_read(tmp_path: Path):
    """Under the names that the trainer logs, with NaN; the last step of all is the end."""
    note = {"cell_type": "markdown", "metadata": {}, "source": ["# GRPO"]}
    view = open_run(write(tmp_path / "a.ipynb", note, cell(shown(html([row(step) for step in range(1, 6)])))))
    assert sorted(view.names()) == ["completions/mean_length", "loss", "reward", "rewards/right/mean"]
    assert view.series("loss").steps.tolist() == [1, 2, 3, 4, 5]
    assert view.series("loss").values.tolist() == [0.125, 0.25, 0.375, 0.5, 0.625]
    assert math.isnan(view.series("rewards/right/mean").values[2])
    assert (view.status.word, view.status.reason) == ("finished", "cell 2: step 5 of 5")
    assert view.origin.title == "Jupyter notebook"


def test_what_was_not_logged_is_no_value(tmp_path: Path):
    """In a table of evaluations, of which some come before the first log."""
    names = ["Step", "Training Loss", "Validation Loss"]
    view = open_run(write(tmp_path / "a.ipynb", cell(shown(html([[1, "No log", 3.0], [2, 2.0, 1.5]], names)))))
    assert view.series("loss").steps.tolist() == [2]
    assert view.series("eval_loss").values.tolist() == [3.0, 1.5]


def test_a_table_by_epochs_has_counted_steps(tmp_path: Path):
    """Since there are no others."""
    names = ["Epoch", "Training Loss", "Validation Loss", "Accuracy"]
    view = open_run(write(tmp_path / "a.ipynb", cell(shown(html([[1, 2.0, 3.0, 0.5], [2, 1.0, 2.0, 0.75]], names)))))
    assert view.series("epoch").values.tolist() == [1, 2]
    assert view.series("Accuracy").steps.tolist() == [1, 2]
    assert "counted" in view.origin.notes[0]


def test_a_table_that_is_shown_again_after_each_step_is_one(tmp_path: Path):
    """And it is complete, whether the last one or an older one is the longest."""
    tables = [shown(html([row(step) for step in range(1, count + 1)])) for count in (1, 2, 3, 5, 4)]
    view = open_run(write(tmp_path / "a.ipynb", cell(*tables[:2]), cell(*tables[2:])))
    assert view.series("loss").steps.tolist() == [1, 2, 3, 4, 5]
    assert len(view.series("loss", attempt=1)) == 5
    assert view.origin.notes == ()


def test_several_trainings_are_attempts(tmp_path: Path):
    """And one that continues the steps is none."""
    first = cell(shown(html([[5, 0.5], [10, 0.25]], ["Step", "Training Loss"], 10)))
    second = cell(shown(html([row(step) for step in (1, 2, 3)])))
    third = cell(shown(html([row(step) for step in (4, 5)])))
    view = open_run(write(tmp_path / "a.ipynb", first, second, third))
    assert view.series("loss", attempt=1).steps.tolist() == [5, 10]
    assert view.series("loss", attempt=2).steps.tolist() == [1, 2, 3, 4, 5]
    assert view.origin.notes == ("cell 2 has another training: each is an attempt",)


def test_the_result_of_the_training_is_its_end(tmp_path: Path):
    """With the summary as values of the last step."""
    result = "TrainOutput(global_step=3, training_loss=0.5, metrics={'train_runtime': 12.5, 'train_loss': nan})"
    outputs = shown(html([row(step) for step in (1, 2, 3)])), shown(result, "text/plain")
    view = open_run(write(tmp_path / "a.ipynb", cell(*outputs)))
    assert (view.series("train_runtime").steps.tolist(), view.series("train_runtime").values.tolist()) == ([3], [12.5])
    assert math.isnan(view.series("train_loss").values[0])
    assert view.status.word == "finished"


@pytest.mark.parametrize(
    "metadata",
    [
        {"execution": {"iopub.execute_input": "2026-04-09T10:00:00Z", "shell.execute_reply": "2026-04-09T11:00:00Z"}},
        {"papermill": {"start_time": "2026-04-09T10:00:00.000000", "end_time": "2026-04-09T11:00:00"}},
    ],
)
def test_the_times_of_the_cell_are_those_of_the_training(tmp_path: Path, metadata: dict[str, Any]):
    """As JupyterLab and papermill keep them; rows have no times of their own."""
    training = cell(shown(html([row(1), row(2)]))) | {"metadata": metadata}
    view = open_run(write(tmp_path / "a.ipynb", cell(printed("before")), training))
    assert view.info.created == view.series("loss").times[0] == 1775728800
    assert view.events()[-1]["time"] == 1775728800 + 3600


@pytest.mark.parametrize(("name", "word"), [("KeyboardInterrupt", "killed"), ("OutOfMemoryError", "crashed")])
def test_an_error_in_the_cell_of_the_training_is_its_end(tmp_path: Path, name: str, word: str):
    """One of another cell is not."""
    error = {"output_type": "error", "ename": name, "evalue": "why", "traceback": []}
    table = shown(html([row(1)]))
    view = open_run(write(tmp_path / "a.ipynb", cell(table, error)))
    assert (view.status.word, view.status.reason) == (word, f"cell 1: {name}: why")
    assert open_run(write(tmp_path / "b.ipynb", cell(table), cell(error))).status.word == "finished"


def test_printed_lines_are_read_as_a_text_log(tmp_path: Path):
    """Whatever format it is; other cells print other things, and a line may be cut between two outputs."""
    lines = "".join(f'{{"step": {step}, "loss": {step / 4}}}\n' for step in range(1, 5))
    outputs = printed(lines[:30]), printed("a warning\n", "stderr"), printed(lines[30:])
    view = open_run(write(tmp_path / "a.ipynb", cell(printed("'loss': hello\n")), cell(*outputs)))
    assert view.series("loss").values.tolist() == [0.25, 0.5, 0.75, 1.0]
    again = open_run(write(tmp_path / "b.ipynb", cell(printed(lines)), cell(shown(lines, "text/plain"))))
    assert [len(again.series("loss", attempt=attempt)) for attempt in (1, 2)] == [4, 4]


def test_a_printed_table_is_no_training(tmp_path: Path):
    """Data with commas are printed for many reasons."""
    data = "step,loss\n" + "".join(f"{step},0.5\n" for step in range(50))
    view = open_run(write(tmp_path / "a.ipynb", cell(printed(data)), cell(shown(html([row(1)])))))
    assert len(view.series("loss")) == 1


def test_a_notebook_that_grows_records_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The table is longer when the notebook is saved again; another table is read from the beginning."""
    recorded: list[int | None] = []
    record = Recorder.row

    def count(self: Recorder, values: Any, step: int | None = None, *rest: Any) -> None:
        recorded.append(step)
        record(self, values, step, *rest)

    monkeypatch.setattr(Recorder, "row", count)
    path = tmp_path / "a.ipynb"
    view = open_run(write(path, cell(shown(html([row(1), row(2)])))))
    write(path, cell(shown(html([row(step) for step in (1, 2, 3, 4)]))))
    view.refresh()
    assert view.series("loss").steps.tolist() == [1, 2, 3, 4]
    assert recorded == [1, 2, 3, 4]
    write(path, cell(shown(html([row(1, seed=3.0)]))))
    view.refresh()
    assert view.series("loss").values.tolist() == [3.125]


def test_trainer_and_literal_settings_are_read_from_the_code(tmp_path: Path):
    """Nothing of it is run; what is no literal is left out, and so are secrets."""
    marker = tmp_path / "ran"
    config = f"""
!pip install trl
import os
args = GRPOConfig(learning_rate=5e-6, num_generations=4, output_dir=open({str(marker)!r}, "w").name,
                  report_to="none", scale_rewards=False, stop=("a", "b"), wandb_token="{"h" * 40}")
"""
    cells = [
        cell(source="SFTTrainer(model, args=SFTConfig(max_steps=3))"),
        cell(source=config),
        cell(shown(html([row(1)])), source="%%time\ntrainer = GRPOTrainer(\n  model, args=args)\ntrainer.train()"),
        cell(source="not ( python"),
    ]
    view = open_run(write(tmp_path / "a.ipynb", *cells))
    assert view.info.producer == "trl/grpo"
    assert view.config["learning_rate"] == 5e-6
    assert (view.config["scale_rewards"], view.config["stop"]) == (False, ["a", "b"])
    assert "output_dir" not in view.config
    assert not marker.exists()


def test_deep_and_long_code_is_left_alone():
    """Whatever the cell is: the parser must not fail."""
    assert setup_in(["GRPOTrainer(" * 5000, "x = " + "(" * 100_000 + "Config", "GRPOConfig(a=\0)"]).trainer == ""
    assert setup_in(["Trainer(args=TrainingArguments(max_steps=7))"]).config == {"max_steps": 7}


def test_a_notebook_that_is_cut_keeps_what_is_complete(tmp_path: Path):
    """At any place; a message says that it is cut."""
    whole = write(tmp_path / "whole.ipynb", cell(shown(html([row(step) for step in (1, 2, 3)]))), cell(printed("end")))
    data = whole.read_text()
    begin = data.index("<td>1</td>")
    for number, cut in enumerate(random.Random(2).sample(range(begin, len(data) - 3), 20)):
        path = tmp_path / f"{number}.ipynb"
        path.write_text(data[:cut])
        view = open_run(path)
        steps = [step for name in view.names() for step in view.series(name).steps.tolist()]
        assert set(steps) <= {1, 2, 3}
        assert "cut" in view.damage()[0]
    assert open_run(path).names()


def test_a_notebook_that_is_damaged_keeps_what_comes_before(tmp_path: Path):
    """A message has the place."""
    path = write(tmp_path / "a.ipynb", cell(shown(html([row(step) for step in (1, 2, 3)]))), cell(printed("end")))
    data = path.read_text()
    place = data.index("<td>3</td>")
    path.write_text(f'{data[:place]}" oops {data[place:]}')
    view = open_run(path)
    assert view.series("loss").steps.tolist() == [1, 2]
    assert "char" in view.damage()[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [], "nbformat": 4}',
        '{"cells": [{"cell_type": "code", "outputs": [{"data": {"text/html": 3}}]}], "nbformat": 4}',
        '{"cells": [{"cell_type": "markdown", "source": "no training"}], "nbformat": 4}',
    ],
)
def test_a_notebook_without_a_training_is_no_log(tmp_path: Path, text: str):
    """A message says so."""
    path = tmp_path / "a.ipynb"
    path.write_text(text)
    with pytest.raises(LogError):
        open_run(path)


@pytest.mark.parametrize(
    "cells",
    [
        "null",
        "[1, null, []]",
        '[{"cell_type": "code", "outputs": 5, "source": 7}]',
        '[{"cell_type": "code", "outputs": [null, {"data": 3}, {"data": {"text/html": [1, "<table"]}}]}]',
        '[{"cell_type": "code", "outputs": [{"name": "stdout", "text": {}}]}]',
        '[{"cell_type": "code", "outputs": [{"data": {"text/html": "<table><th>Step</th><th>a</th><td>x<td>1<tr>"}}]}]',
        "[" * 100_000,
    ],
)
def test_odd_notebooks_raise_nothing(tmp_path: Path, cells: str):
    """Their outputs are not as they should be."""
    path = tmp_path / "a.ipynb"
    path.write_text(f'{{"cells": {cells}, "nbformat": 4, "cell_type": "<th>Step</th>"}}')
    assert open_run(path).names() == []
