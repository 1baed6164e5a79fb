"""Search index of samples: an SQLite file made from the journal, which can be deleted at any time.

It is updated before every search, from where each segment was read last. Numbers and names are in one table, the
uncompressed texts in another, so that a search for words reads them once from end to end. That is faster than
decompressing the journal, and much smaller than an index of trigrams. The file is in the run's folder or, if that is
not writable, in the system's temporary folder.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from windsock.errors import JournalError
from windsock.journal.folder import INDEX_FOLDER, SegmentFile
from windsock.journal.frames import SAMPLE_HEAD, SEGMENT_HEAD, parse_samples
from windsock.journal.reader import HEAD, SampleFrame, read_payload
from windsock.journal.samples import MAX_SAMPLE_BYTES, decode, encode
from windsock.journal.unpacking import MAX_RATIO, Budget, pack
from windsock.model import Sample, Writer
from windsock.samples.choice import total_reward
from windsock.samples.query import Census, Found, Query, to_bytes

T = TypeVar("T")
Source = Callable[[], Iterable[tuple[SegmentFile, list[SampleFrame]]]]
Limits = Mapping[Writer, int | None]  # writer to the first step that a newer attempt supersedes

FILE = "samples.sqlite"
VERSION = 2
MAX_VALUE_BYTES = 8 * MAX_SAMPLE_BYTES  # of one value of the index; escapes make JSON longer
MAX_DAMAGE = 1000  # messages about frames that cannot be read; further ones are left out
# The file may be anybody's. No honest search needs more steps of SQLite's machine for every byte of it.
STEPS_PER_BYTE, FREE_STEPS, STEPS_AT_ONCE = 100, 10_000_000, 1_000_000
NONSENSE = (sqlite3.Error, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, OSError, RecursionError)
MAX_WAIT_SECONDS = 60.0  # for another process that updates the index
# Names and texts are BLOBs: sqlite3 does not take strings with lone surrogates.
LAYOUT = """
CREATE TABLE segments (id INTEGER PRIMARY KEY, name TEXT UNIQUE, mark BLOB, done INTEGER);
CREATE TABLE damage (text TEXT PRIMARY KEY);
CREATE TABLE frames (
    segment INTEGER, step INTEGER, kept INTEGER, seen INTEGER, packed INTEGER, cost INTEGER
);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, segment INTEGER, step INTEGER, time REAL, reward REAL, advantage REAL, length INTEGER,
    weight_version INTEGER, finish_reason BLOB, task BLOB, "group" BLOB, run BLOB
);
CREATE TABLE words (id INTEGER PRIMARY KEY, prompt INTEGER, completion INTEGER, texts BLOB, rest BLOB);
"""
STATEMENTS = [statement.strip() for statement in LAYOUT.split(";") if statement.strip()]
INSERT_SAMPLE = "INSERT INTO samples VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_WORDS = "INSERT INTO words VALUES (?, ?, ?, ?, ?)"


class Stale(sqlite3.DatabaseError):
    """The index has another version, or contains segments that no longer exist."""


@dataclass(frozen=True, slots=True)
class NewFrames:
    """Frames of one segment to add to the index; ``identity`` distinguishes segments of the same name."""

    segment: SegmentFile
    identity: bytes
    frames: list[SampleFrame]


class SampleIndex:
    """Search of one run's samples. ``source`` returns the journal's sample frames by segment."""

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder = folder
        self._source = source
        self._damage: tuple[str, ...] = ()
        self._damage_read: int | None = None  # time of the index from which it was read
        self.on_progress: Callable[[int, int], None] = lambda done, total: None  # called for every frame added

    def find(self, query: Query, limits: Limits, limit: int | None = None) -> Found:
        """Return the first ``limit`` samples that match, and the number of matches."""
        if not self._has_samples():
            return Found()
        found = self._use(lambda db: _find(db, query, limits, limit))
        self._damage = found.census.damage
        return found

    def census(self, limits: Limits) -> Census:
        """Return the number of samples and the ranges of their steps and rewards."""
        if not self._has_samples():
            return Census()
        census = self._use(lambda db: _census(db, limits))
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
                    self._damage = _damage(db)
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
        folder = Path(tempfile.gettempdir()) / f"windsock-{os.getuid()}"
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
        budget = Budget(*db.execute("SELECT coalesce(sum(packed), 0), coalesce(sum(cost), 0) FROM frames").fetchone())
        total, done = sum(len(new.frames) for new in by_segment), 0
        for new in by_segment:
            with open(new.segment.path, "rb") as file:
                segment = _segment_id(db, new)
                for frame in new.frames:
                    _add_frame(db, segment, new.segment, file.fileno(), frame, budget)
                    done += 1
                    self.on_progress(done, total)
            if new.frames:
                # One byte beyond its start is enough: the next frame begins later, and the length need not be known.
                db.execute("UPDATE segments SET done = ? WHERE id = ?", (new.frames[-1].offset + 1, segment))
        db.execute("COMMIT")

    def _new_frames(self, db: sqlite3.Connection) -> list[NewFrames]:
        """Return the new frames of every segment; raises ``Stale`` if the index has other segments."""
        known = {name: (identity, done) for name, identity, done in db.execute("SELECT name, mark, done FROM segments")}
        found = []
        for segment, frames in self._source():
            if not frames and segment.path.name not in known:
                continue
            identity, done = _identity(segment.path), 0
            if segment.path.name in known:
                former, done = known.pop(segment.path.name)
                if former != identity or done > segment.path.stat().st_size:
                    raise Stale(f"{segment.path.name} was replaced")
            found.append(NewFrames(segment, identity, [frame for frame in frames if frame.offset >= done]))
        gone = [name for name in known if not (self._folder / name).exists()]  # others may be newer than our source
        if gone:
            raise Stale(f"{', '.join(gone)} no longer exist")
        return found


def _is_unusable_place(error: Exception) -> bool:
    """Return whether the place cannot be used (read-only, full, locked for too long); else the index is damaged."""
    return isinstance(error, OSError | sqlite3.OperationalError) and "no such" not in str(error)


def _add_frame(
    db: sqlite3.Connection, id: int, segment: SegmentFile, fd: int, frame: SampleFrame, budget: Budget
) -> None:
    """Add the samples of a frame; those that cannot be read are skipped and recorded as damage."""
    kept, packed, left = 0, 0, budget.left
    try:
        payload = read_payload(fd, frame.offset)
        packed = len(payload) - SAMPLE_HEAD.size
        records = parse_samples(payload, budget)
    except ValueError as error:
        _record_damage(db, segment, frame, error)
        records = []
    for record in records:
        try:
            sample = decode(record, frame.step, frame.time)
            columns, words = _columns(sample), _words(sample)
        except (ValueError, RecursionError) as error:
            _record_damage(db, segment, frame, error)
            continue
        cursor = db.execute(INSERT_SAMPLE, (id, *columns))
        db.execute(INSERT_WORDS, (cursor.lastrowid, *words))
        kept += 1
    cost = left + MAX_RATIO * packed - budget.left
    db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", (id, frame.step, kept, max(frame.seen, 0), packed, cost))


def _record_damage(db: sqlite3.Connection, segment: SegmentFile, frame: SampleFrame, error: Exception) -> None:
    text = f"{segment.path.name}: byte {frame.offset}: samples of step {frame.step} cannot be read: {error}"
    db.execute("INSERT OR IGNORE INTO damage VALUES (?)", (text.encode("utf-8", "replace").decode(),))


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


def _identity(path: Path) -> bytes:
    """Return the head of a segment's first frame: its checksum differs for segments of different processes."""
    with open(path, "rb") as file:
        return os.pread(file.fileno(), HEAD, SEGMENT_HEAD.size)


