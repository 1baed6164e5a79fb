"""List the runs in a directory, newest last. PATH may also be a log of another program, or contain such logs.

HEALTH is the doctor's verdict, where one is known. 'windsock up' keeps the verdicts on the runs that it shows, and
--health judges those that are listed. Once a run goes on, the verdict on it is not known any more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from windsock.answers.records import versioned
from windsock.cli.arguments import add_json, directory
from windsock.cli.json_output import print_json
from windsock.cli.runs_at import runs_at
from windsock.diagnosis.health import Health
from windsock.diagnosis.health_list import HealthList
from windsock.errors import WindsockError
from windsock.journal.run_facts import Glance
from windsock.terminal.output import Progress, say
from windsock.terminal.runs import SYMBOLS

HELP = "list runs"
EXAMPLE = "windsock ls --project roll-agentic"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock ls``."""
    parser.add_argument(
        "listed", metavar="PATH", nargs="?", help="directory or log to list (default: the directory of the runs)"
    )
    parser.add_argument("--project", help="only runs of this project")
    statuses = tuple(SYMBOLS)
    parser.add_argument(
        "--status", choices=statuses, metavar="STATUS", help=f"only runs with this status: {', '.join(statuses)}"
    )
    parser.add_argument("--health", action="store_true", help="judge the runs whose health is not known")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    path = Path(options.listed) if options.listed else directory(options)
    if options.listed and not path.exists():
        raise WindsockError(f"{path} does not exist: give a directory of runs or a log, or leave it out")
    runs = sorted(runs_at(path), key=lambda run: run.began)
    runs = [r for r in runs if options.project in (None, r.info.project) and options.status in (None, r.status.word)]
    health = _health(path if path.is_dir() else path.parent, runs, options.health)
    if options.json:
        print_json([versioned("ls", _record(run, found)) for run, found in zip(runs, health, strict=True)])
    elif runs:
        from windsock.terminal.output import make_console
        from windsock.terminal.runs import runs_table

        table = runs_table(runs, health)
        make_console(file_width=table.width).print(table)
    else:
        say(f"no runs in {path}")
    return 0


def _health(dir: Path, runs: Sequence[Glance], judge: bool) -> list[Health | None]:
    """Return the verdicts on runs; None where one is not known, or with ``judge``, where a run cannot be read."""
    listed = HealthList(dir)
    found = [listed.known(run) for run in runs]
    unknown = [place for place, health in enumerate(found) if health is None] if judge else []
    progress = Progress("judging runs")
    for count, place in enumerate(unknown):
        progress.show(count, len(unknown))
        found[place] = listed.judge(runs[place])
    progress.show(len(unknown), len(unknown))
    listed.save()
    return found


def _record(run: Glance, health: Health | None) -> dict[str, object]:
    return {
        **asdict(run.info),
        "status": run.status.word,
        "reason": run.status.reason,
        "health": None if health is None else health.record(),
        "last_step": run.last_step,
        "last_heard": run.last_heard,
        "bytes": run.bytes,
        "writers": run.writers,
        "attempts": run.attempts,
        "path": str(run.path),
    }
