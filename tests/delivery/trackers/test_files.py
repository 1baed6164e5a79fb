"""jsonl and stdout: their output and truncation, and the shared tables."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from material import CONFIG, HISTOGRAM, INFO, SAMPLE, TEXT, TRAINER, Series, expected, rows, single, started_trackers

from barograph.base.model import Row, Sample, Status
from barograph.delivery.trackers.payload import flat_params, markdown, phases_table, samples_table
from barograph.delivery.trackers.text import FILE_NAME, JsonlTracker, StdoutTracker, text_block

Start = Callable[..., JsonlTracker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start trackers that write ``tmp_path/metrics.jsonl``, and close them at the end."""
    yield from started_trackers(JsonlTracker, lambda tracker: tracker.finish(Status("finished")), tmp_path)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def series(found: list[dict[str, Any]]) -> Series:
    names = found[0]["metrics"]
    return {name: {record["step"]: record["metrics"][name] for record in found} for name in names}


def test_jsonl_contains_all_of_a_row(start: Start, tmp_path: Path):
    """200 steps of 100 values, with texts, histograms and samples."""
    start().log(rows())
    found = records(tmp_path)
    assert len(found) == 200
    assert series(found) == expected()
    assert found[30]["texts"] == {"note": f"30: {TEXT}"}
    assert found[20]["histograms"]["dist"]["counts"] == list(HISTOGRAM.counts)
    assert found[20]["samples"][1]["completion"] == SAMPLE.completion
    assert found[21].keys() == {"step", "time", "metrics"}


def test_jsonl_is_truncated_to_its_mark(start: Start, tmp_path: Path):
    """Also after a partial last line; an existing file is kept."""
    (tmp_path / "metrics.jsonl").write_text('{"older": 1}\n')
    tracker = start()
    tracker.rewind({})
    tracker.log(single("loss", {0: 1.0}))
    mark = tracker.mark()
    tracker.log(single("loss", {1: 2.0, 2: 3.0}))
    with (tmp_path / "metrics.jsonl").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 5)
    tracker = start()
    tracker.rewind(mark)
    tracker.log(single("loss", {1: 2.0, 2: 3.0}))
    tracker.finish(Status("finished"))
    assert [record.get("step") for record in records(tmp_path)] == [None, 0, 1, 2]
    assert tracker.mark() == {"length": (tmp_path / "metrics.jsonl").stat().st_size}


def test_a_nan_reward_of_a_sample_is_written_as_a_string(start: Start, tmp_path: Path):
    """Strict JSON has no NaN."""
    start().log([Row(0, 1.0, {}, TRAINER, samples=(Sample("p", "c", reward=math.nan),))])
    assert records(tmp_path)[0]["samples"][0]["reward"] == "NaN"


def test_stdout_prints_texts_and_the_number_of_samples(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """A text is one line, shortened to the width."""
    row = Row(3, 1.0, {"loss": 1.0}, TRAINER, {"note": "a\nb " + "x" * 200}, samples=(SAMPLE, SAMPLE))
    lines = text_block(row, width=60).splitlines()
    assert lines[:2] == ["step 3", "    loss 1"]
    assert lines[2].startswith("  note a b xxx")
    assert lines[2].endswith("…")
    assert len(lines[2]) <= 60
    assert lines[3] == "  samples 2"
    tracker = StdoutTracker(format="json")
    tracker.start(INFO, CONFIG, tmp_path)
    tracker.log([row])
    assert json.loads(capsys.readouterr().out)["texts"]["note"].startswith("a\nb")


def test_samples_table():
    """Messages become text, rewards have a column each, and unused fields have none."""
    chat = Sample(
        messages=({"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}), rewards={"f": 1.0}
    )
    columns, cells = samples_table([Sample("p", "c", reward=0.0, length=0), chat])
    assert columns == ["prompt", "completion", "reward", "length", "reward/f"]
    assert cells == [["p", "c", 0.0, 0, None], [None, "user: hi\nassistant: ho", None, None, 1.0]]
    assert markdown((["a"], [["x|y\nz"], [None], [0.5]])) == "| a |\n| --- |\n| x\\|y<br>z |\n|  |\n| 0.5 |"


def test_phases_table_has_the_longest_first():
    """It is made from time/{phase}/total and its stages; time/step is not a phase."""
    values = {
        "time/a/b/total": 1.0,
        "time/a/b/onload": 0.25,
        "time/c/total": 2.0,
        "time/step": 3.0,
        "time/d/execute": 1.0,
    }
    assert phases_table(values) == (["phase", "total", "onload"], [["c", "2", ""], ["a/b", "1", "0.25"]])


def test_a_config_is_flattened():
    """Names are dotted; lists and None are JSON."""
    assert flat_params({"a": {"b": 1, "c": [1, 2], "e": {}}, "d": None, "f": True}) == {
        "a.b": 1,
        "a.c": "[1, 2]",
        "a.e": "{}",
        "d": "null",
        "f": True,
    }


def test_jsonl_does_not_wait_for_the_reader_of_a_fifo(tmp_path: Path):
    """A FIFO in place of its file is an error."""
    os.mkfifo(tmp_path / FILE_NAME)
    program = f"""
from pathlib import Path
from barograph.base.model import RunInfo
from barograph.delivery.trackers.text import JsonlTracker
JsonlTracker().start(RunInfo("id", "p", "n", 0.0), {{}}, Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert "TrackerError: tracker 'jsonl' cannot write" in done.stderr
