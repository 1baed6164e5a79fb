"""Delete runs permanently. A run that is still running is deleted only with --force."""

from __future__ import annotations

import argparse
import shutil
import sys

from windsock.cli.arguments import add_run, directory, recorded_run
from windsock.errors import WindsockError
from windsock.formatting import printable, size
from windsock.journal.glance import glance
from windsock.journal.run_facts import Glance
from windsock.terminal.output import say

HELP = "delete runs"
EXAMPLE = "windsock rm k7m2 x9pq --yes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock rm``."""
    add_run(parser, several=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--force", action="store_true", help="include runs that are still running")


def run(options: argparse.Namespace) -> int:
    """Delete the runs."""
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
        raise WindsockError(
            f"run {one.info.id} ({printable(one.info.name)}) is {one.status.word}: end it first, or use --force"
        )


def _confirmed(one: Glance) -> bool:
    if not sys.stdin.isatty():
        raise WindsockError("cannot ask for confirmation without a terminal: use --yes")
    question = printable(f"delete {one.info.id} ({one.info.name}, {size(one.bytes)})?")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
