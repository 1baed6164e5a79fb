"""A page follows a series: only what is new is computed and sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windsock
from windsock.journal.series import Buckets, Series
from windsock.server.runs.open_runs import OpenRun, RunLocation
from windsock.server.views.curves import BUCKET_COLUMNS, Curve, SeriesRequest, Window, make_curve

WINDOW = Window(points=100)


@pytest.fixture
def run() -> Iterator[windsock.Run]:
    """A run of 700 steps, which are 88 buckets of 8."""
    run = windsock.init(id="followed")
    log(run, range(700))
    yield run
    run.finish()


def log(run: windsock.Run, steps: range) -> None:
    for step in steps:
        run.log({"v": float(np.sin(step / 9)), "seldom": 1.0} if step % 50 == 0 else {"v": float(np.sin(step / 9))})
        run.commit(step)


def opened(run: windsock.Run) -> OpenRun:
    return OpenRun(RunLocation("followed", Path(run.path)))


def curve(of: OpenRun, since: str | None = None, x: str = "step") -> Curve:
    of.refresh()
    return make_curve(of, SeriesRequest("followed", "v", since=since, factor=-2.0), Window(100, x=x))


def assert_follows(increment: Curve, whole: Curve) -> None:
    """The increment is the end of the whole, behind what it keeps."""
    assert increment.head["cursor"] == whole.head["cursor"]
    for name in BUCKET_COLUMNS:
        np.testing.assert_array_equal(increment.columns[name], whole.columns[name][increment.head["keep"] :])


@pytest.mark.parametrize("x", ["step", "relative"])
def test_of_a_step_more_only_the_last_buckets_are_computed(run: windsock.Run, monkeypatch: pytest.MonkeyPatch, x: str):
    """As many points are put into buckets as the last two have, however many pages follow; the answer is the same."""
    served = opened(run)
    since = behind = curve(served, x=x).head["cursor"]
    grouped = count_points(monkeypatch)
    for step in range(700, 720):
        log(run, range(step, step + 1))
        found = curve(served, since, x)
        assert found.head["keep"] == (step + 1 + 7) // 8 - 1 - (step % 8 == 0)
        since = found.head["cursor"]
    late = curve(served, behind, x)
    assert late.head["keep"] == 87
    assert max(grouped) <= 40
    assert_follows(found, curve(opened(run), x=x))
    assert_follows(late, curve(opened(run), x=x))


def count_points(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of points of each grouping."""
    found: list[int] = []

    def counted(original: Any) -> Any:
        def wrapper(series: Series, *given: Any) -> Buckets:
            buckets: Buckets = original(series, *given)
            found.append(int(buckets.count.sum()))
            return buckets

        return wrapper

    monkeypatch.setattr(Series, "grouped", counted(Series.grouped))
    return found


def test_a_cursor_of_an_earlier_server_is_followed(run: windsock.Run):
    """Its checksum is computed again."""
    since = curve(opened(run)).head["cursor"]
    log(run, range(700, 703))
    found = curve(opened(run), since)
    assert found.head["keep"] == 87
    assert_follows(found, curve(opened(run)))


def test_where_older_points_change_everything_is_sent(run: windsock.Run):
    """A restart supersedes them."""
    served = opened(run)
    since = curve(served).head["cursor"]
    log(run, range(700, 701))
    since = curve(served, since).head["cursor"]
    run.finish()
    again = windsock.init(id="followed")
    again.log({"v": 7.0}, step=600)
    again.finish()
    found = curve(served, since)
    assert found.head["keep"] == 0
    assert_follows(found, curve(opened(again)))


def test_a_column_that_is_kept_is_counted_once(run: windsock.Run, monkeypatch: pytest.MonkeyPatch):
    """Beyond the limit only the last column stays, and following goes on."""
    monkeypatch.setattr("windsock.journal.columns.MAX_KEPT", 800)
    served = opened(run)
    for step in range(700, 705):
        log(run, range(step, step + 1))
        served.refresh()
        assert len(served.view.series("v")) == step + 1
        assert served.view.series("seldom").values.tolist() == [1.0] * 15
