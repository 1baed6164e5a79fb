"""What is recorded of a log: steps, attempts, times, nulls, and what was not understood."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import RunInfo
from barograph.importers.imported import ImportedLog
from barograph.importers.reading.log import Log
from barograph.importers.recorder import COUNTED_NOTE, MAX_NAMES, MAX_UNREAD, RECENT_STEPS, Recorder
from barograph.journal.format.folder import write_run_info
from barograph.journal.view import View

ABOUT = {"path": "log.txt", "format": "json_lines", "title": "JSON lines"}
LONG_AGO = 1_600_000_000.0


class Recorded:
    """A journal that recorders write, each from the state of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {}
        folder.mkdir()
        write_run_info(folder, RunInfo(id="abcd1234", project="p", name="n", created=LONG_AGO))
        self.out = self._recorder()

    def _recorder(self) -> Recorder:
        return Recorder(self.folder, self.state, ABOUT, LONG_AGO)

    def again(self) -> None:
        """Continue with another recorder, as another process would."""
        self.out.finish(None)
        self.state = json.loads(json.dumps(self.state))
        self.out = self._recorder()

    def view(self) -> View:
        self.out.finish(None)
        return View(self.folder)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A journal without rows."""
    return Recorded(tmp_path / "run")


def points(view: View, name: str, attempt: int | None = None) -> dict[int, float]:
    series = view.series(name, attempt=attempt)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_rows_have_the_steps_times_and_values_of_the_log(recorded: Recorded):
    """Values that are not finite included."""
    recorded.out.row({"a": 0.1, "b": math.inf}, 3, 1e9)
    recorded.out.row({"a": math.nan, "b": -math.inf}, 7, 1e9 + 5)
    view = recorded.view()
    np.testing.assert_array_equal(view.series("a").values, [0.1, math.nan])
    assert view.series("b").values.tolist() == [math.inf, -math.inf]
    assert view.series("a").steps.tolist() == [3, 7]
    assert view.series("a").times.tolist() == [1e9, 1e9 + 5]


def test_steps_are_counted_where_the_log_has_none(recorded: Recorded):
    """From 1, and a note says so."""
    for value in (5.0, 6.0, 7.0):
        recorded.out.row({"a": value})
        recorded.again()
    view = recorded.view()
    assert points(view, "a") == {1: 5.0, 2: 6.0, 3: 7.0}
    assert view.origin is not None
    assert view.origin.notes == (COUNTED_NOTE,)


def test_a_step_that_comes_again_begins_another_attempt(recorded: Recorded):
    """The newer attempt counts from its first step on."""
    for step in (1, 2, 3, 4):
        recorded.out.row({"a": step, "b": 0.0}, step)
    for step in (3, 4, 5):
        recorded.out.row({"a": 10.0 * step, "b": 0.0}, step)
    view = recorded.view()
    assert [writer.attempt for writer in view.writers()] == [1, 2]
    assert points(view, "a") == {1: 1, 2: 2, 3: 30, 4: 40, 5: 50}
    assert points(view, "a", attempt=1) == {1: 1, 2: 2, 3: 3, 4: 4}


def test_rows_of_other_metrics_of_an_earlier_step_are_of_the_same_attempt(recorded: Recorded):
    """An evaluation may be logged late."""
    for step in (1, 2, 3):
        recorded.out.row({"loss": step}, step)
    recorded.out.row({"eval/score": 0.5}, 2)
    recorded.out.row({"loss": 4.0}, 4)
    view = recorded.view()
    assert len(view.writers()) == 1
    assert points(view, "eval/score") == {2: 0.5}


def test_a_late_row_of_a_step_of_its_own_is_of_the_same_attempt(recorded: Recorded):
    """Logs of several processes are not in order."""
    for step in (1, 2, 5, 4, 6, 3):
        recorded.out.row({"a": step}, step)
    view = recorded.view()
    assert len(view.writers()) == 1
    assert points(view, "a") == {step: step for step in range(1, 7)}


def test_the_same_step_again_is_an_attempt_only_where_a_log_has_one_row_per_step(recorded: Recorded):
    """A container that fails after its first step prints step 1 each time."""
    for value in (1.0, 2.0):
        recorded.out.row({"a": value}, 1)
    for value in (3.0, 4.0):
        recorded.out.row({"a": value}, 1, repeats=True)
    view = recorded.view()
    assert [points(view, "a", attempt=number) for number in (1, 2, 3)] == [{1: 2.0}, {1: 3.0}, {1: 4.0}]


def test_a_restart_is_noticed_after_more_steps_than_are_remembered(recorded: Recorded):
    """Only the last steps are kept, so that the memory has a bound."""
    for step in range(1, RECENT_STEPS + 100):
        recorded.out.row({"a": 1.0}, step)
    recorded.again()
    recorded.out.row({"a": 2.0}, 1)
    assert len(recorded.view().writers()) == 2
    assert len(recorded.state["recent"]) <= RECENT_STEPS


def test_counted_steps_begin_again_after_a_restart(recorded: Recorded):
    """A reader that sees a start of the training says so."""
    recorded.out.restart()
    recorded.out.row({"a": 1.0})
    recorded.out.row({"a": 2.0})
    recorded.out.restart()
    recorded.out.row({"a": 3.0})
    view = recorded.view()
    assert points(view, "a", attempt=2) == {1: 3.0}
    assert len(view.writers()) == 2


def test_a_null_is_nan_where_a_metric_mostly_has_numbers(recorded: Recorded):
    """Else it is no value."""
    for step in range(1, 6):
        recorded.out.row({"often": 1.0, "never": None}, step)
        recorded.again()
    recorded.out.row({"often": None, "never": None, "late": None}, 6)
    view = recorded.view()
    assert math.isnan(points(view, "often")[6])
    assert "never" not in view.names()
    assert "late" not in view.names()


def test_rows_without_a_time_have_the_time_before_them(recorded: Recorded):
    """Else that of the file; a time that cannot be one is none."""
    for step, at in enumerate((None, 1.7e9, None, -5.0, math.nan, 1.7e9 + 9)):
        recorded.out.row({"a": 1.0}, step, at)
    times = recorded.view().series("a").times.tolist()
    assert times == [LONG_AGO, 1.7e9, 1.7e9, 1.7e9, 1.7e9, 1.7e9 + 9]


def test_what_was_not_understood_is_counted_by_reason(recorded: Recorded):
    """With its first place; the number of reasons has a bound."""
    for line in range(1, 4):
        recorded.out.unread(f"line {line}", "not a row")
    for line in range(2 * MAX_UNREAD):
        recorded.out.unread("line 9", f"reason {line}")
    recorded.again()
    recorded.out.unread("line 10", "not a row")
    origin = recorded.view().origin
    assert origin is not None
    assert len(origin.unread) == MAX_UNREAD
    assert (origin.unread[0].where, origin.unread[0].count) == ("line 1", 4)


@pytest.mark.parametrize("values", [{}, {f"n{i}": 1.0 for i in range(MAX_NAMES + 1)}])
def test_no_row_is_written_without_values_or_with_far_too_many(recorded: Recorded, values: dict[str, float]):
    """A row of more names than a training has is no row of metrics."""
    recorded.out.row(values, 1)
    assert recorded.view().names() == []


def test_a_step_out_of_range_is_not_recorded(recorded: Recorded):
    """It is counted as not understood."""
    recorded.out.row({"a": 1.0}, 2**70)
    view = recorded.view()
    assert view.names() == []
    assert "out of range" in view.damage()[0]


def test_secrets_in_a_config_are_redacted(recorded: Recorded):
    """A log has what its program was started with."""
    recorded.out.config({"lr": 1e-6, "wandb": {"api_key": "0123456789abcdef0123456789abcdef01234567"}})
    config = recorded.view().config
    assert config["lr"] == 1e-6
    assert "0123456789" not in json.dumps(config)


def test_the_end_of_a_run_is_what_the_log_tells(recorded: Recorded):
    """A later row may take it back."""
    recorded.out.row({"a": 1.0}, 1)
    recorded.out.status("crashed", "line 7: ValueError")
    assert recorded.view().status.word == "crashed"
    recorded.again()
    recorded.out.status(None)
    assert recorded.view().status.word == "finished"


# -- a reader that is stopped at any place -------------------------------------------------------------------------

ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "step": st.integers(0, 12),
            "time": st.floats(1.6e9, 1.7e9),
            "loss": st.none() | st.floats(width=32),
            "eval/score": st.none() | st.floats(-1, 1),
            "text": st.text(max_size=3),
        },
    ),
    max_size=25,
)


def contents(view: View) -> dict[str, Any]:
    """Return everything that was read of a log, but for when it was read."""
    origin = view.origin
    assert origin is not None
    attempts = [writer.attempt for writer in view.writers()]
    series = {
        (name, attempt): [column.tolist() for column in (found.steps, found.times, found.values)]
        for name in view.names()
        for attempt in attempts
        if (found := view.find_series(name, attempt=attempt)) is not None
    }
    return {"series": repr(series), "attempts": attempts, "notes": origin.notes, "unread": origin.unread}


def write_at_rest(path: Path, data: bytes) -> None:
    """Write a file whose last change was long ago."""
    path.write_bytes(data)
    os.utime(path, (LONG_AGO, LONG_AGO))


@settings(max_examples=60)
@given(rows=ROWS, noise=st.binary(max_size=20), cuts=st.lists(st.floats(0, 1), max_size=4))
def test_reading_a_growing_file_in_pieces_gives_what_reading_it_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: Sequence[dict[str, Any]], noise: bytes, cuts: list[float]
):
    """Whatever the places where a reader stopped and another went on."""
    lines = [json.dumps(row).encode() for row in rows]
    lines.insert(len(lines) // 2, noise.replace(b"\n", b"").replace(b"\r", b"") or b"not a row")
    data = b"".join(line + b"\n" for line in lines)
    folder = tmp_path_factory.mktemp("pieces")
    whole, pieces = folder / "a" / "log.jsonl", folder / "b" / "log.jsonl"
    for path in (whole, pieces):
        path.parent.mkdir()
    write_at_rest(whole, data)
    imported = ImportedLog(Log(whole, "json_lines"), folder / "whole")
    imported.update()
    for cut in (*sorted(cuts), 1.0):
        write_at_rest(pieces, data[: round(cut * len(data))])
        ImportedLog(Log(pieces, "json_lines"), folder / "pieces").update()
    assert contents(View(folder / "pieces")) == contents(View(folder / "whole"))


def test_barograph_open_reads_a_log(tmp_path: Path):
    """A path that is no run is one of a log."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    assert barograph.open(path).series("loss").values.tolist() == [0.5, 0.25]
