"""Commands that change or measure what is stored: import makes runs of logs of other programs, archive compresses
runs, rm deletes them, du shows their sizes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from barograph.apps.cli.arguments import JSON, RUNS, argument, command, directory, recorded_run
from barograph.apps.terminal.output import print_json, say
from barograph.base.errors import BarographError, LogError, RunNotFoundError
from barograph.base.files.directory_watch import DirectoryWatch
from barograph.base.formatting import counted, printable, size
from barograph.catalogue.sources import check_source
from barograph.importers.cache import cache_dir, cached_imports
from barograph.importers.imported import STATE_FILE, Given, ImportedLog, facts_of, log_id, log_info
from barograph.importers.logs import HINT, logs_at
from barograph.importers.reading.log import Log
from barograph.journal.archive import SUFFIX, archives, pack, unpack
from barograph.journal.format.folder import INDEX_FOLDER, folder_name, read_run_info, run_folders
from barograph.journal.read.status import Glance, glance
from barograph.journal.view import View

POLL_SECONDS = 0.5

IDLE_SECONDS = 5.0  # after which logs are looked at although no change of their directories was told


@command(
    "make runs of logs of other programs",
    """barograph import train.log
  barograph import outputs/ --to kept --project math
  barograph import train.log --follow --source verl""",
    argument("paths", metavar="PATH", nargs="+", help="log, or directory with logs"),
    argument("--to", metavar="DIR", help="directory to write the runs to (default: the directory of the runs)"),
    argument("--follow", action="store_true", help="go on as the logs grow, until Ctrl-C"),
    argument("--project", help="project of the runs (default: what the log tells, else its directory)"),
    argument("--name", help="name of the run (default: what the log tells, else its file)"),
    argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/grpo"),
)
def run_import(options: argparse.Namespace) -> int:
    """Make runs of logs of other programs, to keep them. PATH is a log, or a directory with logs.

    Other commands read a log in place: barograph show PATH, barograph up DIR. An imported run stays when its log is
    gone. Importing a log again adds what is new. With --follow, this goes on as the log grows, until Ctrl-C.
    """
    if options.source:
        check_source(options.source)
    to = Path(options.to) if options.to else directory(options)
    importing = Importing(to, Given(options.project, options.name, options.source))
    try:
        failed = importing.take(options.paths, options.follow)
        if not options.follow:
            if importing.logs:
                say(f"look at it with: barograph up {to}" if len(importing.logs) > 1 else importing.hint())
            return 1 if failed else 0
        say(f"following {len(importing.logs)} logs; barograph up {to} shows them  (stop with Ctrl-C)")
        importing.follow(options.paths)
    except KeyboardInterrupt:
        say(f"\nstopped; what was read is in {to}")
    return 0


class Importing:
    """The logs that are imported into a directory."""

    def __init__(self, to: Path, given: Given) -> None:
        self._to = to
        self._given = given
        self._watch = DirectoryWatch()
        self.logs: dict[Log, ImportedLog] = {}
        self._rows: dict[Log, int] = {}

    def take(self, paths: list[str], waits: bool = False) -> int:
        """Import the logs at some paths that are new; return the number of paths that have none.

        With ``waits`` a path without a log may have one later.
        """
        failed = 0
        for path in map(Path, paths):
            try:
                found = [log for log in self._logs(path) if log not in self.logs]
                for log in found:
                    self._import(log)
            except LogError as problem:
                failed += 1
                if not waits:
                    say(f"barograph: {problem}", sys.stderr)
        return failed

    def _logs(self, path: Path) -> list[Log]:
        found = logs_at(path)
        if not found:
            raise LogError(f"{path} has no log that barograph can read; {HINT}")
        if self._given.name is not None and len(found) > 1:
            raise BarographError(f"--name is for one run, and {path} has {len(found)}: leave it out, or give one log")
        return found

    def _import(self, log: Log) -> None:
        imported = ImportedLog(log, self._folder(log), self._given)
        imported.update()
        self.logs[log], self._rows[log] = imported, imported.rows
        for line in _imported_lines(imported):
            say(line)

    def _folder(self, log: Log) -> Path:
        """Return the folder of an earlier import of a log, else a new one."""
        id = log_id(log)
        if self._given.project is None:
            for folder in sorted(self._to.glob(f"*/{id}")):
                if (folder / STATE_FILE).exists():
                    return folder
        project = self._given.project or log_info(log, 0.0, facts_of(log)).project
        return self._to / folder_name(project) / id

    def hint(self) -> str:
        """Return how to look at a run that was imported."""
        (imported,) = self.logs.values()
        return f"look at it with: barograph show {imported.folder}   barograph up {self._to}"

    def follow(self, paths: list[str]) -> None:
        """Import what is added to the logs, and logs that are new, until interrupted."""
        searched = time.monotonic()
        while True:
            self._wait(paths)
            for log, imported in self.logs.items():
                imported.update()
                if imported.rows != self._rows[log]:
                    rows = counted(imported.rows - self._rows[log], "new row")
                    say(f"{log.place}: {rows}, last step {imported.last_step}")
                    self._rows[log] = imported.rows
            sys.stdout.flush()
            if time.monotonic() - searched > IDLE_SECONDS or not self.logs:
                self.take(paths, waits=True)
                searched = time.monotonic()

    def _wait(self, paths: list[str]) -> None:
        """Wait until a log may have changed."""
        is_told = all(self._watch.tells(path) or self._watch.add(path) for path in set(self._folders(paths)))
        waits = any(imported.waits for imported in self.logs.values())
        self._watch.wait(IDLE_SECONDS if is_told and not waits else POLL_SECONDS)
        self._watch.changed()

    def _folders(self, paths: list[str]) -> Iterator[Path]:
        for imported in self.logs.values():
            yield from (Path(name).parent for name in imported.files)
        yield from (path if path.is_dir() else path.parent for path in map(Path, paths))


def _imported_lines(imported: ImportedLog) -> Iterator[str]:
    """Yield what was read of a log."""
    view = View(imported.folder)
    origin, steps = view.origin, view.steps
    assert origin is not None
    attempts = f", {len(view.writers())} attempts" if len(view.writers()) > 1 else ""
    reason = f": {view.status.reason}" if view.status.reason else ""
    yield f"{imported.log.place}  ({origin.title})"
    yield f"  run      {view.id}  {view.info.project}/{view.name}  {view.status.word}{reason}"
    span = f", steps {steps[0]:,} – {steps[1]:,}" if steps else ""
    new = f" ({imported.new_rows:,} new)" if imported.new_rows != imported.rows else ""
    yield f"  read     {counted(imported.rows, 'row')}{new}, {counted(len(view.names()), 'metric')}{span}{attempts}"
    yield from (f"  note     {note}" for note in origin.notes)
    yield from (f"  unread   {unread}" for unread in origin.unread)


@dataclass(frozen=True, slots=True, order=True)
class Usage:
    """The bytes of one run. Its indexes can be deleted: readers make them again."""

    bytes: int  # without indexes
    index_bytes: int
    id: str
    name: str
    project: str


@command("show the disk usage of runs", "barograph du", JSON)
def run_du(options: argparse.Namespace) -> int:
    """Show the disk usage of the runs in a directory, largest first, and of the cache of logs read in place."""
    dir = directory(options)
    found = [_usage(folder) for folder in run_folders(dir)]
    found += [
        Usage(file.stat().st_size, 0, file.name.removesuffix(SUFFIX), "(archived)", file.parent.name)
        for file in archives(dir)
    ]
    found.sort(key=lambda usage: (usage.bytes + usage.index_bytes, usage), reverse=True)
    if options.json:
        print_json([asdict(usage) for usage in found])
        return 0
    for usage in found:
        say(f"{size(usage.bytes):>10}  {usage.id}  {usage.project}/{usage.name}{_indexes(usage.index_bytes)}")
    indexes = sum(usage.index_bytes for usage in found)
    say(f"{size(sum(usage.bytes for usage in found)):>10}  {counted(len(found), 'run')} in {dir}{_indexes(indexes)}")
    cached = cached_imports()
    if cached:
        logs = counted(len(cached), "imported log")
        say(f"{size(sum(one.bytes for one in cached)):>10}  {logs} in the cache {cache_dir()}")
    return 0


def _usage(folder: Path) -> Usage:
    info = read_run_info(folder)
    bytes = {True: 0, False: 0}  # of indexes, and of other files
    for file in folder.rglob("*"):
        if file.is_file():
            bytes[file.relative_to(folder).parts[0] == INDEX_FOLDER] += file.stat().st_size
    return Usage(bytes[False], bytes[True], info.id, info.name, info.project)


def _indexes(bytes: int) -> str:
    return f"  and {size(bytes)} of indexes, which can be deleted" if bytes else ""


@command(
    "delete runs",
    "barograph rm k7m2 x9pq --yes",
    RUNS,
    argument("-y", "--yes", action="store_true", help="do not ask for confirmation"),
    argument("--force", action="store_true", help="include runs that are still running"),
)
def run_rm(options: argparse.Namespace) -> int:
    """Delete runs permanently. A run that is still running is deleted only with --force."""
    runs = [glance(recorded_run(reference, directory(options))) for reference in options.runs]
    for one in runs:
        require_ended(one, options.force)
    for one in runs:
        if not options.yes and not _confirmed(one):
            say(f"kept {one.info.id}")
            continue
        shutil.rmtree(one.path)
        say(f"deleted {one.info.id} ({one.info.name}, {size(one.bytes)})")
    return 0


def require_ended(one: Glance, force: bool = False) -> None:
    """Raise where a run has not ended and ``force`` is not given."""
    if not one.status.ended and not force:
        raise BarographError(
            f"run {one.info.id} ({printable(one.info.name)}) is {one.status.word}: end it first, or use --force"
        )


def _confirmed(one: Glance) -> bool:
    if not sys.stdin.isatty():
        raise BarographError("cannot ask for confirmation without a terminal: use --yes")
    question = printable(f"delete {one.info.id} ({one.info.name}, {size(one.bytes)})?")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


@command(
    "compress runs into files, or restore them",
    "barograph archive k7m2p9qx && barograph archive --restore k7m2p9qx",
    RUNS,
    argument("--restore", action="store_true", help="restore instead; RUN is an id or the path of an archive"),
    argument("--delete", action="store_true", help="with --restore: delete the archive afterwards"),
    argument("--force", action="store_true", help="include runs that are still running"),
)
def run_archive(options: argparse.Namespace) -> int:
    """Compress ended runs into one file each, beside their directory. --restore unpacks a file again.

    An archive has checksums. A run is restored whole, after they were verified, or not at all. The archive is kept
    unless --delete is given.
    """
    for reference in options.runs:
        if options.restore:
            _restore(_find_archive(reference, directory(options)), options.delete)
            continue
        one = glance(recorded_run(reference, directory(options)))
        require_ended(one, options.force)
        packed = pack(one.path)
        sizes = f"{size(one.bytes)} to {size(packed.stat().st_size)}"
        say(f"archived {one.info.id} ({one.info.name}), {sizes}: {packed}")
    return 0


def _restore(archive: Path, delete: bool) -> None:
    folder = unpack(archive, delete)
    say(f"restored {folder}; the archive {archive} was {'deleted' if delete else 'kept'}")


def _find_archive(reference: str, dir: Path) -> Path:
    if Path(reference).is_file():
        return Path(reference)
    found = [path for path in archives(dir) if path.name.removesuffix(SUFFIX).startswith(reference)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(path.name.removesuffix(SUFFIX) for path in archives(dir)) or "none"
    raise RunNotFoundError(f"{len(found)} archived runs in {dir} match {reference!r}; archived runs: {known}")
