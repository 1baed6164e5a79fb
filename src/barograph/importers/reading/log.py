"""A log before it is read.

What is seen of its file before the format is known, a line without what consoles, containers and Ray put around it,
what a log tells about its run, the base of its readers, and what a format is.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph.importers.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Log:
    """One run in a log: a file, a directory, or one of several runs in a store."""

    path: Path
    format: str
    member: str = ""  # which of the runs in a store

    @property
    def place(self) -> Path:
        """The path, with the run in a store: ``mlflow.db#7``."""
        return Path(f"{self.path}#{self.member}") if self.member else self.path


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """The logs that a format has found in a directory, and the names of files and directories that belong to them."""

    logs: list[Log] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a log tells about its run as a whole; what is empty is made from the path."""

    name: str = ""
    project: str = ""
    producer: str = ""  # the framework, with trainer or version where known: ``trl/grpo``
    group: str | None = None
    created: float | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


class RewrittenError(Exception):
    """The log is not a longer version of the one that was read before: it has to be read from the beginning."""


class LogReader:
    """Base of the readers of a log. ``state`` is what the next reader of it needs to continue, as JSON."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        self.log = log
        self.state = state

    def facts(self) -> Facts:
        """Return what the log tells about its run, by default nothing; called before the first ``read``."""
        return Facts()

    def files(self) -> list[Path]:
        """Return the files of the log: if none has changed, there is nothing new."""
        return [self.log.path]

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        raise NotImplementedError

    def record_config(self, config: Mapping[str, Any], out: Recorder, known: str = "config") -> None:
        """Record settings, if they are others than those that the state has under a name."""
        if config and config != self.state.get(known):
            self.state[known] = config
            out.config(config)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of logs. One of files has ``matches``, one of directories and stores ``logs_in``, or both."""

    title: str
    """What a person calls it: "TensorBoard event files"."""

    reader: Callable[[Log, dict[str, Any]], LogReader]
    """Called with a log and the state of an earlier reader (empty at first)."""

    matches: Callable[[Seen], bool] | None = None
    """Return whether a file is a log of this format, by its content."""

    logs_in: Callable[[Path, Sequence[str]], FoundLogs] | None = None
    """Return the logs in a directory that consist of several files, or are several runs of one file."""


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

    def time(self, text: str | None = None) -> float | None:
        """Return the time before the line, else the first one in its text, or in a given part of it."""
        return self.at if self.at is not None else time_in(self.text if text is None else text)


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


END_BYTES = 256 << 10

MAX_LINE = 1 << 20

CONTROLS = bytes({*range(32)} - set(b"\a\b\t\n\v\f\r\x1b"))


@dataclass(frozen=True)
class Seen:
    """The ends of a regular file. A large log may begin with much that is no metric, so its end counts as well."""

    path: Path
    size: int
    head: bytes
    tail: bytes  # empty if the head is everything

    @cached_property
    def lines(self) -> list[str]:
        """The complete lines of both ends, clean; none of a binary file."""
        if self.is_binary:
            return []
        head, tail = self.head.splitlines(), self.tail.splitlines()[1:]
        return [clean_line(decode(line)[0]).text for line in (*head, *tail) if len(line) <= MAX_LINE]

    @property
    def is_binary(self) -> bool:
        """Whether the file is no text: more than one in fifty bytes is one that no text has, except in UTF-16."""
        head = self.head[: 1 << 16]
        controls = len(head) - len(head.translate(None, CONTROLS))  # some are left where a machine crashed
        return controls * 50 > len(head) and head[:2] not in (b"\xff\xfe", b"\xfe\xff")

    @property
    def is_pickle(self) -> bool:
        """Whether the file is a pickle, or an archive of torch.save with one."""
        is_archive = self.head[:4] == b"PK\3\4" and b"/data.pkl" in self.head[:1024]
        return is_archive or (self.head[:1] == b"\x80" and self.head[1:2] in b"\2\3\4\5")

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def has(self, *needles: bytes) -> bool:
        """Return whether each of some bytes is in either end."""
        return all(needle in self.head or needle in self.tail for needle in needles)


def first_bytes(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def look_at(path: Path) -> Seen | None:
    """Return what is seen of a file; None if it is none that can be read: opening a FIFO would block."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                return None
            head = file.read(END_BYTES)
            tail = b""
            if state.st_size > len(head):
                file.seek(max(len(head), state.st_size - END_BYTES))
                tail = file.read(END_BYTES)
            return Seen(path, state.st_size, *_as_utf8(head, tail))
    except OSError:
        return None


def _as_utf8(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Return both ends in UTF-8, if the file begins as one in UTF-16 does, and without the mark of the encoding."""
    if head[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return head.removeprefix(codecs.BOM_UTF8), tail
    encoding = "utf-16-le" if head[:2] == codecs.BOM_UTF16_LE else "utf-16-be"
    whole, rest = (part.decode(encoding, "replace").encode("utf-8", "replace") for part in (head[2:], tail))
    return whole, rest
