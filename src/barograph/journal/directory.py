"""A directory of runs: the facts about each run, the side indexes in which readers keep what they found out about runs
whose files have not changed, and the annotations of runs that people make on the page.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from barograph.base import __version__
from barograph.base.errors import JournalError
from barograph.base.formatting import describe_error
from barograph.base.model import RunInfo, Status
from barograph.journal.format import fields
from barograph.journal.format.fields import EVENT, EVENTS, MAX_TIME, STATUS_WORDS, DecodingError
from barograph.journal.format.folder import (
    PAGE_FOLDER,
    FileStates,
    RunFiles,
    identity,
    open_regular_file,
    run_files,
    runs_with_files,
    segments,
)
from barograph.journal.read.status import Glance, RunFacts, WriterEnd, read_facts, seen_at


def unreadable(folder: Path, problem: Exception) -> Glance:
    """Return the facts in a list about a run that cannot be read."""
    info = identity(folder)
    status = Status("unreadable", str(problem) if isinstance(problem, JournalError) else describe_error(problem))
    return Glance(info, folder, status, None, info.created, info.created, run_files(folder).bytes, 0, 0)


FORMAT = 1

MAX_BYTES = 1 << 30

Entries = dict[str, tuple[str, Any]]
"""By the path of a run below the directory: the digest of its files, and what was found out."""


def files_digest(states: FileStates) -> str:
    """Return a digest of the names, sizes, times and inodes of a run's files."""
    return blake2b(repr(sorted(states.items())).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


class DirectoryIndex:
    """One index of a directory: ``kind`` says what it has about each run, and names the file."""

    def __init__(self, dir: Path, kind: str, folder: str = PAGE_FOLDER) -> None:
        self._path = dir / folder / f"{kind}.index"
        # Another version may find out other things from the same files.
        self._head = json.dumps({"format": FORMAT, "barograph": __version__, "kind": kind})

    def load(self) -> Entries:
        """Return the entries; without those that are damaged, and none of another version."""
        head, *lines = self._read().split(b"\n")
        if _checked(head) != self._head.encode("ascii"):
            return {}
        found: Entries = {}
        for line in lines:
            with suppress(ValueError, TypeError):  # a damaged line, or the last one, cut off
                run, digest, record = fields.parse_json(_checked(line))
                found[run] = digest, record
        return found

    def save(self, entries: Mapping[str, tuple[str, Any]]) -> bool:
        """Replace the index; return whether it could be written."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(exist_ok=True)
            with draft.open("xb") as file:  # before the lines are made, which takes time where nothing can be written
                file.writelines(self._lines(entries))
            os.replace(draft, self._path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        return True

    def _lines(self, entries: Mapping[str, tuple[str, Any]]) -> Iterator[bytes]:
        for text in chain([self._head], (json.dumps([run, *entry]) for run, entry in entries.items())):
            line = text.encode("ascii")
            yield b"%08x %s\n" % (crc32(line), line)

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb", opener=open_regular_file) as file:
                return file.read() if os.fstat(file.fileno()).st_size <= MAX_BYTES else b""
        except OSError:
            return b""


def _checked(line: bytes) -> bytes:
    """Return the content of a line; nothing where its checksum is wrong."""
    check, _, content = line.partition(b" ")
    return content if check == b"%08x" % crc32(content) else b""


class RunIndex:
    """What was found out about the runs below a directory, in an index of it or, for logs, of another ``folder``."""

    def __init__(self, dir: Path, kind: str, folder: Path | None = None) -> None:
        self._dir = dir
        self._folder = folder or dir
        self._index = DirectoryIndex(self._folder, kind)
        self._entries = self._index.load()
        self._is_new = False

    def get(self, run: Path) -> tuple[str, Any]:
        """Return the digest and the record of a run; an empty digest if there is none."""
        return self._entries.get(self.path_of(run), ("", None)) if self._entries else ("", None)

    def put(self, run: Path, digest: str, record: Any) -> None:
        """Take a record."""
        self._entries[self.path_of(run)] = digest, record
        self._is_new = True

    def save(self) -> None:
        """Write the index where a record is new, without the runs that are gone."""
        if self._is_new:
            kept = {path: entry for path, entry in [*self._entries.items()] if (self._dir / path).exists()}
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._index.save(kept)
            self._is_new = False

    def path_of(self, run: Path) -> str:
        """Return the path of a run below the directory."""
        return "/".join(run.parts[len(self._dir.parts) :])  # several times as fast as Path.relative_to


MIN_INDEXED = 50  # runs; fewer are read as quickly as an index

KIND = "facts"

INFO_TYPES = (str, str, str, float, str, str, str | None, list, str | None)  # in the order of RunInfo's fields


def glances(dir: Path) -> Iterator[Glance]:
    """Yield the facts about each run below a directory."""
    index = FactsIndex(dir)
    for folder, files in runs_with_files(dir):
        try:
            yield seen_at(folder, index.facts(folder, files), files.bytes, files_digest(files.states))
        except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are listed
            if folder.is_dir():  # else it was removed meanwhile
                yield unreadable(folder, problem)
    index.save()


class FactsIndex:
    """The facts about the runs of a directory, read from a run only where the index does not have them."""

    def __init__(self, dir: Path, index: DirectoryIndex | None = None, min_indexed: int | None = None) -> None:
        self._parts = len(dir.parts)
        self._index = index or DirectoryIndex(dir, KIND)
        self._loaded = self._index.load()
        self._known: dict[str, tuple[str, RunFacts]] = {}
        self._min_indexed = MIN_INDEXED if min_indexed is None else min_indexed
        self._ended_since = 0  # runs with new facts that will stay the same

    def facts(self, folder: Path, files: RunFiles) -> RunFacts:
        """Return the facts about a run with these files; raise what reading it raises."""
        found = self.known(folder, files)
        if found is None:
            found = read_facts(folder)
            self.keep(folder, files, found)
        return found

    def keep(self, folder: Path, files: RunFiles, facts: RunFacts) -> None:
        """Take facts that were read."""
        self._ended_since += facts.status.ended
        self._keep(self._path_of(folder), files_digest(files.states), files, facts)

    def known(self, folder: Path, files: RunFiles) -> RunFacts | None:
        """Return the facts about a run with these files, if it was read before."""
        run, digest = self._path_of(folder), files_digest(files.states)
        known = self._known.get(run)
        if known is not None and known[0] == digest:
            return known[1]
        found = _decoded(self._loaded.pop(run, None), digest)
        if found is not None:
            self._keep(run, digest, files, found)
        return found

    def _keep(self, run: str, digest: str, files: RunFiles, facts: RunFacts) -> None:
        if files.has_segments or not files.is_run:  # else the time of the directory counts, which is not in the digest
            self._known[run] = digest, facts

    def forget(self, folder: Path) -> None:
        """Drop the facts about a run that was removed."""
        self._known.pop(self._path_of(folder), None)

    def _path_of(self, folder: Path) -> str:
        return "/".join(folder.parts[self._parts :])

    def save(self) -> None:
        """Write the index, if it would spare the next reader something."""
        if self._ended_since and len(self._known) >= self._min_indexed:
            self._index.save({run: (digest, _encoded(facts)) for run, (digest, facts) in [*self._known.items()]})
            self._ended_since = 0


def _encoded(facts: RunFacts) -> list[Any]:
    """Return an entry of the index: lists, which are read several times as fast as objects."""
    ends = [astuple(end.written) if end.written else [end.events, end.last_row] for end in facts.ends]
    return [astuple(facts.info), ends, facts.last_step, facts.last_heard, facts.writers, facts.attempts]


def _decoded(entry: tuple[str, Any] | None, digest: str) -> RunFacts | None:
    """Return the facts in an entry of the index; None if they are of other files, or are no facts."""
    if entry is None or entry[0] != digest:
        return None
    try:
        info, ends, last_step, last_heard, *counts = entry[1]
        fields.nullable(fields.read_step)(last_step)
        if not 0 <= last_heard <= MAX_TIME or any(type(count) is not int for count in counts):
            return None
        return RunFacts(_decoded_info(info), [_decoded_end(*end) for end in ends], last_step, last_heard, *counts)
    except (ValueError, TypeError, KeyError):
        return None


def _decoded_info(values: list[Any]) -> RunInfo:
    if not all(isinstance(value, kind) for value, kind in zip(values, INFO_TYPES, strict=True)):
        raise DecodingError("it has no info")
    id, project, name, created, vocabulary, producer, group, tags, notes = values
    if not 0 <= created <= MAX_TIME or any(type(tag) is not str for tag in tags):
        raise DecodingError("it has no info")
    return RunInfo(id, project, name, created, vocabulary, producer, group, tuple(tags), notes)


def _decoded_end(first: Any, second: Any) -> WriterEnd:
    if first in STATUS_WORDS and type(second) is str:
        return WriterEnd([{"event": "finish", "status": first, "reason": second}], None)
    events = [EVENTS.get(EVENT(event)["event"], fields.read_any)(event) for event in first]
    return WriterEnd(events, second if second is None else fields.read_time(second))


MARK = "mark"  # the event's name on disk, written since 0.1


class LatestAnnotations:
    """What a field of runs was set to last. The segments of each directory are read once."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._known: dict[Path, dict[str, tuple[float, Any]]] = {}

    def get(self, folder: Path, run: str) -> Any:
        """Return what the field of a run was set to last on the page of its directory, or None."""
        found = [self._of(parent).get(run, (0.0, None)) for parent in (folder.parent, folder.parent.parent)]
        return max(found, key=lambda change: change[0])[1]

    def _of(self, dir: Path) -> dict[str, tuple[float, Any]]:
        if dir not in self._known:
            found: dict[str, tuple[float, Any]] = {}
            for event in _page_events(dir / PAGE_FOLDER):
                if event.get("event") == MARK and self._field in event:
                    run, at = str(event.get("run")), float(event.get("time") or 0.0)
                    if at >= found.get(run, (0.0,))[0]:
                        found[run] = at, event[self._field]
            self._known[dir] = found
        return self._known[dir]


def _page_events(folder: Path) -> Iterator[dict[str, Any]]:
    for segment in segments(folder):
        from barograph.journal.segments.reader import (  # imports NumPy, which most directories do not need
            SegmentReader,
            events,
        )

        reader = SegmentReader(segment.path)
        try:
            reader.poll()
        except (JournalError, OSError):  # being written by another version, or removed meanwhile
            continue
        yield from events(reader.records)
