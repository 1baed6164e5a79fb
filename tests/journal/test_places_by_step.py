"""The places of measured states: put together by step, however they were added."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph.journal.merge.measured_states import PlacesByStep

STEPS = range(-1, 4)
added = st.tuples(st.integers(0, 3), st.integers(0, 9), st.lists(st.sampled_from(STEPS), max_size=6))


@given(st.lists(st.one_of(added, st.sampled_from(STEPS)), max_size=12))
def test_a_step_has_the_places_that_were_added_in_order(actions: list[tuple[int, int, list[int]] | int]):
    """A number asks for the places of a step in between, as a view does that is followed."""
    places, expected = PlacesByStep(), dict[int, list[tuple[int, int, float]]]()
    for action in actions:
        if isinstance(action, int):
            assert (action in places) == (action in expected)
            assert list(zip(*places.of(action), strict=True)) == expected.get(action, [])
            continue
        number, first, steps = action
        places.add(number, first, np.array(steps, np.int64), np.arange(len(steps)) / 2)
        for place, step in enumerate(steps):
            expected.setdefault(step, []).append((number, first + place, place / 2))
    for step in STEPS:
        assert list(zip(*places.take(step), strict=True)) == expected.get(step, [])
        assert step not in places
