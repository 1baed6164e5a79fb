"""Make runs of logs of other programs, to keep them. PATH is a log, or a directory with logs.

Other commands read a log in place: windsock show PATH, windsock up DIR. An imported run stays when its log is gone.
Importing a log again adds what is new. With --follow, this goes on as the log grows, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from windsock.cli.arguments import directory
from windsock.directory_watch import DirectoryWatch
from windsock.errors import LogError, WindsockError
from windsock.formatting import counted
from windsock.importers.formats import Log
from windsock.importers.imported import STATE_FILE, Given, ImportedLog, facts_of, log_id, log_info
from windsock.importers.logs import HINT, logs_at
from windsock.journal.folder import folder_name
from windsock.terminal.output import say
from windsock.view import View

HELP = "make runs of logs of other programs"
EXAMPLE = """windsock import train.log
  windsock import outputs/ --to kept --project math
  windsock import train.log --follow --source verl"""
POLL_SECONDS = 0.5
IDLE_SECONDS = 5.0  # after which logs are looked at although no change of their directories was told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock import``."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="log, or directory with logs")
    parser.add_argument(
        "--to", metavar="DIR", help="directory to write the runs to (default: the directory of the runs)"
    )
    parser.add_argument("--follow", action="store_true", help="go on as the logs grow, until Ctrl-C")
    parser.add_argument("--project", help="project of the runs (default: what the log tells, else its directory)")
    parser.add_argument("--name", help="name of the run (default: what the log tells, else its file)")
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/grpo")


def run(options: argparse.Namespace) -> int:
    """Import the logs, and what is added to them."""
    from windsock.catalogue.sources import check_source

    if options.source:
        check_source(options.source)
    to = Path(options.to) if options.to else directory(options)
    importing = Importing(to, Given(options.project, options.name, options.source))
    try:
        failed = importing.take(options.paths, options.follow)
        if not options.follow:
            if importing.logs:
                say(f"look at it with: windsock up {to}" if len(importing.logs) > 1 else importing.hint())
            return 1 if failed else 0
        say(f"following {len(importing.logs)} logs; windsock up {to} shows them  (stop with Ctrl-C)")
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
                    say(f"windsock: {problem}", sys.stderr)
        return failed

    def _logs(self, path: Path) -> list[Log]:
        found = logs_at(path)
        if not found:
            raise LogError(f"{path} has no log that windsock can read; {HINT}")
        if self._given.name is not None and len(found) > 1:
            raise WindsockError(f"--name is for one run, and {path} has {len(found)}: leave it out, or give one log")
        return found

    def _import(self, log: Log) -> None:
        imported = ImportedLog(log, self._folder(log), self._given)
        imported.update()
        self.logs[log], self._rows[log] = imported, imported.rows
        for line in _report(imported):
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
        return f"look at it with: windsock show {imported.folder}   windsock up {self._to}"

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


def _report(imported: ImportedLog) -> Iterator[str]:
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
