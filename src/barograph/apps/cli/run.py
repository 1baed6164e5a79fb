"""Commands about one run: show sums it up, tail prints its steps as they come, phases shows time and memory, query
answers a question.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from barograph.answers.phases import phases_of, phases_record
from barograph.answers.records import run_record
from barograph.apps.cli.arguments import JSON, METRICS, RUN, add_language, argument, command, directory, run_view
from barograph.apps.terminal.output import make_console, print_document, say
from barograph.base.formatting import json_number, number
from barograph.base.model import Row, Status
from barograph.delivery.relay.merged_rows import MergedFollower
from barograph.delivery.relay.state import DeliveryState, read_delivery_states
from barograph.delivery.trackers.text import json_line, text_block
from barograph.importers.imported import ImportedLog, log_files
from barograph.importers.opening import find_run_or_log
from barograph.importers.reading.log import Log
from barograph.journal.format.folder import read_run_info
from barograph.journal.read.status import GROWING_SECONDS, UNTOLD, glance
from barograph.journal.view import View


@command(
    "show a run: verdict, vital signs, config, last values",
    "barograph show @last\n  barograph show @last --metrics 'critic/*'",
    RUN,
    METRICS,
    argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo"),
    argument("--all", action="store_true", help="show all metrics and settings"),
    add_language,
    JSON,
)
def run_show(options: argparse.Namespace) -> int:
    """Show one run: the doctor's verdict and the vital signs first, then warnings, facts, configuration and metrics.

    Of a run with many metrics their number is said by family: --metrics shows the last values of some, with units,
    extremes and sparklines that keep spikes, and --all shows everything.
    """
    view = run_view(options, options.source)
    names = view.names(options.metrics or "*")
    if options.json:
        print_document("show", _record(view, names))
        return 0
    from barograph.apps.terminal.show import Shown, show

    show(make_console(), view, Shown(options.run_reference, names, bool(options.metrics), options.all, options.lang))
    return 0


def _record(view: View, names: list[str]) -> dict[str, object]:
    from barograph.answers.explanation import unit_of
    from barograph.answers.moments import moments
    from barograph.answers.phases import open_phases
    from barograph.diagnosis.diagnose import Visit
    from barograph.importers.summary import run_names, run_warnings

    status, meanings = view.status, run_names(view)
    diagnosis = Visit().diagnose(view, meanings)
    return {
        **asdict(view.info),
        "status": status.word,
        "reason": status.reason,
        "verdict": diagnosis.verdict,
        "findings": [finding.record() for finding in diagnosis.findings],
        "steps": view.steps,
        "span": view.span,
        "writers": {str(writer): status.word for writer, status in view.writer_statuses().items()},
        "path": str(view.location),
        "origin": None if view.origin is None else asdict(view.origin),
        "trackers": [_delivery(state) for state in read_delivery_states(view.path)],
        "open_phases": open_phases(view),
        "moments": [asdict(moment) for moment in moments(view)],
        "config": view.config,
        "environment": view.environment,
        "notices": run_warnings(view),
        "source": meanings.source,
        "unknown": meanings.unknown,
        "ambiguous": {name: meanings.resolve(name).meanings for name in meanings.ambiguous},
        "crucial": [
            {"key": sign.key, "name": sign.name, "verdict": sign.word, "text": sign.text.en} for sign in diagnosis.signs
        ],
        "last": {name: _last(view, name, unit_of(meanings.match(name))) for name in names},
    }


def _delivery(state: DeliveryState) -> dict[str, object]:
    return {key: value for key, value in asdict(state).items() if key not in ("places", "mark", "session")}


def _last(view: View, name: str, unit: str) -> dict[str, object]:
    series = view.series(name)
    return {"step": int(series.steps[-1]), "value": json_number(series.last), "points": len(series), "unit": unit}


POLL_SECONDS = 0.3

STATUS_SECONDS = 3.0

MAX_END_BYTES = 4 << 20  # read at either end of a segment for past steps


@command(
    "print steps as they are committed",
    "barograph tail @last --metrics 'critic/score/*'",
    RUN,
    argument("-n", type=int, default=5, metavar="STEPS", help="number of past steps to print first (default 5)"),
    METRICS,
    argument("--no-follow", action="store_true", help="print past steps and exit"),
    JSON,
)
def run_tail(options: argparse.Namespace) -> int:
    """Print a run's last steps, then new ones as they are committed, until the run ends."""
    found = find_run_or_log(options.run_reference, directory(options))
    log, folder = _imported_log(found) if isinstance(found, Log) else (None, found)
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


def _imported_log(log: Log) -> tuple[ImportedLog, Path]:
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


@command(
    "show the time and memory of phases",
    "barograph phases @last --step 12",
    RUN,
    argument("--step", type=int, metavar="N", help="step to show (default: all steps, and the timeline of the last)"),
    JSON,
)
def run_phases(options: argparse.Namespace) -> int:
    """Show the time and memory of a run's phases: a table, and a timeline of one step.

    The table covers all steps, or the step given with --step. The timeline shows that step, or the last committed
    one. SHARE is the share of the steps' time. PEAK is device memory, or host memory where there is no device.
    """
    view = run_view(options)
    found = phases_of(view, options.step)
    if options.json:
        print_document("phases", phases_record(view, found))
        return 0
    if found.timeline is None:
        say(f"{view.location} has no phases: the log does not tell of any")
        return 0
    from barograph.apps.terminal.phases import show_phases

    show_phases(make_console(), view.name, found.summaries, found.timeline)
    return 0


FALSE, UNANSWERED = 1, 2  # exit codes


@command(
    "ask whether something is true of a run",
    "barograph query @last 'last(val/score) > 0.5 and max(grad_norm) < 10'\n"
    "  barograph query @last 'status = finished and not finding = entropy_collapse'",
    RUN,
    argument("expression", metavar="EXPR", help="for example 'last(val/score) > 0.5'"),
    argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo"),
    JSON,
    error_code=UNANSWERED,
)
def run_query(options: argparse.Namespace) -> int:
    """Ask whether something is true of a run. The exit code is 0 if it is, 1 if not, and 2 if that cannot be said.

    EXPR compares values, joined by and, or, not and parentheses:
      last(M) first(M) count(M) nonfinite(M)        of all points of metric M
      min(M) max(M) mean(M) median(M) slope(M)      of the finite values; f(M, N) takes the last N points
      at(M, STEP)                                   the value at a step, or the last one before
      status step seconds verdict finding name project tag config.KEY      facts of the run
    M is a name of any framework. Names with spaces or parentheses are put in quotes. Values are compared by =, !=,
    <, <=, > and >=, texts also by ~ (contains) and !~. A comparison with NaN is false.
    """
    from barograph.answers.questions import answer, question_record

    view = run_view(options, options.source)
    found = answer(view, options.expression)
    if options.json:
        print_document("query", {**run_record(view), **question_record(options.expression, found)})
    else:
        say("true" if found.holds else "false")
        for part in found.parts:
            taken = "".join(f"  ({asked} is {name} here)" for asked, name in part.names.items())
            say(f"  {'✓' if part.holds else '✗'} {part.text}  {_shown(part.left)}{taken}")
    return 0 if found.holds else FALSE


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return number(value) if isinstance(value, float) else "none" if value is None else str(value)
