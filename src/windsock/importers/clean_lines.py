"""A line of a console log, without what consoles, containers and Ray put around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)? ")
RAY = re.compile(r"\([A-Za-z_][\w.:-]*(?:\([^)]*\))?(?: rank=\d+)? pid=\d+(?:, ip=[\w.:-]+)?\) ?")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log: its number, its text without decoration, and the time before it, if there is one."""

    text: str
    at: float | None = None
    number: int = 0


def clean_line(text: str, number: int = 0) -> Line:
    """Return a line without colours, the time stamp of a container and the prefix of a Ray worker."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\r" in text:  # a progress bar wrote over itself
        text = text.rstrip("\r").rpartition("\r")[2]
    at = None
    if text[:2] == "20" and (stamp := STAMP.match(text)):
        at, text = _moment(stamp), text[stamp.end() :]
        if "\x1b" in text:
            text = ANSI.sub("", text)
    if text[:1] == "(" and (prefix := RAY.match(text)):
        text = text[prefix.end() :]
    return Line(text, at, number)


def _moment(stamp: re.Match[str]) -> float | None:
    day, clock, fraction, zone = stamp.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
    except ValueError:
        return None
    # Without a zone it is a local time somewhere: differences are right.
    return moment.astimezone(UTC).timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def decode(line: bytes) -> tuple[str, bool]:
    """Return a line as text, and whether its bytes were valid UTF-8."""
    try:
        return line.decode("utf-8"), True
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), False
