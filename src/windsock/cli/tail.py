"""Print a run's last steps, then new ones as they are committed, until the run ends."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from windsock.cli.arguments import add_json, add_metrics, add_run, directory
from windsock.importers.formats import Log
from windsock.importers.imported import ImportedLog
from windsock.importers.log_list import log_files
from windsock.journal.folder import read_run_info
from windsock.journal.glance import glance
from windsock.journal.status import GROWING_SECONDS, UNTOLD
from windsock.model import Row, Status
from windsock.opening import find_run_or_log
from windsock.relay.merged_rows import MergedFollower
from windsock.terminal.output import say
from windsock.trackers.jsonl import json_line
from windsock.trackers.stdout import text_block

HELP = "print steps as they are committed"
EXAMPLE = "windsock tail @last --metrics 'critic/score/*'"
POLL_SECONDS = 0.3
STATUS_SECONDS = 3.0
MAX_END_BYTES = 4 << 20  # read at either end of a segment for past steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock tail``."""
    add_run(parser)
    parser.add_argument(
        "-n", type=int, default=5, metavar="STEPS", help="number of past steps to print first (default 5)"
    )
    add_metrics(parser)
    parser.add_argument("--no-follow", action="store_true", help="print past steps and exit")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print steps until the run ends."""
    found = find_run_or_log(options.run_reference, directory(options))
    log, folder = _imported(found) if isinstance(found, Log) else (None, found)
    info = read_run_info(folder)
    patience = 0.0 if options.no_follow or log is not None else None
    follower = MergedFollower(folder, vocabulary=info.vocabulary, ends=MAX_END_BYTES, patience=patience)
    past = follower.new_rows()
    for row in past[-options.n :] if options.n > 0 else []:
        _print(row, info.name, options)
    while not options.no_follow:
        # Rows are polled more often than the status, which reads all segments' ends.
        status = glance(folder).status
        has_ended = status.ended and (log is None or _has_ended(log, status))
        until = time.monotonic() + STATUS_SECONDS
        while time.monotonic() < until:
            if log is not None and log.update():  # the log was written anew
                follower = MergedFollower(folder, vocabulary=info.vocabulary, patience=patience)
            rows = follower.new_rows()
            if has_ended and not rows and not follower.waits:
                for row in follower.take_unfinished():
                    _print(row, info.name, options)
                _print_end(status.word, status.reason, options)
                return 0
            for row in rows:
                _print(row, info.name, options)
            time.sleep(POLL_SECONDS)
    return 0


def _imported(log: Log) -> tuple[ImportedLog, Path]:
    """Import a log; return it and its journal."""
    imported = ImportedLog(log)
    imported.update()
    return imported, imported.folder


def _has_ended(log: ImportedLog, status: Status) -> bool:
    """Return whether a log tells its end, or has not been written to for long."""
    written = max((modified for _, modified, _ in log_files(log.log).states.values()), default=0) / 1e9
    return status.reason != UNTOLD or time.time() - written > GROWING_SECONDS


def _print(row: Row, name: str, options: argparse.Namespace) -> None:
    if options.metrics:
        chosen = {n: v for n, v in row.values.items() if any(fnmatch.fnmatchcase(n, p) for p in options.metrics)}
        row = replace(row, values=chosen)
    if not row.values:
        return
    if options.json:
        print(json_line(row), flush=True)
        return
    title = name if str(row.writer) == "trainer/0" else f"{name} · {row.writer}"
    print(text_block(row, shutil.get_terminal_size().columns, title, sys.stdout.isatty()), flush=True)


def _print_end(status: str, reason: str, options: argparse.Namespace) -> None:
    if not options.json:
        say(f"run {'was killed' if status == 'killed' else status}{': ' + reason if reason else ''}")
