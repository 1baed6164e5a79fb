"""Which sequences of a step have their tokens kept: one for each criterion, and no sequence twice.

The first sequence is that of the first criterion whose inputs are given, the second that of the next one among the
others, and so on; sequences beyond the number of criteria are chosen at random. Of equal sequences the first is chosen.
A sequence with a value that is not finite is the most extreme of all, and one without a valid token is never chosen.
Where no sequence has what a criterion looks for, as where the trainer and the rollout engine agree, any one is taken.

A choice from several batches is the choice from what was chosen from each: what is the most extreme of all is so in its
own batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.plan import Plan
from windsock.measurement.selection import HostSelection

Floats = NDArray[np.float64]

MOST_SEQUENCES = 32
"""How many sequences of a step may be asked for."""
MAX_SEED = (1 << 30) - 1  # the kernel's integers have 32 bits and a sign
NEVER = -np.inf


class Criterion(NamedTuple):
    """A number of each sequence whose largest value is looked for; that of ``random`` has no channels.

    It is a statistic of the first alternative whose channels are all measured: their ``mean`` over the tokens, the
    ``total`` of their sums, the ``largest`` value of a token, or the ``peak``, the largest absolute value.
    """

    name: str
    alternatives: tuple[tuple[str, ...], ...]
    statistic: Literal["mean", "total", "largest", "peak"]
    sign: float = 1.0
    least: float = NEVER  # less is no reason to choose a sequence


ANY = "any"
"""The reason where no sequence has what the criterion looks for."""
ROUNDING = 2.0**-12  # a smaller difference of log-probs is not stored either
RANDOM = Criterion("random", (), "total")
CRITERIA = (
    Criterion("mismatch", (("log_prob_difference",),), "largest", least=ROUNDING),
    Criterion("clipped", (("high", "low"), ("truncates",), ("rejects",)), "total", least=1.0),
    Criterion("kl", (("old_ref_k3",), ("ref_k3",), ("kl_k3",)), "total", least=ROUNDING**2 / 2),
    Criterion("highest entropy", (("old_entropy",), ("entropy",)), "mean"),
    Criterion("lowest entropy", (("old_entropy",), ("entropy",)), "mean", -1.0),
    Criterion("advantage", (("advantages",),), "peak", least=ROUNDING),
    RANDOM,
)
LEAST = {criterion.name: criterion.least for criterion in CRITERIA}


class Asked(NamedTuple):
    """A criterion and the channels that it is computed from."""

    name: str
    channels: tuple[str, ...]
    statistic: str
    sign: float


@lru_cache(maxsize=256)
def asked_of(plan: Plan) -> tuple[Asked, ...]:
    """Return the criteria that can be computed with a plan; the last is the random one."""
    found = []
    for criterion in CRITERIA:
        known = (names for names in criterion.alternatives if plan.channels.issuperset(names))
        channels = () if criterion is RANDOM else next(known, None)
        if channels is not None:
            found.append(Asked(criterion.name, channels, criterion.statistic, criterion.sign))
    return tuple(found)


def scores_of(selection: HostSelection, asked: Sequence[Asked], seed: int) -> Floats:
    """Return the value of each criterion for each sequence."""
    scores = np.full((len(asked), len(selection.counts)), NEVER)
    some = selection.counts > 0
    for place, criterion in enumerate(asked):
        scores[place, some] = (_random(len(some), seed) if not criterion.channels else _score(selection, criterion))[
            some
        ]
    return scores


@np.errstate(all="ignore")  # infinities and NaN are results
def _score(selection: HostSelection, criterion: Asked) -> Floats:
    totals = sum((selection.totals(channel) for channel in criterion.channels), np.zeros(len(selection.counts)))
    if criterion.statistic in ("largest", "peak"):
        found = _largest(selection, criterion.channels[0], np.abs if criterion.statistic == "peak" else np.asarray)
    else:
        found = criterion.sign * (totals / selection.counts if criterion.statistic == "mean" else totals)
    return np.where(np.isfinite(totals), found, np.inf)


def _largest(selection: HostSelection, channel: str, function: Callable[[Any], Any]) -> Floats:
    """Return the largest value of a function of a channel in each sequence, 0 in one without tokens."""
    found = np.zeros(len(selection.counts))
    some = np.flatnonzero(selection.counts)
    if len(some):
        counts = selection.counts[some]
        found[some] = np.maximum.reduceat(function(selection.channel(channel)), np.cumsum(counts) - counts)
    return found


def _random(count: int, seed: int) -> Floats:
    """Return a pseudo-random number of 24 bits for each place; the kernel computes the same."""
    x = np.arange(count, dtype=np.uint32) + np.uint32(seed)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return ((x ^ (x >> np.uint32(16))) >> np.uint32(8)).astype(np.float64)


def greedy(scores: Floats, count: int) -> Iterator[tuple[int, int]]:
    """Yield up to ``count`` sequences, each with the number of the criterion that it was chosen by."""
    left = scores.copy()
    for slot in range(count):
        criterion = min(slot, len(left) - 1)
        place = int(left[criterion].argmax()) if left.shape[1] else 0
        if left.shape[1] and left[criterion, place] > NEVER:
            yield place, criterion
            left[:, place] = NEVER


def reason(criterion: str, score: float) -> str:
    """Return why a sequence was chosen."""
    return criterion if score >= LEAST[criterion] else ANY


def chosen_of_all(candidates: Sequence[Mapping[str, float]], count: int) -> Iterator[tuple[int, str]]:
    """Yield the places of those chosen among candidates with their scores by name, and why they were chosen."""
    if not candidates:
        return
    names = [criterion.name for criterion in CRITERIA if any(criterion.name in scores for scores in candidates)]
    table = np.array([[scores.get(name, NEVER) for scores in candidates] for name in names])
    for place, criterion in greedy(table, count):
        yield place, reason(names[criterion], table[criterion, place])
