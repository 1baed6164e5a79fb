"""Coverage: the ranks whose share of a step is still missing.

A step's values are those of the whole batch only if no rank's share is missing. A rank is done with a step when it has
committed that step or a later one, or when its recording has ended. Until then

1. a rank that lives is waited for, if it has contributed the same to another step; one that only logs is not;
2. a rank that was killed lacks in the step that it was in: the first one after its last commit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from barograph.base.model import Writer

if TYPE_CHECKING:
    from barograph.journal.read.status import End

Share = tuple[str, str]
"""What a rank contributes to a step: the kind of a report and its set of tasks."""

MEASURED: Share = ("measured", "")
COUNTED: Share = ("counted", "")

Missing = dict[int, dict[Share, dict[int, str]]]
"""The reason, by step, share and rank."""


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """How far one writer got."""

    passed: int | None  # the last step that it is done with
    first_step: int | None
    end: Callable[[], End]  # a look at the process, which costs a little
    heard: Callable[[], float]  # time of its last sign of life


@dataclass(frozen=True, slots=True)
class Contributions:
    """The contributions to the steps of a role, as coverage looks at them."""

    steps: Sequence[int]  # ascending
    ranks: Callable[[int], Mapping[Share, Set[int]]]  # of a step
    time: Callable[[int], float]  # of a step's last contribution
    limit: Callable[[Writer], int | None]  # the step from which on a writer's contributions are superseded

    def __contains__(self, step: int) -> bool:
        place = bisect_left(self.steps, step)
        return place < len(self.steps) and self.steps[place] == step

    def between(self, first: float | None, end: float | None) -> Sequence[int]:
        """Return the steps from one on and before another; None is no bound."""
        begin = 0 if first is None else bisect_left(self.steps, first)
        return self.steps[begin : len(self.steps) if end is None else bisect_left(self.steps, end)]


class Coverage:
    """Progress of the writers of one role, from which missing shares are found."""

    def __init__(self) -> None:
        self._progress: dict[Writer, WriterProgress] = {}
        self._shares: dict[int, set[Share]] = {}  # that a rank contributed to, in any step
        self._first_state: dict[Writer, dict[Share, float]] = {}  # step, of writers that were alone before it
        self._open: dict[Writer, dict[tuple[int, Share], None]] = {}  # reports that stayed open over their commit
        self._unexchanged: dict[int, set[int]] = {}  # ranks, by step

    def set_progress(self, writer: Writer, progress: WriterProgress) -> None:
        """Set how far a writer got."""
        self._progress[writer] = progress

    def complete_until(self) -> int | None:
        """Return a step up to which all writers are done with all steps; None if one may not be done with any."""
        passed = [progress.passed for progress in self._progress.values()]
        return None if None in passed else min((step for step in passed if step is not None), default=None)

    def may_lack_since(self, share: Share) -> int | None:
        """Return a step before which no rank's part of a share is missing; None if there is none."""
        told = any(share in shares for shares in self._first_state.values())
        is_open = any(share == one for reports in self._open.values() for _, one in reports)
        complete = None if told or is_open else self.complete_until()
        return None if complete is None else complete + 1

    def add_contributor(self, rank: int, share: Share) -> None:
        """Note that a rank contributes to a share."""
        self._shares.setdefault(rank, set()).add(share)

    def add_event(self, writer: Writer, event: Mapping[str, Any]) -> None:
        """Add an event that tells what a writer shares with other processes."""
        match event.get("event"):
            case "alone":  # it contributes to a share and writes values only, because it knows of no other process
                self._first_state.setdefault(writer, {})[event["kind"], event["taskset"]] = math.inf
            case "shared":  # another process has joined it: it has states from a step on, or of all steps
                since = event["since"] if event["dropped"] else -math.inf
                shares = self._first_state.get(writer, {})
                for share in [share for share in shares if (share == MEASURED) == (event["kind"] == MEASURED[0])]:
                    shares[share] = since
            case "open_report":  # it has committed a step and goes on with a report of it
                self._open.setdefault(writer, {})[event["step"], (event["kind"], event["taskset"])] = None
            case "gather_failed":  # it could not exchange a step with others, and has written its own states
                self._unexchanged.setdefault(event["step"], set()).add(writer.rank)

    def missing(self, found: Contributions) -> Missing:
        """Return the shares of which a rank is missing, with the reasons."""
        missing: Missing = {}
        for step, failed in self._unexchanged.items():
            # Whoever did not notice a failure has written the states of all, and those of ``failed`` count twice.
            others = found.ranks(step).get(MEASURED, failed) - failed if step in found else ()
            for rank in others:
                reason = f"the processes could not exchange step {step}, but rank {rank} did not notice it"
                missing.setdefault(step, {}).setdefault(MEASURED, {})[rank] = reason
        for writer, progress in self._progress.items():
            for step, share, reason in self._missing_of(writer, progress, found):
                missing.setdefault(step, {}).setdefault(share, {})[writer.rank] = reason
        return missing

    def _missing_of(
        self, writer: Writer, progress: WriterProgress, found: Contributions
    ) -> Iterator[tuple[int, Share, str]]:
        limit = found.limit(writer)
        for share, first in self._first_state.get(writer, {}).items():
            for step in found.between(None, first if limit is None else min(first, limit)):
                if writer.rank not in found.ranks(step).get(share, {writer.rank}):
                    yield step, share, f"{writer} recorded step {step} before other processes joined"
        after = None if progress.passed is None else progress.passed + 1
        later = found.between(max((s for s in (after, progress.first_step) if s is not None), default=None), limit)
        open_reports = self._open.get(writer, {})
        end = progress.end() if len(later) or open_reports else "finished"
        if end == "lost":
            # A process that was killed before its first commit: its last sign of life tells where it was.
            heard = progress.heard() if progress.passed is None else 0.0
            later = list(islice((step for step in later if found.time(step) >= heard), 1))
        for step in later if end != "finished" else ():
            for share, ranks in found.ranks(step).items():
                # What a process that was killed would have contributed is not known.
                if writer.rank not in ranks and (end == "lost" or share in self._shares.get(writer.rank, ())):
                    yield step, share, _reason(writer, f"committed step {step}", end)
        for step, share in open_reports if end != "finished" else ():
            others = found.ranks(step).get(share) if step in found else None
            if others is not None and writer.rank not in others:
                yield step, share, _reason(writer, f"closed {share[0]} of step {step}", end)


def _reason(writer: Writer, done: str, end: End) -> str:
    return f"{writer} was killed before it {done}" if end == "lost" else f"{writer} has not {done} yet"
