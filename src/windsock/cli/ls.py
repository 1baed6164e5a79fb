"""List the runs in a directory, newest last."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from windsock.cli.arguments import add_json, directory, print_json
from windsock.journal.run_facts import Glance
from windsock.journal.run_list import glances
from windsock.terminal.output import say
from windsock.terminal.runs import SYMBOLS

HELP = "list runs"
EXAMPLE = "windsock ls --project roll-agentic"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock ls``."""
    parser.add_argument("--project", help="only runs of this project")
    parser.add_argument("--status", help=f"only runs with this status: {', '.join(SYMBOLS)}")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    runs = sorted(glances(directory(options)), key=lambda run: run.began)
    runs = [r for r in runs if options.project in (None, r.info.project) and options.status in (None, r.status.word)]
    if options.json:
        print_json([_record(run) for run in runs])
    elif runs:
        from windsock.terminal.output import make_console
        from windsock.terminal.runs import RunsTable

        make_console().print(RunsTable(runs))
    else:
        say(f"no runs in {directory(options)}")
    return 0


def _record(run: Glance) -> dict[str, object]:
    return {
        **asdict(run.info),
        "status": run.status.word,
        "reason": run.status.reason,
        "last_step": run.last_step,
        "last_heard": run.last_heard,
        "bytes": run.bytes,
        "writers": run.writers,
        "attempts": run.attempts,
        "path": str(run.path),
    }
