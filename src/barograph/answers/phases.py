"""Time and memory of a run's phases, from its spans: a summary of each phase, and the timeline of one step."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.responses import field_values
from barograph.base.arrays import Floats, Ints
from barograph.base.errors import BarographError
from barograph.base.formatting import duration
from barograph.base.model import MAIN_ROLE, PhaseSpan, Writer
from barograph.journal.format.frames import FAILED, TIMER
from barograph.journal.read.spans import SpanTable
from barograph.journal.view import View
from barograph.metrics.probe_values import MAX_NESTING, Interval, coverage


def open_phases(view: View) -> list[str]:
    """Describe each writer's innermost open phases: how long they are open, or that they were when it ended."""
    table = view.span_table()
    found = table.spans(np.flatnonzero(~table.closed))
    outer = {(span.writer, span.parent) for span in found}  # spans with an open child are not innermost
    statuses = view.writer_statuses()
    lines = []
    for span in (span for span in found if (span.writer, span.id) not in outer and span.writer in statuses):
        since = max(0.0, time.time() - span.start)
        state = "open at the end" if statuses[span.writer].ended else f"open for {duration(since)}"
        lines.append(f"{span.name} of step {span.step} ({span.writer}, {span.lane}) {state}")
    return lines


Windows = Mapping[Writer, Mapping[int, Interval]]
"""Start and end of each step, by writer."""

MAX_SEPARATE_LANES = 4  # lanes with the same phases; more of them share one group


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """Statistics of all spans of one phase. Times are seconds per span; memory is in bytes.

    ``share`` is the phase's share of the steps' time on the writers that entered it. It never exceeds 1: overlapping
    spans count once.
    """

    name: str
    timer: bool
    count: int
    failed: int
    mean: float
    p95: float
    max: float
    writers: int
    slowest: Writer
    share: float | None
    tokens_per_second: float | None
    token_kind: str
    peak: float | None
    rss: float | None


def summaries(table: SpanTable, windows: Windows, wanted: NDArray[np.bool_] | None = None) -> list[PhaseSummary]:
    """Summarise closed spans by name, in the order in which the names first appear; with ``wanted``, some of them."""
    closed = table.closed if wanted is None else table.closed & wanted
    places = np.flatnonzero(closed)
    # One number for name and kind: a phase and a timer of one name are two.
    keys = 2 * table.column("name")[places].astype(np.int64) + table.has_flag(TIMER)[places]
    _, first = np.unique(keys, return_index=True)
    by_key = np.argsort(keys, kind="stable")
    pieces = np.split(places[by_key], np.flatnonzero(np.diff(keys[by_key])) + 1) if len(places) else []
    order = np.argsort(first, kind="stable")  # unique and split have the keys in ascending order
    return [_summary(table, pieces[number], windows) for number in order.tolist()]


def _summary(table: SpanTable, places: Ints, windows: Windows) -> PhaseSummary:
    seconds = table.seconds[places]
    ordered = np.sort(seconds).tolist()
    starts, ends = table.column("start")[places], table.ends[places]
    tokens, kinds = table.column("tokens")[places], table.column("token_kind")[places]
    flags, counted = table.column("flags")[places], ~np.isnan(tokens)
    # Over the union of the spans: two lanes that generate at the same time are twice as fast as one.
    lasted = union_length(starts[counted], ends[counted])
    writers = table.writer_numbers[places]
    by_writer = {
        table.writers[number]: (starts[writers == number], ends[writers == number])
        for number in np.unique(writers).tolist()
    }
    return PhaseSummary(
        name=table.texts[table.column("name")[places[0]]],
        timer=bool(flags[0] & TIMER),
        count=len(places),
        failed=int(np.count_nonzero(flags & FAILED)),
        mean=sum(ordered) / len(ordered),
        p95=_quantile(ordered, 0.95),
        max=ordered[-1],
        writers=len(by_writer),
        slowest=table.writers[writers[seconds.argmax()]],
        share=_share(by_writer, windows),
        tokens_per_second=sum(tokens[counted].tolist()) / lasted if lasted > 0 else None,
        token_kind=", ".join(sorted({table.texts[kind] for kind in np.unique(kinds[counted]).tolist()})),
        peak=_highest(table.column("peak")[places]),
        rss=_highest(table.column("rss")[places]),
    )


