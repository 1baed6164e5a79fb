"""Intervals of few values, against tables, numerical integration and simulation."""

import math

import numpy as np
import pytest

from barograph.metrics.comparison import band, difference_interval, mean_interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        (1, 12.70620473617471), (2, 4.302652729749464), (3, 3.182446305284264), (4, 2.776445105197799),
        (9, 2.262157162798205), (30, 2.042272456301238), (120, 1.979930405082422),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(freedom: float, expected: float):
    """The values are scipy.stats.t.ppf(0.975, df) of SciPy 1.11."""
    assert t_quantile(freedom) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("freedom", [1.3, 2.5, 4.7, 17.2])
def test_quantiles_for_fractions_of_degrees_enclose_95_percent_of_the_density(freedom: float):
    """Integrated by Simpson's rule in float64, over the angle whose tangent is t."""
    limit = math.atan(t_quantile(freedom) / math.sqrt(freedom))
    angles = np.linspace(-limit, limit, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    weights = np.ones(len(angles))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    integral = float((weights * density).sum() * (angles[1] - angles[0]) / 3)
    norm = math.gamma((freedom + 1) / 2) / (math.sqrt(math.pi) * math.gamma(freedom / 2))
    assert norm * integral == pytest.approx(0.95, abs=1e-9)


def test_a_mean_has_its_interval():
    """Gosset's sleep data, second drug: mean 2.33, 95 % interval 0.90 to 3.76 (t.test of R)."""
    found = mean_interval([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    assert (found.mean, found.count) == (pytest.approx(2.33), 10)
    assert (found.low, found.high) == (pytest.approx(0.8976775), pytest.approx(3.7623225))


def test_a_difference_is_that_of_welch():
    """The same data, unpaired: R's t.test gives -3.3654832 to 0.2054832 with 17.776 degrees of freedom."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = difference_interval(first, second)
    assert (found.mean, found.low, found.high) == pytest.approx((-1.58, -3.3654832, 0.2054832), abs=1e-6)


def test_too_few_values_have_no_interval():
    """One value has a mean only, none has nothing; values that are not finite do not count."""
    assert not mean_interval([3.0]).is_known
    assert mean_interval([3.0, math.nan]).mean == 3.0
    assert math.isnan(mean_interval([math.inf]).mean)
    assert mean_interval([]).count == 0
    assert not difference_interval([1.0, 2.0], [3.0]).is_known
    assert difference_interval([1.0, 2.0], [3.0]).mean == -1.5
    assert difference_interval([], [3.0]).count == 0


def test_equal_values_have_an_interval_of_no_width():
    """Trainings that do not depend on the seed differ for certain."""
    assert difference_interval([2.0, 2.0], [1.0, 1.0]).low == 1.0
    assert mean_interval([2.0, 2.0]).high == 2.0


def test_a_band_has_the_intervals_of_its_columns():
    """Also where runs have ended, so that fewer are left."""
    values = np.array([[1.0, 2.0, 5.0, np.nan], [2.0, 2.5, np.nan, np.nan], [4.0, 9.0, 7.0, np.nan]])
    mean, low, high, count = band(values)
    assert count.tolist() == [3, 3, 2, 0]
    for column in range(3):
        expected = mean_interval(values[:, column])
        assert (mean[column], low[column], high[column]) == pytest.approx((expected.mean, expected.low, expected.high))
    assert np.isnan(mean[3])


def test_few_seeds_are_covered_as_often_as_promised():
    """Of 4,000 groups of three normal values 95 % contain the mean; a bootstrap of them would in about 75 %."""
    generator = np.random.default_rng(7)
    draws = generator.normal(size=(3, 4000))
    _, low, high, _ = band(draws)
    assert np.mean((low < 0) & (high > 0)) == pytest.approx(0.95, abs=0.01)
    again = draws[generator.integers(0, 3, size=(3, 500))].mean(axis=0)
    ends = np.quantile(again, [0.025, 0.975], axis=0)
    assert np.mean((ends[0] < 0) & (ends[1] > 0)) < 0.8
