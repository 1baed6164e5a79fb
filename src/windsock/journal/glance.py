"""A quick look at a run: status and last step from both ends of its segments, for lists of many runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windsock.journal.folder import read_run_info, segments
from windsock.journal.frames import OPEN_STEP
from windsock.journal.reader import SegmentReader, events
from windsock.journal.status import run_status, writer_status
from windsock.model import RunInfo, Status, Writer

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
    last_step: int | None
    heard: float


def glance(folder: Path) -> Glance:
    """Return the facts about a run without reading all of it."""
    info = read_run_info(folder)
    found = segments(folder)
    newest: dict[tuple[str, int], Writer] = {(s.writer.role, s.writer.rank): s.writer for s in found}
    ends = [_look(s.path) for s in found if s.index == 0 and s.writer in newest.values()]
    steps = [end.last_step for end in ends if end.last_step is not None]
    return Glance(
        info=info,
        path=folder,
        status=run_status(end.status for end in ends),
        last_step=max(steps, default=None),
        began=info.created,
        last_heard=max([info.created, *(end.heard for end in ends)]),
        bytes=sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        writers=len(newest),
        attempts=max((s.writer.attempt for s in found), default=0),
    )


def segment_status(path: Path) -> Status:
    """Return the status of the process that writes a segment."""
    return _look(path).status


def _look(path: Path) -> _End:
    for size in END_BYTES:
        end = _look_at(path, size)
        if end.last_step is not None:
            break
    return end


def _look_at(path: Path, size: int) -> _End:
    reader = SegmentReader(path)
    reader.read_ends(size)
    times = [*reader.steps.times, *(float(table.times.max()) for table in reader.tables.values())]
    last_step = None if reader.steps.highest == OPEN_STEP else reader.steps.highest
    found = list(events(reader.records))
    event_times = [float(event.get("time", 0.0)) for event in found]
    status = writer_status(found, max(times, default=None))
    return _End(status, last_step, max([*times, *event_times], default=0.0))