def _segment_id(db: sqlite3.Connection, new: NewFrames) -> int:
    name = new.segment.path.name
    db.execute("INSERT OR IGNORE INTO segments VALUES (NULL, ?, ?, 0)", (name, new.identity))
    return int(db.execute("SELECT id FROM segments WHERE name = ?", (name,)).fetchone()[0])


def _columns(sample: Sample) -> tuple[Any, ...]:
    """Return a sample's searchable columns. SQLite stores NaN as NULL, which matches no bound."""
    names = (sample.finish_reason, sample.task, sample.group, sample.run)
    numbers = (total_reward(sample), sample.advantage, sample.length, sample.weight_version)
    return sample.step, sample.time, *numbers, *(None if name is None else to_bytes(name) for name in names)


def _words(sample: Sample) -> tuple[int, int, bytes, bytes]:
    """Return the lengths of prompt and completion, all texts joined for the search, and the other fields compressed."""
    prompt, completion = to_bytes(sample.prompt), to_bytes(sample.completion)
    messages = [to_bytes(text) for message in sample.messages for text in texts_of(message.get("content"))]
    rest = pack(encode(replace(sample, prompt="", completion="")), 1)
    # Texts are separated by NUL, so that no word is found across the end of one and the beginning of the next.
    return len(prompt), len(completion), b"\0".join((prompt, completion, *messages)), rest


