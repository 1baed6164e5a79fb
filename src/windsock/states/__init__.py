"""Mergeable partial results.

A state is a few float64 numbers that summarise the data of a metric. Two states of one kind merge into the state of
both data sets together, in any order, and only a merged state is turned into a value. How a batch was split over
micro-batches, ranks or machines therefore does not change the value.

States are merged over the *micro-batches and ranks of one step*. They are never merged over *steps*: a mean over a
hundred steps is a smoothing, and the reader of a chart chooses it.
"""

from windsock.states.kinds import (
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
from windsock.states.layout import Layout

__all__ = [
    "COMOMENTS",
    "EXTREMA",
    "KINDS",
    "LAST",
    "LOG_QUANTILES",
    "MEAN",
    "MOMENTS",
    "POSITIVE_QUANTILES",
    "QUANTILES",
    "RATIO",
    "SUM",
    "Layout",
    "Quantiles",
    "StateKind",
]
