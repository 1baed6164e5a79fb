"""The status of a writer, from its events, its process and the clock; and a quick look at a run, from both ends of its
segments, for lists of many runs, whose status is that of their writers at this moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from barograph.base.model import MAIN_ROLE, RunInfo, Status, Writer
from barograph.base.process.identity import machine_id, process_start
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.folder import SegmentFile, read_run_info, run_files, segments
from barograph.journal.format.frames import SEGMENT_HEAD

HEARTBEAT_SECONDS = 10.0

SILENT_SECONDS = 60.0  # without a heartbeat: stalled

LOST_SECONDS = 3600.0  # without a heartbeat from another machine: killed

IDLE_SECONDS = 1800.0  # with heartbeats but without a row: stalled

GROWING_SECONDS = 300.0  # since a log of another program has grown: it counts as running

KILLED = Status("killed", "process exited without finish()")

UNTOLD = "the log does not tell how it ended"

End = Literal["running", "finished", "lost"]
"""Whether a writer still records, has written its end, or was killed without one."""


def process_of(events: Iterable[dict[str, Any]]) -> tuple[Any, ...] | None:
    """Return the process that writes a segment (machine, pid and start time), from its events; None if unknown."""
    start = next((event for event in events if event.get("event") == "start"), None)
    return None if start is None else (start.get("machine"), start.get("pid"), start.get("born"))


@dataclass(slots=True)
class SignsOfLife:
    """What the events of a writer tell about its process: the start, the end, and the last sign of life."""

    start: dict[str, Any] = field(default_factory=dict)
    finish: dict[str, Any] | None = None
    imported: dict[str, Any] | None = None  # the last look at a log of another program
    span: tuple[float, float] | None = None  # times of the first and of the last event

    @property
    def heard(self) -> float:
        """The time of the last event."""
        return self.span[1] if self.span else 0.0

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        """Add further events."""
        for event in events:
            if "time" in event:
                time = event["time"]
                self.span = (min(self.span[0], time), max(self.span[1], time)) if self.span else (time, time)
            if event.get("event") == "start":
                self.start = event
            elif event.get("event") == "finish":
                self.finish = self.finish or event
            elif event.get("event") == "imported":
                self.imported = event

    def united(self, other: SignsOfLife) -> SignsOfLife:
        """Return these signs and those of a later segment of the same process."""
        spans = [span for span in (self.span, other.span) if span]
        span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
        return SignsOfLife(
            self.start or other.start, self.finish or other.finish, other.imported or self.imported, span
        )


def signs_of(events: Iterable[dict[str, Any]]) -> SignsOfLife:
    """Return what events tell about the process of their writer."""
    found = SignsOfLife()
    found.add(events)
    return found


def status_of(signs: SignsOfLife, last_row: float | None, now: float | None = None) -> Status:
    """Return the status of a writer from what its events tell and the time of its last row."""
    now = time.time() if now is None else now
    if signs.imported is not None:
        return _imported_status(signs.imported, now)
    if signs.finish is not None:
        return _written_status(signs.finish)
    start, heard = signs.start, max(last_row or 0.0, signs.heard)
    if not start or start.get("machine") != machine_id():
        return _remote_status(now - heard)
    if process_start(start.get("pid") or -1) != start.get("born"):
        return KILLED
    if now - heard > SILENT_SECONDS:
        return Status("stalled", f"no heartbeat for {now - heard:.0f} s, but the process is alive")
    idle = now - (last_row or start.get("time", now))
    if idle > (start.get("idle_seconds") or IDLE_SECONDS):
        return Status("stalled", f"no row for {idle:.0f} s")
    return Status("running")


def end_of(signs: SignsOfLife, last_row: float | None, now: float | None = None) -> End:
    """Return whether a writer still records; one that was terminated and has written its end is finished."""
    if signs.finish is not None and signs.finish.get("lost"):
        return "lost"  # another process has seen its end
    if signs.finish is not None or signs.imported is not None:
        return "finished"
    return "lost" if status_of(signs, last_row, now).ended else "running"


def _written_status(finish: Mapping[str, Any]) -> Status:
    return Status(finish.get("status", "finished"), finish.get("reason", ""))


def _imported_status(imported: Mapping[str, Any], now: float) -> Status:
    """Return the status of a run in a log of another program: what the log tells, else whether it grows."""
    if imported.get("status"):
        return Status(imported["status"], imported.get("reason", ""))
    if now - (imported.get("grown") or 0.0) < GROWING_SECONDS:
        return Status("running")
    return Status("finished", imported.get("reason") or UNTOLD)


def _remote_status(silence: float) -> Status:
    """Return the status of a writer on another machine, whose process cannot be checked."""
    if silence <= SILENT_SECONDS:
        return Status("running")
    if silence <= LOST_SECONDS:
        return Status("stalled", f"no event or row for {silence:.0f} s")
    return Status("killed", "no event or row for more than an hour")


def main_first(role: str, rank: int) -> tuple[bool, str, int]:
    """Return a key that sorts the main writer of a run, the trainer's lowest rank, before the others."""
    return role != MAIN_ROLE, role, rank


