"""A log of another program as a journal in the cache, which grows as the log does.

The log itself is only read. `<cache>/imports/<key>/` has the journal and `import.json`: how far the log was read,
so that a second opening reads only what is new. The facts about the runs in the logs of a directory are kept in an
index beside.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

from barograph.base.errors import BarographError, LogError
from barograph.base.formatting import describe_error
from barograph.base.model import RunInfo, Status
from barograph.importers.cache import IMPORTS, USED_FILE, cache_dir, clean_cache, hold, list_folder, temporary_cache
from barograph.importers.formats import format_of
from barograph.importers.reading.lines import SETTLED_SECONDS
from barograph.importers.reading.log import Facts, Log, LogReader, RewrittenError
from barograph.importers.recorder import Recorder
from barograph.journal.directory import KIND, DirectoryIndex, FactsIndex, files_digest
from barograph.journal.format.folder import (
    ID_ALPHABET,
    RUN_FILE,
    FileStates,
    RunFiles,
    folder_name,
    read_run_info,
    segments,
    write_run_info,
)
from barograph.journal.read.status import Glance, RunFacts, read_facts, seen_at

VERSION = 1  # of import.json and of what formats record: another one is imported again

STATE_FILE = "import.json"

COPY_SECONDS = 3600.0  # from the last time in a log to that of its file; clocks of two machines differ by less

NEEDS = "needs"
"""Entry of a reader's state: a package that it lacked. Where it is installed later, the log is read again."""

NO_FACTS = Facts()

GENERIC = ("trainer_state", "metrics", "events", "log", "logs", "output", "stdout", "train", "history", "results")


@dataclass(frozen=True, slots=True)
class Given:
    """What a person says about the run in a log, in place of what the log tells."""

    project: str | None = None
    name: str | None = None
    producer: str | None = None

    def applied(self, info: RunInfo) -> RunInfo:
        """Return what identifies a run, with what is given."""
        project, name = self.project or info.project, self.name or info.name
        return replace(info, project=project, name=name, producer=self.producer or info.producer)


NOTHING = Given()


