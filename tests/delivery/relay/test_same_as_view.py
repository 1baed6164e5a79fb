"""A property: whatever was written, a tracker has received what a view shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from processes import RANKS, Processes

import barograph
from barograph.base.model import Row
from barograph.delivery.relay import merged_rows
from barograph.delivery.relay.merged_rows import MergedFollower

NAMES = ("x", "y", "time/train", "memory/host/used")

actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("row"),
            st.sampled_from(RANKS),
            st.integers(0, 2),  # which process of the rank
            st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
            st.none() | st.integers(0, 9),
        ),
        st.tuples(st.just("commit"), st.sampled_from(RANKS), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("next"), st.sampled_from(RANKS)),
        st.tuples(st.just("measure"), st.sampled_from(RANKS), st.integers(1, 4)),
        st.tuples(st.sampled_from(["fork", "end fork", "restart"]), st.sampled_from(RANKS)),
        st.tuples(st.sampled_from(["read", "restart reader"])),
    ),
    max_size=30,
)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Let every look at a process be a new one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_rows, "STATUS_SECONDS", 0.0)
        yield


class Reader:
    """A tracker's side: the rows that it was given, and now and then a new follower from the saved cursors."""

    def __init__(self, folder: Path, patience: float) -> None:
        self._folder = folder
        self._patience = patience
        self._follower = MergedFollower(folder, patience=patience)
        self.rows: list[Row] = []

    def read(self) -> None:
        """Take the rows that are complete."""
        self.rows += self._follower.new_rows()

    def restart(self) -> None:
        """Go on with another follower, as after a kill."""
        self._follower = MergedFollower(self._folder, self._follower.cursors(), patience=self._patience)

    def read_to_end(self) -> None:
        """Take everything, as a delivery does when the run has ended."""
        for _ in range(20):
            self.rows += self._follower.new_rows()
        assert not self._follower.waits, "the run is over: nothing is to be waited for"
        self.rows += self._follower.take_unfinished()

    def received(self) -> dict[tuple[int, str], dict[int, float]]:
        """Return the last value of each rank, name and step."""
        found: dict[tuple[int, str], dict[int, float]] = {}
        for row in self.rows:
            for name, value in row.values.items():
                found.setdefault((row.writer.rank, name), {})[row.step] = value
        return found


def assert_received(view: barograph.View, received: dict[tuple[int, str], dict[int, float]]) -> None:
    for name in view.names():
        try:
            series = view.series(name)
        except barograph.MetricNotFoundError:  # all its points were superseded
            continue
        assert series.writer is not None
        points = received.get((series.writer.rank, name), {})
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            assert step in points, f"{name} of step {step} was not delivered"
            same = points[step] == value or (math.isnan(value) and math.isnan(points[step]))
            assert same, f"{name} of step {step}: delivered {points[step]}, the view shows {value}"


@settings(max_examples=150, deadline=None)
@given(actions, st.booleans())
def test_a_tracker_receives_what_a_view_shows(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[Any, ...]], is_patient: bool
):
    """For every name and step that a view shows after the run, the last value that a tracker received is the same.

    The contract, exactly. The run is over: all its processes have ended, those of an attempt before the next attempt
    began. The rows were read at any moments of the run, by followers that each went on from the cursors of the one
    before. Then, for every name and every step of ``view.series(name)``, the last value of that name and step in the
    rows of the series' writer is the value that the view shows.

    A tracker may have received more than a view shows: points that were superseded afterwards by a newer attempt. It
    does not receive reductions of a time for steps that were delivered before a second rank had written that time.
    A forked process that lives is given the patience to commit its open rows; one that commits later than that leaves
    points under the steps of its attempt's other commits, where they were delivered in the meantime.
    """
    note(f"{actions}, {is_patient}")
    folder = tmp_path_factory.mktemp("run")
    processes = Processes(folder, forks_commit=is_patient)
    for rank in RANKS:  # a reduction is delivered from the second rank's first time on
        processes.row(rank, 0, ["time/train"], 0)
    reader = Reader(folder, math.inf if is_patient else 0.0)
    calls = {
        "row": processes.row,
        "commit": processes.commit,
        "next": processes.next,
        "measure": processes.measure,
        "fork": processes.fork,
        "end fork": processes.end_fork,
        "restart": processes.restart,
        "read": reader.read,
        "restart reader": reader.restart,
    }
    for name, *arguments in actions:
        calls[name](*arguments)  # type: ignore[operator]
    for rank in RANKS:
        processes.end(rank)
    reader.read_to_end()
    assert_received(barograph.open(folder), reader.received())
