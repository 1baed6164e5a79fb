"""Search index of samples: an SQLite file made from the journal, which can be deleted at any time.

It is updated before every search, from where each segment was read last. Samples are in blocks of a few hundred, each
with columns of numbers, uncompressed texts and the other fields. A search reads block after block, so that its memory
does not grow with the run. That is faster than decompressing the journal, and much smaller than an index of trigrams.
SQLite has no checksums of its own, so every part is sealed. The file is in the run's folder or, if that is not
writable, in the system's temporary folder.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from barograph.base.errors import JournalError
from barograph.base.files.compression import Budget
from barograph.journal.format.folder import INDEX_FOLDER, SegmentFile
from barograph.journal.format.frames import SEGMENT_HEAD
from barograph.journal.format.samples import MAX_SAMPLE_BYTES
from barograph.journal.samples import search
from barograph.journal.samples.blocks import BlockWriter, SegmentState, add_frame, damage, segment_states
from barograph.journal.samples.query import Census, FoundSamples, Query, TooSlowError
from barograph.journal.samples.search import Limits
from barograph.journal.segments.contents import SampleFrame
from barograph.journal.segments.framing import frame_head

T = TypeVar("T")
Source = Callable[[], Iterable[tuple[SegmentFile, list[SampleFrame]]]]

FILE = "samples.sqlite"
VERSION = 5
MAX_VALUE_BYTES = 8 * MAX_SAMPLE_BYTES  # of one value of the index; escapes make JSON longer
# The file may be anybody's. No honest search needs more steps of SQLite's machine for every byte of it.
STEPS_PER_BYTE, FREE_STEPS, STEPS_AT_ONCE = 100, 10_000_000, 1_000_000
NONSENSE = (
    sqlite3.Error, struct.error, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, OSError,
    RecursionError,
)  # fmt: skip
MAX_WAIT_SECONDS = 60.0  # for another process that updates the index
LAYOUT = """
CREATE TABLE segments (name TEXT PRIMARY KEY, state BLOB);
CREATE TABLE blocks (id INTEGER PRIMARY KEY, segment TEXT, number INTEGER, columns BLOB, texts BLOB, rest BLOB);
CREATE UNIQUE INDEX places ON blocks (segment, number);
"""
STATEMENTS = [statement.strip() for statement in LAYOUT.split(";") if statement.strip()]


class Stale(sqlite3.DatabaseError):
    """The index has another version, or contains segments that no longer exist."""


@dataclass(frozen=True, slots=True)
class NewFrames:
    """Frames of one segment to add to the index."""

    segment: SegmentFile
    state: SegmentState
    frames: list[SampleFrame]


class SampleIndex:
    """Search of one run's samples. ``source`` returns the journal's sample frames by segment."""

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder = folder
        self._source = source
        self._damage: tuple[str, ...] = ()
        self._damage_read: int | None = None  # time of the index from which it was read
        self.on_progress: Callable[[int, int], None] = lambda done, total: None  # called for every frame added

    def find(self, query: Query, limits: Limits, limit: int | None = None) -> FoundSamples:
        """Return the first ``limit`` samples that match, and the number of matches."""
        if not self._has_samples():
            return FoundSamples()
        found = self._use(lambda db: search.find(db, query, limits, limit))
        self._damage = found.census.damage
        return found

    def census(self, limits: Limits) -> Census:
        """Return the number of samples and the ranges of their steps and rewards."""
        if not self._has_samples():
            return Census()
        census = self._use(lambda db: search.census(db, limits))
        self._damage = census.damage
        return census

    def known_damage(self) -> tuple[str, ...]:
        """Return the messages about frames that could not be read when the index was last updated, if there is one."""
        path = self._folder / INDEX_FOLDER / FILE
        with suppress(*NONSENSE):
            changed = path.stat().st_mtime_ns if path.is_file() else None
            if changed is not None and changed != self._damage_read:
                self._damage_read = changed
                with closing(_opened(path)) as db:
                    _limit_work(db, path)
                    self._damage = damage(db)
        return self._damage

    def _has_samples(self) -> bool:
        """Return whether the journal has samples; without any, no index is made."""
        return any(frames for _, frames in self._source())

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Update the index and call ``work`` with it; a damaged index is made again."""
        last_error: Exception | None = None
        for place in (self._in_run, self._in_temporary):
            # The second time with a new file, where the first was damaged or stale.
            for _ in range(2):
                try:
                    path = place()
                    with closing(_opened(path)) as db:
                        self._update(db)
                        _limit_work(db, path)
                        return work(db)
                except TooSlowError:
                    raise
                except NONSENSE as error:
                    last_error = error
                    if _is_unusable_place(error):
                        break
                    remove(path)
        raise JournalError(f"cannot make an index of samples for {self._folder}: {last_error}") from last_error

    def _in_run(self) -> Path:
        path = self._folder / INDEX_FOLDER / FILE
        path.parent.mkdir(exist_ok=True)
        return path

    def _in_temporary(self) -> Path:
        folder = Path(tempfile.gettempdir()) / f"barograph-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # The name is predictable: another user may have made the folder to read the samples.
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else")
        name = blake2b(os.fsencode(self._folder.resolve()), digest_size=12).hexdigest()
        return folder / f"{name}.{FILE}"

    def _update(self, db: sqlite3.Connection) -> None:
        """Add the journal's new frames to the index; another process may be doing the same."""
        # Most searches find nothing new and take no lock.
        if not any(new.frames for new in self._new_frames(db)):
            return
        db.execute("BEGIN IMMEDIATE")
        # Read again under the lock: another process may have added the same frames.
        by_segment = self._new_frames(db)
        budget = Budget(sum(new.state.packed for new in by_segment), sum(new.state.cost for new in by_segment))
        total, done = sum(len(new.frames) for new in by_segment), 0
        for new in by_segment:
            if not new.frames:
                continue
            with open(new.segment.path, "rb") as file:
                blocks = BlockWriter(db, new.segment, new.state)
                for frame in new.frames:
                    add_frame(blocks, file.fileno(), frame, budget)
                    done += 1
                    self.on_progress(done, total)
                blocks.finish(file.fileno(), new.frames[-1])
        db.execute("COMMIT")

    def _new_frames(self, db: sqlite3.Connection) -> list[NewFrames]:
        """Return the new frames of every segment; raises ``Stale`` if the index has other segments."""
        known = segment_states(db)
        found = []
        for segment, frames in self._source():
            name = segment.path.name
            if not frames and name not in known:
                continue
            with open(segment.path, "rb") as file:
                state = known.pop(name, None) or SegmentState(frame_head(file.fileno(), SEGMENT_HEAD.size).hex())
                _check_same(name, state, file.fileno())
            found.append(NewFrames(segment, state, [frame for frame in frames if frame.offset >= state.done]))
        gone = [name for name in known if not (self._folder / name).exists()]  # others may be newer than our source
        if gone:
            raise Stale(f"{', '.join(gone)} no longer exist")
        return found


