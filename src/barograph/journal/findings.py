"""Findings about a run, and the files by which the doctor's process tells the training of them.

``doctor/findings.json`` in the run's directory has what was found so far, ``doctor/stop.json`` the step at which the
training is asked to end. Both are replaced as a whole, so that a reader never sees a part.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from barograph.base.errors import BarographError
from barograph.base.files.mounts import is_remote
from barograph.catalogue.spec import Text
from barograph.journal.format.fields import (
    Read,
    mapping_of,
    object_of,
    one_of,
    parse_json,
    read_count,
    read_step,
    read_time,
    record_of,
    tuple_of,
)
from barograph.journal.format.folder import read_regular_file, replace_regular_file

if TYPE_CHECKING:
    from barograph.journal.view import View

FOLDER = "doctor"
TEXT_NAME = "barograph/finding"
"""The name of the texts by which trackers receive what the doctor says."""
SEVERITIES = ("", "info", "warning", "critical")
CONFIDENCES = ("low", "medium", "high")
MAX_CHANGES = 200  # the last ones are kept
STOP_SECONDS = 3.0  # until every process of the run has seen a request to stop
REMOTE_STOP_SECONDS = 90.0  # where they see it through a network file system
MIN_STOP_STEPS = 2
MIN_SECONDS = 0.2  # between two steps, for the pace
PACE_POINTS = 20

ChangeKind = Literal["opened", "worse", "closed"]


@dataclass(frozen=True)
class Finding:
    """Something that a rule found: since which step, how bad, in which values, and what to do."""

    rule: str
    severity: str
    title: Text
    text: Text
    name: str
    metric: str
    onset: int
    last: int
    is_open: bool
    advice: tuple[Text, ...] = ()
    evidence: tuple[str, ...] = ()
    explains: tuple[Finding, ...] = ()
    confidence: str = ""
    against: tuple[Text, ...] = ()  # what speaks against it

    def record(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        texts = {"advice": self.advice, "against": self.against}
        lists = {name: [asdict(text) for text in several] for name, several in texts.items()}
        explains = [finding.record() for finding in self.explains]
        return {**asdict(self), **lists, "evidence": list(self.evidence), "explains": explains}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the finding of a record, such as a journal's event has; raise DecodingError if it is none."""
        found: Self = _FINDING(record)
        return found