def run_status(writers: Mapping[Writer, Status]) -> Status:
    """Return the status of a run from those of its writers.

    While any writer runs, the run does. Then the main writer decides: if it has finished, others that were ended with
    it are a part of that end. If it was killed, the error of another writer tells more.
    """
    return joint_status([writers[writer] for writer in sorted(writers, key=lambda w: main_first(w.role, w.rank))])


def joint_status(statuses: Sequence[Status]) -> Status:
    """Return the status of a run from those of its writers, the main one first."""
    if not statuses:
        return Status("killed", "nothing was ever written")
    main = statuses[0]
    order = ("running", main.word) if main.word in ("finished", "stalled") else ("running", "crashed", "killed")
    return next(status for word in order for status in statuses if status.word == word)


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
    digest: str = ""  # of its files


@dataclass(frozen=True, slots=True)
class WriterEnd:
    """What the ends of a writer's segments tell. Its status also depends on the process and the clock."""

    events: list[dict[str, Any]]  # as few as give the status of all
    last_row: float | None

    @property
    def status(self) -> Status:
        """The status at this moment."""
        return status_of(signs_of(self.events), self.last_row)

    @property
    def end(self) -> End:
        """Whether the writer still records at this moment, has written its end, or was killed."""
        return end_of(signs_of(self.events), self.last_row)

    @property
    def written(self) -> Status | None:
        """The status that the writer has written at its end."""
        finish = signs_of(self.events).finish
        return None if finish is None else _written_status(finish)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the files of a run tell, as long as they are the same."""

    info: RunInfo
    ends: list[WriterEnd]  # of the writers that decide the status, the main one first
    last_step: int | None
    last_heard: float
    writers: int
    attempts: int

    @property
    def status(self) -> Status:
        """The status at this moment."""
        return joint_status([end.status for end in self.ends])


def seen_at(folder: Path, facts: RunFacts, size: int, digest: str = "") -> Glance:
    """Return the facts about a run at this moment; ``size`` and ``digest`` are those of its files."""
    return Glance(
        info=facts.info,
        path=folder,
        status=facts.status,
        last_step=facts.last_step,
        began=facts.info.created,
        last_heard=facts.last_heard,
        bytes=size,
        writers=facts.writers,
        attempts=facts.attempts,
        digest=digest,
    )


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
    from barograph.journal.segments.reader import SegmentReader, events  # imports NumPy, which a writer can do without

    reader = SegmentReader(path)
    reader.read_ends(HEAD_BYTES)
    return events(reader.records)


def _look_at(paths: list[Path], size: int) -> _Look:
    """Return what the ends of the segments of one process tell."""
    from barograph.journal.segments.reader import SegmentReader, events  # see above

    readers = [SegmentReader(path) for path in paths]
    complete = [reader.read_ends(size) for reader in readers]
    times = [time for reader in readers for time in reader.steps.times]
    times += [span[1] for reader in readers if (span := reader.steps.row_span) is not None]
    highest = max(reader.steps.highest for reader in readers)
    last_step = None if highest == OPEN_STEP else highest
    signs = signs_of(event for reader in readers for event in events([*reader.records, *reader.heartbeats]))
    heard = max([*times, signs.heard])
    return _Look(WriterEnd(_telling(signs, heard), max(times, default=None)), heard, last_step, all(complete))


def _telling(signs: SignsOfLife, heard: float) -> list[dict[str, Any]]:
    """Return as few events as give the same status: the first finish, else the last start and the last time."""
    for event, names in ((signs.imported, IMPORTED_FIELDS), (signs.finish, FINISH_FIELDS)):
        if event is not None:
            return [_some(event, names)]
    start = [_some(signs.start, START_FIELDS)] if signs.start else []
    return [*start, {"event": "heartbeat", "time": heard}]


def _some(event: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: event[name] for name in names if name in event}
