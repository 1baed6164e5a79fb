"""Finding the logs of other programs in a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from barograph.base.errors import LogError
from barograph.base.formatting import counted
from barograph.importers.cache import list_folder
from barograph.importers.formats import FORMATS, grouped_logs, recognise
from barograph.importers.reading.log import END_BYTES, FoundLogs, Log, look_at
from barograph.journal.directory import DirectoryIndex
from barograph.journal.format.folder import RUN_FILE, SEGMENT_NAME

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".log", ".txt", ".out", ".err", ".ipynb", ".wandb", ".db",
            ".sqlite", ".parquet")  # fmt: skip
"""Files that are looked into in a directory; one that is given by its own path may have any name."""
MAX_DEPTH = 6  # the directory may be a home directory: the search has to end in a reasonable time
MAX_FILES = 20_000  # that are looked into
DATABASE = b"SQLite format 3\0"
HINT = "docs/importing.md lists the formats"


def log_at(path: Path) -> Log:
    """Return the log at a path; raise LogError if there is none, or several."""
    found = logs_at(path)
    # Of an output directory with event files in a folder of their own, the directory itself is meant.
    own = [log for log in found if log.path == path and not log.member]
    if len(found) == 1 or len(own) == 1:
        return own[0] if own else found[0]
    if not found and ".aim" in (path.name, *os.listdir(path)):
        raise LogError(f"{path} is a store of Aim, a RocksDB that only Aim itself can read: export its metrics as CSV")
    if not found:
        raise LogError(f"{path} has no log that barograph can read; {HINT}")
    if path.is_dir():
        names = ", ".join(sorted(str(log.place.relative_to(path)) for log in found)[:5])
        raise LogError(
            f"{path} has {counted(len(found), 'log')} ({names}, …): give one, or list them with 'barograph ls {path}'"
        )
    members = ", ".join(log.member for log in found[:5])
    raise LogError(f"{path} has {counted(len(found), 'run')} ({members}, …): give one as {path}#NAME")


def logs_at(path: Path, skip: Iterable[Path] = ()) -> list[Log]:
    """Return the logs at a path: below a directory, or in a file; raise LogError for a file that is none."""
    if path.is_dir():
        return list(find_logs(path, skip))
    if not path.exists():
        raise LogError(f"{path} does not exist")
    return grouped_logs(path.parent, [path.name]).logs or [_log_of_file(path)]


def _log_of_file(path: Path) -> Log:
    seen = look_at(path)
    if seen is None:
        raise LogError(f"{path} cannot be read")
    if not seen.size:
        raise LogError(f"{path} is empty")
    format = recognise(seen)
    if format is None:
        if seen.is_pickle:
            raise LogError(f"{path} is a pickle, which could run any program: save it as JSON lines or Parquet instead")
        if seen.head.startswith(DATABASE):
            raise LogError(f"{path} is a database with no runs of Trackio or MLflow, or is damaged; {HINT}")
        what = "binary data" if seen.is_binary else "text without metrics that barograph knows"
        raise LogError(f"{path} is {what}; {HINT}")
    return Log(path, format)


class KnownFormats:
    """The formats of files below a directory, so that a file which has not changed is looked into once.

    They are kept in the cache. A large file that has grown has the format that it had.
    """

    def __init__(self, dir: Path) -> None:
        self._dir = dir
        self._folder = list_folder(dir)
        self._index = DirectoryIndex(self._folder, "formats")
        self._known = self._index.load()
        self._is_changed = False

    def format_of(self, path: Path) -> str | None:
        """Return the format of a file; None if it is no log."""
        try:
            state = path.stat()
        except OSError:
            return None
        if not stat.S_ISREG(state.st_mode) or not state.st_size:
            return None
        name = os.fspath(path.relative_to(self._dir))
        digest = f"{state.st_ino}/{len(FORMATS)}"
        before, record = self._known.get(name, ("", None))
        with suppress(TypeError, ValueError):
            size, modified, format = record
            is_same = (size, modified) == (state.st_size, state.st_mtime_ns)
            has_grown = format is not None and END_BYTES <= size <= state.st_size
            if before == digest and (is_same or has_grown) and format in (None, *FORMATS):
                return str(format) if format is not None else None
        seen = look_at(path)
        found = recognise(seen) if seen is not None else None
        self._known[name] = digest, [state.st_size, state.st_mtime_ns, found]
        self._is_changed = True
        return found

    def save(self) -> None:
        """Keep them for the next search."""
        if self._is_changed:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._is_changed = not self._index.save(self._known)


def find_logs(dir: Path, skip: Iterable[Path] = ()) -> Iterator[Log]:
    """Yield the logs at or below a directory, except those in runs that barograph has recorded."""
    for _, logs in walk_logs(dir, KnownFormats(dir), skip):
        yield from logs


def walk_logs(dir: Path, known: KnownFormats, skip: Iterable[Path] = ()) -> Iterator[tuple[Path, list[Log]]]:
    """Yield the directories at or below a directory with the logs in each; ``skip`` are known runs."""
    recorded = set(skip)
    above = {path.parent for path in recorded}
    looked = 0
    for folder, files, inner in _walk(dir, recorded):
        # With runs that barograph has recorded only, no format is asked, and none is imported.
        names = [*files, *(name for name in inner if folder / name not in above)]
        found = grouped_logs(folder, names) if names else FoundLogs()
        logs = list(found.logs)
        inner[:] = [name for name in inner if name not in found.taken]
        for name in files:
            if name not in found.taken and name.lower().endswith(SUFFIXES) and looked < MAX_FILES:
                looked += 1
                format = known.format_of(folder / name)
                if format is not None:
                    logs.append(Log(folder / name, format))
        yield folder, logs
    known.save()


def _walk(dir: Path, recorded: set[Path]) -> Iterator[tuple[Path, Sequence[str], list[str]]]:
    """Yield directories with their files and the directories in them, of which the caller may remove some."""
    for folder, inner, files in os.walk(dir):
        here = Path(folder)
        if RUN_FILE in files or any(map(SEGMENT_NAME.fullmatch, files)):  # a run that barograph has recorded
            inner.clear()
            continue
        deep = len(here.relative_to(dir).parts) >= MAX_DEPTH
        inner[:] = [] if deep else sorted(name for name in inner if name[0] != "." and here / name not in recorded)
        yield here, sorted(files), inner
