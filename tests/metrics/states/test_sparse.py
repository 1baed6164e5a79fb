"""Sparse states: few bytes, the same numbers, and no more memory than 64 times the bytes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.metrics.states import layout
from barograph.metrics.states.kinds import MEAN, POSITIVE_QUANTILES, QUANTILES
from barograph.metrics.states.layout import Layout

numbers = st.sampled_from([0.0] * 9 + [1.0, 255.0, 256.0, 65_536.0, 2.0**32, 0.5, 0.1, -1.0, math.nan, math.inf])


@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=70))
def test_a_vector_is_the_same_after_a_round_trip(values: list[float]):
    """Counts, fractions, NaN and infinities, of any width."""
    vector = np.array(values)
    np.testing.assert_array_equal(layout._summed([layout.encode_sparse(vector)], len(vector)), vector)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 70), st.integers(0, 100), st.integers(0, 2**32 - 1))
def test_vectors_are_added_up(count: int, width: int, seed: int):
    """Any number of them, with numbers of different types; none is all zero."""
    random = np.random.default_rng(seed)
    vectors = random.integers(0, 1000, (count, width)) * (random.random((count, width)) < 0.3)
    vectors = vectors * np.where(random.random((count, 1)) < 0.2, 0.25, 1.0)
    bodies = list(map(layout.encode_sparse, vectors))
    np.testing.assert_array_equal(layout._summed(bodies, width), vectors.sum(axis=0))
    np.testing.assert_array_equal(layout._summed([], width), np.zeros(width))


def test_counts_take_a_bit_for_each_slot_and_a_byte_for_each_that_is_used():
    """Of 848 slots 3 are used: 1 + 106 + 3 bytes."""
    assert len(layout.encode_sparse(QUANTILES.from_values([1.0, 2.0, 2.0, -5.0]))) == 110
    assert layout.TYPES == {b"B": "<u1", b"H": "<u2", b"I": "<u4", b"f": "<f4", b"d": "<f8"}


DAMAGED = (
    b"", b"B", b"B\x01", b"B\x01\x00", b"B\x01\x00\x05\x05", b"B\xff\xff" + b"\x01" * 16, b"x\x01\x00\x05",
    b"d\x01\x00\x05",
)  # fmt: skip


@pytest.mark.parametrize("damaged", DAMAGED)
def test_damaged_bytes_are_refused(damaged: bytes):
    """Too short, too long, of an unknown type, with bits beyond the width: all raise ValueError."""
    with pytest.raises(ValueError, match="sparse|buffer size"):
        layout._summed([b"B\x01\x00\x05", damaged], 10)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(DAMAGED), st.binary(max_size=6), st.lists(numbers, min_size=10, max_size=10)))
)
def test_intact_are_those_that_can_be_decoded(states: list[bytes | list[float]]):
    """Of vectors that lie one behind the other, each after a head."""
    bodies = [one if isinstance(one, bytes) else layout.encode_sparse(np.array(one)) for one in states]

    def is_decoded(body: bytes) -> bool:
        try:
            layout._decoded([body], 10)
        except ValueError:
            return False
        return True

    joined = b"".join(b"head" + body for body in bodies)
    found = layout.intact_sparse(joined, np.array([4 + len(body) for body in bodies], np.int64), 10, 4)
    assert found.tolist() == [is_decoded(body) for body in bodies]


def test_a_layout_has_its_sparse_states_apart():
    """The others keep the layout, and its hash, that they have without them."""
    kinds = {"a": MEAN, "b": QUANTILES, "c": MEAN, "d": POSITIVE_QUANTILES}
    layout = Layout.from_kinds(kinds)
    (few, few_slots), (rest, rest_slots) = layout.parts
    assert rest == Layout.from_kinds({"a": MEAN, "c": MEAN})
    assert few == Layout.from_kinds({"b": QUANTILES, "d": POSITIVE_QUANTILES})
    vector = np.arange(layout.width)
    for part, slots in ((few, few_slots), (rest, rest_slots)):
        for name, state in part.unpack(vector[slots]).items():
            np.testing.assert_array_equal(state, layout.unpack(vector)[name])
    assert [part for part, _ in rest.parts] == [rest]
    assert [part for part, _ in few.parts] == [few]