def _highest(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that is not below the given share of all values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _interval(span: PhaseSpan, until: float = math.inf) -> Interval:
    return span.start, until if span.end is None else span.end


def _share(by_writer: Mapping[Writer, tuple[Floats, Floats]], windows: Windows) -> float | None:
    inside = total = 0.0
    for writer, (starts, ends) in by_writer.items():
        of_writer = windows.get(writer, {}).values()
        total += sum(end - start for start, end in of_writer)
        if of_writer:  # time after the last commit belongs to no complete step
            first, last = min(start for start, _ in of_writer), max(end for _, end in of_writer)
            starts, ends = np.maximum(starts, first), np.minimum(ends, last)
            inside += union_length(starts[ends > starts], ends[ends > starts])
    return min(1.0, inside / total) if total > 0 else None


def union_length(starts: Floats, ends: Floats) -> float:
    """Return the length of the union of intervals."""
    if not len(starts):
        return 0.0
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    begins = np.append(True, starts[1:] > ends[:-1])
    firsts = starts[begins]
    lasts = ends[np.append(np.flatnonzero(begins)[1:] - 1, len(ends) - 1)]
    return float(sum((lasts - firsts).tolist()))


@dataclass(slots=True)
class TimelineRow:
    """One line of a timeline: the spans of one name at one place of the nesting."""

    name: str
    depth: int
    spans: list[PhaseSpan] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Sum of the spans' seconds."""
        return sum(span.seconds or 0.0 for span in self.spans)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of one step, as groups of rows by writer and lane."""

    step: int
    start: float
    end: float
    groups: tuple[tuple[str, tuple[TimelineRow, ...]], ...]
    unaccounted: float  # share of the main writer's step outside all phases
    overlap: float  # share of it in which phases of two or more lanes overlap, neither inside the other


def timeline(spans: Sequence[PhaseSpan], windows: Windows, step: int, now: float) -> Timeline | None:
    """Return the timeline of a step; open spans end at ``now``. None where the step has no spans."""
    of_step = [span for span in spans if span.step == step]
    if not of_step:
        return None
    bounds = [windows[writer][step] for writer in {s.writer for s in of_step} if step in windows.get(writer, {})]
    start = min([span.start for span in of_step] + [began for began, _ in bounds])
    end = max([ended for _, ended in bounds] + [now if span.end is None else span.end for span in of_step])
    # Shares are of one writer's step: the steps of different roles begin and end at different times.
    main = min((span.writer for span in of_step), key=lambda writer: (writer.role != MAIN_ROLE, writer))
    began, ended = windows.get(main, {}).get(step, (start, end))
    own = [(s.id, s.parent or 0, s.lane, *_interval(s, end)) for s in of_step if s.writer == main]
    covered, overlapped = coverage(own, began, ended)
    total = max(ended - began, 1e-12)
    groups = tuple((title, _rows(group)) for title, group in _groups(of_step))
    return Timeline(step, start, end, groups, max(0.0, 1 - covered / total), overlapped / total)


def _groups(spans: Sequence[PhaseSpan]) -> list[tuple[str, list[PhaseSpan]]]:
    """Group spans by writer and lane; more than MAX_SEPARATE_LANES lanes with the same phases are one group."""
    lanes: dict[tuple[Writer, int, str], list[PhaseSpan]] = {}
    for span in spans:
        lanes.setdefault((span.writer, span.part, span.lane), []).append(span)
    alike: dict[tuple[Writer, frozenset[str]], list[tuple[Writer, int, str]]] = {}
    for place, of_lane in lanes.items():
        alike.setdefault((place[0], frozenset(span.name for span in of_lane)), []).append(place)
    found = []
    for places in alike.values():
        if len(places) > MAX_SEPARATE_LANES:
            found.append((f"{places[0][0]} · {len(places)} lanes", [s for place in places for s in lanes[place]]))
        else:
            found += [(f"{place[0]} · {place[2]}", lanes[place]) for place in places]
    return sorted(found, key=lambda group: (group[1][0].writer, group[1][0].start))


def _rows(spans: Sequence[PhaseSpan]) -> tuple[TimelineRow, ...]:
    """Merge the spans of a group by their place in the nesting, outer before inner, earlier before later."""
    by_id = {span.id: span for span in spans}
    rows: dict[tuple[str, ...], TimelineRow] = {}
    for span in sorted(spans, key=lambda span: span.start):
        path = _path(span, by_id)
        rows.setdefault(path, TimelineRow(span.name, len(path) - 1)).spans.append(span)
    inner: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in rows:
        # The row above may be missing, if its spans are nested in others too.
        above = path[:-1]
        while above and above not in rows:
            above = above[:-1]
        inner.setdefault(above, []).append(path)
    return tuple(rows[path] for path in _descend((), inner))


def _path(span: PhaseSpan, by_id: Mapping[int, PhaseSpan]) -> tuple[str, ...]:
    """Return the names of the spans around a span and its own, outermost first."""
    names = [span.name]
    outer = by_id.get(span.parent or 0)  # a parent in another group is not found: the span is a root here
    # A file may say that spans are nested in each other, so the depth has an end.
    while outer is not None and len(names) < MAX_NESTING:
        names.append(outer.name)
        outer = by_id.get(outer.parent or 0)
    return tuple(reversed(names))


def _descend(
    above: tuple[str, ...], inner: Mapping[tuple[str, ...], list[tuple[str, ...]]]
) -> Iterator[tuple[str, ...]]:
    for path in inner.get(above, ()):
        yield path
        yield from _descend(path, inner)


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
        raise BarographError(f"run {view.id} has no phases: record them with `with run.phase(name):`")
    shown = _last_step(table, windows) if step is None else step
    spans = table.of_step(shown)
    if not spans:
        raise BarographError(
            f"run {view.id} has no phases in step {shown}; it has steps {table.steps.min()} to {table.steps.max()}"
        )
    if step is not None:
        windows = {writer: {step: steps[step]} for writer, steps in windows.items() if step in steps}
    found = summaries(table, windows, None if step is None else table.steps == step)
    return RunPhases(found, spans, timeline(spans, windows, shown, now_of(view)))


def phases_record(view: View, found: RunPhases) -> dict[str, Any]:
    """Return the phases of a run as a record."""
    laid_out = found.timeline
    return {
        "id": view.id,
        "name": view.name,
        "phases": [{**field_values(s), "slowest": str(s.slowest)} for s in found.summaries],
        "timeline": laid_out
        and {
            "step": laid_out.step,
            "start": laid_out.start,
            "end": laid_out.end,
            "unaccounted_share": laid_out.unaccounted,
            "overlap_share": laid_out.overlap,
            "spans": [
                {
                    **field_values(span),
                    "writer": str(span.writer),
                    "attempt": span.writer.attempt,
                    "seconds": span.seconds,
                }
                for span in found.spans
            ],
        },
    }


def _last_step(table: SpanTable, windows: Windows) -> int:
    """Return the last committed step with phases, or the last step with phases where none is committed."""
    committed = {step for of_writer in windows.values() for step in of_writer}
    steps: set[int] = set(np.unique(table.steps).tolist())
    return max(steps & committed or steps)


def now_of(view: View) -> float:
    """Return the end of open spans: now while the run is running, else its last sign of life."""
    return view.span[1] if view.status.ended else time.time()
