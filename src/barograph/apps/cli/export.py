"""Commands that write runs to files: export writes their data, of one run or of a directory as a data set, and report
an HTML file to read.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from barograph.answers.export import (
    FORMATS,
    SAMPLE_FORMATS,
    sample_record,
    trace,
    wide_table,
    write_csv,
    write_jsonl,
    write_parquet,
    write_samples_parquet,
)
from barograph.answers.fleet.export import FleetExport, Outcome
from barograph.answers.fleet.files import FleetFolder
from barograph.answers.fleet.schema import KEYS, pyarrow
from barograph.answers.responses import to_strict_json
from barograph.apps.cli.arguments import (
    METRICS,
    RUN,
    RUNS_OR_DIRECTORIES,
    argument,
    at_least_one,
    command,
    directory,
    output_file,
    output_problem,
    run_references,
    run_view,
    runs_at,
)
from barograph.apps.terminal.output import Progress, say
from barograph.base.errors import BarographError, RequestError
from barograph.base.formatting import counted, size
from barograph.journal.view import View


def _partition(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    unknown = [key for key in keys if key not in KEYS]
    if unknown or len(set(keys)) < len(keys):
        given = f"unknown key {unknown[0]!r}" if unknown else f"a key is given twice in {text!r}"
        raise argparse.ArgumentTypeError(f"{given}: expected {' and '.join(KEYS)}, or one of them")
    return keys


@command(
    "export metrics as CSV, JSON lines or Parquet, or phases as a trace",
    "barograph export @last --to csv -o run.csv --metrics 'critic/*'\n"
    "  barograph export runs/ --to parquet --partition project,run -o fleet/",
    RUN,
    argument("--to", choices=(*FORMATS, "perfetto"), required=True, help="output format"),
    argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file (default: standard output; required for parquet); with --partition a directory "
        "(default: DIR-fleet)",
    ),
    argument("--samples", action="store_true", help="export the samples: jsonl or parquet"),
    METRICS,
    argument(
        "--partition",
        metavar="KEYS",
        type=_partition,
        help="export all runs of a directory, in directories by these keys: project,run, or one of them",
    ),
    argument("--prune", action="store_true", help="with --partition: take out the runs that were deleted since"),
    lambda parser: parser.set_defaults(refuse=parser.error),  # what -o may be depends on --partition
)
def run_export(options: argparse.Namespace) -> int:
    """Export a run's metrics: one row per writer and step, one column per metric; or its samples.

    In CSV, a metric that was not logged at a step is an empty cell, and NaN is NaN. A name that a spreadsheet would
    take for a formula, because it begins with = + - or @, has an apostrophe before it. Parquet needs
    barograph[parquet]. The format perfetto exports the run's phases as a trace for ui.perfetto.dev and
    chrome://tracing. With --samples the rows are the stored samples, with their tokens and the values of each, in
    JSON lines or Parquet.

    With --partition, RUN is a directory, and all its runs become a data set of Parquet files: tables of values,
    phases, runs, configs and findings, as docs/fleet.md describes them. The next export to the same place adds what
    is new. The exit code is 1 if a run could not be exported.
    """
    if options.partition:
        return run_fleet_export(options)
    _check(options)
    view = run_view(options)
    if options.samples:
        return _samples(view, options.to, options.output)
    if options.to == "perfetto":
        return _trace(view, options.output)
    table = wide_table(view, view.names(options.metrics or "*"))
    if options.to == "parquet":
        write_parquet(table, Path(options.output))
    else:
        with _opened(options.output) as file:
            (write_csv if options.to == "csv" else write_jsonl)(table, file)
    return _wrote(f"{counted(len(table), 'row')} of {counted(len(table.columns), 'metric')}", options.output)


def _opened(output: str | None) -> AbstractContextManager[IO[str]]:
    """Return the output file, or standard output, which stays open."""
    if not output:
        return nullcontext(sys.stdout)
    return open(output, "w", encoding="utf-8", errors="backslashreplace", newline="")


def _wrote(what: str, output: str | None, hint: str = "") -> int:
    if output:
        say(f"wrote {what} to {output}{hint}", sys.stderr)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.prune:
        raise BarographError("--prune is about the runs of a directory: give --partition too")
    if options.output and (problem := output_problem(options.output)):
        options.refuse(f"argument -o/--output: {problem}")
    if options.to == "parquet" and not options.output:
        raise BarographError("parquet is a binary format: give a file with -o FILE")
    if options.samples and options.to not in SAMPLE_FORMATS:
        raise BarographError(f"samples are exported as {' or '.join(SAMPLE_FORMATS)}; got --to {options.to}")


def _samples(view: View, format: str, output: str | None) -> int:
    samples = view.samples()
    if format == "parquet":
        write_samples_parquet(samples, Path(str(output)))
    else:
        with _opened(output) as file:
            for sample in samples:
                file.write(json.dumps(to_strict_json(sample_record(sample)), allow_nan=False) + "\n")
    return _wrote(counted(len(samples), "sample"), output)


def _trace(view: View, output: str | None) -> int:
    spans = view.phases()
    made = trace(spans, view.step_windows(), view.name, view.id)
    with _opened(output) as file:
        json.dump(made, file)
    return _wrote(counted(len(spans), "span"), output, "; open it at ui.perfetto.dev")


def run_fleet_export(options: argparse.Namespace) -> int:
    """Export what is new; return the exit code."""
    dir = Path(options.run_reference)
    out = Path(options.output) if options.output else dir.absolute().with_name(f"{dir.absolute().name}-fleet")
    _check_fleet(options, dir, out)
    runs = runs_at(dir)
    if not runs:
        raise BarographError(f"{dir} has no runs and no logs")
    folder = FleetFolder(out, options.partition)
    try:
        export = FleetExport(dir, folder, options.metrics or ["*"], options.prune)
        try:
            export.run(runs, Progress("exporting runs").show)
        except KeyboardInterrupt:
            say(f"interrupted: {_exported_sentence(export.outcome)}; the next export goes on from here", sys.stderr)
            raise
        say(f"{_exported_sentence(export.outcome)}; wrote {size(folder.written)} to {out}", sys.stderr)
    finally:
        folder.close()
    for path, error in export.outcome.problems.items():
        say(f"not exported: {path}: {error}", sys.stderr)
    return 1 if export.outcome.problems else 0


def _check_fleet(options: argparse.Namespace, dir: Path, out: Path) -> None:
    if options.to != "parquet":
        raise BarographError(f"--partition makes Parquet files; got --to {options.to}")
    if options.samples:
        raise BarographError("--samples exports those of one run: it cannot be given with --partition")
    if not dir.is_dir():
        raise BarographError(f"{dir} is not a directory: --partition exports the runs of one")
    if out.resolve().is_relative_to(dir.resolve()):
        raise BarographError(f"{out} is in the directory of the runs: give another one with -o")
    pyarrow()  # raises where it is not installed


def _exported_sentence(outcome: Outcome) -> str:
    parts = {"new": outcome.new, "updated": outcome.updated, "rewritten": outcome.rewritten}
    parts |= {"unchanged": outcome.same, "gone": outcome.removed, "not exported": len(outcome.problems)}
    runs = ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)
    return f"runs: {runs or 'none'}; {counted(outcome.rows, 'new row')}"


@command(
    "write runs, with notes of your own, as one HTML file",
    "barograph report @last -o run.html\n  barograph report runs/sweep --notes notes.md -o report.html",
    RUNS_OR_DIRECTORIES,
    argument("-o", "--output", metavar="FILE", type=output_file, required=True, help="output file"),
    argument(
        "--notes",
        metavar="FILE",
        help="Markdown with ```chart blocks that place charts: docs/page.md has their lines",
    ),
    argument("--title", help="title, where the notes have no heading (default: the name of the file)"),
    argument("--points", type=at_least_one, default=400, help="maximum number of points per curve (default 400)"),
    argument(
        "--samples",
        type=int,
        default=200,
        help="number of samples of a single run: first those with tokens, then others of all steps (default 200)",
    ),
)
def run_report(options: argparse.Namespace) -> int:
    """Write runs as one HTML file, which opens in any browser, without a network.

    Of one run the file has everything: curves, tables, samples. Of several runs it has their charts over each other,
    those that differ only in the seed as one line; with --notes it is a report of your own words, in Markdown, with
    charts where you place them. Curves keep their true extremes at any number of points. A directory stands for all
    runs in it.
    """
    if options.samples < 0:
        raise BarographError("--samples must be at least 0")
    from barograph.answers.reports.embedded import report_data
    from barograph.apps.page.files import report_page
    from barograph.importers.opening import open_run

    views = [open_run(path, directory(options)) for text in options.runs for path in run_references(text)]
    try:
        if len(views) == 1 and options.notes is None:
            data = report_data(views[0], options.points, options.samples)
        else:
            data = _written(views, options)
    except RequestError as problem:
        raise BarographError(str(problem)) from problem
    page = report_page(data)
    Path(options.output).write_text(page, encoding="utf-8", errors="backslashreplace")
    say(f"wrote {size(len(page))} to {options.output}", sys.stderr)
    return 0


def _written(views: list[View], options: argparse.Namespace) -> dict[str, Any]:
    """Return the data of a report of several runs; what is wrong in its notes is printed, and told in the file."""
    from barograph.answers.open_run import GivenRuns
    from barograph.answers.reports.embedded import with_curves
    from barograph.answers.reports.written import MAX_RUNS, compared_runs, plain_notes, written_report

    by_key: dict[str, View] = {}
    for view in views:  # a copy of a run's directory has the same id
        by_key[view.id if view.id not in by_key else f"{view.id}~{len(by_key)}"] = view
    if len(by_key) > MAX_RUNS:
        raise BarographError(f"{len(by_key)} runs given; a report shows at most {MAX_RUNS}")
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
        raise BarographError(f"cannot read the notes: {problem}") from problem
