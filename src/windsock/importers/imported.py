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
from pathlib import Path
from typing import Any

from windsock.errors import LogError
from windsock.formatting import describe_error
from windsock.importers.formats import Facts, Log, Reader, RewrittenError, format_of
from windsock.importers.recorder import Recorder
from windsock.journal.folder import ID_ALPHABET, RUN_FILE, folder_name, segments, write_run_info
from windsock.model import RunInfo

VERSION = 1  # of import.json and of what formats record: another one is imported again
STATE_FILE = "import.json"
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
        reader = format_of(self.log.format).Reader(self.log, {})
        states = _states(reader.files())
        if states == self._seen:
            return False
        with self._locked():
            try:
                is_new = self._read(states)
            except RewrittenError:
                self._clear()
                self._read(states)
                is_new = True
        self._seen = states
        return is_new

    def _read(self, states: dict[str, tuple[int, int]]) -> bool:
        state = self._load()
        if state is None:
            self._clear()
            state = {"version": VERSION, "reader": {}, "recorder": {}}
        elif state["files"] == [[name, *found] for name, found in states.items()]:
            return False
        is_new = not state["reader"]
        reader: Reader = format_of(self.log.format).Reader(self.log, state["reader"])
        if is_new:
            write_run_info(self.folder, self._info(reader.facts(), states))
        newest = max((modified for _, modified in states.values()), default=0) / 1e9
        out = Recorder(self.folder, state["recorder"], self._about(), newest or time.time())
        self._read_all(reader, out)
        # A log that was longer the second time grows; how old its file is tells nothing: it may be a copy.
        grown = state["recorder"].get("grown") if is_new else newest
        out.finish(grown)
        state["files"] = [[name, *found] for name, found in states.items()]
        state["bytes"] = [[segment.path.name, segment.path.stat().st_size] for segment in segments(self.folder)]
        self._save(state)
        return is_new

    def _read_all(self, reader: Reader, out: Recorder) -> None:
        """Let the reader read; whatever a log contains, what was read before an error is kept."""
        try:
            reader.read(out)
        except RewrittenError:
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
            state: dict[str, Any] = json.loads((self.folder / STATE_FILE).read_bytes())
            sizes = [[segment.path.name, segment.path.stat().st_size] for segment in segments(self.folder)]
            is_valid = state["version"] == VERSION and state["bytes"] == sizes and (self.folder / RUN_FILE).exists()
            return state if is_valid and state["files"] and isinstance(state["recorder"], dict) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save(self, state: dict[str, Any]) -> None:
        draft = self.folder / f".{STATE_FILE}"
        draft.write_text(json.dumps(state))
        draft.replace(self.folder / STATE_FILE)

    def _clear(self) -> None:
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != "lock":
                with suppress(OSError):
                    entry.unlink()


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
