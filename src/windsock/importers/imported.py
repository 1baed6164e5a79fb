"""A log of another program as a journal in the cache, which grows as the log does. The log itself is only read.

``<cache>/imports/<key>/`` has the journal and ``import.json``: how far the log was read. A second opening reads only
what is new. The cache may be removed at any time.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

from windsock.errors import LogError
from windsock.formatting import describe_error
from windsock.importers.formats import Facts, Log, Reader, RewrittenError, format_of
from windsock.importers.recorder import Recorder
from windsock.importers.text_lines import SETTLED_SECONDS
from windsock.journal.folder import ID_ALPHABET, RUN_FILE, folder_name, segments, write_run_info
from windsock.model import RunInfo

VERSION = 1  # of import.json and of what formats record: another one is imported again
STATE_FILE = "import.json"
NEEDS = "needs"
"""Entry of a reader's state: a package that it lacked. Where it is installed later, the log is read again."""
GENERIC = ("trainer_state", "metrics", "events", "log", "logs", "output", "stdout", "train", "history", "results")


def cache_dir() -> Path:
    """Return ``$WINDSOCK_CACHE``, else the user's cache directory."""
    given = os.environ.get("WINDSOCK_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "windsock"


@cache
def _temporary() -> Path:
    """Return a directory for this process, where the cache cannot be written."""
    path = Path(tempfile.mkdtemp(prefix="windsock-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class ImportedLog:
    """One log and its journal in a folder, by default one of the cache."""

    def __init__(self, log: Log, folder: Path | None = None) -> None:
        self.log = log
        self.folder = folder or _folder_of(log)
        self._seen: dict[str, tuple[int, int]] | None = None  # the files when they were read

    def update(self) -> bool:
        """Read what is new in the log; return whether the journal was begun anew, since the log was rewritten."""
        states = _states(format_of(self.log.format).Reader(self.log, {}).files())
        if states == self._seen:
            return False
        with self._locked():
            if not states and self._load() is None:
                raise LogError(f"{self.log.path} does not exist")
            try:
                is_new, is_settled = self._read(states)
            except OSError as problem:
                raise LogError(f"cannot write to {self.folder}: {problem.strerror or problem}") from problem
        self._seen = states if is_settled else None
        return is_new

    def _read(self, states: dict[str, tuple[int, int]]) -> tuple[bool, bool]:
        """Read what is new; return whether the journal is new, and whether the log was at rest meanwhile."""
        state = self._load()
        files = [[name, *found] for name, found in states.items()]
        if state is not None and not states:
            return False, True  # the log was removed: what was read of it is kept
        if state is not None and state["files"] == files and state["settled"]:
            return False, True
        try:
            return state is None, self._read_from(state, states)
        except RewrittenError:
            return True, self._read_from(None, states)

    def _read_from(self, state: dict[str, Any] | None, states: dict[str, tuple[int, int]]) -> bool:
        """Read on from a state, or from the beginning; return whether the log was at rest meanwhile."""
        newest = max((modified for _, modified in states.values()), default=0) / 1e9
        files = [[name, *found] for name, found in states.items()]
        is_new = state is None
        if state is None:
            self._clear()
            state = {"version": VERSION, "reader": {}, "recorder": {}, "files": files}
        # A log that was longer the second time grows; how old its file is tells nothing: it may be a copy.
        grown = newest if state["files"] != files else state["recorder"].get("grown")
        reader: Reader = format_of(self.log.format).Reader(self.log, state["reader"])
        if is_new:
            write_run_info(self.folder, self._info(reader.facts(), states))
        out = Recorder(self.folder, state["recorder"], self._about(), newest or time.time())
        self._read_all(reader, out)
        out.finish(grown)
        # A reader leaves what may be incomplete, so that a log that changed just now is looked at once more.
        state.update(files=files, settled=time.time() - newest > SETTLED_SECONDS, reader=reader.state)
        state["bytes"] = [[segment.path.name, segment.path.stat().st_size] for segment in segments(self.folder)]
        self._save(state)
        return bool(state["settled"])

    def _read_all(self, reader: Reader, out: Recorder) -> None:
        """Let the reader read; whatever a log contains, what was read before an error is kept."""
        try:
            reader.read(out)
        except (RewrittenError, LogError):
            out.close()
            raise
        except OSError as problem:
            out.unread(str(self.log.path), f"cannot be read: {problem.strerror or problem}")
        except Exception as problem:  # noqa: BLE001
            out.unread(str(self.log.path), f"the rest cannot be read: {describe_error(problem)}")

    def _about(self) -> dict[str, str]:
        path = f"{self.log.path}{f' ({self.log.member})' if self.log.member else ''}"
        return {"path": path, "format": self.log.format, "title": format_of(self.log.format).TITLE}

    def _info(self, facts: Facts, states: dict[str, tuple[int, int]]) -> RunInfo:
        path = self.log.path.absolute()
        is_generic = path.stem.lower().startswith(GENERIC) and path.is_file()
        own = path.parent.name if is_generic else (path.name if path.is_dir() else path.stem)
        above = path.parent.parent.name if is_generic else path.parent.name
        oldest = min((modified for _, modified in states.values()), default=0) / 1e9
        return RunInfo(
            id=log_id(self.log),
            project=facts.project or above or "imported",
            name=facts.name or self.log.member or own,
            created=facts.created or oldest or time.time(),
            vocabulary="",
            producer=facts.producer,
            group=facts.group,
            tags=facts.tags,
            notes=facts.notes,
        )

    # -- the folder ----------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from importing the same log meanwhile."""
        self._make_folder()
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "lock").touch()
        except OSError as problem:
            if self.folder.is_relative_to(cache_dir()):
                self.folder = _temporary() / self.folder.name
                self.folder.mkdir(parents=True, exist_ok=True)
            else:
                raise LogError(f"cannot write to {self.folder}: {problem.strerror}") from problem

    def _load(self) -> dict[str, Any] | None:
        """Return the state of the last import, if the journal is as it left it."""
        try:
            checksum, _, text = (self.folder / STATE_FILE).read_bytes().partition(b" ")
            if int(checksum, 16) != crc32(text):
                return None
            state: dict[str, Any] = json.loads(text)
            sizes = [[segment.path.name, segment.path.stat().st_size] for segment in segments(self.folder)]
            is_valid = state["version"] == VERSION and state["bytes"] == sizes and (self.folder / RUN_FILE).exists()
            return state if is_valid and not _is_installed(state["reader"].get(NEEDS)) else None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def _save(self, state: dict[str, Any]) -> None:
        draft, text = self.folder / f".{STATE_FILE}", json.dumps(state).encode()
        draft.write_bytes(b"%08x %s" % (crc32(text), text))
        draft.replace(self.folder / STATE_FILE)

    def _clear(self) -> None:
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != "lock":
                with suppress(OSError):
                    entry.unlink()


def _is_installed(package: str | None) -> bool:
    return package is not None and find_spec(package) is not None


def _states(files: list[Path]) -> dict[str, tuple[int, int]]:
    """Return size and time of each file that exists."""
    found = {}
    for path in files:
        with suppress(OSError):
            state = path.stat()
            found[str(path)] = state.st_size, state.st_mtime_ns
    return found


def _folder_of(log: Log) -> Path:
    return cache_dir() / "imports" / f"{folder_name(log.path.name)[:40]}-{log_id(log)}"


def log_id(log: Log) -> str:
    """Return an id that is the same for each import of a log."""
    text = f"{log.path.resolve()}\0{log.member}\0{log.format}"
    digest = hashlib.blake2b(os.fsencode(text), digest_size=8).digest()
    return "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in digest)
