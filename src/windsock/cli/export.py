"""Export a run's metrics: one row per writer and step, one column per metric; or its samples.

In CSV, a metric that was not logged at a step is an empty cell, and NaN is NaN. A name that a spreadsheet would take
for a formula, because it begins with = + - or @, has an apostrophe before it. Parquet needs windsock[parquet]. The
format perfetto exports the run's phases as a trace for ui.perfetto.dev and chrome://tracing. With --samples the rows
are the stored samples, with their tokens and the values of each, in JSON lines or Parquet.

With --partition, RUN is a directory, and all its runs become a data set of Parquet files: tables of values, phases,
runs, configs and findings, as docs/fleet.md describes them. The next export to the same place adds what is new. The
exit code is 1 if a run could not be exported.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import IO

from windsock.cli.arguments import add_metrics, add_run, output_problem, run_view
from windsock.errors import WindsockError
from windsock.export import (
    FORMATS,
    SAMPLE_FORMATS,
    WideTable,
    sample_record,
    wide_table,
    write_csv,
    write_jsonl,
    write_parquet,
    write_samples_parquet,
)
from windsock.fleet.schema import KEYS
from windsock.formatting import counted
from windsock.model import Sample
from windsock.server.responses import to_strict_json
from windsock.terminal.output import say
from windsock.view import View

HELP = "export metrics as CSV, JSON lines or Parquet, or phases as a trace"
EXAMPLE = (
    "windsock export @last --to csv -o run.csv --metrics 'critic/*'\n"
    "  windsock export runs/ --to parquet --partition project,run -o fleet/"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock export``."""
    add_run(parser)
    parser.add_argument("--to", choices=(*FORMATS, "perfetto"), required=True, help="output format")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file (default: standard output; required for parquet); with --partition a directory "
        "(default: DIR-fleet)",
    )
    parser.add_argument("--samples", action="store_true", help="export the samples: jsonl or parquet")
    add_metrics(parser)
    parser.add_argument(
        "--partition",
        metavar="KEYS",
        type=_partition,
        help="export all runs of a directory, in directories by these keys: project,run, or one of them",
    )
    parser.add_argument(
        "--prune", action="store_true", help="with --partition: take out the runs that were deleted since"
    )

    parser.set_defaults(refuse=parser.error)  # what -o may be depends on --partition


def _partition(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    unknown = [key for key in keys if key not in KEYS]
    if unknown or len(set(keys)) < len(keys):
        given = f"unknown key {unknown[0]!r}" if unknown else f"a key is given twice in {text!r}"
        raise argparse.ArgumentTypeError(f"{given}: expected {' and '.join(KEYS)}, or one of them")
    return keys


def run(options: argparse.Namespace) -> int:
    """Export the run."""
    if options.partition:
        from windsock.cli.fleet_export import run_export

        return run_export(options)
    _check(options)
    view = run_view(options)
    if options.samples:
        return _samples(view, options.to, options.output)
    if options.to == "perfetto":
        return _trace(view, options.output)
    table = wide_table(view, view.names(options.metrics or "*"))
    if options.to == "parquet":
        write_parquet(table, Path(options.output))
    elif options.output:
        with open(options.output, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            _write_text(table, options.to, file)
    else:
        _write_text(table, options.to, sys.stdout)
    if options.output:
        say(
            f"wrote {counted(len(table), 'row')} of {counted(len(table.columns), 'metric')} to {options.output}",
            sys.stderr,
        )
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.prune:
        raise WindsockError("--prune is about the runs of a directory: give --partition too")
    if options.output and (problem := output_problem(options.output)):
        options.refuse(f"argument -o/--output: {problem}")
    if options.to == "parquet" and not options.output:
        raise WindsockError("parquet is a binary format: give a file with -o FILE")
    if options.samples and options.to not in SAMPLE_FORMATS:
        raise WindsockError(f"samples are exported as {' or '.join(SAMPLE_FORMATS)}; got --to {options.to}")


def _samples(view: View, format: str, output: str | None) -> int:
    samples = view.samples()
    if format == "parquet":
        write_samples_parquet(samples, Path(str(output)))
    elif output:
        with open(output, "w", encoding="utf-8") as file:
            _write_lines(samples, file)
    else:
        _write_lines(samples, sys.stdout)
    if output:
        say(f"wrote {counted(len(samples), 'sample')} to {output}", sys.stderr)
    return 0


def _write_lines(samples: list[Sample], file: IO[str]) -> None:
    for sample in samples:
        file.write(json.dumps(to_strict_json(sample_record(sample)), allow_nan=False) + "\n")


def _trace(view: View, output: str | None) -> int:
    from windsock.probe.trace import trace

    spans = view.phases()
    made = trace(spans, view.step_windows(), view.name, view.id)
    if output is None:
        json.dump(made, sys.stdout)
    else:
        Path(output).write_text(json.dumps(made), encoding="utf-8")
        say(f"wrote {counted(len(spans), 'span')} to {output}; open it at ui.perfetto.dev", sys.stderr)
    return 0


def _write_text(table: WideTable, format: str, file: IO[str]) -> None:
    (write_csv if format == "csv" else write_jsonl)(table, file)
