"""Statistics of several runs of each of many tasks: the best and the worst of k, pass@k, the vote of a majority.

The order of the runs does not matter. All are exact, except for the vote of a majority where that would take too long:
it is then estimated from random draws with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from barograph.base.arrays import Floats, Ints

TAIL = 0.025  # on either side of a 95 % interval
MOST_DEVIATIONS = math.sqrt(1 / TAIL - 1)  # from its mean, beyond which no distribution has more than ``TAIL``
INTERVAL_VALUES = 64  # different values up to which an interval is exact
STEP = 0.1  # of the integral's variable ln u; its error is below 1e-9
FREQUENCIES = np.exp(np.arange(-23.0, 23.0, STEP))
ALWAYS_EXACT_RUNS = 16  # runs of a task up to which its vote is exact, whatever that costs
EXACT_COST = 1e9  # nanoseconds, roughly, that the exact votes of all tasks may take together
VOTE_DRAWS = 1 << 16  # draws for the estimated votes of all tasks together
VOTE_CELLS = 1 << 28  # draws times runs, at most: what the draws cost
CHUNK_CELLS = 1 << 17  # draws times answers that are in memory at once
LARGEST_EXACT_BITS = 1000  # of the number of draws: it must fit a float64


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The scores of tasks with at least one run, ascending within each task."""

    values: Floats
    tasks: Ints  # the index of each value's task in ``counts``
    places: Floats  # 1, 2, … within the task
    counts: Floats  # runs of each task

    @classmethod
    def from_runs(cls, values: Floats, tasks: Ints) -> TaskScores:
        """Sort the scores of runs by task and value; tasks are any integers, and only those with a run are included."""
        order = np.lexsort((values, tasks))
        values, tasks = values[order], tasks[order]
        begins = np.append(True, tasks[1:] != tasks[:-1])[: len(tasks)]
        starts = np.flatnonzero(begins)
        dense = np.cumsum(begins) - 1
        counts = np.diff(np.append(starts, len(tasks))).astype(np.float64)
        return cls(values, dense, np.arange(1.0, len(tasks) + 1) - starts[dense], counts)

    def _sums(self, terms: Floats) -> Floats:
        return np.bincount(self.tasks, terms, minlength=len(self.counts)).astype(np.float64, copy=False)

    def mean(self) -> Floats:
        """Return the mean score of each task."""
        return self._sums(self.values) / self.counts

    def std(self) -> Floats:
        """Return the standard deviation (ddof 0) of each task's scores."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self._sums(np.square(self.values - self.mean()[self.tasks])) / self.counts)

    def best(self, k: int) -> Floats:
        """Return the expected maximum of k runs drawn with replacement: Σ v_(i)·((i/n)^k − ((i−1)/n)^k)."""
        n = self.counts[self.tasks]
        return self._sums(self.values * ((self.places / n) ** k - ((self.places - 1) / n) ** k))

    def worst(self, k: int) -> Floats:
        """Return the expected minimum of k runs drawn with replacement."""
        n = self.counts[self.tasks]
        from_above = n - self.places + 1
        return self._sums(self.values * ((from_above / n) ** k - ((from_above - 1) / n) ** k))

    def pass_at(self, k: int) -> Floats:
        """Return the chance that one of k runs drawn without replacement is right, 1 − C(n−c, k)/C(n, k).

        Only tasks with at least k runs are included: for the others there is no unbiased estimate.
        """
        right = self._sums((self.values > 0).astype(np.float64))
        enough = self.counts >= k
        pairs = np.stack([self.counts[enough], right[enough]], axis=1).astype(np.int64)
        # Many tasks have the same counts, and the binomials are large integers: each pair is computed once.
        unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
        chances = [1 - math.comb(n - c, k) / math.comb(n, k) for n, c in unique.tolist()]
        return np.array(chances, np.float64)[inverse.ravel()] if chances else np.empty(0)

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1."""
        return bool(np.all((self.values == 0) | (self.values == 1)))


def powers_below(repeats: int) -> list[int]:
    """Return the k of best@k and worst@k: the powers of two from 2 on that are below ``repeats``, and ``repeats``."""
    powers = [2**n for n in range(1, max(repeats, 1).bit_length()) if 2**n < repeats]
    return [*powers, repeats] if repeats > 1 else []


def share_interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a mean over tasks of values in [0, 1], where the tasks are a random sample.

    It is Gaffke's interval: the mean with random weights, uniform over all weights that sum to 1, of the values and of
    one more task. That task has 0 for the lower end and 1 for the upper: it stands for tasks that the sample does not
    have. The ends are the 2.5 % and 97.5 % quantiles. For values that are all 0 or 1 it is Clopper and Pearson's
    interval; where tasks differ less, it narrows as the standard error does; where all agree, it still has a width.
    """
    return _lower_end(values), 1 - _lower_end(1 - values)


def _lower_end(values: Floats) -> float:
    low, high = 0.0, float(values.mean())
    if high < 1e-9:
        return 0.0
    distinct, counts = _distinct(values)
    distinct, counts = np.append(0.0, distinct), np.append(1.0, counts)
    for _ in range(32):
        middle = (low + high) / 2
        if _chance_below(distinct, counts, middle) < TAIL:
            low = middle
        else:
            high = middle
    return low


def _distinct(values: Floats) -> tuple[Floats, Floats]:
    """Return the different values and their counts; of many, the means of those that are close."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= INTERVAL_VALUES:
        return distinct, counts.astype(np.float64)
    places = np.minimum((values * INTERVAL_VALUES).astype(np.int64), INTERVAL_VALUES - 1)
    counts = np.bincount(places)
    present = counts > 0
    return np.bincount(places, values)[present] / counts[present], counts[present].astype(np.float64)


