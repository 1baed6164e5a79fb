"""SQLite databases of trackers, which are only read: nothing is written to them or beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from barograph.importers.reading.log import FoundLogs, Log, LogReader, first_bytes
from barograph.importers.recorder import Recorder

Answer = TypeVar("Answer")

MAGIC = b"SQLite format 3\0"
WAL_MODE = b"\x02\x02"  # at byte 18: the newest data may be in a file of their own
SUFFIXES = (".db", ".sqlite", ".sqlite3")
HEAD_BYTES = 100
MAX_CUT_OFF = 256 << 20  # bytes of a database of which only a part is there
BUSY_SECONDS = 5.0
UNREADABLE = (sqlite3.Error, OSError, UnicodeError)  # what a damaged database raises
WAYS = ("", "NOT INDEXED")  # to read a table: by an index, and where that is damaged, in the order of the table


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; text in it that is not UTF-8 is replaced."""
    with closing(_connect(path)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            yield connection
        except UnicodeDecodeError:  # the message of an error has bytes of the file
            raise sqlite3.DatabaseError("the database is damaged") from None


def _connect(path: Path) -> sqlite3.Connection:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    has_wal = _wal(path).exists()
    if _full_size(head) > path.stat().st_size and not has_wal:
        return _cut_off(path, _full_size(head))
    # Without a write-ahead file nobody writes to such a database. Opened as one that may change, SQLite would make it.
    is_still = head[18:20] == WAL_MODE and not has_wal
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if is_still else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)


def _full_size(head: bytes) -> int:
    """Return the size that a database has by its header: the size of a page and the number of pages."""
    page = int.from_bytes(head[16:18], "big")
    return (1 << 16 if page == 1 else page) * int.from_bytes(head[28:32], "big")


def _cut_off(path: Path, size: int) -> sqlite3.Connection:
    """Open what is left of a database that was copied in part: SQLite refuses one that lacks pages."""
    if size > MAX_CUT_OFF:
        raise sqlite3.DatabaseError("the file is cut off")
    data = bytearray(path.read_bytes().ljust(size, b"\0"))
    data[18:20] = b"\1\1"  # a database in memory has no write-ahead file
    connection = sqlite3.connect(":memory:")
    connection.deserialize(bytes(data))
    return connection


def database_files(path: Path) -> list[Path]:
    """Return the files that change with a database."""
    return [path, _wal(path)]


def while_unchanged(find: Callable[[Path], Answer]) -> Callable[[Path], Answer]:
    """Keep what a function has found in a database as long as its files are the same: each of its runs asks for it."""

    @lru_cache(maxsize=64)
    def kept(path: Path, _: tuple[tuple[int, int] | None, ...]) -> Answer:
        return find(path)

    return lambda path: kept(path, tuple(map(_state, database_files(path))))


def _state(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    return first_bytes(path, len(MAGIC)) == MAGIC


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table."""
    return {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def unique_names(named: list[tuple[str, str]]) -> dict[str, str]:
    """Return a name for each id, of pairs of id and name: one that several have gets the id behind it."""
    names = [name for _, name in named]
    return {id: name if name and names.count(name) == 1 else f"{name} {id}".strip() for id, name in named}


class DatabaseReader(LogReader):
    """Base of the readers of one run in a database. ``state["last"]`` is the number of the last row that was read."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("last", 0)

    def files(self) -> list[Path]:
        """Return the files of the database."""
        return database_files(self.log.path)

    def id_in(self, runs: Mapping[str, str] | None) -> str:
        """Return the id of the run, of ids and names."""
        return next((id for id, member in (runs or {}).items() if member == self.log.member), self.log.member)

    def check_same(self, connection: sqlite3.Connection) -> None:
        """Raise RewrittenError if the last row that was read is another one now."""
        raise NotImplementedError

    def rows_after_last(self, query: str, id: str, out: Recorder) -> Iterator[Any]:
        """Yield the rows behind the last one, by a query that has a place for the way to read the table."""
        try:
            with database(self.log.path) as connection:
                if self.state["last"]:
                    self.check_same(connection)
                for way in WAYS:
                    try:
                        yield from connection.execute(query.format(way=way), (id, self.state["last"]))
                        return
                    except UNREADABLE as problem:
                        self._report_damage(problem, out)
        except UNREADABLE as problem:
            self._report_damage(problem, out)

    def _report_damage(self, problem: Exception, out: Recorder) -> None:
        """Say once that a database cannot be read, or not to its end."""
        reason = f"the database is damaged, what could be read is kept: {problem}"
        if self.state.get("damage") != reason:
            self.state["damage"] = reason
            out.unread(self.log.path.name, reason)


def stored_runs(
    folder: Path, names: Sequence[str], format: str, runs_of: Callable[[Path], dict[str, str] | None]
) -> FoundLogs:
    """Return the runs in those databases of a directory in which ``runs_of`` finds ids and names of runs."""
    found = FoundLogs()
    for name in names:
        path = folder / name
        members = runs_of(path) if name.endswith(SUFFIXES) and is_database(path) else None
        if members is not None:
            found.logs.extend(Log(path, format, member) for member in members.values())
            found.taken.add(name)
    return found
