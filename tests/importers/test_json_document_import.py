"""JSON documents with the history of a training."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.base.errors import LogError

LONG_AGO = 1_600_000_000.0
ROWS = [{"step": step, "loss": 1 / step, "reward": step / 7} for step in range(1, 6)]


def write(path: Path, text: str) -> Path:
    """Write a file that was not changed lately."""
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def open_document(tmp_path: Path, document: Any, indent: int | None = 2) -> barograph.View:
    return barograph.open(write(tmp_path / "history.json", json.dumps(document, indent=indent)))


def points(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


@pytest.mark.parametrize("document", [
    ROWS,
    {"config": {"lr": 1e-6}, "history": ROWS},
    {name: [row[name] for row in ROWS] for name in ROWS[0]},
    {"args": "x", "log": [{**row, "note": "a text", "time": 3.5} for row in ROWS], "other": [1, 2]},
])  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_rows_and_columns_are_read(tmp_path: Path, document: Any, indent: int | None):
    """A list of rows, one in an object, or a list for each metric."""
    view = open_document(tmp_path, document, indent)
    assert points(view, "loss") == {step: 1 / step for step in range(1, 6)}
    assert points(view, "reward")[5] == 5 / 7
    assert view.damage() == []


def test_what_is_beside_the_rows_is_the_config(tmp_path: Path):
    """With secrets redacted."""
    view = open_document(tmp_path, {"lr": 1e-6, "wandb_api_key": "0123456789abcdef" * 2, "history": ROWS})
    assert view.config["lr"] == 1e-6
    assert "0123456789" not in json.dumps(view.config)


def test_rows_without_steps_are_counted_and_nan_is_kept(tmp_path: Path):
    """As in JSON lines."""
    view = open_document(tmp_path, [{"loss": 0.5}, {"loss": math.nan}, {"loss": 0.25}])
    assert list(points(view, "loss")) == [1, 2, 3]
    assert math.isnan(points(view, "loss")[2])


def test_a_document_that_was_written_again_with_more_rows_adds_them(tmp_path: Path):
    """One with other rows is read from the beginning."""
    view = open_document(tmp_path, ROWS[:3])
    open_document(tmp_path, ROWS)
    assert view.refresh()
    assert list(points(view, "loss")) == [1, 2, 3, 4, 5]
    write(tmp_path / "history.json", json.dumps([{"step": 1, "loss": 7.5}, {"step": 2, "loss": 8.5}]))
    assert view.refresh()
    assert points(view, "loss") == {1: 7.5, 2: 8.5}


def test_rows_before_a_cut_are_kept(tmp_path: Path):
    """And a message says where."""
    text = json.dumps(ROWS, indent=2)
    view = barograph.open(write(tmp_path / "x.json", text[: len(text) // 2]))
    assert list(points(view, "loss")) == [1, 2]
    assert "line" in view.damage()[0]


@pytest.mark.parametrize("document", [
    [{"prompt": "a", "step": 1}],
    [1.5, 2.5, 3.5],
    [],
    {},
    [{"a": 1}],
    {"a": [1]},
    {"eos_token_id": [1, 2, 3], "bos_token_id": [4, 5, 6]},
    {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "do_resize": True, "size": 224},
    {"added_tokens": [{"id": 0, "content": "<s>"}, {"id": 1, "content": "</s>"}], "version": "1.0"},
    {"the": 0, "of": 1},
    {"train_loss": 0.5, "train_runtime": 12.5},
    [{"messages": [{"role": "user", "content": "x"}], "score": 0.5}] * 3,
])  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_other_documents_are_no_logs(tmp_path: Path, document: Any, indent: int | None):
    """Configs, vocabularies, data sets, results."""
    with pytest.raises(LogError, match="without metrics|no log"):
        open_document(tmp_path, document, indent)