def _check_same(name: str, state: SegmentState, fd: int) -> None:
    """Raise ``Stale`` if a segment is not the one that the index was made from."""
    same = state.done <= os.fstat(fd).st_size and state.first == frame_head(fd, SEGMENT_HEAD.size).hex()
    if not same or (state.last and state.last != frame_head(fd, state.last_offset).hex()):
        raise Stale(f"{name} was replaced")


def _is_unusable_place(error: Exception) -> bool:
    """Return whether the place cannot be used (read-only, full, locked for too long); else the index is damaged."""
    is_damaged = any(text in str(error) for text in ("no such", "already exists", "malformed"))
    return isinstance(error, OSError | sqlite3.OperationalError) and not is_damaged


def remove(path: Path) -> None:
    """Delete an index and the files that SQLite may have left beside it."""
    # The database comes last: SQLite would apply a journal that is left behind to the next file of that name.
    for suffix in ("-journal", "-wal", "-shm", ""):
        with suppress(OSError):
            os.unlink(f"{path}{suffix}")


def _opened(path: Path) -> sqlite3.Connection:
    """Open an index, or make one."""
    # Without an isolation level sqlite3 begins no transactions of its own.
    db = sqlite3.connect(path, timeout=MAX_WAIT_SECONDS, isolation_level=None)
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA page_size = 16384")  # texts of a few kilobytes would waste half of a smaller page
        db.execute("PRAGMA synchronous = OFF")  # a damaged index is made again
        if _version(db) == 0:
            db.execute("BEGIN IMMEDIATE")
            if _version(db) == 0:  # no other process was faster
                for statement in STATEMENTS:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        if _version(db) != VERSION or _layout(db) != STATEMENTS:
            raise Stale("the index has another version")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _layout(db: sqlite3.Connection) -> list[str]:
    """Return the statements that made the tables. A view in place of a table could have rows without end."""
    rows = db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex%' ORDER BY rowid LIMIT 100")
    return [sql for (sql,) in rows]


def _limit_work(db: sqlite3.Connection, path: Path) -> None:
    """Interrupt a search that takes too many steps for the size of the file: its pages may refer to each other."""
    left = iter(range((FREE_STEPS + STEPS_PER_BYTE * path.stat().st_size) // STEPS_AT_ONCE))
    db.set_progress_handler(lambda: next(left, None) is None, STEPS_AT_ONCE)
