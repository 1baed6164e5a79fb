"""The cache of imported logs: ``$BAROGRAPH_CACHE``, else the user's cache directory. It may be removed at any time.

``imports/`` has a folder for each log, ``lists/`` what was found out about directories. A process locks the folder that
it reads. When a log is imported for the first time, folders are removed that were not used for 30 days, and those that
were not used for the longest time as long as all have more than 10 GiB.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAX_AGE_SECONDS = 30 * 86_400.0
MAX_BYTES = 10 << 30
CLEAN_SECONDS = 60.0  # between two cleanings by one process, which may import thousands of logs
USED_FILE = "used"  # locked while the folder is in use; its time is that of the last use
IMPORTS = "imports"
LISTS = "lists"
_cleaned_at = -1e9


def cache_dir() -> Path:
    """Return ``$BAROGRAPH_CACHE``, else the user's cache directory."""
    given = os.environ.get("BAROGRAPH_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "barograph"


def list_folder(dir: Path) -> Path:
    """Return the folder for what was found out about the logs below a directory."""
    return cache_dir() / LISTS / hashlib.blake2b(os.fsencode(dir.resolve()), digest_size=8).hexdigest()


@cache
def temporary_cache() -> Path:
    """Return a directory for this process, where the cache cannot be written."""
    path = Path(tempfile.mkdtemp(prefix="barograph-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def hold(folder: Path) -> int:
    """Make a folder of the cache and mark it as used; it is not removed until the returned descriptor is closed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _guarded(fcntl.LOCK_SH):  # nobody removes it between the two steps
        folder.mkdir(exist_ok=True)
        used = os.open(folder / USED_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(used, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(used)
    return used


@contextmanager
def _guarded(mode: int) -> Iterator[bool]:
    """Hold the lock of the cache; yield False if it was not to be had."""
    fd = os.open(cache_dir() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, mode)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True, order=True)
class CachedImport:
    """A folder of the cache: when it was used last, and the bytes of its files."""

    used: float
    path: Path
    bytes: int


def cached_imports() -> list[CachedImport]:
    """Return the folders of the cache, the least recently used first."""
    return sorted(_described(cache_dir() / IMPORTS))


def _described(parent: Path) -> Iterator[CachedImport]:
    with suppress(OSError):
        for folder in parent.iterdir():
            with suppress(OSError):  # it is removed meanwhile
                used = folder / USED_FILE
                moment = (used if used.exists() else folder).stat().st_mtime
                yield CachedImport(moment, folder, folder_bytes(folder))


def folder_bytes(folder: Path) -> int:
    """Return the bytes of the files at or below a folder."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(here, name)).st_size
    return total


def clean_cache(now: float | None = None) -> int:
    """Remove what was not used for long, and the least recently used beyond the limit; return how many there were."""
    global _cleaned_at
    if time.monotonic() - _cleaned_at < CLEAN_SECONDS:
        return 0
    _cleaned_at = time.monotonic()
    now = time.time() if now is None else now
    removed = []
    with suppress(OSError), _guarded(fcntl.LOCK_EX | fcntl.LOCK_NB) as is_held:
        if is_held:
            removed = [path for path in map(_set_aside, _superfluous(now)) if path is not None]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    return len(removed)


def _superfluous(now: float) -> Iterator[Path]:
    for lists in _described(cache_dir() / LISTS):
        if now - lists.used > MAX_AGE_SECONDS:
            yield lists.path
    found = cached_imports()
    total = sum(one.bytes for one in found)
    for one in found:
        if one.path.name[0] == "." or now - one.used > MAX_AGE_SECONDS or total > MAX_BYTES:
            total -= one.bytes
            yield one.path


def _set_aside(folder: Path) -> Path | None:
    """Rename a folder that nobody uses, which is quick; return its new path, or None if it is in use."""
    aside = folder.with_name(f".{secrets.token_hex(4)}")
    try:
        used = os.open(folder / USED_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.rename(aside)
    except OSError:
        return None
    finally:
        os.close(used)
    return aside
