"""Tests that a run of an earlier version reads the same today."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import windsock
from windsock.model import Sample

DATA = Path(__file__).parent / "data"
OLD_RUNS = ["run-0.1"]
NEWER_FIELDS = ("id", "answer", "reference", "discarded", "columns", "tokens", "token_values", "top_logprobs")


def reading(view: windsock.View) -> dict[str, Any]:
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
        "explorer": _series(view.series("explorer/queue", role="explorer")),
        "rank 1": _series(view.series("explicit", rank=1)),
        "attempt 1": _series(view.series("explicit", rank=0, attempt=1)),
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


def _series(series: windsock.Series) -> list[list[Any]]:
    return [series.steps.tolist(), series.values.tolist(), series.times.tolist()]


def _plain(value: Any) -> Any:
    """Return what comes back of a value after a trip through JSON, with NaN equal to itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", OLD_RUNS)
def test_a_run_of_an_earlier_version_reads_the_same(name: str, tmp_path: Path):
    """Rows, states, rollouts, samples, phases, texts and events of old files mean what they meant."""
    copytree(DATA / name, tmp_path / name)
    expected = json.loads((DATA / f"{name}.json").read_text())
    found = _plain(reading(windsock.open(tmp_path / name)))
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
