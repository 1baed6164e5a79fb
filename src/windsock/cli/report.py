"""Write runs as one HTML file, which opens in any browser, without a network.

Of one run the file has everything: curves, tables, samples. Of several runs it has their charts over each other, those
that differ only in the seed as one line; with --notes it is a report of your own words, in Markdown, with charts where
you place them. Curves keep their true extremes at any number of points. A directory stands for all runs in it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windsock.cli.arguments import add_output, at_least_one, directory, run_references
from windsock.errors import WindsockError
from windsock.formatting import size
from windsock.terminal.output import say

if TYPE_CHECKING:
    from windsock.view import View

HELP = "write runs, with notes of your own, as one HTML file"
EXAMPLE = "windsock report @last -o run.html\n  windsock report runs/sweep --notes notes.md -o report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock report``."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="id, name, path of a run or log, directory, or @last")
    add_output(parser, "output file", required=True)
    notes_help = "Markdown with ```chart blocks that place charts: docs/page.md has their lines"
    parser.add_argument("--notes", metavar="FILE", help=notes_help)
    parser.add_argument("--title", help="title, where the notes have no heading (default: the name of the file)")
    parser.add_argument(
        "--points", type=at_least_one, default=400, help="maximum number of points per curve (default 400)"
    )
    samples_help = "number of samples of a single run: first those with tokens, then others of all steps (default 200)"
    parser.add_argument("--samples", type=int, default=200, help=samples_help)


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    if options.samples < 0:
        raise WindsockError("--samples must be at least 0")
    from windsock.opening import open_run
    from windsock.server.report_file import report_page
    from windsock.server.responses import RequestError
    from windsock.server.views.report import report_data

    views = [open_run(path, directory(options)) for text in options.runs for path in run_references(text)]
    try:
        if len(views) == 1 and options.notes is None:
            data = report_data(views[0], options.points, options.samples)
        else:
            data = _written(views, options)
    except RequestError as problem:
        raise WindsockError(str(problem)) from problem
    page = report_page(data)
    Path(options.output).write_text(page, encoding="utf-8", errors="backslashreplace")
    say(f"wrote {size(len(page))} to {options.output}", sys.stderr)
    return 0


def _written(views: list[View], options: argparse.Namespace) -> dict[str, Any]:
    """Return the data of a report of several runs; what is wrong in its notes is printed, and told in the file."""
    from windsock.server.runs.open_runs import GivenRuns
    from windsock.server.views.report_curves import with_curves
    from windsock.server.views.written_report import MAX_RUNS, compared_runs, plain_notes, written_report

    by_key: dict[str, View] = {}
    for view in views:  # a copy of a run's directory has the same id
        by_key[view.id if view.id not in by_key else f"{view.id}~{len(by_key)}"] = view
    if len(by_key) > MAX_RUNS:
        raise WindsockError(f"{len(by_key)} runs given; a report shows at most {MAX_RUNS}")
    runs = GivenRuns(by_key)
    names = {key: view.name for key, view in by_key.items()}
    title = options.title or Path(options.output).stem
    text = _read(options.notes) if options.notes else plain_notes(title, compared_runs(runs, by_key))
    report = written_report(text, runs, names, list(by_key), title)
    for block in report["blocks"]:
        for problem in block["problems"]:
            say(f"{options.notes}, line {block['line']}: {problem['en']}", sys.stderr)
    return with_curves(report, runs, options.points)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise WindsockError(f"cannot read the notes: {problem}") from problem