def texts_of(content: Any) -> Iterator[str]:
    """Yield the texts of a message's content: itself, or those of its parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from texts_of(part)
    elif isinstance(content, Mapping):
        yield from texts_of(content.get("text"))


def _sample(budget: Budget, step: int, prompt: int, completion: int, texts: bytes, rest: bytes) -> Sample:
    sample = decode(budget.unpack(rest, MAX_VALUE_BYTES), step)
    first, second = texts[:prompt], texts[prompt + 1 : prompt + 1 + completion]
    return replace(
        sample, prompt=first.decode("utf-8", "surrogatepass"), completion=second.decode("utf-8", "surrogatepass")
    )


def _find(db: sqlite3.Connection, query: Query, limits: Limits, limit: int | None) -> Found:
    conditions = [*_current(db, limits), *query.conditions()]
    contains = query.text_filter()
    tables = "samples"
    if contains is not None:
        db.create_function("contains", 1, contains, deterministic=True)
        tables, conditions = "samples JOIN words USING (id)", [*conditions, ("contains(texts)", None)]
    where, values = _where(conditions)
    column, down = query.sort.removeprefix("-"), "DESC" if query.sort.startswith("-") else "ASC"
    # SQLite sorts NULL before all values.
    order = f'"{column}" IS NULL, "{column}" {down}, step, id'
    ids = [id for (id,) in db.execute(f"SELECT id FROM {tables} WHERE {where} ORDER BY {order}", values)]
    shown = ids if limit is None else ids[:limit]
    # Texts are read for the samples that are shown, so that sorting does not move them.
    rows = "SELECT step, prompt, completion, texts, rest FROM samples JOIN words USING (id) WHERE id = ?"
    budget = Budget()
    samples = [_sample(budget, *db.execute(rows, (id,)).fetchone()) for id in shown]
    return Found(samples, len(ids), _census(db, limits))


def _census(db: sqlite3.Connection, limits: Limits) -> Census:
    where, values = _where(_current(db, limits))
    kept, seen = db.execute(f"SELECT sum(kept), sum(seen) FROM frames WHERE {where}", values).fetchone()
    damage = _damage(db)
    if not kept:
        return Census(0, seen or 0, damage=damage)
    extent = "SELECT min(step), max(step), min(reward), max(reward) FROM samples"
    first, last, lowest, highest = db.execute(f"{extent} WHERE {where}", values).fetchone()
    return Census(kept, max(seen, kept), (first, last), None if lowest is None else (lowest, highest), damage)


def _damage(db: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(str(text) for (text,) in db.execute("SELECT text FROM damage LIMIT ?", (MAX_DAMAGE,)))


def _current(db: sqlite3.Connection, limits: Limits) -> list[tuple[str, Any]]:
    """Return the conditions that leave out steps which a newer attempt supersedes."""
    conditions = []
    for id, name in db.execute("SELECT id, name FROM segments"):
        segment = SegmentFile.parse(Path(name))
        # Filtered and not deleted: a new attempt changes the limits, but not the frames that the index has.
        limit = limits.get(segment.writer) if segment else None
        if limit is not None:
            conditions.append((f"NOT (segment = {id} AND step >= ?)", limit))
    return conditions


def _where(conditions: Iterable[tuple[str, Any]]) -> tuple[str, list[Any]]:
    listed = list(conditions)
    return " AND ".join(c for c, _ in listed) or "1", [value for c, value in listed if "?" in c]
