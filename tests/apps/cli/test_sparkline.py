"""Sparklines: a series in one line of text."""

import warnings

import numpy as np
import pytest

from barograph.apps.terminal.sparkline import sparkline
from barograph.journal.read.series import Series


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([1.0, 2.0, 3.0], "▁▅█"),
        ([1.0, 1.0], "▁▁"),
        ([1.0, np.nan, 3.0], "▁×█"),
        ([0.0, 5e-324], "▁▁"),
        ([-1.7e308, 0.0, 1.7e308], "▁▅█"),
    ],
)
def test_lines_of_all_sizes(values: list[float], drawn: str):
    """Also where values differ by next to nothing, or by more than the largest number; nothing is printed beside."""
    count = len(values)
    series = Series("x", np.arange(count), np.array(values), np.arange(float(count)), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sparkline(series) == drawn
