"""Finding the logs of other programs in a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from windsock.errors import LogError
from windsock.importers.formats import Log, grouped_logs, recognise
from windsock.importers.seen import look_at

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".log", ".txt", ".out", ".err", ".ipynb", ".wandb", ".db",
            ".sqlite", ".parquet")  # fmt: skip
"""Files that are looked into in a directory; one that is given by its own path may have any name."""
MAX_DEPTH = 6  # the directory may be a home directory: the search has to end in a reasonable time
MAX_FILES = 20_000  # that are looked into
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
        raise LogError(f"{path} has no log that windsock can read; {HINT}")
    if path.is_dir():
        names = ", ".join(sorted(str(log.path.relative_to(path)) for log in found)[:5])
        raise LogError(f"{path} has {len(found)} logs ({names}, …): give one, or list them with 'windsock ls {path}'")
    members = ", ".join(log.member for log in found[:5])
    raise LogError(f"{path} has {len(found)} runs ({members}, …): give one as {path}#NAME")


def logs_at(path: Path) -> list[Log]:
    """Return the logs at a path: below a directory, or in a file; raise LogError for a file that is none."""
    if path.is_dir():
        return list(find_logs(path))
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
        what = "binary data" if seen.is_binary else "text without metrics that windsock knows"
        raise LogError(f"{path} is {what}; {HINT}")
    return Log(path, format)


def find_logs(dir: Path, skip: Iterable[Path] = (), depth: int = MAX_DEPTH) -> Iterator[Log]:
    """Yield the logs at or below a directory, except below those in ``skip``."""
    looked = 0
    for folder, files, inner in walk(dir, skip, depth):
        found = grouped_logs(folder, [*files, *inner])
        yield from found.logs
        inner[:] = [name for name in inner if name not in found.taken]
        for name in files:
            if name not in found.taken and name.lower().endswith(SUFFIXES) and looked < MAX_FILES:
                looked += 1
                seen = look_at(folder / name)
                format = recognise(seen) if seen is not None and seen.size else None
                if format is not None:
                    yield Log(folder / name, format)


def walk(
    dir: Path, skip: Iterable[Path] = (), depth: int = MAX_DEPTH
) -> Iterator[tuple[Path, Sequence[str], list[str]]]:
    """Yield directories with their files and the directories in them, of which the caller may remove some."""
    left_out = set(skip)
    for folder, inner, files in os.walk(dir):
        here = Path(folder)
        deep = len(here.relative_to(dir).parts) >= depth
        inner[:] = [] if deep else sorted(n for n in inner if n[0] != "." and here / n not in left_out)
        yield here, sorted(files), inner
