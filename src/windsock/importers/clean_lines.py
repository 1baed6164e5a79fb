"""A line of a console log, without what consoles, containers and Ray put around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?![\d.,])[ \t]?")
RAY = re.compile(r"(?:\((?:[A-Za-z_][\w.:-]*(?:\([^)]*\))?(?:,? rank=\d+)?,? )?pid=\d+(?:, ip=[\w.:-]+)?\) ?){1,3}")
"""What Ray, and SkyPilot around it, put before the line of a worker: ``(TaskRunner pid=7, ip=10.0.0.2) ``."""
FIRST_STAMP = re.compile(rf"^[^\w\n]{{0,8}}(?:[A-Z]+[ :])?(?:{STAMP.pattern})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log: its number, its text without decoration, and the time before it, if there is one.

    ``before`` is what a progress bar has written there before the text.
    """

    text: str
    at: float | None = None
    number: int = 0
    before: str = ""


def clean_line(text: str, number: int = 0) -> Line:
    """Return a line without colours, the time stamp of a container and the prefix of a Ray worker."""
    if text[:1] == "\ufeff":  # the mark of the encoding, before the first line
        text = text[1:]
    if "\x1b" in text:
        text = ANSI.sub("", text)
    before = ""
    if "\r" in text:  # a progress bar wrote over itself
        before, _, text = text.rstrip("\r").rpartition("\r")
    at = None
    if text[:2] == "20" and (stamp := STAMP.match(text)):
        at, text = _moment(stamp), text[stamp.end() :]
        if "\x1b" in text:
            text = ANSI.sub("", text)
    if text[:1] == "(" and (prefix := RAY.match(text)):
        text = text[prefix.end() :]
    return Line(text, at, number, before)


def time_in(text: str) -> float | None:
    """Return the first time in a text, such as what a logger puts before a message; None if it has none."""
    found = STAMP.search(text) if "20" in text else None
    return _moment(found) if found is not None else None


def first_time(text: str) -> float | None:
    """Return the time of the first line that begins with one; None if there is none."""
    found = FIRST_STAMP.search(ANSI.sub("", text))
    return _moment(found) if found is not None else None


def _moment(stamp: re.Match[str]) -> float | None:
    day, clock, fraction, zone = stamp.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
    except ValueError:
        return None
    # Without a zone it is a local time somewhere: differences are right.
    return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def decode(line: bytes) -> tuple[str, bool]:
    """Return a line as text, and whether its bytes were valid UTF-8."""
    try:
        return line.decode("utf-8"), True
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), False
