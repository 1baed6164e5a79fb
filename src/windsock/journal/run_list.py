"""All runs of a directory at a glance. Runs whose files have not changed are not read: an index has their facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from windsock.journal import decoding
from windsock.journal.decoding import EVENT, EVENTS, MAX_TIME, STATUS_WORDS, DecodingError
from windsock.journal.directory_index import DirectoryIndex, files_digest
from windsock.journal.folder import RunFiles, runs_with_files
from windsock.journal.run_facts import Glance, RunFacts, WriterEnd, seen_at, unreadable
from windsock.model import RunInfo

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
            from windsock.journal.glance import read_facts  # imports NumPy, which an index can do without

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
        decoding.nullable(decoding.read_step)(last_step)
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
    events = [EVENTS.get(EVENT(event)["event"], decoding.read_any)(event) for event in first]
    return WriterEnd(events, second if second is None else decoding.read_time(second))
