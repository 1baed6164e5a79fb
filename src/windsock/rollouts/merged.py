"""What the processes of a role gathered of a step, merged by whoever reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windsock.rollouts.gathering import Gathering
from windsock.rollouts.statistics import StepStatistics
from windsock.rollouts.wire import unpack


@dataclass(frozen=True, slots=True)
class Part:
    """What one process holds of one gathering of one step."""

    rank: int
    step: int
    kind: str
    taskset: str
    time: float
    state: bytes

    @classmethod
    def parse(cls, rank: int, head: Mapping[str, Any], state: bytes) -> Part:
        """Read a frame's head."""
        return cls(rank, int(head["step"]), head["kind"], head["taskset"], float(head["time"]), state)


def merged_parts(parts: Iterable[Part], vocabulary: str) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yield step, time and values of everything of which several ranks hold a part."""
    together: dict[tuple[int, str, str], list[Part]] = {}
    for part in parts:
        together.setdefault((part.step, part.kind, part.taskset), []).append(part)
    for (step, _, _), of_one in sorted(together.items()):
        if len({part.rank for part in of_one}) == 1:
            continue
        try:
            values = _merged(of_one, vocabulary)
        except (ValueError, KeyError):
            continue  # a part is of a newer windsock, or damaged: what the others hold is not the whole
        yield step, max(part.time for part in of_one), values


def _merged(parts: list[Part], vocabulary: str) -> dict[str, float]:
    first, plan = unpack(parts[0].state)
    whole = Gathering(plan.statistic_of, plan.every_run)
    whole.merge(first)
    for part in parts[1:]:
        gathering, their_plan = unpack(part.state)
        whole.merge(gathering)
        plan = plan.united(their_plan)
    return StepStatistics(whole, plan, vocabulary).values()
