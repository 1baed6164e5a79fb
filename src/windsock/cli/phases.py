"""Show the time and memory of a run's phases: a table, and a timeline of one step.

The table covers all steps, or the step given with --step. The timeline shows that step, or the last committed one.
SHARE is the share of the steps' time. PEAK is device memory, or host memory where there is no device.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import fields
from typing import Any

import numpy as np

from windsock.cli.arguments import add_json, add_run, run_view
from windsock.cli.json_output import print_document
from windsock.errors import WindsockError
from windsock.journal.spans import SpanTable
from windsock.model import PhaseSpan
from windsock.probe.report import PhaseSummary, Timeline, Windows, summaries, timeline
from windsock.terminal.output import say
from windsock.view import View

HELP = "show the time and memory of phases"
EXAMPLE = "windsock phases @last --step 12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock phases``."""
    add_run(parser)
    parser.add_argument(
        "--step", type=int, metavar="N", help="step to show (default: all steps, and the timeline of the last)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table and the timeline."""
    view = run_view(options)
    table, windows = view.span_table(), view.step_windows()
    if not len(table) and view.origin is not None and options.json:
        print_document("phases", {"id": view.id, "name": view.name, "phases": [], "timeline": None})
        return 0
    if not len(table) and view.origin is not None:
        say(f"{view.location} has no phases: the log does not tell of any")
        return 0
    if not len(table):
        raise WindsockError(f"run {view.id} has no phases: record them with `with run.phase(name):`")
    step = options.step if options.step is not None else _last_step(table, windows)
    spans = table.of_step(step)
    if not spans:
        raise WindsockError(
            f"run {view.id} has no phases in step {step}; it has steps {table.steps.min()} to {table.steps.max()}"
        )
    if options.step is not None:
        windows = {writer: {step: steps[step]} for writer, steps in windows.items() if step in steps}
    laid_out = timeline(spans, windows, step, _now(view))
    assert laid_out is not None
    found = summaries(table, windows, None if options.step is None else table.steps == step)
    if options.json:
        print_document("phases", _record(view, found, spans, laid_out))
        return 0
    from windsock.terminal.output import make_console
    from windsock.terminal.phases import show_phases

    show_phases(make_console(), view.name, found, laid_out)
    return 0


def _last_step(table: SpanTable, windows: Windows) -> int:
    """Return the last committed step with phases, or the last step with phases where none is committed."""
    committed = {step for of_writer in windows.values() for step in of_writer}
    steps: set[int] = set(np.unique(table.steps).tolist())
    return max(steps & committed or steps)


def _now(view: View) -> float:
    return view.span[1] if view.status.ended else time.time()


def _record(view: View, found: list[PhaseSummary], spans: list[PhaseSpan], laid_out: Timeline) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "phases": [{**_fields(s), "slowest": str(s.slowest)} for s in found],
        "timeline": {
            "step": laid_out.step,
            "start": laid_out.start,
            "end": laid_out.end,
            "unaccounted_share": laid_out.unaccounted,
            "overlap_share": laid_out.overlap,
            "spans": [
                {**_fields(span), "writer": str(span.writer), "attempt": span.writer.attempt, "seconds": span.seconds}
                for span in spans
            ],
        },
    }


def _fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record; ``asdict`` copies them too, and a run may have very many spans."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
