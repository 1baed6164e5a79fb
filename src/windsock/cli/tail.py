"""Print a run's last steps, then new ones as they are committed, until the run ends."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from windsock.cli.arguments import add_json, add_metrics, add_run, run_folder
from windsock.journal.folder import SegmentFile, read_run_info, segments
from windsock.journal.follow import Follower
from windsock.journal.glance import glance
from windsock.model import Row
from windsock.trackers.jsonl import json_line
from windsock.trackers.stdout import text_block

HELP = "print steps as they are committed"
EXAMPLE = "windsock tail @last --metrics 'critic/score/*'"
POLL_SECONDS = 0.3
STATUS_SECONDS = 3.0
MAX_END_BYTES = 4 << 20  # read at the end of a segment for past steps


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
    folder = run_folder(options)
    name = read_run_info(folder).name
    followers: dict[SegmentFile, Follower] = {}
    past = list(_new_rows(folder, followers))
    for row in past[-options.n :] if options.n > 0 else []:
        _print(row, name, options)
    while not options.no_follow:
        # Rows are polled more often than the status, which reads all segments' ends.
        status = glance(folder).status
        until = time.monotonic() + STATUS_SECONDS
        while time.monotonic() < until:
            rows = list(_new_rows(folder, followers))
            for row in rows:
                _print(row, name, options)
            if status.ended:
                _print_end(status.word, status.reason, options)
                return 0
            time.sleep(POLL_SECONDS)
    return 0


def _new_rows(folder: Path, followers: dict[SegmentFile, Follower]) -> Iterator[Row]:
    """Yield the rows that any writer committed since the last call, by time."""
    for segment in segments(folder):
        if segment not in followers:
            followers[segment] = Follower(segment.path, segment.writer, MAX_END_BYTES)
    rows = [row for follower in followers.values() for row in follower.new_rows()]
    yield from sorted(rows, key=lambda row: row.time)


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
        print(f"run {'was killed' if status == 'killed' else status}{': ' + reason if reason else ''}")
