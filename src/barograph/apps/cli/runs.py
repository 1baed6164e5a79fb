"""Commands about several runs: ls lists them, compare compares them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from barograph.answers.records import STATUS_SYMBOLS, versioned
from barograph.apps.cli.arguments import (
    JSON,
    METRICS,
    RUNS_OR_DIRECTORIES,
    add_language,
    argument,
    command,
    directory,
    run_references,
    runs_at,
)
from barograph.apps.terminal.output import Progress, make_console, print_document, print_json, say
from barograph.base.errors import BarographError
from barograph.diagnosis.health import Health, HealthList
from barograph.journal.read.status import Glance

STATUSES = tuple(STATUS_SYMBOLS)


@command(
    "list runs",
    "barograph ls --project roll-agentic",
    argument("listed", metavar="PATH", nargs="?", help="directory or log to list (default: the directory of the runs)"),
    argument("--project", help="only runs of this project"),
    argument("--status", choices=STATUSES, metavar="STATUS", help=f"only runs with this status: {', '.join(STATUSES)}"),
    argument("--health", action="store_true", help="judge the runs whose health is not known"),
    JSON,
)
def run_ls(options: argparse.Namespace) -> int:
    """List the runs in a directory, newest last. PATH may also be a log of another program, or contain such logs.

    HEALTH is the doctor's verdict, where one is known. 'barograph up' keeps the verdicts on the runs that it shows,
    and --health judges those that are listed. Once a run goes on, the verdict on it is not known any more.
    """
    path = Path(options.listed) if options.listed else directory(options)
    if options.listed and not path.exists():
        raise BarographError(f"{path} does not exist: give a directory of runs or a log, or leave it out")
    runs = sorted(runs_at(path), key=lambda run: run.began)
    runs = [r for r in runs if options.project in (None, r.info.project) and options.status in (None, r.status.word)]
    health = _health(path if path.is_dir() else path.parent, runs, options.health)
    if options.json:
        print_json([versioned("ls", _record(run, found)) for run, found in zip(runs, health, strict=True)])
    elif runs:
        from barograph.apps.terminal.runs import runs_table

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
    for place in Progress("judging runs").over(unknown):
        found[place] = listed.judge(runs[place])
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


@command(
    "compare runs and groups of seeds",
    "barograph compare k7m2p9qx b3x8w1zc\n  barograph compare runs/sweep --metrics 'val/*' --json",
    RUNS_OR_DIRECTORIES,
    METRICS,
    argument("--all", action="store_true", help="compare all metrics, not only the vital ones"),
    add_language,
    JSON,
)
def run_compare(options: argparse.Namespace) -> int:
    """Compare runs: settings that differ, metrics, findings and the times of phases.

    Runs that differ only in the seed are one group, and groups are compared with the first one, with 95 % intervals
    over seeds. A difference needs three seeds in each group to be called better or worse. Metrics are joined by
    their meaning, whatever framework wrote their names. A directory stands for all runs in it.
    """
    from barograph.answers.comparison import compare_views
    from barograph.importers.opening import open_run

    views = [open_run(path, directory(options)) for text in options.runs for path in run_references(text)]
    if len(views) < 2:
        raise BarographError("expected at least two runs to compare; got one")
    compared = compare_views(views, options.metrics or (), options.all)
    if options.json:
        print_document("compare", compared)
        return 0
    from barograph.apps.terminal.compared import print_comparison

    print_comparison(make_console(), compared, options.lang)
    return 0
