"""Statistics of several tries at each of many tasks: the best and the worst of k, pass@k, what a majority answers.

All are exact: no random numbers, and no dependence on the order of the tries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NORMAL_95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True)
class Tries:
    """The tries at tasks that have at least one, sorted upwards within each task."""

    values: Floats
    tasks: Ints  # the place of each value's task among ``counts``
    places: Floats  # 1, 2, … within the task
    counts: Floats  # tries of each task

    @classmethod
    def of(cls, values: Floats, tasks: Ints) -> Tries:
        """Sort tries by task and value; tasks are any integers, and those without a try do not exist here."""
        order = np.lexsort((values, tasks))
        values, tasks = values[order], tasks[order]
        begins = np.append(True, tasks[1:] != tasks[:-1])[: len(tasks)]
        starts = np.flatnonzero(begins)
        dense = np.cumsum(begins) - 1
        counts = np.diff(np.append(starts, len(tasks))).astype(np.float64)
        return cls(values, dense, np.arange(1.0, len(tasks) + 1) - starts[dense], counts)

    def _sums(self, parts: Floats) -> Floats:
        return np.bincount(self.tasks, parts, minlength=len(self.counts)).astype(np.float64, copy=False)

    def mean(self) -> Floats:
        """Return the mean of each task's tries."""
        return self._sums(self.values) / self.counts

    def std(self) -> Floats:
        """Return the standard deviation (ddof 0) of each task's tries."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self._sums(np.square(self.values - self.mean()[self.tasks])) / self.counts)

    def best(self, k: int) -> Floats:
        """Return the expected maximum of k draws with replacement: Σ v_(i)·((i/n)^k − ((i−1)/n)^k)."""
        n = self.counts[self.tasks]
        return self._sums(self.values * ((self.places / n) ** k - ((self.places - 1) / n) ** k))

    def worst(self, k: int) -> Floats:
        """Return the expected minimum of k draws with replacement."""
        n = self.counts[self.tasks]
        from_above = n - self.places + 1
        return self._sums(self.values * ((from_above / n) ** k - ((from_above - 1) / n) ** k))

    def pass_at(self, k: int) -> Floats:
        """Return the chance that one of k tries without replacement is right, 1 − C(n−c, k)/C(n, k).

        Only of tasks with at least k tries: of the others there is no unbiased estimate.
        """
        right = self._sums((self.values > 0).astype(np.float64))
        enough = self.counts >= k
        pairs = np.stack([self.counts[enough], right[enough]], axis=1).astype(np.int64)
        unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
        chances = [1 - math.comb(n - c, k) / math.comb(n, k) for n, c in unique.tolist()]
        return np.array(chances, np.float64)[inverse.ravel()] if chances else np.empty(0)

    @property
    def binary(self) -> bool:
        """Whether every try is worth 0 or 1."""
        return bool(np.all((self.values == 0) | (self.values == 1)))


def powers_below(repeats: int) -> list[int]:
    """Return the k for which the best and worst of k are told: powers of two from 2 on, and ``repeats`` itself."""
    powers = [2**n for n in range(1, max(repeats, 1).bit_length()) if 2**n < repeats]
    return [*powers, repeats] if repeats > 1 else []


def share_interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a mean over tasks of values in [0, 1], tasks being draws from many like them.

    Wilson's interval with an effective number of tasks m = n·p(1−p)/s², where s² = (Σ(x−p)² + p(1−p))/n. For values
    that are all 0 or 1 it is Wilson's of about n; where tasks differ less it narrows as the standard error does; and
    it has a width where all tasks agree.
    """
    n = len(values)
    p = float(values.mean())
    most = p * (1 - p)
    spread = (float(np.square(values - p).sum()) + most) / n
    m = n * most / spread if spread > 0 else n
    squared = NORMAL_95 * NORMAL_95 / m
    middle = (p + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (most + squared / 4)) / (1 + squared)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def majority(values: Sequence[float], answers: Sequence[str | None], k: int) -> float:
    """Return what the most frequent answer of k tries without replacement is worth, on average over all such draws.

    An answer is worth the mean of its tries; of equally frequent answers each wins as often. None abstains, and where
    all of k abstain, their mean counts. k is at most the number of tries.
    """
    worth: dict[str | None, list[float]] = {}
    for value, answer in zip(values, answers, strict=True):
        worth.setdefault(answer, []).append(value)
    silent = worth.pop(None, [])
    ranked = sorted(worth.values(), key=len, reverse=True)
    wins, nobody = winning(tuple(len(tries) for tries in ranked), len(silent), k)
    parts = [win * math.fsum(tries) / len(tries) for win, tries in zip(wins, ranked, strict=True) if win]
    return math.fsum([*parts, nobody * math.fsum(silent) / len(silent)] if nobody else parts)


@lru_cache(maxsize=1 << 16)
def winning(votes: tuple[int, ...], abstentions: int, k: int) -> tuple[tuple[float, ...], float]:
    """Return each answer's chance to win a vote of k tries drawn without replacement, and that nobody votes.

    ``votes`` are how often each answer was given, downwards. An answer that wins with m votes does so against every
    way the others can have at most m; t others with m as well leave it 1/(t+1) of the win, which is the integral of
    y^t over [0, 1] and is taken exactly by Gauss-Legendre nodes.
    """
    draws = math.comb(sum(votes) + abstentions, k)
    nobody = math.comb(abstentions, k) / draws
    if k == sum(votes) + abstentions:
        winners = votes.count(votes[0]) if votes else 0
        return tuple(float(count == votes[0]) / winners for count in votes), nobody
    nodes, weights = np.polynomial.legendre.leggauss(len(votes) // 2 + 1)
    ties, weights = (nodes + 1) / 2, weights / 2
    chances: dict[int, float] = {}
    for count in set(votes):
        others = list(votes)
        others.remove(count)
        ways = sum(
            math.comb(count, m) * float(weights @ _ways(others, abstentions, m, k - m, ties))
            for m in range(1, min(count, k) + 1)
        )
        chances[count] = ways / draws
    return tuple(chances[count] for count in votes), nobody


def _ways(others: Sequence[int], abstentions: int, m: int, rest: int, ties: Floats) -> Floats:
    """Count the draws of ``rest`` tries in which no other answer has more than m, each one with m weighing ``ties``."""
    found = np.zeros((len(ties), rest + 1))
    found[:, : abstentions + 1] = [math.comb(abstentions, v) for v in range(min(abstentions, rest) + 1)]
    for count in others:
        taken = np.zeros_like(found)
        for v in range(min(count, m, rest) + 1):
            factor = math.comb(count, v) * (ties[:, None] if v == m else 1.0)
            taken[:, v:] += factor * found[:, : rest + 1 - v]
        found = taken
    return found[:, rest]
