"""Write a run as one file that opens in any browser, from disk, with no network: curves, tables and samples.

The file is the page with the run's data inside. Curves keep their true extremes, whatever the number of points.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.cli.arguments import add_run, run_folder
from windsock.errors import WindsockError

HELP = "write a run as one HTML file to send to a colleague"
EXAMPLE = "windsock report @last -o run.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``report`` takes."""
    add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--points", type=int, default=400, help="at most so many buckets per curve (default 400)")
    parser.add_argument("--samples", type=int, default=200, help="so many of the newest samples (default 200)")


def run(options: argparse.Namespace) -> int:
    """Write the report."""
    if options.points < 1 or options.samples < 0:
        raise WindsockError(
            "--points and --samples count things: expected --points of at least 1, --samples of 0 or more"
        )
    from windsock.server.report_file import report_page
    from windsock.server.views.report import report_data

    named = Path(options.run_reference)
    folder = named if any(named.glob("*tfevents*")) else run_folder(options)
    page = report_page(report_data(folder, options.points, options.samples))
    Path(options.output).write_text(page, encoding="utf-8", errors="backslashreplace")
    print(f"{len(page) / 1e6:.1f} MB: {options.output}", file=sys.stderr)
    return 0