def _chance_below(values: Floats, counts: Floats, limit: float) -> float:
    """Return the chance that the mean with random weights is below ``limit``.

    The weights are independent exponential variables over their sum, so that this is the chance that
    Y = Σ g·(value − limit) is below 0. It is the integral of Gil-Pelaez over the characteristic function of Y.
    """
    terms = values - limit
    deviation = math.sqrt(float(counts @ np.square(terms)))
    # Cantelli's inequality; far from the mean the integrand oscillates too fast for the step.
    if float(counts @ terms) > MOST_DEVIATIONS * deviation:
        return 0.0
    scaled = FREQUENCIES[:, None] * (terms / deviation)
    angles = np.arctan(scaled) @ counts
    logs = np.log1p(np.square(scaled)) @ counts / 2
    return 0.5 - STEP / math.pi * float(np.sum(np.sin(angles) * np.exp(-logs)))


Profile = tuple[tuple[int, ...], int]
"""Numbers of runs with each answer, descending, and the number of runs that abstain: only they decide a vote."""


@dataclass(frozen=True, slots=True)
class _Ballot:
    """The vote of one task's runs, with the score of each answer and of the runs that abstain."""

    profile: Profile
    scores: list[float]
    abstained: float

    @classmethod
    def of(cls, values: Sequence[float], answers: Sequence[str | None]) -> _Ballot:
        found: dict[str | None, list[float]] = {}
        for value, answer in zip(values, answers, strict=True):
            found.setdefault(answer, []).append(value)
        abstained = found.pop(None, [])
        # In one order, tasks with equal counts have equal profiles.
        ranked = sorted(found.values(), key=len, reverse=True)
        profile = tuple(len(runs) for runs in ranked), len(abstained)
        # fsum rounds once, so that the order of the runs does not matter even in the last bit.
        scores = [math.fsum(runs) / len(runs) for runs in ranked]
        return cls(profile, scores, math.fsum(abstained) / len(abstained) if abstained else 0.0)

    def score(self, wins: Sequence[float], no_vote: float) -> float:
        terms = [win * score for win, score in zip(wins, self.scores, strict=True) if win]
        return math.fsum([*terms, no_vote * self.abstained] if no_vote else terms)


