"""Write a run's metrics to a file: a row for each writer and step, a column for each metric.

In CSV a metric that was not logged at a step is an empty cell, and NaN is NaN. Parquet needs the extra
windsock[parquet]. The format perfetto is a trace of the run's phases, for ui.perfetto.dev and chrome://tracing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import IO

from windsock.cli.arguments import add_run, run_folder
from windsock.errors import WindsockError
from windsock.export import FORMATS, Wide, wide, write_csv, write_jsonl, write_parquet
from windsock.view import View

HELP = "write a run to CSV, JSON lines or Parquet, or its phases as a trace"
EXAMPLE = "windsock export @last --to csv -o run.csv --metrics 'critic/*'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``export`` takes."""
    add_run(parser)
    parser.add_argument("--to", choices=(*FORMATS, "perfetto"), required=True, help="the format")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output; not for parquet)")
    parser.add_argument("--metrics", action="append", metavar="PATTERN", help="only these, e.g. 'actor/*' (repeatable)")


def run(options: argparse.Namespace) -> int:
    """Export."""
    if options.to == "parquet" and not options.output:
        raise WindsockError("parquet is no text: name a file with -o FILE")
    view = View(run_folder(options))
    if options.to == "perfetto":
        return _trace(view, options.output)
    table = wide(view, view.names(options.metrics or "*"))
    if options.to == "parquet":
        write_parquet(table, Path(options.output))
    elif options.output:
        with open(options.output, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            _write_text(table, options.to, file)
    else:
        _write_text(table, options.to, sys.stdout)
    if options.output:
        print(f"{len(table)} rows, {len(table.columns)} metrics: {options.output}", file=sys.stderr)
    return 0


def _trace(view: View, output: str | None) -> int:
    from windsock.probe.trace import trace

    spans = view.phases()
    made = trace(spans, view.step_windows(), view.name, view.id)
    if output is None:
        json.dump(made, sys.stdout)
    else:
        Path(output).write_text(json.dumps(made), encoding="utf-8")
        print(f"{len(spans)} spans: {output} (open it at ui.perfetto.dev)", file=sys.stderr)
    return 0


def _write_text(table: Wide, form: str, file: IO[str]) -> None:
    (write_csv if form == "csv" else write_jsonl)(table, file)
