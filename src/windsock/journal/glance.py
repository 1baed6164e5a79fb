"""A quick look at a run: status and last step from both ends of its segments, for lists of many runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windsock.errors import JournalError
from windsock.formatting import describe_error
from windsock.journal.folder import SegmentFile, identity, read_run_info, segments
from windsock.journal.frames import OPEN_STEP, SEGMENT_HEAD
from windsock.journal.reader import SegmentReader, events
from windsock.journal.status import (
    SILENT_SECONDS,
    End,
    main_first,
    process_of,
    run_status,
    writer_end,
    writer_status,
)
from windsock.model import RunInfo, Status, Writer

HEAD_BYTES = 4 << 10  # of a segment, to read which process writes it
END_BYTES = (16 << 10, 128 << 10)  # of either end; the second size if the first contains no step


@dataclass(frozen=True, slots=True)
class Glance:
    """The facts about a run in a list."""

    info: RunInfo
    path: Path
    status: Status
    last_step: int | None
    began: float
    last_heard: float
    bytes: int
    writers: int
    attempts: int


@dataclass(slots=True)
class _End:
    status: Status
    end: End
    last_step: int | None
    heard: float


def glance(folder: Path) -> Glance:
    """Return the facts about a run without reading all of it."""
    info = read_run_info(folder)
    found = segments(folder)
    newest: dict[tuple[str, int], Writer] = {(s.writer.role, s.writer.rank): s.writer for s in found}
    ends = {s.writer: _look(s.path) for s in found if s.index == 0 and s.writer in newest.values()}
    by_writer = sorted(ends.items(), key=lambda pair: main_first(pair[0].role, pair[0].rank))
    return Glance(
        info=info,
        path=folder,
        status=run_status({writer: end.status for writer, end in ends.items()}),
        last_step=next((end.last_step for _, end in by_writer if end.last_step is not None), None),
        began=info.created,
        last_heard=max([info.created, *(end.heard for end in ends.values())]),
        bytes=_size(folder),
        writers=len(newest),
        attempts=max((s.writer.attempt for s in found), default=0),
    )


def listed(folder: Path) -> Glance:
    """Return the facts about a run in a list; one that cannot be read has the status ``unreadable`` and the reason."""
    try:
        return glance(folder)
    except Exception as problem:
        if not folder.is_dir():  # it was removed meanwhile
            raise
        info = identity(folder)
        status = Status("unreadable", str(problem) if isinstance(problem, JournalError) else describe_error(problem))
        return Glance(info, folder, status, None, info.created, info.created, _size(folder), 0, 0)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def segment_status(path: Path) -> Status:
    """Return the status of the process that writes a segment, from this and its last segment."""
    with suppress(OSError):
        found = path.stat()
        # It was just created, perhaps to claim its rank, and its process has not written yet.
        if found.st_size <= SEGMENT_HEAD.size and time.time() - found.st_mtime < SILENT_SECONDS:
            return Status("running")
    return _look(path).status


def segment_end(path: Path) -> End:
    """Return whether the process that writes a segment still records, has written its end, or was killed."""
    return _look(path).end


def segment_heard(path: Path) -> float:
    """Return the time of the last frame of the process that writes a segment."""
    return _look(path).heard


def _look(path: Path) -> _End:
    last = _last_of_process(path)
    for size in END_BYTES:
        end = _look_at([path] if last is None else [path, last], size)
        if end.last_step is not None:
            break
    return end


def _last_of_process(path: Path) -> Path | None:
    """Return the segment in which the process of a segment continued last, if its file could not grow."""
    segment = SegmentFile.parse(path)
    if segment is None:
        return None
    later = [s for s in segments(path.parent) if s.writer == segment.writer and s.index > segment.index]
    process = _process(path) if later else None
    return next((s.path for s in reversed(later) if process is not None and _process(s.path) == process), None)


def start_event(path: Path) -> dict[str, Any] | None:
    """Return the event by which the process that writes a segment describes itself."""
    return next((event for event in _head_events(path) if event.get("event") == "start"), None)


def _process(path: Path) -> tuple[Any, ...] | None:
    return process_of(_head_events(path))


def _head_events(path: Path) -> Iterable[dict[str, Any]]:
    reader = SegmentReader(path)
    reader.read_ends(HEAD_BYTES)
    return events(reader.records)


def _look_at(paths: list[Path], size: int) -> _End:
    """Return what the ends of the segments of one process tell."""
    readers = [SegmentReader(path) for path in paths]
    for reader in readers:
        reader.read_ends(size)
    times = [time for reader in readers for time in reader.steps.times]
    times += [float(table.times.max()) for reader in readers for table in reader.tables.values()]
    highest = max(reader.steps.highest for reader in readers)
    last_step = None if highest == OPEN_STEP else highest
    found = [event for reader in readers for event in events([*reader.records, *reader.heartbeats])]
    event_times = [event.get("time", 0.0) for event in found]
    last_row = max(times, default=None)
    heard = max([*times, *event_times], default=0.0)
    return _End(writer_status(found, last_row), writer_end(found, last_row), last_step, heard)
