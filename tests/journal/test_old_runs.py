"""Tests that a run of an earlier version reads the same today."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import barograph
from barograph.answers.runs.annotations import Annotations
from barograph.base.model import Sample

DATA = Path(__file__).parents[1] / "data"
NEWER_FIELDS = ("id", "answer", "reference", "discarded", "columns", "tokens", "token_values", "top_logprobs")


SELECTED: dict[str, tuple[str, dict[str, Any]]] = {
    "explorer": ("explorer/queue", {"role": "explorer"}),
    "rank 1": ("explicit", {"rank": 1}),
    "attempt 1": ("explicit", {"rank": 0, "attempt": 1}),
}


def reading(view: barograph.View) -> dict[str, Any]:
    """Return everything that a view says about a run, as JSON has it."""
    return {
        "status": asdict(view.status),
        "writers": [asdict(writer) for writer in view.writers()],
        "config": view.config,
        "steps": view.steps,
        "skipped": view.skipped(),
        "damage": view.damage(),
        "events": view.events(),
        "series": {name: _series(view.series(name)) for name in sorted(view.names())},
        **{
            part: _series(view.series(name, **which))
            for part, (name, which) in SELECTED.items()
            if name in view.names() or ("role" in which and view.id.endswith("1"))
        },
        "phases": [asdict(span) for span in view.phases()],
        "histograms": {
            name: [(step, asdict(histogram)) for step, histogram in view.histograms(name)]
            for name in view.histogram_names()
        },
        "texts": [asdict(text) for text in view.texts()],
        "samples": [_sample(one) for one in view.samples()],
        "best": [
            _sample(sample) for sample in view.samples(min_reward=0.9, grep="completion", sort="-reward", limit=3)
        ],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    """Return a sample without the fields that are newer than the file, which must be empty."""
    return {name: value for name, value in asdict(sample).items() if name not in NEWER_FIELDS or value}


def _series(series: barograph.Series) -> list[list[Any]]:
    return [series.steps.tolist(), series.values.tolist(), series.times.tolist()]


def _plain(value: Any) -> Any:
    """Return what comes back of a value after a trip through JSON, with NaN equal to itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_plain(entry) for entry in value] if is_list else value


def page_reading(directory: Path) -> dict[str, Any]:
    """Return what people keep on the page of a directory, as JSON has it."""
    annotations = Annotations(directory)
    runs = [run for run in ("kept-run-0001", "kept-run-0002") if (directory / "kept" / run).exists()]
    reports = [report["name"] for report in annotations.reports()]
    return {
        "runs": {run: annotations.get(f"kept/{run}") for run in runs},
        "views": [[view["name"], view["state"]] for view in annotations.views()],
        "reports": {name: annotations.report(name) for name in reports},
    }


def kept(name: str) -> Any:
    """Return what a reader of that time said, under the present name of the project."""
    return json.loads((DATA / name).read_text().replace('"windsock', '"barograph'))


def check(found: Any, expected: Any) -> None:
    """Compare two readings."""
    assert found.keys() == expected.keys()
    # A state of an old file may yield a statistic that is newer than the file, and nothing else is added.
    assert found["series"].keys() - expected["series"].keys() <= {"critic/advantages/std"}
    assert expected["series"].keys() <= found["series"].keys()
    for series, (steps, values, times) in expected["series"].items():  # a merge may round in another order
        assert found["series"][series][::2] == [steps, times], series
        numbers = [float(value) for value in values]
        assert [float(value) for value in found["series"][series][1]] == pytest.approx(numbers, rel=1e-12, nan_ok=True)
    for part in expected.keys() - {"series"}:
        assert found[part] == expected[part], part


def test_a_run_of_the_first_version_reads_the_same(tmp_path: Path):
    """Rows, states, rollouts, samples, phases, texts and events of old files mean what they meant."""
    copytree(DATA / "run-0.1", tmp_path / "run-0.1")
    expected = kept("run-0.1.json")
    check(_plain(reading(barograph.open(tmp_path / "run-0.1"))), expected)


def test_a_directory_of_the_second_version_reads_the_same(tmp_path: Path):
    """Ranks, tokens of samples, findings, an imported log, and what people keep on the page mean what they meant."""
    copytree(DATA / "runs-0.2", tmp_path / "runs-0.2")
    expected = kept("runs-0.2.json")
    page = expected.pop("page")
    folders = {path.parent.name: path.parent for path in (tmp_path / "runs-0.2").glob("*/*/run.json")}
    assert folders.keys() == expected.keys()
    for run, folder in folders.items():
        check(_plain(reading(barograph.open(folder))), expected[run])
    assert _plain(page_reading(tmp_path / "runs-0.2")) == page
