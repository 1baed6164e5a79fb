"""Rollouts and evaluations that several processes of a role gathered in one step, merged before they are reduced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windsock.rollouts.gathering import Gathering
from windsock.rollouts.statistics import StepStatistics
from windsock.rollouts.wire import unpack


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
        """Read a frame's head."""
        return cls(rank, int(head["step"]), head["kind"], head["taskset"], float(head["time"]), packed)


def merge_rollouts(states: Iterable[RolloutState], vocabulary: str) -> dict[str, float]:
    """Return the values of the reports of one step that several ranks contributed to."""
    by_report: dict[tuple[str, str], list[RolloutState]] = {}
    for state in states:
        by_report.setdefault((state.kind, state.taskset), []).append(state)
    values: dict[str, float] = {}
    for _, contributions in sorted(by_report.items()):
        # The values of a single rank are in its own row.
        if len({state.rank for state in contributions}) > 1:
            try:
                values |= _merged(contributions, vocabulary)
            except (ValueError, KeyError):
                continue  # one is damaged, or from a newer windsock: the others are not the whole
    return values


def _merged(states: list[RolloutState], vocabulary: str) -> dict[str, float]:
    first, plan = unpack(states[0].packed)
    # A new gathering: an unpacked one has no index of its runs, and would add the same run twice.
    merged = Gathering(plan.statistic_of, plan.every_run)
    merged.merge(first)
    for state in states[1:]:
        gathering, other_plan = unpack(state.packed)
        merged.merge(gathering)
        plan = plan.united(other_plan)
    return StepStatistics(merged, plan, vocabulary).values()
