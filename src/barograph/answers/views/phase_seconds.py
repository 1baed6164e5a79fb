"""Seconds of every phase over steps, from recorded spans, else from time metrics that the catalogue knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.open_run import OpenRun, SeriesRequest, Window, names_of, read_series
from barograph.base.arrays import Floats
from barograph.base.model import Writer
from barograph.journal.read.spans import SpanTable

SPANS_SECONDS = 2.0  # spans of a running run are read again after this

STEP_TIME = "time/step"

PHASE_METRICS = frozenset((
    "time/rollout", "time/ref_log_probs_values_reward", "time/old_log_probs_values", "time/adv", "time/ref",
    "time/old_log_prob", "time/update_actor", "time/sync_weight", "time/eval", "time/wait_explore_step",
    "time/wait_for_batch", "time/{phase}/total", "time/{operation}", "time/scoring",
    "time/experience_pipeline/{operator}",
))  # fmt: skip
"""Times of complete phases: times of operations inside them would count twice."""

ANY_OPERATION = "time/{operation}"  # a timer of any name: a phase, or nested in one

STEP_TOLERANCE = 1.02  # the phases may exceed the step by this factor: clocks differ


@dataclass(slots=True)
class PhaseTable:
    """Seconds by phase and step; NaN where a step has no such phase."""

    steps: list[int]
    step_seconds: Floats
    seconds: dict[str, Floats] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)

    def nested(self) -> set[str]:
        """Return the timers that must be nested in others: with them the phases exceed the step."""
        step_seconds = float(np.nansum(self.step_seconds))
        if not self.metrics or step_seconds <= 0:  # spans have parents, so their nesting is known
            return set()
        sums = {name: float(np.nansum(values)) for name, values in self.seconds.items()}
        room = STEP_TOLERANCE * step_seconds - sum(
            seconds for name, seconds in sums.items() if self.metrics[name] != ANY_OPERATION
        )
        found = set()
        # The longest first: a phase is at least as long as what is nested in it.
        for name in sorted(
            (name for name in sums if self.metrics[name] == ANY_OPERATION), key=lambda name: -sums[name]
        ):
            if sums[name] > room:
                found.add(name)
            else:
                room -= sums[name]
        return found


def phase_seconds(opened: OpenRun, window: Window) -> dict[str, Any] | None:
    """Return the mean seconds per step of the outermost phases, in buckets of steps; None without times."""
    key = ("phase table", window.lo, window.hi)
    table = opened.cached(
        key, lambda: _table_from_spans(opened, window) or _table_from_metrics(opened, window), SPANS_SECONDS
    )
    if table is None or not table.steps:
        return None
    size = -(-len(table.steps) // max(1, window.points or len(table.steps)))
    starts = np.arange(0, len(table.steps), size)
    ends = [*(starts[1:] - 1).tolist(), len(table.steps) - 1]
    known = {name: _means(values, starts) for name, values in table.seconds.items()}
    step_seconds = _means(table.step_seconds, starts)
    nested = table.nested()
    outer = [values for name, values in known.items() if name not in nested]
    total = np.nansum(outer, axis=0) if outer else np.zeros(len(starts))
    return {
        "from": "metrics" if table.metrics else "spans",
        "steps": [table.steps[place] for place in starts.tolist()],
        "steps_end": [table.steps[place] for place in ends],
        "step_seconds": _json_values(step_seconds),
        "phases": [
            {
                "name": name,
                "seconds": _json_values(values),
                "mean": float(np.nansum(table.seconds[name])) / len(table.steps),
                "share": _share(values, step_seconds),
                "part": name in nested,
                "metric": table.metrics.get(name),
            }
            for name, values in known.items()
        ],
        "unaccounted": _json_values(np.maximum(step_seconds - total, 0.0)),  # phases may overlap
        "unit": "s",
    }


def _means(values: Floats, starts: NDArray[np.int64]) -> Floats:
    """Return the mean over the steps of each bucket; a step without the phase counts as 0 seconds."""
    counts = np.diff(np.append(starts, len(values)))
    present = np.add.reduceat((~np.isnan(values)).astype(np.int64), starts)
    sums = np.add.reduceat(np.nan_to_num(values, nan=0.0), starts)
    return np.where(present > 0, sums / counts, np.nan)


def _json_values(values: Floats) -> list[float | None]:
    return [value if fine else None for value, fine in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)]


def _share(values: Floats, step_seconds: Floats) -> float | None:
    total = float(np.nansum(np.where(np.isnan(step_seconds), 0.0, step_seconds)))
    return min(1.0, float(np.nansum(values)) / total) if total > 0 else None


def inside(steps: NDArray[np.int64], window: Window) -> NDArray[np.bool_]:
    """Return which steps lie in a window."""
    inside = np.ones(len(steps), bool)
    if window.lo is not None:
        inside &= steps >= window.lo
    if window.hi is not None:
        inside &= steps <= window.hi
    return inside


def span_table(opened: OpenRun) -> SpanTable:
    """Return the spans of a run; they are kept for some seconds."""
    return opened.cached("spans", lambda: opened.view.span_table(), SPANS_SECONDS)


def step_windows(opened: OpenRun) -> dict[Writer, dict[int, tuple[float, float]]]:
    """Return when each writer began and ended its steps; they are kept for some seconds."""
    return opened.cached("windows", lambda: opened.view.step_windows(), SPANS_SECONDS)


def _table_from_spans(opened: OpenRun, window: Window) -> PhaseTable | None:
    spans = span_table(opened)
    wanted = spans.closed & inside(spans.steps, window)
    if not wanted.any():
        return None
    numbers = spans.writer_numbers
    writers = [spans.writers[number] for number in np.unique(numbers[wanted]).tolist()]
    main = min(writers, key=lambda writer: (writer.role != "trainer", writer.role, writer.rank))
    of_main = [(writer.role, writer.rank) == (main.role, main.rank) for writer in spans.writers]
    outermost = np.flatnonzero(wanted & (spans.column("parent") == 0) & np.array(of_main)[numbers])
    lengths = {
        step: end - start
        for writer, of_writer in sorted(step_windows(opened).items())  # a newer attempt replaces the steps of an older
        if (writer.role, writer.rank) == (main.role, main.rank)
        for step, (start, end) in of_writer.items()
    }
    steps, places = np.unique(spans.steps[outermost], return_inverse=True)
    table = PhaseTable(steps.tolist(), np.array([lengths.get(step, np.nan) for step in steps.tolist()]))
    names, seconds = spans.column("name")[outermost], spans.seconds[outermost]
    for number in dict.fromkeys(names.tolist()):
        of_name = names == number
        # Several passes in a step are added up.
        sums: Floats = np.bincount(places[of_name], seconds[of_name], len(steps)).astype(np.float64)
        sums[np.bincount(places[of_name], minlength=len(steps)) == 0] = np.nan
        table.seconds[spans.texts[number]] = sums
    return table


def _table_from_metrics(opened: OpenRun, window: Window) -> PhaseTable | None:
    meanings = names_of(opened)
    matches = {name: match for name in opened.view.names() if (match := meanings.match(name)) is not None}
    timed = {name: match for name, match in matches.items() if match.metric.id in PHASE_METRICS}
    step_time = next((name for name, match in matches.items() if match.metric.id == STEP_TIME), None)
    if not timed:
        return None
    series = {
        name: read_series(opened, SeriesRequest("", name)) for name in [*timed, *([step_time] if step_time else [])]
    }
    steps = np.unique(np.concatenate([one.steps for one in series.values()]))
    steps = steps[inside(steps, window)]
    columns = {}
    for name, one in series.items():
        columns[name] = column = np.full(len(steps), np.nan)
        places = np.searchsorted(steps, one.steps)
        fits = (places < len(steps)) & (steps[np.minimum(places, len(steps) - 1)] == one.steps) if len(steps) else []
        factor = matches[name].name.factor or 1.0
        column[places[fits]] = one.values[fits] * factor
    total = columns.pop(step_time) if step_time else np.full(len(steps), np.nan)
    ids = {name: match.metric.id for name, match in timed.items()}
    return PhaseTable(steps.tolist(), total, columns, ids)
