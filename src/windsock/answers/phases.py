"""Time and memory of a run's phases: a summary of each, and the timeline of one step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from windsock.errors import WindsockError
from windsock.journal.spans import SpanTable
from windsock.model import PhaseSpan
from windsock.probe.report import PhaseSummary, Timeline, Windows, summaries, timeline
from windsock.view import View


@dataclass(frozen=True, slots=True)
class RunPhases:
    """The phases of a run or of one step. A log of another program has none, and no timeline."""

    summaries: Sequence[PhaseSummary] = ()
    spans: Sequence[PhaseSpan] = ()
    timeline: Timeline | None = None


def phases_of(view: View, step: int | None = None) -> RunPhases:
    """Return the phases of all steps, or of one; the timeline is of that step or the last committed one."""
    table, windows = view.span_table(), view.step_windows()
    if not len(table) and view.origin is not None:
        return RunPhases()
    if not len(table):
        raise WindsockError(f"run {view.id} has no phases: record them with `with run.phase(name):`")
    shown = _last_step(table, windows) if step is None else step
    spans = table.of_step(shown)
    if not spans:
        raise WindsockError(
            f"run {view.id} has no phases in step {shown}; it has steps {table.steps.min()} to {table.steps.max()}"
        )
    if step is not None:
        windows = {writer: {step: steps[step]} for writer, steps in windows.items() if step in steps}
    found = summaries(table, windows, None if step is None else table.steps == step)
    return RunPhases(found, spans, timeline(spans, windows, shown, _now(view)))


def phases_record(view: View, found: RunPhases) -> dict[str, Any]:
    """Return the phases of a run as a record."""
    laid_out = found.timeline
    return {
        "id": view.id,
        "name": view.name,
        "phases": [{**_fields(s), "slowest": str(s.slowest)} for s in found.summaries],
        "timeline": laid_out
        and {
            "step": laid_out.step,
            "start": laid_out.start,
            "end": laid_out.end,
            "unaccounted_share": laid_out.unaccounted,
            "overlap_share": laid_out.overlap,
            "spans": [
                {**_fields(span), "writer": str(span.writer), "attempt": span.writer.attempt, "seconds": span.seconds}
                for span in found.spans
            ],
        },
    }


def _last_step(table: SpanTable, windows: Windows) -> int:
    """Return the last committed step with phases, or the last step with phases where none is committed."""
    committed = {step for of_writer in windows.values() for step in of_writer}
    steps: set[int] = set(np.unique(table.steps).tolist())
    return max(steps & committed or steps)


def _now(view: View) -> float:
    return view.span[1] if view.status.ended else time.time()


def _fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record; ``asdict`` copies them too, and a run may have very many spans."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
