"""Zooming: no picture hides an extreme or a value that is not finite."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barograph.journal.read.series import Series, bucket_count

floats = st.one_of(
    st.floats(width=64), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324])
)


def series(values: list[float], gap: int = 1) -> Series:
    steps = np.arange(len(values), dtype=np.int64) * gap
    return Series("x", steps, np.array(values, np.float64), steps.astype(np.float64))


def check(whole: Series, lo: int | None, hi: int | None, max_points: int) -> None:
    """Compare a zoom with the plain definition, bucket by bucket."""
    buckets = whole.zoom(lo, hi, max_points)
    inside = np.ones(len(whole), bool)
    inside &= whole.steps >= lo if lo is not None else True
    inside &= whole.steps <= hi if hi is not None else True
    steps, values = whole.steps[inside], whole.values[inside]
    assert len(buckets) <= max_points
    assert buckets.count.sum() == len(steps)
    if len(steps) <= max_points:
        assert buckets.first_step.tolist() == buckets.last_step.tolist() == steps.tolist()
        np.testing.assert_array_equal(buckets.last, values)
    place = 0
    for number, count in enumerate(buckets.count.tolist()):
        part = values[place : place + count]
        finite = part[np.isfinite(part)]
        np.testing.assert_array_equal(buckets.min[number], finite.min() if len(finite) else math.nan)
        np.testing.assert_array_equal(buckets.max[number], finite.max() if len(finite) else math.nan)
        np.testing.assert_array_equal(buckets.last[number], part[-1])
        assert buckets.nonfinite[number] == count - len(finite)
        assert (buckets.first_step[number], buckets.last_step[number]) == (steps[place], steps[place + count - 1])
        place += count


@given(st.lists(floats, max_size=300), st.integers(1, 40), st.data())
def test_no_zoom_hides_an_extreme_or_a_nonfinite_value(values: list[float], max_points: int, data: st.DataObject):
    """Any window of any series in any number of buckets is what the plain definition says."""
    whole = series(values, gap=3)
    lo = data.draw(st.none() | st.integers(-5, 3 * len(values) + 5))
    hi = data.draw(st.none() | st.integers(-5, 3 * len(values) + 5))
    check(whole, lo, hi, max_points)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20_000), st.integers(1, 200), st.integers(0, 2**32 - 1))
@example(0, 1, 0)
@example(20_000, 1, 1)
def test_long_series_are_as_honest_as_short_ones(size: int, max_points: int, seed: int):
    """The pyramid gives the numbers that the points give, at its edges too."""
    random = np.random.default_rng(seed)
    values = random.normal(size=size)
    values[random.random(size) < 0.001] = random.choice([math.nan, math.inf, -math.inf])
    lo, hi = sorted(random.integers(-10, size + 10, 2).tolist())
    whole = series(values.tolist())
    check(whole, lo, hi, max_points)
    check(whole, None, None, max_points)


def test_one_spike_and_one_nan_among_millions_are_seen_at_every_zoom():
    """A single point in five million decides the maximum of the bucket that holds it, however coarse."""
    values = np.zeros(5_000_000)
    values[1_234_567], values[3_141_592] = 7.0, math.nan
    whole = Series("x", np.arange(len(values)), values, np.zeros(len(values)))
    for max_points in (1, 2, 10, 1000, 3000):
        buckets = whole.zoom(max_points=max_points)
        assert buckets.max.max() == 7.0
        assert buckets.nonfinite.sum() == 1


def test_the_old_name_of_the_first_step_warns():
    """Until 0.3."""
    buckets = series([1.0, 2.0]).zoom()
    with pytest.warns(DeprecationWarning, match=r"first_step; the old name works until 0\.3"):
        assert buckets.first.tolist() == buckets.first_step.tolist() == [0, 1]


def test_no_buckets_at_all_is_refused():
    """A zoom into no points is a mistake of the caller's."""
    with pytest.raises(ValueError, match="at least 1"):
        series([1.0]).zoom(max_points=0)


@given(st.integers(0, 200), st.integers(1, 100), st.integers(1, 100), st.integers(0, 5))
def test_buckets_of_a_power_of_two_stay_when_points_come_behind_them(start: int, few: int, more: int, power: int):
    """All but the last bucket of a shorter series are those of the longer one."""
    stop, size = start + few, 2**power
    whole = series(np.random.default_rng(0).normal(size=stop + more).tolist())
    short, long = whole.grouped(start, stop, size), whole.grouped(start, stop + more, size)
    same = len(short) - 1
    np.testing.assert_array_equal(short.max[:same], long.max[:same])
    np.testing.assert_array_equal(short.last_step[:same], long.last_step[:same])
    assert short.count.sum() == few


@given(st.integers(0, 70), st.integers(1, 1500), st.integers(0, 9), st.data())
def test_the_last_buckets_alone_are_those_of_the_whole(start: int, count: int, power: int, data: st.DataObject):
    """However many are left out, with values that are not finite, and of few or many points."""
    values = np.random.default_rng(count).normal(size=start + count)
    values[::7], values[3::11] = np.nan, np.inf
    whole, size = series(values.tolist()), 2**power
    every = whole.grouped(start, start + count, size)
    assert bucket_count(start, start + count, size) == len(every)
    skip = data.draw(st.integers(0, len(every) - 1))
    last = whole.grouped(start, start + count, size, skip)
    for name in ("first_step", "last_step", "min", "max", "last", "count", "nonfinite"):
        np.testing.assert_array_equal(getattr(last, name), getattr(every, name)[skip:])
        assert getattr(last, name).dtype == getattr(every, name).dtype