def mean_majority(tasks: Sequence[tuple[Sequence[float], Sequence[str | None]]], k: int) -> tuple[float, float | None]:
    """Return the mean of the majority's score over at least one task, and its standard error; None if it is exact.

    That of a task is the expected score of the most frequent answer among k runs drawn without replacement. The score
    of an answer is the mean of its runs; equally frequent answers win equally often. A run with answer None abstains,
    and where all k abstain, their mean counts. k is at most the number of runs of each task.

    Votes that would take too long are estimated. Tasks share ``VOTE_DRAWS`` draws, so that the standard error is at
    most (highest − lowest score)/2/√VOTE_DRAWS = 0.002 for scores in [0, 1] and up to 4,096 runs of a task.
    """
    by_profile: dict[Profile, list[_Ballot]] = {}
    for values, answers in tasks:
        ballot = _Ballot.of(values, answers)
        by_profile.setdefault(ballot.profile, []).append(ballot)
    limit = EXACT_COST / len(by_profile)
    most = max(sum(votes) + abstentions for votes, abstentions in by_profile)
    draws = max(min(VOTE_DRAWS, VOTE_CELLS // most) // len(tasks), 2)
    scores: list[float] = []
    variances: list[float] = []
    # Tasks with equal profiles have the same draws, so that their errors add up; those of other profiles do not.
    for profile, ballots in by_profile.items():
        if _is_cheap(*profile, k, limit):
            chances = winning(*profile, k)
        else:
            chances = estimated_winning(*profile, k, draws * len(ballots))
            variances.append(_variance(ballots, *chances) / (draws * len(ballots) - 1))
        scores += [ballot.score(*chances) for ballot in ballots]
    error = math.sqrt(math.fsum(variances)) / len(scores) if variances else None
    return math.fsum(scores) / len(scores), error


def _variance(ballots: Sequence[_Ballot], wins: Sequence[float], no_vote: float) -> float:
    """Return the variance, over draws, of the sum of the scores of tasks with one profile; shared ties reduce it."""
    totals = np.array([[*ballot.scores, ballot.abstained] for ballot in ballots]).sum(axis=0)
    chances = np.array([*wins, no_vote])
    with np.errstate(invalid="ignore", over="ignore"):
        return float(chances @ np.square(totals - chances @ totals))


def _is_cheap(votes: tuple[int, ...], abstentions: int, k: int, limit: float) -> bool:
    """Return whether ``winning`` takes less than about ``limit`` nanoseconds and does not overflow."""
    runs = sum(votes) + abstentions
    if runs <= ALWAYS_EXACT_RUNS or _is_certain(votes, runs - k):
        return True
    nodes = min(len(votes), k) // 2 + 1
    convolutions = sum(min(count, k) for count in set(votes)) * (runs + len(votes))
    # 4 µs for a call of NumPy, one nanosecond for an entry; the nodes are the eigenvalues of a matrix.
    cost = convolutions * (4000 + nodes * k) + 10 * nodes**3
    return cost <= limit and math.comb(runs, k).bit_length() <= LARGEST_EXACT_BITS


def _is_certain(votes: tuple[int, ...], left_out: int) -> bool:
    """Return whether the first answer, or those that share its place, win whichever runs are left out."""
    second = votes[1] if len(votes) > 1 else 0
    return left_out == 0 or not votes or votes[0] - left_out > second


def estimated_winning(votes: tuple[int, ...], abstentions: int, k: int, draws: int) -> tuple[tuple[float, ...], float]:
    """Estimate ``winning`` from random draws. The seed is the votes: equal votes give equal estimates."""
    random = np.random.default_rng([k, abstentions, *votes])
    counts = np.array([*votes, abstentions])
    # One costs a swap per drawn or left out run, the other a random number per answer.
    method: Literal["count", "marginals"] = "marginals" if 20 * len(counts) < min(k, counts.sum() - k) else "count"
    wins, no_vote = np.zeros(len(votes)), 0
    chunk = max(CHUNK_CELLS // len(counts), 1)
    for start in range(0, draws, chunk):
        drawn = random.multivariate_hypergeometric(counts, k, min(chunk, draws - start), method=method)[:, :-1]
        most = drawn.max(axis=1, keepdims=True)
        rows, answers = np.nonzero((drawn == most) & (most > 0))
        shares = np.bincount(rows, minlength=len(drawn))
        no_vote += int((shares == 0).sum())
        wins += np.bincount(answers, 1 / shares[rows], minlength=len(votes))
    # Answers with equally many votes have equal chances; their average does not depend on the order of the runs.
    _, places, sizes = np.unique(counts[:-1], return_inverse=True, return_counts=True)
    means = np.bincount(places, wins / draws) / sizes
    return tuple(means[places].tolist()), no_vote / draws


@lru_cache(maxsize=1 << 16)
def winning(votes: tuple[int, ...], abstentions: int, k: int) -> tuple[tuple[float, ...], float]:
    """Return each answer's chance to win the vote of k runs drawn without replacement, and the chance of no vote.

    ``votes`` are the counts of the answers, descending. An answer with m votes wins against every draw in which no
    other answer has more. With t others at m votes as well it gets 1/(t+1) of the win, which is the integral of y^t
    over [0, 1]; Gauss-Legendre nodes compute that exactly.
    """
    runs = sum(votes) + abstentions
    if _is_certain(votes, runs - k):
        winners = votes.count(votes[0]) if votes else 0
        return tuple(float(count == votes[0]) / winners for count in votes), float(not votes)
    draws = math.comb(runs, k)
    no_vote = math.comb(abstentions, k) / draws
    # n nodes are exact up to degree 2n - 1; the degree is at most the number of other answers among k runs.
    nodes, weights = np.polynomial.legendre.leggauss(min(len(votes), k) // 2 + 1)
    ties, weights = (nodes + 1) / 2, weights / 2
    chances: dict[int, float] = {}
    # Answers with equally many votes have equal chances.
    for count in set(votes):
        others = list(votes)
        others.remove(count)
        ways = sum(
            math.comb(count, m) * float(weights @ _ways(others, abstentions, m, k - m, ties))
            for m in range(1, min(count, k) + 1)
        )
        chances[count] = ways / draws
    return tuple(chances[count] for count in votes), no_vote


def _ways(others: Sequence[int], abstentions: int, m: int, rest: int, ties: Floats) -> Floats:
    """Count the draws of ``rest`` runs in which no other answer has more than m; each one at m weighs ``ties``."""
    # ways[:, n]: the number of draws of n runs from the abstentions and the answers so far.
    ways = np.zeros((len(ties), rest + 1))
    ways[:, : abstentions + 1] = [math.comb(abstentions, v) for v in range(min(abstentions, rest) + 1)]
    for count in others:
        with_answer = np.zeros_like(ways)
        for v in range(min(count, m, rest) + 1):
            factor = math.comb(count, v) * (ties[:, None] if v == m else 1.0)
            with_answer[:, v:] += factor * ways[:, : rest + 1 - v]
        ways = with_answer
    return ways[:, rest]