class ImportedLog:
    """One log and its journal in a folder, by default one of the cache."""

    def __init__(self, log: Log, folder: Path | None = None, given: Given = NOTHING) -> None:
        self.log = log
        self.folder = folder or cache_dir() / IMPORTS / f"{folder_name(log.path.name)[:40]}-{log_id(log)}"
        self.waits = False  # whether the end of the log is read only if it stays as it is for a moment
        self._is_cached = folder is None
        self._is_held = False
        self._given = given
        self.rows = 0  # of all attempts
        self.new_rows = 0  # that the last update has read
        self.last_step: int | None = None
        self._seen: dict[str, tuple[int, int]] | None = None  # the files when they were read
        self._generation = ""

    def update(self) -> bool:
        """Read what is new in the log; return whether the journal is another one: the log was rewritten.

        A journal is kept when its log is gone.
        """
        states = {name: state[:2] for name, state in log_files(self.log).states.items()}
        if states == self._seen and not self.waits:
            return False
        with self._locked():
            state = self._load()
            if not states and state is None:
                raise LogError(f"{self.log.path} does not exist")
            try:
                state = self._read(state, states)
                self._keep_given()
            except OSError as problem:
                raise LogError(f"cannot write to {self.folder}: {problem.strerror or problem}") from problem
        self._seen, self.waits = states, bool(states) and not state["settled"]
        self.rows, self.last_step = _rows(state), state["recorder"].get("last_step")
        before, self._generation = self._generation, state["generation"]
        return self._generation != before and bool(states)

    @property
    def files(self) -> list[str]:
        """The files of the log, as of the last update."""
        return list(self._seen or ())

    def _reader(self, state: dict[str, Any]) -> LogReader:
        return format_of(self.log.format).reader(self.log, state)

    def _read(self, state: dict[str, Any] | None, states: dict[str, tuple[int, int]]) -> dict[str, Any]:
        """Read what is new since a state; return the state now."""
        if state is not None and (not states or (state["files"] == _listed(states) and state["settled"])):
            self.new_rows = 0
            return state
        try:
            return self._read_from(state, states)
        except RewrittenError:
            return self._read_from(None, states)

    def _is_copied(self, state: Mapping[str, Any], newest: float) -> bool:
        """Return whether old event files were written just now: they have the time of each value."""
        last = state.get("last_time")
        return self.log.format == "event_files" and last is not None and newest - last > COPY_SECONDS

    def _read_from(self, state: dict[str, Any] | None, states: dict[str, tuple[int, int]]) -> dict[str, Any]:
        """Read on from a state, or from the beginning; return the state now."""
        newest, oldest = (choose(modified for _, modified in states.values()) / 1e9 for choose in (max, min))
        files = _listed(states)
        is_new = state is None
        if state is None:
            self._clear()
            state = {
                "version": VERSION,
                "generation": secrets.token_hex(4),
                "reader": {},
                "recorder": {},
                "files": files,
            }
            write_run_info(self.folder, self._given.applied(log_info(self.log, oldest, facts_of(self.log))))
        # A log that was longer the second time grows; how old its file is tells nothing: it may be a copy.
        grown = newest if state["files"] != files else state["recorder"].get("grown")
        before = _rows(state)
        reader = self._reader(state["reader"])
        out = Recorder(self.folder, state["recorder"], self._about(), newest)
        is_read = self._read_all(reader, out)
        out.finish(None if self._is_copied(out.state, newest) else grown)
        self.new_rows = _rows(state) - before
        # A reader leaves what may be incomplete, so that a log that changed just now is looked at once more.
        state.update(files=files, settled=time.time() - newest > SETTLED_SECONDS, reader=reader.state)
        state["bytes"] = self._journal_bytes()
        # A file that could not be read is tried again by the next process.
        self._save(state if is_read else {**state, "settled": False})
        if is_new and self._is_cached:
            clean_cache()
        return state

    def _keep_given(self) -> None:
        """Write what a person says about the run, if it is new."""
        known = read_run_info(self.folder) if self._given != NOTHING else None
        if known is not None and (wanted := self._given.applied(known)) != known:
            (self.folder / RUN_FILE).unlink(missing_ok=True)
            write_run_info(self.folder, wanted)

    def _read_all(self, reader: LogReader, out: Recorder) -> bool:
        """Let the reader read; whatever a log contains, what was read before an error is kept.

        Return whether its files could be read.
        """
        try:
            reader.read(out)
        except (RewrittenError, LogError):
            out.close()
            raise
        except OSError as problem:
            out.unread(str(self.log.path), f"cannot be read: {problem.strerror or problem}")
            return False
        except Exception as problem:  # noqa: BLE001
            out.unread(str(self.log.path), f"the rest cannot be read: {describe_error(problem)}")
        return True

    def _about(self) -> dict[str, str]:
        path = str(self.log.place.absolute())
        return {"path": path, "format": self.log.format, "title": format_of(self.log.format).title}

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
            if not self._is_cached:
                self.folder.mkdir(parents=True, exist_ok=True)
            elif not self._is_held:
                weakref.finalize(self, os.close, hold(self.folder))
                self._is_held = True
            (self.folder / "lock").touch()
        except OSError as problem:
            if not self._is_cached:
                raise LogError(f"cannot write to {self.folder}: {problem.strerror}") from problem
            self.folder = temporary_cache() / self.folder.name
            self.folder.mkdir(parents=True, exist_ok=True)

    def _load(self) -> dict[str, Any] | None:
        """Return the state of the last import, if the journal is as it left it."""
        try:
            checksum, _, text = (self.folder / STATE_FILE).read_bytes().partition(b" ")
            if int(checksum, 16) != crc32(text):
                return None
            state: dict[str, Any] = json.loads(text)
            is_valid = state["version"] == VERSION and state["bytes"] == self._journal_bytes()
            is_valid = is_valid and isinstance(state["generation"], str) and (self.folder / RUN_FILE).exists()
            return state if is_valid and not _is_installed(state["reader"].get(NEEDS)) else None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def _journal_bytes(self) -> list[list[Any]]:
        return [[segment.path.name, segment.path.stat().st_size] for segment in segments(self.folder)]

    def _save(self, state: dict[str, Any]) -> None:
        draft, text = self.folder / f".{STATE_FILE}", json.dumps(state).encode()
        draft.write_bytes(b"%08x %s" % (crc32(text), text))
        draft.replace(self.folder / STATE_FILE)

    def _clear(self) -> None:
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name not in ("lock", USED_FILE):
                with suppress(OSError):
                    entry.unlink()


def _is_installed(package: str | None) -> bool:
    return package is not None and find_spec(package) is not None


def _rows(state: dict[str, Any]) -> int:
    """Return the number of rows of all attempts."""
    recorder = state["recorder"]
    return int(recorder.get("rows", 0)) + int(recorder.get("earlier_rows", 0))


