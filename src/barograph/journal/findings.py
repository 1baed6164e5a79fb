"""Findings about a run, and the files by which the doctor's process tells the training of them.

``doctor/findings.json`` in the run's directory has what was found so far, ``doctor/stop.json`` the step at which the
training is asked to end. Both are replaced as a whole, so that a reader never sees a part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from barograph.catalogue.spec import Text
from barograph.journal.format.fields import (
    Read,
    list_of,
    mapping_of,
    object_of,
    one_of,
    parse_json,
    read_count,
    read_flag,
    read_step,
    read_text,
    read_time,
)
from barograph.journal.format.folder import read_regular_file, replace_regular_file

FOLDER = "doctor"
TEXT_NAME = "barograph/finding"
"""The name of the texts by which trackers receive what the doctor says."""
SEVERITIES = ("", "info", "warning", "critical")
CONFIDENCES = ("low", "medium", "high")
MAX_CHANGES = 200  # the last ones are kept

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
        read = _FINDING(dict(record))
        return replace(cls._alone(read), explains=tuple(map(cls._alone, read["explains"])))

    @classmethod
    def _alone(cls, read: Mapping[str, Any]) -> Self:
        """Return a finding without those that it explains."""
        return cls(
            **{name: read[name] for name in _PLAIN},
            title=Text(**read["title"]),
            text=Text(**read["text"]),
            advice=tuple(Text(**text) for text in read["advice"]),
            evidence=tuple(read["evidence"]),
            confidence=read.get("confidence", ""),
            against=tuple(Text(**text) for text in read.get("against", ())),
        )


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
        read = _TOLD(parse_json(read_regular_file(_path(folder, "findings"))))
        changes = (_change(one) for one in read["changes"])
        known = {one.name: read[one.name] for one in fields(Told) if one.name in read}
        return Told(**{**known, "changes": tuple(changes)})
    except (OSError, ValueError):
        return Told()


def write_told(folder: Path, told: Told) -> None:
    """Replace what the doctor has said."""
    changes = [change.record() for change in told.changes[-MAX_CHANGES:]]
    known = {one.name: getattr(told, one.name) for one in fields(told) if getattr(told, one.name) is not None}
    _replace(_path(folder, "findings"), {**known, "changes": changes})


def _change(read: Mapping[str, Any]) -> Change:
    return Change(**{**{name: read[name] for name in _CHANGE_PARTS}, "finding": Finding.of_record(read["finding"])})


def told_at(folder: Path) -> int:
    """Return a number that changes when the doctor says something; 0 if it has said nothing."""
    return _changed_at(_path(folder, "findings"))


def read_taken(folder: Path) -> int:
    """Return the number of the last change that the training has taken notice of."""
    try:
        return int(_TAKEN(parse_json(read_regular_file(_path(folder, "taken"))))["number"])
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
        read = _STOP(parse_json(read_regular_file(_path(folder, "stop"))))
        return StopRequest(read["step"], read["reason"], read["time"])
    except (OSError, ValueError):
        return None


def stop_at(folder: Path) -> int:
    """Return a number that changes when a stop is requested; 0 if there is none."""
    return _changed_at(_path(folder, "stop"))


def remove_stop(folder: Path) -> None:
    """Remove a request to end the training, which was for an earlier start of it."""
    _path(folder, "stop").unlink(missing_ok=True)


def _path(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json"


def _changed_at(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _replace(path: Path, record: Mapping[str, Any]) -> None:
    replace_regular_file(path, json.dumps(record, separators=(",", ":")))


def _words(value: Any) -> dict[str, str]:
    read = object_of({"en": read_text, "zh": read_text}, ("en", "zh"))(value)
    return {"en": read["en"], "zh": read["zh"]}


_PLAIN: dict[str, Read] = {
    **dict.fromkeys(("rule", "name", "metric"), read_text),
    **dict.fromkeys(("onset", "last"), read_step),
    "severity": one_of(*SEVERITIES[1:]),
    "is_open": read_flag,
}
_PARTS: dict[str, Read] = {
    **_PLAIN,
    **dict.fromkeys(("title", "text"), _words),
    "advice": list_of(_words),
    "evidence": list_of(read_text),
}
_MORE: dict[str, Read] = {**_PARTS, "confidence": one_of("", *CONFIDENCES), "against": list_of(_words)}
_FINDING = object_of({**_MORE, "explains": list_of(object_of(_MORE, tuple(_PARTS)))}, (*_PARTS, "explains"))
_CHANGE_PARTS: dict[str, Read] = {
    "number": read_count,
    "kind": one_of(*get_args(ChangeKind)),
    "step": read_step,
    "time": read_time,
    "finding": _FINDING,
}
_TOLD = object_of(
    {
        "verdict": read_text,
        "step": read_step,
        "bytes": read_count,
        "time": read_time,
        "changes": list_of(object_of(_CHANGE_PARTS, tuple(_CHANGE_PARTS))),
        "open": mapping_of(one_of(*SEVERITIES[1:])),
        "sent": read_count,
    },
    ("changes",),
)
_TAKEN = object_of({"number": read_count}, ("number",))
_STOP = object_of({"step": read_step, "reason": read_text, "time": read_time}, ("step", "reason", "time"))