@dataclass(frozen=True)
class Change:
    """A finding that began, became more severe or ended, at the step that was the last one then."""

    number: int
    kind: ChangeKind
    step: int
    time: float
    finding: Finding

    def record(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {**asdict(self), "finding": self.finding.record()}

    @property
    def text(self) -> str:
        """What is said about it, in one paragraph."""
        found = self.finding
        if self.kind == "closed":
            return f"over since step {found.last}: {found.title.en} (began at step {found.onset})"
        advice = f" {found.advice[0].en}" if found.advice else ""
        return f"{found.severity} since step {found.onset}: {found.title.en}. {found.text.en}{advice}"


@dataclass(frozen=True)
class Told:
    """What the doctor has said about a run: the contents of ``doctor/findings.json``."""

    verdict: str = ""
    step: int | None = None  # the last one that was looked at
    bytes: int = 0  # of the journal that were looked at
    time: float = 0.0
    changes: tuple[Change, ...] = ()
    open: Mapping[str, str] = field(default_factory=dict)  # severity by rule
    sent: int = 0  # changes up to this number were given to the webhook and the command

    @property
    def last_number(self) -> int:
        """The number of the last change."""
        return self.changes[-1].number if self.changes else 0


def read_told(folder: Path) -> Told:
    """Return what the doctor has said about the run in a folder; nothing if the file is missing or unreadable."""
    try:
        told: Told = _read(folder, "findings", _TOLD)
    except (OSError, ValueError):
        return Told()
    return told


def write_told(folder: Path, told: Told) -> None:
    """Replace what the doctor has said."""
    changes = [change.record() for change in told.changes[-MAX_CHANGES:]]
    known = {one.name: getattr(told, one.name) for one in fields(told) if getattr(told, one.name) is not None}
    _replace(_path(folder, "findings"), {**known, "changes": changes})


def told_at(folder: Path) -> int:
    """Return a number that changes when the doctor says something; 0 if it has said nothing."""
    return _changed_at(_path(folder, "findings"))


def read_taken(folder: Path) -> int:
    """Return the number of the last change that the training has taken notice of."""
    try:
        return int(_read(folder, "taken", _TAKEN)["number"])
    except (OSError, ValueError):
        return 0


def write_taken(folder: Path, number: int) -> None:
    """Keep the number of the last change that the training has taken notice of."""
    _replace(_path(folder, "taken"), {"number": number})


@dataclass(frozen=True)
class StopRequest:
    """That a training is asked to end: every process of it when it has done a step."""

    step: int
    reason: str
    time: float


def request_stop(folder: Path, step: int, reason: str) -> StopRequest:
    """Ask the processes of a run to end when they have done a step."""
    request = StopRequest(step, reason, time.time())
    _replace(_path(folder, "stop"), asdict(request))
    return request


def read_stop(folder: Path) -> StopRequest | None:
    """Return the request to end the training, if there is one."""
    try:
        request: StopRequest = _read(folder, "stop", _STOP)
    except (OSError, ValueError):
        return None
    return request


def stop_at(folder: Path) -> int:
    """Return a number that changes when a stop is requested; 0 if there is none."""
    return _changed_at(_path(folder, "stop"))


def remove_stop(folder: Path) -> None:
    """Remove a request to end the training, which was for an earlier start of it."""
    _path(folder, "stop").unlink(missing_ok=True)


def stop_step(view: View, step: int, pace: float | None) -> int | None:
    """Return the step to stop at, after a step: one that no process has done before it has seen the request.

    ``pace`` is in steps per second. If it is None and there are several processes, no step is known.
    """
    if len({(writer.role, writer.rank) for writer in view.writers()}) == 1:
        return step
    if pace is None:
        return None
    seconds = REMOTE_STOP_SECONDS if is_remote(view.path) else STOP_SECONDS
    return step + max(MIN_STOP_STEPS, math.ceil(seconds * pace))


def ask_to_stop(view: View, reason: str) -> StopRequest:
    """Ask the processes of a run to end, and return the request; raise BarographError where that has no effect.

    ``run.should_stop`` of the training tells it. A request that was made before since the run started stays.
    """
    if view.origin is not None:
        raise BarographError(f"run {view.id} is a log of another program, which does not hear of requests")
    if view.status.ended:
        raise BarographError(f"run {view.id} has ended: it is {view.status.word}")
    made = read_stop(view.path)
    if made is not None and made.time >= _started(view):
        return made  # another one would name another step, which not every process may see in time
    step = stop_step(view, view.newest_step or 0, _pace(view))
    assert step is not None
    return request_stop(view.path, step, reason)


def _started(view: View) -> float:
    starts = (event.get("time", 0.0) for event in view.events() if event.get("event") == "start")
    return max(starts, default=view.info.created)


def _pace(view: View) -> float:
    """Return the steps per second of the fastest of the last steps."""
    series = next((view.series(name) for name in view.names()), None)
    if series is None or len(series) < 2:
        return 1 / MIN_SECONDS
    times, steps = series.times[-PACE_POINTS:], series.steps[-PACE_POINTS:]
    seconds = (times[1:] - times[:-1]).clip(MIN_SECONDS)
    return float(((steps[1:] - steps[:-1]) / seconds).max())


def _path(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json"


def _read(folder: Path, name: str, read: Read) -> Any:
    return read(parse_json(read_regular_file(_path(folder, name))))


def _changed_at(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _replace(path: Path, record: Mapping[str, Any]) -> None:
    replace_regular_file(path, json.dumps(record, separators=(",", ":")))


_SEVERITY = one_of(*SEVERITIES[1:])
_LIMITS: dict[str, Read] = {
    **dict.fromkeys(("onset", "last"), read_step),
    "severity": _SEVERITY,
    "confidence": one_of("", *CONFIDENCES),
}
_EXPLAINED = record_of(Finding, **_LIMITS, explains=lambda value: ())  # those that it explains are not read
_FINDING = record_of(Finding, **_LIMITS, explains=tuple_of(_EXPLAINED))
_CHANGE = record_of(Change, number=read_count, step=read_step, time=read_time, finding=_FINDING)
_COUNTS = dict.fromkeys(("bytes", "sent"), read_count)
_TOLD = record_of(
    Told, **_COUNTS, step=read_step, time=read_time, changes=tuple_of(_CHANGE), open=mapping_of(_SEVERITY)
)
_TAKEN = object_of({"number": read_count}, ("number",))
_STOP = record_of(StopRequest, step=read_step, time=read_time)
