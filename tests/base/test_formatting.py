"""Text for people."""

import pytest

from barograph.base.formatting import counted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0, "row"), "0 rows"),
        ((1, "row"), "1 row"),
        ((1234, "row"), "1,234 rows"),
        ((1, "batch was", "batches were"), "1 batch was"),
        ((2, "batch was", "batches were"), "2 batches were"),
    ],
)
def test_a_count_has_the_noun_in_the_right_number(given: tuple[int, str], expected: str):
    """One of a thing is not one of things."""
    assert counted(*given) == expected
