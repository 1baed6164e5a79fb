"""Rollouts and evaluations that several processes of a role gathered in one step, merged before they are reduced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.base.files.compression import Budget
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan
from barograph.metrics.rollouts.statistics import StepStatistics
from barograph.metrics.rollouts.wire import unpack

STEPS = range(-(2**63) + 1, 2**63)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What one process gathered for one report of one step."""

    rank: int
    step: int
    kind: str
    taskset: str
    time: float
    packed: bytes

    @classmethod
    def parse(cls, rank: int, head: Mapping[str, Any], packed: bytes) -> RolloutState:
        """Read a frame's head; ValueError for one of the wrong types."""
        step, kind, taskset, time = (head[name] for name in ("step", "kind", "taskset", "time"))
        if type(step) is not int or step not in STEPS or not isinstance(kind, str) or not isinstance(taskset, str):
            raise ValueError("the head of a rollout state must have a step, a kind and a task set")
        if not isinstance(time, int | float) or not math.isfinite(time):
            raise ValueError("the time of a rollout state must be a number")
        return cls(rank, step, kind, taskset, float(time), packed)


def merge_rollouts(states: Sequence[RolloutState], vocabulary: str, budget: Budget | None = None) -> dict[str, float]:
    """Return the values of one report of a step; ``budget`` bounds the bytes that are unpacked.

    Raise ValueError if a state cannot be read: it is damaged, hostile, or of a newer barograph.
    """
    try:
        with np.errstate(all="ignore"):  # of numbers near the largest
            merged = merged_report([state.packed for state in states], budget or Budget())
            return StepStatistics(*merged, vocabulary).values()
    except (KeyError, ArithmeticError, MemoryError) as error:
        raise ValueError(f"{states[0].kind}: {error}") from error


def merged_report(states: Sequence[bytes], budget: Budget | None = None) -> tuple[Gathering, RolloutPlan]:
    """Return what several processes reported of one kind; ValueError if a state cannot be read.

    ``budget`` bounds the bytes of all states; without it, those of each.
    """
    first, plan = unpack(states[0], budget)
    # A new gathering: an unpacked one has no index of its runs, and would add the same run twice.
    merged = Gathering(plan.statistic_of, plan.every_run)
    merged.merge(first)
    for state in states[1:]:
        gathering, other_plan = unpack(state, budget)
        merged.merge(gathering)
        plan = plan.united(other_plan)
    return merged, plan
