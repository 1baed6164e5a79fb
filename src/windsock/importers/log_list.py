"""The runs in the logs of a directory at a glance. An index in the cache has the facts of those that were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from windsock.errors import WindsockError
from windsock.formatting import describe_error
from windsock.importers.formats import Log, format_of
from windsock.importers.import_cache import list_folder
from windsock.importers.imported import ImportedLog, log_info
from windsock.journal.directory_index import DirectoryIndex, files_digest
from windsock.journal.folder import FileStates, RunFiles
from windsock.journal.glance import read_facts
from windsock.journal.run_facts import Glance, RunFacts, seen_at
from windsock.journal.run_list import KIND, FactsIndex
from windsock.model import Status

Progress = Callable[[int, int], None]
"""Called with the number of logs that were read, and with the number of all."""


def log_files(log: Log) -> RunFiles:
    """Return the states of a log's files."""
    states: FileStates = {}
    for path in format_of(log.format).Reader(log, {}).files():
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
    status = Status("unreadable", str(problem) if isinstance(problem, WindsockError) else describe_error(problem))
    return Glance(info, log.place, status, None, info.created, info.created, files.bytes, 0, 0)


def oldest_file(files: RunFiles) -> float:
    """Return when the oldest of some files was written."""
    return min((modified for _, modified, _ in files.states.values()), default=0) / 1e9
