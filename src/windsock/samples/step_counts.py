"""Samples counted by step: how many, their mean reward, and the share that is solved."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.samples.blocks import Block
from windsock.samples.query import StepCounts

Floats = NDArray[np.float64]


class StepCounter:
    """Counts samples, block by block."""

    def __init__(self) -> None:
        self._found: list[tuple[NDArray[np.int64], Floats, Floats]] = []

    def add(self, block: Block, rows: NDArray[np.int64]) -> None:
        """Add some samples of a block."""
        self._found.append((block.rows["step"][rows], block.numbers("reward")[0][rows], solved(block)[rows]))

    def result(self) -> StepCounts:
        """Return the counts."""
        if not self._found:
            return StepCounts()
        steps, rewards, is_solved = (np.concatenate(one) for one in zip(*self._found, strict=True))
        different, places = np.unique(steps, return_inverse=True)
        counts = np.bincount(places, minlength=len(different))
        reward, share = (_means(values, places, len(different)) for values in (rewards, is_solved))
        [of_all] = _means(is_solved, np.zeros_like(places), 1)
        return StepCounts(different.tolist(), counts.tolist(), reward, share, of_all)


def solved(block: Block) -> Floats:
    """Return 1 for samples that are right, 0 for others, and NaN where that is not known.

    The column ``correct`` says so, else the answer is compared with the reference, else the reward is above 0. Answers
    that are too long for a column count by the reward.
    """
    correct, is_stated = block.numbers("correct")
    answers, references = block.name_numbers("answer"), block.name_numbers("reference")
    is_answered = (answers > 0) & (references > 0)
    reward, is_rewarded = block.numbers("reward")
    with np.errstate(invalid="ignore"):
        found = np.where(is_stated, correct > 0, np.where(is_answered, answers == references, reward > 0))
    return np.where(is_stated | is_answered | is_rewarded, found, np.nan)


def _means(values: NDArray[Any], places: NDArray[np.int64], count: int) -> list[float | None]:
    """Return the mean of the known values of each place; None without any."""
    known = ~np.isnan(values)
    sums = np.bincount(places[known], values[known], count)
    counts = np.bincount(places[known], minlength=count)
    return [total / number if number else None for total, number in zip(sums.tolist(), counts.tolist(), strict=True)]
