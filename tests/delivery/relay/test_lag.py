"""The lag of a tracker counts what is not read yet, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from kept import begun, delivery_state, until

import barograph
from barograph.base.model import Row, Status
from barograph.delivery.relay.delivery import Delivery
from barograph.delivery.relay.merged_rows import MergedFollower
from barograph.delivery.relay.state import DeliveryState
from barograph.delivery.trackers import registry
from barograph.journal.segments.reader import SegmentReader

ROWS = 5000
END = Status("finished")


class Counting:
    """A tracker that counts rows."""

    def __init__(self) -> None:
        self.rows = 0

    def start(self, *_: object) -> None:
        """Do nothing."""

    def log(self, rows: Sequence[Row]) -> None:
        """Count."""
        self.rows += len(rows)

    def finish(self, status: Status) -> None:
        """Do nothing."""


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Return the tracker that every delivery gets, and read pieces of 64 KiB."""
    found = Counting()
    monkeypatch.setattr(registry, "make", lambda name, kwargs: found)
    monkeypatch.setattr("barograph.journal.read.segment_follower.PIECE", 64 << 10)
    monkeypatch.setattr("barograph.journal.segments.reader.CHUNK", 64 << 10)
    return found


def long_run(rows: int = ROWS) -> barograph.Run:
    """Record a run of several pieces."""
    run = barograph.init(id="long")
    for step in range(rows):
        run.log({"a": step, "b": 2.0}, step=step)
    run.finish()
    return run


def test_bytes_that_are_not_read_yet_are_told(tracker: Counting):
    """They shrink from piece to piece, and are 0 at the end."""
    run, states = long_run(), list[DeliveryState]()
    Delivery(run.path, "counting", {}, lambda: END, on_change=states.append).deliver()
    assert tracker.rows == ROWS
    told = [state.lag_bytes for state in states if 0 < state.delivered < ROWS]
    assert len(told) > 1
    assert told == sorted(told, reverse=True)
    assert all(told)
    assert (states[-1].state, states[-1].lag, states[-1].lag_bytes) == ("done", 0, 0)


def test_before_the_tracker_has_started_everything_is_pending(tracker: Counting):
    """Nothing was read, and the whole journal is told."""
    run, states = long_run(10), list[DeliveryState]()
    Delivery(run.path, "counting", {}, lambda: END, on_change=states.append).deliver()
    [segment] = run.path.glob("*.seg")
    assert (states[0].state, states[0].lag_bytes) == ("starting", segment.stat().st_size)


def test_after_a_restart_what_was_delivered_is_not_pending(tracker: Counting):
    """The journal is read again from its start, but only new bytes count."""
    run = long_run(10)
    Delivery(run.path, "counting", {}, lambda: END).deliver()
    states = list[DeliveryState]()
    Delivery(run.path, "counting", {}, lambda: END, on_change=states.append).deliver()
    assert [state.lag_bytes for state in states] == [0] * len(states)


def test_an_end_that_is_torn_is_not_pending():
    """Nobody will ever read it."""
    run = long_run(10)
    [segment] = run.path.glob("*.seg")
    segment.write_bytes(segment.read_bytes()[:-3])
    reader = SegmentReader(segment)
    assert reader.unread_bytes() == segment.stat().st_size
    reader.poll()
    assert reader.unread_bytes() == 0
    segment.unlink()
    assert reader.unread_bytes() == 0


def test_the_lag_is_shown():
    """In show and in the message at the end, with rows and bytes."""
    assert DeliveryState("kept", lag=1200, lag_bytes=34_000).pending == "1,200 rows and 34.0 kB of the journal"
    assert DeliveryState("kept", lag_bytes=34).pending == "34 B of the journal"
    assert DeliveryState("kept").pending == ""


def test_a_slow_tracker_tells_its_lag(trackers: Path):
    """While the first rows are with it, the others are pending, also as a metric."""
    run = begun(trackers, trouble="down")
    for step in range(5):
        run.log({"a": step}, step=step)
    until(lambda: delivery_state(run).lag == 5)
    run.log({"b": 1.0}, step=9)
    until(lambda: delivery_state(run).lag_bytes > 0)
    run._maintain_clients()
    assert barograph.open(run.path).series("barograph/relay/kept/lag_bytes").last > 0
    (trackers / "kept.jsonl.up").touch()
    run.finish(timeout=30)
    assert (delivery_state(run).lag, delivery_state(run).lag_bytes) == (0, 0)


def test_a_folder_that_was_removed_costs_only_the_lag(tracker: Counting, monkeypatch: pytest.MonkeyPatch):
    """The delivery goes on."""
    run = long_run(10)

    def fail(follower: MergedFollower) -> int:
        raise PermissionError

    monkeypatch.setattr(MergedFollower, "unread_bytes", fail)
    assert Delivery(run.path, "counting", {}, lambda: END).deliver().state == "done"
