"""SQLite databases of trackers, which are only read: nothing is written to them or beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

MAGIC = b"SQLite format 3\0"
WAL_MODE = b"\x02\x02"  # at byte 18: the newest data may be in a file of their own
SUFFIXES = (".db", ".sqlite", ".sqlite3")
BUSY_SECONDS = 5.0


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; text in it that is not UTF-8 is replaced."""
    with path.open("rb") as file:
        head = file.read(20)
    # Without a write-ahead file nobody writes to such a database. Opened as one that may change, SQLite would make it.
    is_still = head[18:20] == WAL_MODE and not _wal(path).exists()
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if is_still else ''}"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except UnicodeDecodeError:  # the message of an error has bytes of the file
            raise sqlite3.DatabaseError("the database is damaged") from None


def database_files(path: Path) -> list[Path]:
    """Return the files that change with a database."""
    return [path, _wal(path)]


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table."""
    return {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def unique_names(named: list[tuple[str, str]]) -> dict[str, str]:
    """Return a name for each id, of pairs of id and name: one that several have gets the id behind it."""
    names = [name for _, name in named]
    return {id: name if name and names.count(name) == 1 else f"{name} {id}".strip() for id, name in named}
