"""Write a run as one HTML file with curves, tables and samples. It opens in any browser, without a network.

The file contains the page and the run's data. Curves keep their true extremes at any number of points.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.cli.arguments import add_output, add_run, at_least_one, run_view
from windsock.errors import WindsockError
from windsock.formatting import size
from windsock.terminal.output import say

HELP = "write a run as one HTML file"
EXAMPLE = "windsock report @last -o run.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock report``."""
    add_run(parser)
    add_output(parser, "output file", required=True)
    parser.add_argument(
        "--points", type=at_least_one, default=400, help="maximum number of points per curve (default 400)"
    )
    parser.add_argument("--samples", type=int, default=200, help="number of samples, newest first (default 200)")


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    if options.samples < 0:
        raise WindsockError("--samples must be at least 0")
    from windsock.server.report_file import report_page
    from windsock.server.responses import RequestError
    from windsock.server.views.report import report_data

    view = run_view(options)
    try:
        page = report_page(report_data(view, options.points, options.samples))
    except RequestError as problem:
        raise WindsockError(str(problem)) from problem
    Path(options.output).write_text(page, encoding="utf-8", errors="backslashreplace")
    say(f"wrote {size(len(page))} to {options.output}", sys.stderr)
    return 0
