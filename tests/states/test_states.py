"""The algebra of states: any split of the data, merged in any order, is the whole."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.model import Missing
from windsock.states import EXTREMA, KINDS, LAST, MEAN, MOMENTS, QUANTILES, RATIO, SUM, Layout, StateKind

numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
splits = st.lists(st.lists(numbers, max_size=12), max_size=6)
kinds = st.sampled_from(list(KINDS.values()))


def state_of(kind: StateKind, values: list[float], rank: int) -> np.ndarray:
    """Return a state, with pairs for the kinds that take pairs."""
    if kind is RATIO:
        return kind.of([(value, 1.0) for value in values], rank)
    if kind is LAST:
        return kind.of([(value, rank * 100.0 + place) for place, value in enumerate(values)], rank)
    return kind.of(values, rank)


def assert_same(kind: StateKind, a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-6, equal_nan=True, err_msg=str(kind))


@settings(max_examples=200, deadline=None)
@given(kinds, st.lists(numbers, max_size=12), st.lists(numbers, max_size=12), st.lists(numbers, max_size=12))
def test_merge_is_associative_and_commutative_with_an_identity(kind: StateKind, x, y, z):
    """The order in which micro-batches and ranks arrive does not show."""
    a, b, c = (state_of(kind, values, rank) for rank, values in enumerate((x, y, z)))
    assert_same(kind, kind.merge(kind.merge(a, b), c), kind.merge(a, kind.merge(b, c)))
    assert_same(kind, kind.merge(a, b), kind.merge(b, a))
    np.testing.assert_array_equal(kind.merge(a, kind.empty()), a)
    np.testing.assert_array_equal(kind.merge(kind.empty(), a), a)


@settings(max_examples=200, deadline=None)
@given(kinds, splits)
def test_any_split_gives_the_state_of_the_whole(kind: StateKind, split):
    """Means are of all values and not of means; maxima are true maxima."""
    whole = [(value, rank * 100.0 + place) for rank, part in enumerate(split) for place, value in enumerate(part)]
    if kind is RATIO:
        expected = kind.of([(value, 1.0) for value, _ in whole])
    elif kind is LAST:
        expected = kind.of(whole)
        expected[2] = kind.merge(kind.empty(), expected)[2]
    else:
        expected = kind.of([value for value, _ in whole])
    merged = kind.empty()
    for rank, part in enumerate(split):
        merged = kind.merge(merged, state_of(kind, part, rank))
    keep = [slot for slot, name in enumerate(kind.slots) if not name.endswith("_rank")]
    assert_same(kind, merged[keep], expected[keep])


def test_values_are_those_of_numpy():
    """Mean, population variance and extremes of a plain example."""
    data = [1.0, 2.0, 4.0, 9.0]
    assert MEAN.values(MEAN.of(data)) == {"mean": 4.0}
    assert SUM.values(SUM.of(data)) == {"sum": 16.0}
    moments = MOMENTS.values(MOMENTS.of(data))
    assert moments == {"mean": 4.0, "var": np.var(data), "std": np.std(data)}
    assert EXTREMA.values(EXTREMA.of(data, 3)) == {"min": 1.0, "max": 9.0, "min_rank": 3.0, "max_rank": 3.0}
    assert RATIO.values(RATIO.of([(1, 2), (3, 6)])) == {"ratio": 0.5}
    assert LAST.values(LAST.of([(5.0, 2), (7.0, 1)])) == {"last": 5.0}


@pytest.mark.parametrize("kind", [MEAN, RATIO, MOMENTS, EXTREMA, LAST, QUANTILES], ids=str)
def test_no_data_is_missing_and_never_zero(kind: StateKind):
    """Each finished number says why it is not there."""
    assert all(isinstance(value, Missing) for value in kind.values(kind.empty()).values())
    assert not Missing("x")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_neither_vanishes_nor_is_lost_count_of(bad: float):
    """Mean, moments and extremes show it, through merges, and the last slot counts it."""
    for kind in (MEAN, MOMENTS, EXTREMA, SUM):
        merged = kind.merge(kind.merge(kind.of([1.0, 2.0]), kind.of([bad, 3.0])), kind.of([4.0]))
        assert merged[-1] == 1
        assert not all(math.isfinite(value) for value in kind.values(merged).values())


def test_extremes_name_the_rank_that_holds_them():
    """Of equal ones it is the lower rank, whatever the order of merging."""
    parts = [EXTREMA.of([1.0, 5.0], 2), EXTREMA.of([0.0, 5.0], 1), EXTREMA.of([0.0, 3.0], 4)]
    for order in itertools.permutations(parts):
        merged = EXTREMA.merge(EXTREMA.merge(order[0], order[1]), order[2])
        assert EXTREMA.values(merged) == {"min": 0.0, "max": 5.0, "min_rank": 1.0, "max_rank": 1.0}


def test_moments_do_not_cancel():
    """A tiny spread on a huge mean survives many merges, where sums of squares would lose it."""
    data = 1e9 + np.random.default_rng(0).normal(size=100_000)
    merged = MOMENTS.empty()
    for part in np.array_split(data, 997):
        merged = MOMENTS.merge(merged, MOMENTS.of(part))
    assert MOMENTS.values(merged)["var"] == pytest.approx(np.var(data - 1e9), rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=200), st.sampled_from([0.01, 0.25, 0.5, 0.9, 1.0]))
def test_quantiles_are_within_two_percent_of_a_value_of_that_rank(data: list[float], share: float):
    """The sketch gives a value close to the one that stands at that place of the sorted data."""
    got = QUANTILES.quantile(QUANTILES.of(data), share)
    exact = sorted(data)[max(0, math.ceil(share * len(data)) - 1)]
    assert got == pytest.approx(exact, rel=0.0201, abs=1.1e-9)


def test_quantiles_of_extremes():
    """What is beyond the range of the bins counts at its edge."""
    assert QUANTILES.quantile(QUANTILES.of([1e300]), 0.5) == pytest.approx(1e9, rel=0.05)
    assert QUANTILES.quantile(QUANTILES.of([0.0, 1e-300]), 0.5) == 0.0
    assert QUANTILES.of([math.nan, 1.0])[-1] == 1


LAYOUT = Layout.of({"b/mean": MEAN, "a": MOMENTS, "c": EXTREMA, "d": MEAN, "e": SUM})


def test_a_layout_is_found_again_by_its_hash():
    """The same names and kinds, in whatever order they were declared, are the same layout."""
    same = Layout.of({"e": SUM, "d": MEAN, "c": EXTREMA, "b/mean": MEAN, "a": MOMENTS})
    assert (same, same.hash, Layout.parse(LAYOUT.describe())) == (LAYOUT, LAYOUT.hash, LAYOUT)
    assert Layout.of({"a": MEAN}).hash != Layout.of({"a": SUM}).hash
    assert LAYOUT.width == 4 + 3 + 5 + 3 + 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(numbers, max_size=8), max_size=5))
def test_vectors_of_many_ranks_merge_without_names(parts: list[list[float]]):
    """Merging whole vectors is merging each state."""
    vectors = [
        LAYOUT.pack({name: KINDS[kind].of(part, rank) for name, kind in LAYOUT.entries})
        for rank, part in enumerate(parts)
    ]
    merged = LAYOUT.unpack(LAYOUT.merge(vectors))
    for name, kind in LAYOUT.entries:
        expected = KINDS[kind].empty()
        for rank, part in enumerate(parts):
            expected = KINDS[kind].merge(expected, KINDS[kind].of(part, rank))
        np.testing.assert_array_equal(merged[name], expected)


def test_states_not_given_are_empty():
    """A rank that measured less merges with the others."""
    vector = LAYOUT.merge([LAYOUT.pack({"d": MEAN.of([2.0, 4.0])}), LAYOUT.pack({"e": SUM.of([1.0])})])
    assert MEAN.values(LAYOUT.unpack(vector)["d"]) == {"mean": 3.0}
    assert isinstance(MEAN.values(LAYOUT.unpack(vector)["b/mean"])["mean"], Missing)
