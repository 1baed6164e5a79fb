"""Curves keep spikes and NaN at every zoom."""

from pathlib import Path

import numpy as np
import pytest
from serving_runs import Serve, decoded

import barograph
from barograph.answers.open_run import OpenRun, RunLocation, SeriesRequest, Window
from barograph.answers.views.curves import make_curve
from barograph.base.model import Writer
from barograph.journal.read.series import Series

POINTS = 50_000
SPIKE_AT, NAN_AT = 31_415, 27_182


@pytest.fixture
def long_run() -> barograph.Run:
    """Return a run of many steps with one spike and one NaN."""
    run = barograph.init(id="long")
    for step in range(POINTS):
        run.log({"v": 1e9 if step == SPIKE_AT else np.nan if step == NAN_AT else 0.5}, step=step)
    run.finish()
    return run


def test_a_spike_and_a_nan_among_fifty_thousand_points_are_kept(long_run: barograph.Run, serve: Serve):
    """From one bucket to every point, and for ranges that end right next to them."""
    client = serve()
    for points in (1, 2, 7, 100, 600, 5000, 49_999, 0):
        for lo, hi in ((None, None), (SPIKE_AT, SPIKE_AT), (NAN_AT - 3, SPIKE_AT), (17, POINTS)):
            ends = {name: value for name, value in (("from", lo), ("to", hi)) if value is not None}
            answer = client.get("/api/runs/long/series", params={"name": "v", "points": points, **ends})
            [one] = decoded(answer.content)["series"]
            high, bad = (one["last"], ~np.isfinite(one["last"])) if one["exact"] else (one["max"], one["nonfinite"])
            assert np.nanmax(high) == 1e9
            assert int(np.sum(bad)) == (lo != SPIKE_AT)
            place = int(np.nanargmax(high))
            ends_at = one["x"] if one["exact"] else one["x_end"]
            assert one["x"][place] <= SPIKE_AT <= ends_at[place]


class Direct(OpenRun):
    """A run that is one series in memory."""

    def __init__(self, series: Series, folder: Path) -> None:
        super().__init__(RunLocation("direct", folder))
        self._series = series

    def cached(self, key, compute, max_age=0.0):  # type: ignore[no-untyped-def]
        """Return the series instead of one of the run."""
        return self._series if key[0] == "series" else compute()


def test_one_spike_among_twenty_five_million_points_is_kept():
    """For any number of buckets, through the pyramid."""
    run = barograph.init(id="tiny")
    run.log({"a": 1.0}, step=0)
    run.finish()
    count = 25_000_000
    values = np.zeros(count)
    values[19_283_746] = 7.0
    values[1_234_567] = np.inf
    series = Series("v", np.arange(count), values, np.zeros(count), Writer("trainer", 0, 1))
    opened = Direct(series, Path(run.path))
    for points in (1, 10, 600, 4096):
        curve = make_curve(opened, SeriesRequest("direct", "v"), Window(points))
        assert len(curve.columns["x"]) <= points
        assert curve.columns["max"].max() == 7.0
        assert curve.columns["nonfinite"].sum() == 1
        assert curve.columns["count"].sum() == count


@pytest.mark.parametrize("x", ["step", "time", "relative", "tokens", "samples"])
def test_a_window_on_any_axis_has_the_points_inside_it(serve: Serve, x: str):
    """With both ends, for exact points and for buckets; a window beyond the series is empty."""
    run = barograph.init(id="counted")
    for step in range(400):
        run.log({"v": 9.0 if step == 250 else 0.0})
        run.count(tokens=step % 3 * 10, samples=4)  # a third of the steps has no tokens
        run.commit(step)
    run.finish()
    client = serve()

    def ask(points: int = 0, **ends: float) -> dict[str, np.ndarray]:
        asked = {"name": "v", "x": x, "points": points, **ends}
        [one] = decoded(client.get("/api/runs/counted/series", params=asked).content)["series"]
        return one

    whole = ask()
    assert len(whole["x"]) == 400
    for lo, hi in ((0, 399), (100, 300), (250, 250), (249, 251), (398, 399)):
        ends = {"from": whole["x"][lo], "to": whole["x"][hi]}
        inside = (whole["x"] >= ends["from"]) & (whole["x"] <= ends["to"])
        part = ask(**ends)
        assert part["x"].tolist() == whole["x"][inside].tolist()
        assert part["last"].tolist() == whole["last"][inside].tolist()
        bucketed = ask(7, **ends)
        assert max(bucketed["last"] if bucketed["exact"] else bucketed["max"]) == (9.0 if lo <= 250 <= hi else 0.0)
    assert len(ask(**{"from": float(whole["x"][-1]) + 1.0})["x"]) == 0
    assert len(ask(to=float(whole["x"][0]) - 1.0)["x"]) == 0
