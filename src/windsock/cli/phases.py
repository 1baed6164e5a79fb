"""Show where the time of a run goes: a table of its phases, and a timeline of one step.

The table is over all steps, or over the one that is asked for; the timeline is of that one, else of the last that was
committed. SHARE is of the steps' time. PEAK is device memory, or host memory where there is no device.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from windsock.cli.arguments import add_json, add_run, print_json, run_folder
from windsock.errors import WindsockError
from windsock.model import PhaseSpan
from windsock.probe.report import Timeline, Windows, summaries, timeline
from windsock.view import View

HELP = "show where the time and the memory go, phase by phase"
EXAMPLE = "windsock phases @last --step 12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``phases`` takes."""
    add_run(parser)
    parser.add_argument("--step", type=int, metavar="N", help="this step (default: all, and a timeline of the last)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Show."""
    view = View(run_folder(options))
    spans, windows = view.phases(), view.step_windows()
    if not spans:
        raise WindsockError(f"run {view.id} has no phases: wrap parts of the loop in `with run.phase(name):`")
    step = options.step if options.step is not None else _last_step(spans, windows)
    shown = spans if options.step is None else [span for span in spans if span.step == step]
    if not shown:
        raise WindsockError(f"run {view.id} has no phases in step {step}; it has steps {_range(spans)}")
    if options.step is not None:
        windows = {writer: {n: both for n, both in of.items() if n == step} for writer, of in windows.items()}
    laid_out = timeline(spans, windows, step, _now(view))
    assert laid_out is not None
    if options.json:
        print_json(_record(view, shown, windows, laid_out))
        return 0
    from rich.console import Console

    from windsock.terminal.phases import show_phases

    show_phases(Console(), view.name, summaries(shown, windows), laid_out)
    return 0


def _last_step(spans: list[PhaseSpan], windows: Windows) -> int:
    """Return the last step that was committed and has phases; the last with phases where none was."""
    committed = {step for of_writer in windows.values() for step in of_writer}
    steps = {span.step for span in spans}
    return max(steps & committed or steps)


def _range(spans: list[PhaseSpan]) -> str:
    steps = [span.step for span in spans]
    return f"{min(steps)} to {max(steps)}"


def _now(view: View) -> float:
    return view.span[1] if view.status.ended else time.time()


def _record(view: View, spans: list[PhaseSpan], windows: Windows, laid_out: Timeline) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "phases": [{**asdict(s), "slowest": str(s.slowest)} for s in summaries(spans, windows)],
        "timeline": {
            "step": laid_out.step,
            "start": laid_out.start,
            "end": laid_out.end,
            "unaccounted_share": laid_out.unaccounted,
            "overlap_share": laid_out.overlap,
            "spans": [
                {**asdict(span), "writer": str(span.writer), "attempt": span.writer.attempt, "seconds": span.seconds}
                for span in spans
                if span.step == laid_out.step
            ],
        },
    }
