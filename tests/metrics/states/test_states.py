"""The states of any split of the data, merged in any order, are the state of all data."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.base.model import Missing
from barograph.metrics.states.kinds import (
    COMOMENTS,
    EXTREMA,
    KINDS,
    LAST,
    LOG_QUANTILES,
    MEAN,
    MOMENTS,
    POSITIVE_QUANTILES,
    QUANTILES,
    RATIO,
    SUM,
    Quantiles,
    StateKind,
)
from barograph.metrics.states.layout import Layout

numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
splits = st.lists(st.lists(numbers, max_size=12), max_size=6)
kinds = st.sampled_from(list(KINDS.values()))


def pairs_of(values: list[float]) -> list[tuple[float, float]]:
    """Return pairs whose second numbers are finite and vary with the first."""
    return [(value, math.sin(value) if math.isfinite(value) else 7.0) for value in values]


def state_of(kind: StateKind, values: list[float], rank: int) -> np.ndarray:
    """Return the state of some values, as pairs for the kinds that take pairs."""
    if kind is COMOMENTS:
        return kind.from_values(pairs_of(values), rank)
    if kind is RATIO:
        return kind.from_values([(value, 1.0) for value in values], rank)
    if kind is LAST:
        return kind.from_values([(value, rank * 100.0 + place) for place, value in enumerate(values)], rank)
    return kind.from_values(values, rank)


def values_of(kind: StateKind, state: np.ndarray) -> dict[str, float | Missing]:
    """Return the values of a state by the name of the statistic."""
    if not kind.formulas:
        found, empty = kind.values_of(state[None])
        return dict(zip(kind.statistics, [Missing("empty")] * 5 if empty[0] else found[0].tolist(), strict=False))
    slots = dict(zip(kind.slots, state, strict=True))
    if kind.empty_mark is not None and slots[kind.empty_mark[0]] == kind.empty_mark[1]:
        return dict.fromkeys(kind.statistics, Missing("empty"))
    with np.errstate(all="ignore"):
        quotients = {
            name: slots[one.numerator] / slots.get(one.denominator, 1.0) for name, one in kind.formulas.items()
        }
        return {
            name: float(np.sqrt(quotients[name]) if one.is_root else quotients[name])
            for name, one in kind.formulas.items()
        }


def quantile(kind: Quantiles, state: np.ndarray, percent: float) -> float:
    """Return the smallest value with so much of the data at or below it; above 0 %, to find the first bin with data."""
    return kind._at(state[:-1].cumsum(), np.array([max(percent, 1e-9)])).item()


def assert_same(kind: StateKind, a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-6, equal_nan=True, err_msg=str(kind))


@settings(max_examples=200, deadline=None)
@given(kinds, st.lists(numbers, max_size=12), st.lists(numbers, max_size=12), st.lists(numbers, max_size=12))
def test_merge_is_associative_and_commutative_with_an_identity(kind: StateKind, x, y, z):
    """The order in which micro-batches and ranks arrive does not matter."""
    a, b, c = (state_of(kind, values, rank) for rank, values in enumerate((x, y, z)))
    assert_same(kind, kind.merge(kind.merge(a, b), c), kind.merge(a, kind.merge(b, c)))
    assert_same(kind, kind.merge(a, b), kind.merge(b, a))
    np.testing.assert_array_equal(kind.merge(a, kind.empty()), a)
    np.testing.assert_array_equal(kind.merge(kind.empty(), a), a)


@settings(max_examples=200, deadline=None)
@given(kinds, splits)
def test_any_split_gives_the_state_of_all_values(kind: StateKind, split):
    """Means are of all values and not of means; maxima are true maxima."""
    whole = [(value, rank * 100.0 + place) for rank, part in enumerate(split) for place, value in enumerate(part)]
    if kind is RATIO:
        expected = kind.from_values([(value, 1.0) for value, _ in whole])
    elif kind is COMOMENTS:
        expected = kind.from_values(pairs_of([value for value, _ in whole]))
    elif kind is LAST:
        expected = kind.from_values(whole)
        expected[2] = kind.merge(kind.empty(), expected)[2]
    else:
        expected = kind.from_values([value for value, _ in whole])
    merged = kind.empty()
    for rank, part in enumerate(split):
        merged = kind.merge(merged, state_of(kind, part, rank))
    keep = [slot for slot, name in enumerate(kind.slots) if not name.endswith("_rank")]
    assert_same(kind, merged[keep], expected[keep])


def test_values_are_those_of_numpy():
    """Mean, population variance and extremes of a plain example."""
    data = [1.0, 2.0, 4.0, 9.0]
    assert values_of(MEAN, MEAN.from_values(data)) == {"mean": 4.0}
    assert values_of(SUM, SUM.from_values(data)) == {"sum": 16.0}
    moments = values_of(MOMENTS, MOMENTS.from_values(data))
    assert moments == {"mean": 4.0, "var": np.var(data), "std": np.std(data)}
    assert values_of(EXTREMA, EXTREMA.from_values(data, 3)) == {
        "min": 1.0,
        "max": 9.0,
        "min_rank": 3.0,
        "max_rank": 3.0,
    }
    assert values_of(RATIO, RATIO.from_values([(1, 2), (3, 6)])) == {"ratio": 0.5}
    assert values_of(LAST, LAST.from_values([(5.0, 2), (7.0, 1)])) == {"last": 5.0}
    pairs = [(1.0, 5.0), (2.0, 4.0), (4.0, 4.5), (9.0, 0.0)]
    correlation = values_of(COMOMENTS, COMOMENTS.from_values(pairs))["correlation"]
    assert correlation == pytest.approx(np.corrcoef(np.array(pairs).T)[0, 1], rel=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind is not SUM], ids=str)
def test_no_data_is_missing_and_never_zero(kind: StateKind):
    """Every value of an empty state is Missing, with a reason."""
    assert all(isinstance(value, Missing) for value in values_of(kind, kind.empty()).values())
    assert not Missing("x")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_kept_and_counted(bad: float):
    """Mean, moments and extremes are not finite after merges either, and the last slot counts the value."""
    for kind in (MEAN, MOMENTS, EXTREMA, SUM, QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES):
        merged = kind.merge(
            kind.merge(kind.from_values([1.0, 2.0]), kind.from_values([bad, 3.0])), kind.from_values([4.0])
        )
        assert merged[-1] == 1
        assert not all(math.isfinite(value) for value in values_of(kind, merged).values())


def expected_extremes(ranks: list[list[float]]) -> list[float]:
    """Return the extremes and the lowest rank that has each; a NaN is both extremes."""
    held = [(value, rank) for rank, values in enumerate(ranks) for value in values]
    if not held:
        return [math.inf, math.inf, -math.inf, math.inf]
    nan_ranks = [rank for value, rank in held if math.isnan(value)]
    if nan_ranks:
        return [math.nan, nan_ranks[0], math.nan, nan_ranks[0]]
    low, high = min(value for value, _ in held), max(value for value, _ in held)
    first = dict(reversed(held))
    return [low, first[low], high, first[high]]


extreme_numbers = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(extreme_numbers, max_size=3), max_size=4))
def test_extremes_and_their_ranks_are_the_same_for_every_order_of_merging(ranks: list[list[float]]):
    """All orders of the ranks, one after the other and in pairs, give the extremes and the lowest rank of each."""
    states = [EXTREMA.from_values(values, rank) for rank, values in enumerate(ranks)]
    expected = [*expected_extremes(ranks), sum(not math.isfinite(value) for values in ranks for value in values)]
    for order in itertools.permutations(states):
        in_sequence = functools.reduce(EXTREMA.merge, order, EXTREMA.empty())
        halves = [functools.reduce(EXTREMA.merge, half, EXTREMA.empty()) for half in (order[:2], order[2:])]
        np.testing.assert_array_equal(in_sequence, expected)
        np.testing.assert_array_equal(EXTREMA.merge(*halves), expected)


def test_equal_extremes_belong_to_the_lower_rank():
    """The rank of an extreme does not depend on the order of merging."""
    parts = [EXTREMA.from_values(*part) for part in (([1.0, 5.0], 2), ([0.0, 5.0], 1), ([0.0, 3.0], 4))]
    for order in itertools.permutations(parts):
        merged = functools.reduce(EXTREMA.merge, order)
        assert values_of(EXTREMA, merged) == {"min": 0.0, "max": 5.0, "min_rank": 1.0, "max_rank": 1.0}


def test_moments_do_not_cancel():
    """Many merges keep a tiny spread on a huge mean, which sums of squares would lose."""
    data = 1e9 + np.random.default_rng(0).normal(size=100_000)
    merged = MOMENTS.empty()
    for part in np.array_split(data, 997):
        merged = MOMENTS.merge(merged, MOMENTS.from_values(part))
    assert values_of(MOMENTS, merged)["var"] == pytest.approx(np.var(data - 1e9), rel=1e-6)


sizes = st.floats(-1e6, 1e6) | st.floats(-1e-3, 1e-3) | st.sampled_from([0.0, 1e-5, -1e-5, 1e6])


@settings(max_examples=200, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=200), st.sampled_from([0, 1, 7, 10, 50, 90, 99, 100]))
def test_quantiles_are_within_three_percent_of_a_value_of_that_rank(data: list[float], percent: int):
    """Against NumPy's quantile of the sorted data; values closer to zero than 1e-5 may count as zero."""
    exact = sorted(data)[max(1, -(-percent * len(data) // 100)) - 1]
    got = quantile(QUANTILES, QUANTILES.from_values(data), percent)
    assert got == pytest.approx(exact, rel=0.03 + 1e-9, abs=1e-5)
    with np.errstate(over="ignore"):
        ratio = np.exp(got)
    assert quantile(LOG_QUANTILES, LOG_QUANTILES.from_values(data), percent) == pytest.approx(ratio, rel=1e-9)
    positive = [abs(value) for value in data]
    exact = sorted(positive)[max(1, -(-percent * len(data) // 100)) - 1]
    got = quantile(POSITIVE_QUANTILES, POSITIVE_QUANTILES.from_values(positive), percent)
    assert got == pytest.approx(exact, rel=0.03 + 1e-9, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_five_quantiles_of_random_data_are_those_of_numpy(seed: int):
    """Within 3 % of the value, of the logarithm for ratios: normal, lognormal and heavy-tailed data."""
    rng = np.random.default_rng(seed)
    shares = [0.01, 0.1, 0.5, 0.9, 0.99]
    for data in (rng.normal(0.02, 0.1, 5000), rng.standard_cauchy(3001), rng.lognormal(0, 2, 777), rng.normal(size=1)):
        exact = np.quantile(data, shares, method="inverted_cdf")
        got = list(values_of(QUANTILES, QUANTILES.from_values(data)).values())
        np.testing.assert_allclose(got, exact, rtol=0.03 + 1e-9, atol=1e-5)
        ratios = list(values_of(LOG_QUANTILES, LOG_QUANTILES.from_values(data)).values())
        np.testing.assert_allclose(np.log(ratios), exact, rtol=0.03 + 1e-9, atol=1e-5)
        got = list(values_of(POSITIVE_QUANTILES, POSITIVE_QUANTILES.from_values(np.abs(data))).values())
        exact = np.quantile(np.abs(data), shares, method="inverted_cdf")
        np.testing.assert_allclose(got, exact, rtol=0.03 + 1e-9, atol=1e-5)


def test_a_correlation_needs_both_sides_to_vary():
    """Equal values, whose mean may round, have no correlation; one NaN makes it NaN; it is never beyond 1."""
    y = np.arange(30.0)
    merged = COMOMENTS.empty()
    for part in np.array_split(np.stack([np.full(30, 0.1), y], 1), 7):
        merged = COMOMENTS.merge(merged, COMOMENTS.from_values(part))
    assert isinstance(values_of(COMOMENTS, merged)["correlation"], Missing)
    falling = values_of(COMOMENTS, COMOMENTS.from_values(np.stack([0.1 * y, -0.3 * y], 1)))["correlation"]
    assert -1.0 <= falling <= -1.0 + 1e-12
    broken = COMOMENTS.merge(COMOMENTS.from_values([(1.0, math.nan)]), COMOMENTS.from_values(np.stack([y, y], 1)))
    assert math.isnan(values_of(COMOMENTS, broken)["correlation"])
    assert broken[-1] == 1


def test_quantiles_of_extremes():
    """Values beyond the range of the bins count at its edge."""
    assert quantile(QUANTILES, QUANTILES.from_values([1e300]), 50) == pytest.approx(1e6, rel=0.06)
    assert quantile(QUANTILES, QUANTILES.from_values([-1e300]), 50) == pytest.approx(-1e6, rel=0.06)
    assert quantile(QUANTILES, QUANTILES.from_values([0.0, 1e-300]), 50) == 0.0
    assert quantile(POSITIVE_QUANTILES, POSITIVE_QUANTILES.from_values([-1e-3, -5.0]), 50) == 0.0
    assert values_of(LOG_QUANTILES, LOG_QUANTILES.from_values([1e5, -1e5]))["p99"] == math.inf
    assert values_of(LOG_QUANTILES, LOG_QUANTILES.from_values([1e5, -1e5]))["p1"] == 0.0
    assert QUANTILES.from_values([math.nan, 1.0])[-1] == 1


def test_quantiles_of_counts_that_no_data_has_are_numbers():
    """A damaged journal may have any: nothing raises."""
    for kind in (QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES):
        for bad in (-1.0, math.nan, math.inf):
            state = kind.empty()
            state[3] = bad
            assert all(isinstance(value, float) for value in values_of(kind, state).values())


HASH_IN_JOURNALS = 1753210703060066970
"""The hash of one mean named 'a', written by 0.1."""
LAYOUT = Layout.from_kinds({"b/mean": MEAN, "a": MOMENTS, "c": EXTREMA, "d": MEAN, "e": SUM})


def test_a_layout_is_identified_by_its_hash():
    """The same names and kinds, declared in any order, are the same layout."""
    same = Layout.from_kinds({"e": SUM, "d": MEAN, "c": EXTREMA, "b/mean": MEAN, "a": MOMENTS})
    assert (same, same.hash) == (LAYOUT, LAYOUT.hash)
    assert Layout.from_kinds({"a": MEAN}).hash != Layout.from_kinds({"a": SUM}).hash
    assert Layout.from_kinds({"a": MEAN}).hash == HASH_IN_JOURNALS
    assert LAYOUT.width == 4 + 3 + 5 + 3 + 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(numbers, max_size=8), max_size=9))
def test_vectors_of_many_ranks_merge_without_names(parts: list[list[float]]):
    """Merging vectors equals merging each state, up to rounding, whatever their number."""
    vectors = [
        np.concatenate([KINDS[kind].from_values(part, rank) for _, kind in LAYOUT.entries])
        for rank, part in enumerate(parts)
    ]
    merged = LAYOUT.unpack(LAYOUT.merge(vectors))
    for name, kind in LAYOUT.entries:
        expected = KINDS[kind].empty()
        for rank, part in enumerate(parts):
            expected = KINDS[kind].merge(expected, KINDS[kind].from_values(part, rank))
        assert_same(KINDS[kind], merged[name], expected)


def test_vectors_are_merged_in_pairs():
    """Rounding errors grow with the logarithm of the number of ranks: a sum of 4,096 tenths is exact."""
    layout = Layout.from_kinds({"sum": SUM})
    merged = layout.merge([SUM.from_values([0.1])] * 4096)
    assert merged.tolist() == [409.6, 0.0]
