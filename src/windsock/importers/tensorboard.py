"""A directory of TensorBoard event files, read as a run."""

from __future__ import annotations

import fnmatch
import os
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from windsock.catalogue.resolution import RunNames
from windsock.errors import JournalError, MetricNotFoundError
from windsock.importers.events import UndecodableError, Value, decode_event, decode_value, records
from windsock.journal.series import Series, joined
from windsock.journal.span_rows import Texts
from windsock.journal.spans import SpanTable
from windsock.model import Histogram, LoggedText, MissingRank, PhaseSpan, Problem, RunInfo, Status, Writer

FILE_PATTERN = "tfevents"  # in the name of every event file
CHUNK = 16 << 20
ROLE = "trainer"
LIVE_SECONDS = 120.0  # since the last write: the run counts as running


def event_files(folder: Path) -> list[Path]:
    """List the event files in a directory, oldest first: their names begin with the time of their creation."""
    try:
        names = [entry.name for entry in os.scandir(folder) if FILE_PATTERN in entry.name and entry.is_file()]
    except OSError:
        return []
    return sorted(folder / name for name in names)


def event_folders(dir: Path, depth: int = 6, skip: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the directories with event files at or below a directory, except those in ``skip``."""
    return (folder for folder, has_events in walk_folders(dir, depth, skip) if has_events)


def walk_folders(dir: Path, depth: int = 6, skip: Iterable[Path] = ()) -> Iterator[tuple[Path, bool]]:
    """Yield the directories at or below a directory, except those in ``skip``, and whether they have event files."""
    left_out = set(skip)
    for folder, inner, files in os.walk(dir):
        here = Path(folder)
        # The directory is one that a user gave, and may be a home directory: the walk has to end in a reasonable time.
        deep = len(here.relative_to(dir).parts) >= depth
        inner[:] = [] if deep else sorted(n for n in inner if n[0] != "." and here / n not in left_out)
        yield here, any(FILE_PATTERN in name for name in files)


@dataclass(slots=True)
class _Column:
    """The points of one tag, in the order of the file."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _File:
    """One event file and its contents. It is an attempt of its own, unless it was written at the time of another."""

    path: Path
    attempt: int
    offset: int = 0
    columns: dict[str, _Column] = field(default_factory=dict)
    histograms: dict[str, list[tuple[int, Histogram]]] = field(default_factory=dict)
    texts: list[LoggedText] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    began: float = 0.0
    ended: float = 0.0
    lost: int = 0  # number of records and values that could not be decoded
    first_loss: str = ""
    broken: str = ""  # why the rest cannot be read: the end of a record is not known
    unreadable: str = ""  # error of the last poll; the next one tries again

    def poll(self) -> bool:
        """Read what is new; return whether there was anything."""
        before, want = self.offset, CHUNK
        self.unreadable = ""
        try:
            with self.path.open("rb") as file:
                while not self.broken:
                    file.seek(self.offset)
                    data = file.read(want)
                    complete = self._read(data)
                    if len(data) < want:
                        break
                    want = CHUNK if complete else want * 2  # nothing was complete: the record is larger than the read
        except OSError as problem:
            self.unreadable = problem.strerror or str(problem)
        return self.offset > before

    def _read(self, data: bytes) -> bool:
        place = 0
        try:
            for place, record in records(data):
                self._read_record(record, self.offset + place)
        except UndecodableError as problem:
            self.broken = f"from byte {self.offset + place} on: {problem}"
        self.offset += place
        return place > 0

    def _read_record(self, record: bytes, end: int) -> None:
        """Add the values of a record. The next record is found by the length, so damage costs only this one."""
        try:
            at, step, values, starts = decode_event(record)
        except UndecodableError as problem:
            self._count_lost(end, problem)
            return
        if starts:
            self._forget_from(step)
        for data in values:
            try:
                value = decode_value(data)
            except UndecodableError as problem:
                self._count_lost(end, problem)
                continue
            if value is not None:
                self._add(at, step, value)

    def _count_lost(self, end: int, problem: UndecodableError) -> None:
        self.lost += 1
        self.first_loss = self.first_loss or f"in the record that ends at byte {end}: {problem}"

    def damage(self) -> Iterator[str]:
        """Return a message for each part that could not be read."""
        if self.lost:
            yield f"{self.lost} undecodable, the first {self.first_loss}"
        yield from filter(None, (self.broken, self.unreadable))

    def _add(self, at: float, step: int, value: Value) -> None:
        if value.number is not None:
            column = self.columns.setdefault(value.tag, _Column())
            column.steps.append(step)
            column.values.append(value.number)
            column.times.append(at)
            # The step that was written first, not the lowest: it is where a restart takes over.
            self.first_step = step if self.first_step is None else self.first_step
            self.last_step = step if self.last_step is None else max(step, self.last_step)
        elif value.histogram is not None:
            self.histograms.setdefault(value.tag, []).append((step, value.histogram))
        elif value.text is not None:
            self.texts.append(LoggedText(value.tag, value.text, step, at))
        self.began = self.began or at
        self.ended = max(self.ended, at)

    def _forget_from(self, step: int) -> None:
        """Remove the points from a step on: a session start in the same file supersedes them."""
        for column in self.columns.values():
            keep = [place for place, known in enumerate(column.steps) if known < step]
            column.steps = array("q", [column.steps[place] for place in keep])
            column.values = array("d", [column.values[place] for place in keep])
            column.times = array("d", [column.times[place] for place in keep])
        self.columns = {tag: column for tag, column in self.columns.items() if column.steps}
        kept = {tag: [pair for pair in pairs if pair[0] < step] for tag, pairs in self.histograms.items()}
        self.histograms = {tag: pairs for tag, pairs in kept.items() if pairs}
        self.texts = [text for text in self.texts if text.step is not None and text.step < step]
        if self.first_step is not None and self.first_step >= step:
            self.first_step = min((min(column.steps) for column in self.columns.values()), default=None)
        self.last_step = max((max(column.steps) for column in self.columns.values()), default=None)

    def series(self, name: str, limit: int | None) -> Series:
        """Return one tag, with the steps below the limit."""
        column = self.columns[name]
        steps = np.array(column.steps, np.int64)
        order = np.argsort(steps, kind="stable")
        values, times = np.array(column.values, np.float64), np.array(column.times, np.float64)
        return Series(name, steps[order], values[order], times[order], Writer(ROLE, 0, self.attempt)).before(limit)


class TensorBoardRun:
    """The event files of one directory, with the interface of a view. ``refresh`` reads what was appended.

    A file that begins after the end of another is a restart, and supersedes the older from its first step on.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.path = folder
        self.source: str | None = None
        self._project, self._name = project_and_name(folder, root or folder.parent)
        self._files: dict[Path, _File] = {}
        self._producer: tuple[int, str] = (0, "")
        self.refresh()
        if not self._files:
            raise JournalError(f"{folder} contains no TensorBoard event files")

    def refresh(self) -> bool:
        """Read what is new; True where there was anything."""
        for path in event_files(self.path):
            if path not in self._files:
                self._files[path] = _File(path, len(self._files) + 1)
        return any(list(map(_File.poll, self._files.values())))  # a list, so that every file is polled

    @property
    def info(self) -> RunInfo:
        """Name and project from the directory; the producer is found from the names of the metrics."""
        names = self.names()
        # Detection recognises every name, which takes long; the answer changes with the names only.
        if self._producer[0] != len(names):
            self._producer = len(names), RunNames(names).producer or "unknown"
        source = self._producer[1]
        vocabulary = source.partition("/")[0]
        return RunInfo(self._name, self._project, self._name, self.span[0], vocabulary, source)

    @property
    def status(self) -> Status:
        """Running while the files are written to. Event files do not contain how a run ended."""
        return status_from_time(max((path.stat().st_mtime for path in self._files if path.exists()), default=0.0))

    @property
    def config(self) -> dict[str, Any]:
        """Empty: event files contain none."""
        return {}

    @property
    def environment(self) -> dict[str, Any]:
        """Empty: event files contain none."""
        return {}

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step."""
        first = [file.first_step for file in self._files.values() if file.first_step is not None]
        last = [
            file.last_step if limit is None else min(file.last_step, limit - 1)
            for file, limit in zip(self._files.values(), self._limits(), strict=True)
            if file.last_step is not None
        ]
        return (min(first), max(last)) if first else None

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last value."""
        began = [file.began for file in self._files.values() if file.began]
        ended = [file.ended for file in self._files.values() if file.ended]
        return (min(began), max(ended)) if began else (0.0, 0.0)

    def writers(self) -> list[Writer]:
        """Return one writer per file, as attempts."""
        return [Writer(ROLE, 0, file.attempt) for file in self._files.values()]

    def writer_statuses(self) -> dict[Writer, Status]:
        """Return the status of the newest attempt."""
        return {self.writers()[-1]: self.status}

    def events(self) -> list[dict[str, Any]]:
        """Return an empty list: event files contain no such events."""
        return []

    def skipped(self) -> dict[str, tuple[str, int]]:
        """Return an empty mapping: event files do not contain skipped values."""
        return {}

    def problems(self) -> list[Problem]:
        """Return an empty list: event files do not contain failed calls."""
        return []

    def missing_ranks(self) -> list[MissingRank]:
        """Return the ranks that steps lack: event files have no ranks."""
        return []

    def damage(self) -> list[str]:
        """Return a message for each part that could not be read."""
        return [f"{file.path.name}: {text}" for file in self._files.values() for text in file.damage()]

    def names(self, pattern: str | Iterable[str] = "*") -> list[str]:
        """Return the tags of numbers that match a shell pattern, or one of several, in the order logged."""
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        names = dict.fromkeys(name for file in self._files.values() for name in file.columns)
        return [name for name in names if any(p in ("*", name) or fnmatch.fnmatchcase(name, p) for p in patterns)]

    def series(self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None) -> Series:
        """Return one tag over steps."""
        if role not in (None, ROLE) or rank not in (None, 0):
            raise MetricNotFoundError(f"event files have one writer, {ROLE}/0")
        files = [file for file in self._files.values() if attempt in (None, file.attempt)]
        limits = self._limits() if attempt is None else [None] * len(files)
        pieces = [file.series(name, limit) for file, limit in zip(files, limits, strict=True) if name in file.columns]
        if not pieces:
            raise MetricNotFoundError(f"{self._name} has no metric {name!r}; it has {len(self.names())}")
        return joined(name, pieces)

    def histogram_names(self) -> list[str]:
        """Return the tags of histograms."""
        return list(dict.fromkeys(name for file in self._files.values() for name in file.histograms))

    def histograms(self, name: str) -> list[tuple[int | None, Histogram]]:
        """Return the histograms of a tag with their steps."""
        return [pair for file in self._files.values() for pair in file.histograms.get(name, ())]

    def texts(self) -> list[LoggedText]:
        """Return the logged texts."""
        return [text for file in self._files.values() for text in file.texts]

    def phases(self, step: int | None = None) -> list[PhaseSpan]:
        """Return an empty list: event files contain no phases."""
        return []

    def span_table(self) -> SpanTable:
        """Return an empty table."""
        return SpanTable([], Texts())

    def step_windows(self) -> dict[Writer, dict[int, tuple[float, float]]]:
        """Return an empty mapping: event files contain no commits."""
        return {}

    def _limits(self) -> list[int | None]:
        """Return, for each file, the step from which on a file that began after its end supersedes it."""
        # Files that were written at the same time are of several writers of one run: none supersedes the other.
        files = list(self._files.values())
        return [
            min(
                (f.first_step for f in files[n + 1 :] if f.first_step is not None and f.began >= file.ended),
                default=None,
            )
            for n, file in enumerate(files)
        ]


def project_and_name(folder: Path, root: Path) -> tuple[str, str]:
    """Return project and name of a run from its path below the root."""
    try:
        inside = folder.relative_to(root).as_posix()
    except ValueError:
        inside = folder.name
    project, _, name = (folder.resolve().name if inside == "." else inside).rpartition("/")
    return project or "TensorBoard", name


def status_from_time(written: float) -> Status:
    """Return the status of a run whose files were last written at a time."""
    if time.time() - written < LIVE_SECONDS:
        return Status("running")
    return Status("finished", "event files do not contain how it ended")
