"""Remove runs for good. A run that is still being written is removed only with --force."""

from __future__ import annotations

import argparse
import shutil
import sys

from windsock.cli.arguments import add_run, directory
from windsock.errors import WindsockError
from windsock.formatting import size
from windsock.journal.folder import find_run
from windsock.journal.glance import Glance, glance

HELP = "remove runs"
EXAMPLE = "windsock rm k7m2 x9pq --yes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``rm`` takes."""
    add_run(parser, several=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="also runs that are still being written")


def run(options: argparse.Namespace) -> int:
    """Remove."""
    runs = [glance(find_run(reference, directory(options))) for reference in options.runs]
    for one in runs:
        refuse_running(one, options.force)
    for one in runs:
        if not options.yes and not _confirmed(one):
            print(f"kept {one.info.id}")
            continue
        shutil.rmtree(one.path)
        print(f"removed {one.info.id} ({one.info.name}, {size(one.bytes)})")
    return 0


def refuse_running(one: Glance, force: bool = False) -> None:
    """Raise where a run is not over."""
    if not one.status.ended and not force:
        raise WindsockError(f"run {one.info.id} ({one.info.name}) is {one.status.word}: end it first, or use --force")


def _confirmed(one: Glance) -> bool:
    if not sys.stdin.isatty():
        raise WindsockError("rm asks before it removes: use --yes where nobody can answer")
    return input(f"remove {one.info.id} ({one.info.name}, {size(one.bytes)})? [y/N] ").strip().lower() in (
        "y",
        "yes",
    )
