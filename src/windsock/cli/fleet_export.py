"""``windsock export DIR --partition project,run``: all runs of a directory as a data set of Parquet files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.cli.runs_at import runs_at
from windsock.errors import WindsockError
from windsock.fleet.export import FleetExport, Outcome
from windsock.fleet.files import FleetFolder
from windsock.fleet.schema import pyarrow
from windsock.formatting import counted, size
from windsock.terminal.output import Progress, say


def run_export(options: argparse.Namespace) -> int:
    """Export what is new; return the exit code."""
    dir = Path(options.run_reference)
    out = Path(options.output) if options.output else dir.absolute().with_name(f"{dir.absolute().name}-fleet")
    _check(options, dir, out)
    runs = runs_at(dir)
    if not runs:
        raise WindsockError(f"{dir} has no runs and no logs")
    folder = FleetFolder(out, options.partition)
    try:
        export = FleetExport(dir, folder, options.metrics or ["*"], options.prune)
        try:
            export.run(runs, Progress("exporting runs").show)
        except KeyboardInterrupt:
            say(f"interrupted: {_sentence(export.outcome)}; the next export goes on from here", sys.stderr)
            raise
        say(f"{_sentence(export.outcome)}; wrote {size(folder.written)} to {out}", sys.stderr)
    finally:
        folder.close()
    for path, error in export.outcome.problems.items():
        say(f"not exported: {path}: {error}", sys.stderr)
    return 1 if export.outcome.problems else 0


def _check(options: argparse.Namespace, dir: Path, out: Path) -> None:
    if options.to != "parquet":
        raise WindsockError(f"--partition makes Parquet files; got --to {options.to}")
    if options.samples:
        raise WindsockError("--samples exports those of one run: it cannot be given with --partition")
    if not dir.is_dir():
        raise WindsockError(f"{dir} is not a directory: --partition exports the runs of one")
    if out.resolve().is_relative_to(dir.resolve()):
        raise WindsockError(f"{out} is in the directory of the runs: give another one with -o")
    pyarrow()  # raises where it is not installed


def _sentence(outcome: Outcome) -> str:
    parts = {"new": outcome.new, "updated": outcome.updated, "rewritten": outcome.rewritten}
    parts |= {"unchanged": outcome.same, "gone": outcome.removed, "not exported": len(outcome.problems)}
    runs = ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)
    return f"runs: {runs or 'none'}; {counted(outcome.rows, 'new row')}"