def _listed(states: dict[str, tuple[int, int]]) -> list[list[Any]]:
    return [[name, *found] for name, found in states.items()]


def facts_of(log: Log) -> Facts:
    """Return what a log tells about its run; raise LogError if it cannot be read."""
    try:
        return format_of(log.format).reader(log, {}).facts()
    except OSError as problem:
        raise LogError(f"{log.path} cannot be read: {problem.strerror or problem}") from problem
    except Exception:  # noqa: BLE001 - whatever a log contains, its path tells enough
        return NO_FACTS


def log_info(log: Log, oldest: float, facts: Facts = NO_FACTS) -> RunInfo:
    """Return what identifies the run in a log: what the log tells, else what its path and the time of its files do."""
    path = log.path.absolute()
    is_generic = path.stem.lower() in GENERIC and path.is_file()
    own = path.parent.name if is_generic else (path.name if path.is_dir() else path.stem)
    above = path.parent.parent.name if is_generic else path.parent.name
    return RunInfo(
        id=log_id(log),
        project=facts.project or above or "imported",
        name=facts.name or log.member or own,
        created=facts.created or oldest or time.time(),
        vocabulary="",
        producer=facts.producer,
        group=facts.group,
        tags=facts.tags,
        notes=facts.notes,
    )


def log_id(log: Log) -> str:
    """Return an id that is the same for each import of a log."""
    text = f"{log.path.resolve()}\0{log.member}\0{log.format}"
    digest = hashlib.blake2b(os.fsencode(text), digest_size=8).digest()
    return "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in digest)


Progress = Callable[[int, int], None]
"""Called with the number of logs that were read, and with the number of all."""


def log_files(log: Log) -> RunFiles:
    """Return the states of a log's files."""
    states: FileStates = {}
    for path in format_of(log.format).reader(log, {}).files():
        with suppress(OSError):
            found = path.stat()
            states[str(path)] = found.st_size, found.st_mtime_ns, found.st_ino
    return RunFiles(states, sum(size for size, _, _ in states.values()))


class LogFacts:
    """The facts about the runs in the logs below a directory."""

    def __init__(self, dir: Path) -> None:
        self._folder = list_folder(dir)
        self._has_news = False
        self._index = FactsIndex(dir, DirectoryIndex(self._folder, KIND), min_indexed=1)

    def known(self, log: Log, files: RunFiles) -> RunFacts | None:
        """Return the facts about a log with these files, if it was read before."""
        return self._index.known(log.place, files)

    def keep(self, imported: ImportedLog, files: RunFiles) -> RunFacts:
        """Return the facts about a log that was imported, and keep them."""
        facts = read_facts(imported.folder)
        if not imported.waits:
            self._index.keep(imported.log.place, files, facts)
            self._has_news = True
        return facts

    def facts(self, log: Log, files: RunFiles) -> RunFacts:
        """Return the facts about a log with these files; import it if they are not known."""
        found = self.known(log, files)
        if found is None:
            imported = ImportedLog(log)
            imported.update()
            found = self.keep(imported, files)
        return found

    def forget(self, place: Path) -> None:
        """Drop the facts about a log that was removed."""
        self._index.forget(place)

    def save(self) -> None:
        """Write the index, if it would spare the next reader something."""
        if self._has_news:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._index.save()
        self._has_news = False


def log_glances(dir: Path, logs: Sequence[Log], on_progress: Progress) -> Iterator[Glance]:
    """Yield the facts about the run in each of the logs of a directory."""
    index = LogFacts(dir)
    for count, log in enumerate(logs):
        on_progress(count, len(logs))
        yield _glance(log, index)
    on_progress(len(logs), len(logs))
    index.save()


def _glance(log: Log, index: LogFacts) -> Glance:
    files = log_files(log)
    try:
        return seen_at(log.place, index.facts(log, files), files.bytes, files_digest(files.states))
    except Exception as problem:  # noqa: BLE001 - whatever is in one log, the others are listed
        return unreadable_log(log, files, problem)


def unreadable_log(log: Log, files: RunFiles, problem: Exception) -> Glance:
    """Return the facts in a list about a log that cannot be read."""
    info = log_info(log, oldest_file(files))
    status = Status("unreadable", str(problem) if isinstance(problem, BarographError) else describe_error(problem))
    return Glance(info, log.place, status, None, info.created, info.created, files.bytes, 0, 0)


def oldest_file(files: RunFiles) -> float:
    """Return when the oldest of some files was written."""
    return min((modified for _, modified, _ in files.states.values()), default=0) / 1e9
