"""A quick look at a run: status and last step from both ends of its segments, for lists of many runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barograph.base.model import Status, Writer
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.folder import SegmentFile, read_run_info, run_files, segments
from barograph.journal.format.frames import SEGMENT_HEAD
from barograph.journal.read.status import (
    SILENT_SECONDS,
    End,
    Glance,
    RunFacts,
    WriterEnd,
    main_first,
    process_of,
    seen_at,
)
from barograph.journal.segments.reader import SegmentReader, events

HEAD_BYTES = 4 << 10  # of a segment, to read which process writes it
START_FIELDS = ("event", "time", "machine", "pid", "born", "idle_seconds")  # those that the status depends on
FINISH_FIELDS = ("event", "status", "reason", "lost")
IMPORTED_FIELDS = ("event", "time", "path", "format", "status", "reason", "grown")
END_BYTES = (16 << 10, 128 << 10, 1 << 20)  # of either end; the next size if the one before lacks the last step


@dataclass(frozen=True, slots=True)
class _Look:
    """What the ends of the segments of one process tell."""

    end: WriterEnd
    heard: float
    last_step: int | None
    has_last_step: bool  # else there may be a later one between the ends


def glance(folder: Path) -> Glance:
    """Return the facts about a run without reading all of it."""
    return seen_at(folder, read_facts(folder), run_files(folder).bytes)


def read_facts(folder: Path) -> RunFacts:
    """Return what the ends of a run's segments tell."""
    info = read_run_info(folder)
    found = segments(folder)
    newest: dict[tuple[str, int], Writer] = {(s.writer.role, s.writer.rank): s.writer for s in found}
    of_writer: dict[Writer, list[SegmentFile]] = {}
    for segment in found:
        of_writer.setdefault(segment.writer, []).append(segment)
    writers = sorted(newest.values(), key=lambda writer: main_first(writer.role, writer.rank))
    begun = [of_writer[writer] for writer in writers if of_writer[writer][0].index == 0]
    looks = [_look(first.path, later) for first, *later in begun]
    return RunFacts(
        info=info,
        ends=_deciding([look.end for look in looks]),
        last_step=next((look.last_step for look in looks if look.last_step is not None), None),
        last_heard=max([info.created, *(look.heard for look in looks)]),
        writers=len(newest),
        attempts=max((s.writer.attempt for s in found), default=0),
    )


def _deciding(ends: list[WriterEnd]) -> list[WriterEnd]:
    """Leave out writers that have written their end, except for the first of each status: it decides for the others."""
    words = set()
    kept = []
    for end in ends:
        written = end.written
        if written is None or written.word not in words:
            kept.append(end)
        if written is not None:
            words.add(written.word)
    return kept


def segment_status(path: Path) -> Status:
    """Return the status of the process that writes a segment, from this and its last segment."""
    with suppress(OSError):
        found = path.stat()
        # It was just created, perhaps to claim its rank, and its process has not written yet.
        if found.st_size <= SEGMENT_HEAD.size and time.time() - found.st_mtime < SILENT_SECONDS:
            return Status("running")
    return _look(path, _later(path)).end.status


def segment_end(path: Path) -> End:
    """Return whether the process that writes a segment still records, has written its end, or was killed."""
    return _look(path, _later(path)).end.end


def segment_heard(path: Path) -> float:
    """Return the time of the last frame of the process that writes a segment."""
    return _look(path, _later(path)).heard


def _later(path: Path) -> list[SegmentFile]:
    """Return the segments of the same writer that were begun later."""
    segment = SegmentFile.parse(path)
    found = segments(path.parent) if segment is not None else []
    return [s for s in found if segment is not None and s.writer == segment.writer and s.index > segment.index]


def _look(path: Path, later: list[SegmentFile]) -> _Look:
    """Return what a segment tells, and the last one in which its process continued because it could not grow."""
    process = _process(path) if later else None
    last = next((s.path for s in reversed(later) if process is not None and _process(s.path) == process), None)
    for size in END_BYTES:
        look = _look_at([path] if last is None else [path, last], size)
        if look.last_step is not None and look.has_last_step:
            break
    return look


def start_event(path: Path) -> dict[str, Any] | None:
    """Return the event by which the process that writes a segment describes itself."""
    return next((event for event in first_events(path) if event.get("event") == "start"), None)


def _process(path: Path) -> tuple[Any, ...] | None:
    return process_of(first_events(path))


def first_events(path: Path) -> Iterable[dict[str, Any]]:
    """Return the events at the head of a segment."""
    reader = SegmentReader(path)
    reader.read_ends(HEAD_BYTES)
    return events(reader.records)


def _look_at(paths: list[Path], size: int) -> _Look:
    """Return what the ends of the segments of one process tell."""
    readers = [SegmentReader(path) for path in paths]
    complete = [reader.read_ends(size) for reader in readers]
    times = [time for reader in readers for time in reader.steps.times]
    times += [float(table.times.max()) for reader in readers for table in reader.tables.values()]
    highest = max(reader.steps.highest for reader in readers)
    last_step = None if highest == OPEN_STEP else highest
    found = [event for reader in readers for event in events([*reader.records, *reader.heartbeats])]
    heard = max([*times, *(event.get("time", 0.0) for event in found)], default=0.0)
    return _Look(WriterEnd(_telling(found, heard), max(times, default=None)), heard, last_step, all(complete))


def _telling(found: list[dict[str, Any]], heard: float) -> list[dict[str, Any]]:
    """Return as few events as give the same status: the first finish, else the last start and the last time."""
    for event in reversed(found):
        if event.get("event") == "imported":
            return [{name: event[name] for name in IMPORTED_FIELDS if name in event}]
    for event in found:
        if event.get("event") == "finish":
            return [{name: event[name] for name in FINISH_FIELDS if name in event}]
    starts = [event for event in found if event.get("event") == "start"]
    last = ({name: event[name] for name in START_FIELDS if name in event} for event in starts[-1:])
    return [*last, {"event": "heartbeat", "time": heard}]
