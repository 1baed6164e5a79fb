"""Rollouts and evaluations of a step, exchanged between processes: what each sends, and what all of it is together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windsock.distributed import Share
from windsock.formatting import describe_error
from windsock.rollouts.gathering import Gathering
from windsock.rollouts.merged import merged_report
from windsock.rollouts.plan import Plan
from windsock.rollouts.statistics import StepStatistics
from windsock.rollouts.wire import Encoded, encode


@dataclass(frozen=True, slots=True)
class SharedReport:
    """What one process reported of one kind; ``written`` says whether its journal has the state already."""

    kind: str
    taskset: str
    state: bytes
    written: bool = False
    error: str = ""


@dataclass(slots=True)
class Report:
    """What all processes reported of one kind in a step."""

    kind: str
    taskset: str
    states: list[bytes] = field(default_factory=list)
    unwritten: list[bytes] = field(default_factory=list)  # those of the states that no journal has yet
    error: str = ""

    @property
    def title(self) -> str:
        """The report in words."""
        return f"{self.kind}/{self.taskset}" if self.taskset else self.kind

    def unwritten_state(self) -> Encoded:
        """Return the unwritten states as one."""
        return encode(*merged_report(self.unwritten))

    def merged(self) -> tuple[Gathering, Plan]:
        """Return all reports together."""
        return merged_report(self.states)


def share_of(reports: Iterable[SharedReport], error: str = "") -> Share:
    """Return the share of one process."""
    reports = list(reports)
    heads = [[one.kind, one.taskset, len(one.state), one.written, one.error] for one in reports]
    if not reports:
        return Share(error=error)
    return Share(body=json.dumps(heads).encode() + b"\n" + b"".join(one.state for one in reports), error=error)


def merged(shares: Sequence[Share]) -> list[Report]:
    """Return the reports of all processes, by kind and task set."""
    found: dict[tuple[str, str], Report] = {}
    for one in (one for share in shares for one in _reports(share)):
        report = found.setdefault((one.kind, one.taskset), Report(one.kind, one.taskset))
        report.error = report.error or one.error
        if one.state:
            report.states.append(one.state)
            report.unwritten += [] if one.written else [one.state]
    return [report for _, report in sorted(found.items())]


def finished(
    reports: Iterable[Report], shares: Sequence[Share], vocabulary: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the values of all processes, and by report why there are none: one process could not contribute."""
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    failed = next((share.error for share in shares if share.error), "")
    for report in reports:
        error = failed or report.error
        try:
            found = {} if error else StepStatistics(*report.merged(), vocabulary).values()
        except (ValueError, KeyError) as problem:
            found, error = {}, describe_error(problem)
        values |= found
        missing |= {report.title: f"a rank could not contribute: {error}"} if error else {}
    return values, missing


def _reports(share: Share) -> list[SharedReport]:
    if not share.body:
        return []
    line, _, blobs = share.body.partition(b"\n")
    found, start = [], 0
    for kind, taskset, size, written, error in json.loads(line):
        found.append(SharedReport(kind, taskset, blobs[start : start + size], written, error))
        start += size
    return found
