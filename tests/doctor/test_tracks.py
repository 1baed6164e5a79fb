"""Statistics of tracks agree with slow references, and use nothing of the future."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from barograph.metrics.tracks import Track, kendall_chance, rise, scheduled_rows


def track(values: list[float]) -> Track:
    """Return a track of values at the steps 1, 2, …"""
    return Track("reward", "reward", "reward/score/mean", np.arange(1, len(values) + 1), np.array(values, float))


def random_values(seed: int, count: int = 60) -> list[float]:
    """Return noise with a trend, some ties, and some values that are not finite."""
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=count) + np.linspace(0, random.normal(), count), 1)
    values[random.random(count) < 0.05] = random.choice([math.nan, math.inf])
    return [float(value) for value in values]


@pytest.mark.parametrize("seed", range(5))
def test_rolling_statistics_are_those_of_the_last_rows(seed: int):
    """At first of as many as there are; what is not finite counts as the last finite value."""
    one = track(random_values(seed))
    for width in (1, 5, 20):
        for row in range(len(one)):
            window = one.finite[max(0, row - width + 1) : row + 1]
            window = window[~np.isnan(window)]
            if len(window):
                assert one.mean(width)[row] == pytest.approx(window.mean())
                assert one.median(width)[row] == pytest.approx(np.median(window))
                assert one.largest(width)[row] == window.max()
            else:
                assert math.isnan(one.mean(width)[row])


def test_rows_before_the_first_number_have_no_median_and_no_warning():
    """Also in several threads at once, as on a server: filters of warnings are of the whole process."""
    values = [*[math.nan] * 30, 1.0, math.nan, 3.0]

    def medians(_: int) -> list[float]:
        return track(values).median(3).tolist()[-4:]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(medians, range(400)))
    np.testing.assert_array_equal(found, [[math.nan, 1.0, 1.0, 1.0]] * 400)


@pytest.mark.parametrize("seed", range(5))
def test_a_row_knows_nothing_of_later_rows(seed: int):
    """Statistics of the first rows are the same when more rows follow."""
    whole = track(random_values(seed, 90))
    for rows in (1, 19, 20, 21, 50, 77):
        part = whole.upto(rows)
        np.testing.assert_array_equal(part.mean(10), whole.mean(10)[:rows])
        np.testing.assert_array_equal(part.outlying(), whole.outlying()[:rows])
        np.testing.assert_array_equal(part.trend.effect, whole.trend.effect[:rows])
        np.testing.assert_array_equal(part.trend.chance, whole.trend.chance[:rows])


@pytest.mark.parametrize("seed", range(5))
def test_a_track_that_grows_has_the_statistics_of_the_whole(seed: int):
    """Row by row or in pieces; and if earlier rows change, nothing of them is kept."""
    random = np.random.default_rng(seed)
    whole = track(random_values(seed, 90))
    grown = whole.upto(0)
    place = 0
    while place < len(whole):
        place = min(len(whole), place + int(random.integers(1, 12)))
        grown = grown.extended(whole.steps[:place], whole.values[:place])
        for statistic in (Track.mean, Track.median, Track.largest):
            np.testing.assert_allclose(statistic(grown, 10), statistic(whole, 10)[:place], equal_nan=True)
        np.testing.assert_array_equal(grown.outlying(), whole.outlying()[:place])
        np.testing.assert_array_equal(grown.trend.effect, whole.trend.effect[:place])
        np.testing.assert_array_equal(grown.trend.chance, whole.trend.chance[:place])
    changed = whole.values.copy()
    changed[3] = 7.0
    np.testing.assert_array_equal(grown.extended(whole.steps, changed).mean(10), track(changed.tolist()).mean(10))


def test_the_chance_of_a_trend_is_mann_kendalls():
    """With the correction for ties, pair by pair."""
    for seed in range(20):
        values = np.array([value for value in random_values(seed, 40) if math.isfinite(value)])
        score = sum(np.sign(later - earlier) for earlier, later in itertools.combinations(values.tolist(), 2))
        count = len(values)
        ties = [values.tolist().count(value) for value in set(values.tolist())]
        variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
        z = (score - np.sign(score)) / math.sqrt(variance)
        assert kendall_chance(values) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))


def test_independent_values_rarely_have_a_trend():
    """A test at one percent finds a trend in about one of a hundred series of noise."""
    random = np.random.default_rng(1)
    found = sum(kendall_chance(random.normal(size=100)) < 0.01 for _ in range(1000))
    assert 2 <= found <= 25


def test_the_rise_is_in_units_of_the_noise():
    """A line without noise rises without bound; noise alone does not."""
    assert rise(np.arange(30.0)) == math.inf
    assert rise(np.full(30, 2.0)) == 0.0
    noisy = np.linspace(0, 3, 300) + np.random.default_rng(0).normal(size=300)
    assert 1.5 < rise(noisy) < 2.5


def test_trends_are_computed_at_about_twenty_rows_per_doubling():
    """So that a new row costs the same on average, however long the run is."""
    rows = scheduled_rows(5000)
    assert rows[0] == 20
    assert len([row for row in rows if 1000 <= row < 2000]) in range(12, 22)


def test_the_empty_track():
    """It has no statistics, and none of them raises."""
    none = track([])
    assert len(none.mean(5)) == len(none.trend.effect) == len(none.outlying()) == 0
    assert math.isnan(none.first(5))
    assert math.isnan(track([math.nan, math.nan]).mean(5)[-1])


def slow_outlying(values: list[float], width: int, least: int) -> list[float]:
    """Return how far each value lies above those before it, row by row."""
    found = []
    for row, value in enumerate(values):
        before = np.array([np.log10(one) for one in values[max(0, row - width) : row] if one > 0])
        if len(before) < least or value <= 0:
            found.append(math.nan)
            continue
        middle = np.median(before)
        spread = max(1.4826 * float(np.median(np.abs(before - middle))), 0.05)
        found.append(float((np.log10(value) - middle) / spread))
    return found


@pytest.mark.parametrize("zeros", [0, 5])
def test_outliers_are_those_of_the_rows_before(zeros: int):
    """With and without values that have no logarithm, and also row by row."""
    random = np.random.default_rng(zeros)
    values = np.exp(random.normal(size=140))
    values[random.choice(140, zeros, replace=False)] = 0.0
    whole = track(values.tolist())
    expected = slow_outlying(values.tolist(), 50, 10)
    np.testing.assert_allclose(whole.outlying(), expected, rtol=1e-12)
    grown = track(values[:100].tolist())
    grown.outlying()
    for rows in (101, 102, 140):
        grown = grown.extended(np.arange(1, rows + 1), values[:rows])
        np.testing.assert_allclose(grown.outlying(), expected[:rows], rtol=1e-12)


def test_long_series_are_judged_by_the_means_of_blocks():
    """Of equal length but for the rest, as ``array_split`` makes them."""
    values = np.random.default_rng(1).normal(size=1000) + np.linspace(0, 0.3, 1000)
    blocks = np.array([block.mean() for block in np.array_split(values, 300)])
    assert kendall_chance(values) == kendall_chance(blocks)
