"""A page follows a series: only what is new is computed and sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.answers.open_run import OpenRun, RunLocation, SeriesRequest, Window
from barograph.answers.views.curves import Curve, make_curve, make_curves
from barograph.journal.read.series import Buckets, Series
from barograph.journal.view import View

WINDOW = Window(points=100)


@pytest.fixture
def run() -> Iterator[barograph.Run]:
    """A run of 700 steps, which are 88 buckets of 8."""
    run = barograph.init(id="followed")
    log(run, range(700))
    yield run
    run.finish()


def log(run: barograph.Run, steps: range) -> None:
    for step in steps:
        run.log({"v": float(np.sin(step / 9))})
        if step % 50 == 0:
            run.log({"seldom": 1.0})
        run.commit(step)


def opened(run: barograph.Run) -> OpenRun:
    return OpenRun(RunLocation("followed", Path(run.path)))


def curve(of: OpenRun, since: str | None = None, x: str = "step") -> Curve:
    of.refresh()
    return make_curve(of, SeriesRequest("followed", "v", since=since, factor=-2.0), Window(100, x=x))


def assert_follows(increment: Curve, whole: Curve) -> None:
    """The increment is the end of the whole, behind what it keeps."""
    assert {**increment.head, "keep": 0} == whole.head
    assert increment.columns.keys() == whole.columns.keys()
    for name in whole.columns:
        np.testing.assert_array_equal(increment.columns[name], whole.columns[name][increment.head["keep"] :])


@pytest.mark.parametrize("x", ["step", "relative"])
def test_of_a_step_more_only_the_last_buckets_are_computed(run: barograph.Run, monkeypatch: pytest.MonkeyPatch, x: str):
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


def follow(served: OpenRun, since: dict[str, str | None], factors: dict[str, float]) -> dict[str, Curve]:
    """Return the curves of all names from their cursors on, and take their new cursors."""
    served.refresh()
    wanted = [SeriesRequest("many", name, since=cursor, factor=factors[name]) for name, cursor in since.items()]
    found = {curve.head["name"]: curve for curve in make_curves(served, wanted, WINDOW)}
    since.update({name: curve.head.get("cursor") for name, curve in found.items()})
    return found


def test_many_series_that_are_followed_are_the_same_as_alone(monkeypatch: pytest.MonkeyPatch):
    """Also with values that are not finite, several tables, seldom values, rows without a commit, and factors.

    No series is read, unless its values are in several tables, or buckets get larger.
    """
    run = barograph.init(id="many")
    chance = np.random.default_rng(3)
    names = {"a": 1.0, "b": -0.5, "both": 1.0, "other": 1.0, "seldom": 3.0}
    since: dict[str, str | None] = dict.fromkeys(names)
    served, whole = (OpenRun(RunLocation("many", Path(run.path))) for _ in range(2))
    reads, read = count_reads(monkeypatch), []
    for step in range(450):
        odd = [np.nan, np.inf, -np.inf][step % 3] if step % 41 == 0 else 1.5
        run.log({"a": chance.normal(), "b": chance.normal() * odd, "both": odd})
        run.log({"other": chance.normal()})
        if step % 60 == 0:
            run.log({"both": 7.0, "seldom": chance.normal()})
        is_open = step % 4 == 0
        if not is_open:
            run.commit(step)
        if step < 12 or step % 9 == 0:
            del reads[:]
            found = follow(served, since, names)
            read.append(set(reads) & {"a", "b", "other"})
            for name, expected in follow(whole, dict.fromkeys(names), names).items():
                assert_follows(found[name], expected)
        if is_open:
            run.commit(step)
    assert sum(not one for one in read) > 20
    run.finish()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each series that is read."""
    found: list[str] = []
    original = View.series

    def counted(view: View, name: str, *given: Any) -> Series:
        found.append(name)
        return original(view, name, *given)

    monkeypatch.setattr(View, "series", counted)
    return found


def test_a_page_that_is_behind_another_gets_what_it_lacks(run: barograph.Run):
    """Although the server remembers only what the other one has."""
    served, names = opened(run), {"v": 1.0}
    one: dict[str, str | None] = {"v": None}
    follow(served, one, names)
    other = dict(one)
    log(run, range(700, 730))
    follow(served, one, names)
    log(run, range(730, 731))
    follow(served, one, names)
    found, whole = follow(served, other, names)["v"], follow(opened(run), {"v": None}, names)["v"]
    assert found.head["keep"] == 87
    assert_follows(found, whole)


def test_values_of_several_ranks_are_followed_one_by_one(run: barograph.Run):
    """What is merged may change in steps that a page has."""
    served, names = opened(run), {"v": 1.0}
    since: dict[str, str | None] = {"v": None}
    follow(served, since, names)
    assert served.view.table_columns(["v", "seldom", "nothing"]).keys() == {"v", "seldom"}
    rank = barograph.init(id="followed", rank=1, concurrent=True)
    rank.log({"v": 3.0}, step=700)
    log(run, range(700, 701))
    assert_follows(follow(served, since, names)["v"], follow(opened(run), {"v": None}, names)["v"])
    assert served.view.table_columns(["v"]) == {}
    rank.finish()


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


def test_a_cursor_of_an_earlier_server_is_followed(run: barograph.Run):
    """Its checksum is computed again."""
    since = curve(opened(run)).head["cursor"]
    log(run, range(700, 703))
    found = curve(opened(run), since)
    assert found.head["keep"] == 87
    assert_follows(found, curve(opened(run)))


def test_where_older_points_change_everything_is_sent(run: barograph.Run):
    """A restart supersedes them."""
    served = opened(run)
    since = curve(served).head["cursor"]
    log(run, range(700, 701))
    since = curve(served, since).head["cursor"]
    run.finish()
    again = barograph.init(id="followed")
    again.log({"v": 7.0}, step=600)
    again.finish()
    found = curve(served, since)
    assert found.head["keep"] == 0
    assert_follows(found, curve(opened(again)))


def test_a_column_that_is_kept_is_counted_once(run: barograph.Run, monkeypatch: pytest.MonkeyPatch):
    """Beyond the limit only the last column stays, and following goes on."""
    monkeypatch.setattr("barograph.journal.read.attempt.MAX_KEPT", 800)
    served = opened(run)
    for step in range(700, 705):
        log(run, range(step, step + 1))
        served.refresh()
        assert len(served.view.series("v")) == step + 1
        assert served.view.series("seldom").values.tolist() == [1.0] * 15
