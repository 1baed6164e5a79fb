"""Mergeable partial results, and how they travel.

A state is a few float64 numbers that hold all that is needed of the data seen so far. Two states of one kind merge
into the state of both data sets together, in any order; only at the very end is a state turned into a value. So it
does not matter how a batch was split over micro-batches, ranks or machines.

Merging over *micro-batches and ranks of one step* is what happens here. Merging over *steps* is something else and
is never done: the mean over a hundred steps of a hundred batches is a smoothing, a choice of the person who looks.
"""

from windsock.states.kinds import EXTREMA, KINDS, LAST, MEAN, MOMENTS, QUANTILES, RATIO, SUM, StateKind
from windsock.states.layout import Layout

__all__ = ["EXTREMA", "KINDS", "LAST", "MEAN", "MOMENTS", "QUANTILES", "RATIO", "SUM", "Layout", "StateKind"]
