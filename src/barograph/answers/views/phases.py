"""The time of a run's phases: seconds over steps, the load of inference engines, ranks and hosts, and the timeline of
one step.

Seconds are from recorded spans, else from time metrics that the catalogue knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.open_run import SPANS_SECONDS, OpenRun, Window
from barograph.answers.phases import PhaseSummary, TimelineRow, now_of, summaries, timeline
from barograph.answers.views.charts import family_records, group_into_charts, metric_records
from barograph.base.arrays import Floats
from barograph.base.errors import RequestError
from barograph.base.model import PhaseSpan
from barograph.journal.read.spans import SpanTable

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


def _table_from_spans(opened: OpenRun, window: Window) -> PhaseTable | None:
    spans = opened.span_table()
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
        for writer, of_writer in sorted(opened.step_windows().items())  # a newer attempt replaces the steps of an older
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
    matches = opened.matches()
    timed = {name: match for name, match in matches.items() if match.metric.id in PHASE_METRICS}
    step_time = next((name for name, match in matches.items() if match.metric.id == STEP_TIME), None)
    if not timed:
        return None
    series = {name: opened.series(name) for name in [*timed, *([step_time] if step_time else [])]}
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


ENGINE_PREFIXES = ("engine/", "inference/")  # of all names of the family, so that few names are looked up


def phases_view(opened: OpenRun, window: Window) -> dict[str, Any]:
    """Return the seconds of phases over steps, summaries, and the time per step of each writer."""
    found = phase_seconds(opened, window) or {
        "from": None,
        "steps": [],
        "steps_end": [],
        "step_seconds": [],
        "phases": [],
    }
    table = opened.span_table()
    wanted = inside(table.steps, window)
    steps = len(np.unique(table.steps[wanted]))
    ranks = with_places(_writer_times(table, wanted), places(opened))
    outermost = {phase["name"]: phase for phase in found["phases"]}
    return {
        "version": opened.version,
        **found,
        "summaries": [_summary(one, outermost, steps) for one in summaries(table, opened.step_windows(), wanted)],
        "ranks": ranks,
        "nodes": node_records(ranks),
        "engine": engine_charts(opened),
        "last_step": opened.view.steps[1] if opened.view.steps else None,
    }


def engine_charts(opened: OpenRun) -> dict[str, Any]:
    """Return the charts of inference engines: their totals, which are neither of one engine nor of one phase."""
    names = [name for name in opened.view.names() if name.startswith(ENGINE_PREFIXES)]
    charts = [
        chart
        for chart in group_into_charts(names, opened.meanings())
        if chart.match is not None and chart.family == "engine" and not chart.match.filled
    ]
    return {
        "title": family_records(charts)[0]["title"] if charts else None,
        "charts": [chart.record() for chart in charts],
        "metrics": metric_records(chart.match.metric.id for chart in charts if chart.match is not None),
    }


def _summary(one: PhaseSummary, outermost: Mapping[str, dict[str, Any]], steps: int) -> dict[str, Any]:
    """Return a summary with the seconds per step: of an outermost phase those of the main writer, else by writer."""
    known = outermost.get(one.name)
    if known is None:
        times = {"per_step": one.mean * one.count / one.writers / max(1, steps)}
    else:
        times = {"per_step": known["mean"], "share": known["share"]}
    return {**asdict(one), "slowest": str(one.slowest), **times}


def _writer_times(table: SpanTable, wanted: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return each writer's mean time per step, slowest first."""
    outermost = np.flatnonzero(wanted & table.closed & (table.column("parent") == 0))
    numbers, names = table.writer_numbers[outermost], table.column("name")[outermost]
    seconds, steps = table.seconds[outermost], table.steps[outermost]
    by_place: dict[tuple[str, int], NDArray[np.bool_]] = {}
    for number in dict.fromkeys(numbers.tolist()):  # of all attempts of a role and rank
        place = table.writers[number].role, table.writers[number].rank
        by_place[place] = by_place.get(place, False) | (numbers == number)
    found = []
    for (role, rank), of_writer in by_place.items():
        count = len(np.unique(steps[of_writer]))
        sums = {
            table.texts[name]: sum(seconds[of_writer & (names == name)].tolist())
            for name in dict.fromkeys(names[of_writer].tolist())
        }
        found.append(
            {
                "writer": f"{role}/{rank}",
                "role": role,
                "rank": rank,
                "seconds": sum(sums.values()) / count,
                "phases": {name: total / count for name, total in sums.items()},
            }
        )
    return sorted(found, key=lambda one: -float(one["seconds"]))


def timeline_view(opened: OpenRun, step: int | None) -> dict[str, Any]:
    """Return the spans of one step by role, rank and lane; by default of the last complete step."""
    spans, windows = opened.span_table(), opened.step_windows()
    steps = np.unique(spans.steps).tolist()
    if not steps:
        return {"step": None, "steps": None, "groups": []}
    if step is None:
        recorded = set(steps)
        done = [known for of_writer in windows.values() for known in of_writer if known in recorded]
        step = max(done, default=steps[-1])
    laid = timeline(spans.of_step(step), windows, step, now_of(opened.view))
    if laid is None:
        raise RequestError(404, f"step {step} has no phases; steps {steps[0]} to {steps[-1]} have some")
    groups = [_group(title, rows, places(opened), laid.start, laid.end) for title, rows in laid.groups]
    return {
        "step": step,
        "steps": [steps[0], steps[-1]],
        "start": laid.start,
        "end": laid.end,
        "unaccounted": laid.unaccounted,
        "overlap": laid.overlap,
        "groups": sorted(groups, key=lambda group: group["host"] or ""),
    }


def _group(title: str, rows: Sequence[TimelineRow], found: Places, start: float, end: float) -> dict[str, Any]:
    """Return the rows of a lane; with the host of its rank where the run has several."""
    writer = rows[0].spans[0].writer
    place = found.get((writer.role, writer.rank)) if len(hosts_of(found)) > 1 else None
    return {
        "title": title,
        "role": writer.role,
        "rank": writer.rank,
        "host": place.host if place else None,
        "rows": [_row(row, start, end) for row in rows],
    }


def _row(row: TimelineRow, start: float, end: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "depth": row.depth,
        "seconds": row.seconds,
        "spans": [_span(span, start, end) for span in row.spans],
    }


def _span(span: PhaseSpan, start: float, end: float) -> dict[str, Any]:
    facts = ("onload", "execute", "offload", "failed", "clock", "tokens", "token_kind", "peak", "rss", "lane", "timer")
    return {
        "start": span.start - start,
        "end": (end if span.end is None else span.end) - start,
        "open": span.end is None,
        **{name: getattr(span, name) for name in facts},
    }


PLACES_SECONDS = 2.0  # those of a running run are found out again after this

DEAD = ("crashed", "killed", "stalled")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs, and the word of its status."""

    host: str | None
    status: str


Places = Mapping[tuple[str, int], Place]
"""By role and rank."""


def places(opened: OpenRun) -> Places:
    """Return the place of the newest attempt of each rank."""

    def find() -> Places:
        hosts = opened.view.writer_hosts()
        return {
            (writer.role, writer.rank): Place(hosts.get(writer), status.word)
            for writer, status in opened.view.writer_statuses().items()
        }

    return opened.cached("places", find, PLACES_SECONDS)


def hosts_of(found: Places) -> set[str]:
    """Return the hosts of a run."""
    return {place.host for place in found.values() if place.host is not None}


def with_places(ranks: list[dict[str, Any]], found: Places) -> list[dict[str, Any]]:
    """Return the times of ranks with their places, and ranks without times where they are dead or there are nodes."""
    if not ranks:
        return []
    unknown = Place(None, "unknown")
    timed = {(one["role"], one["rank"]): one for one in ranks}
    are_nodes = len(hosts_of(found)) > 1
    untimed: list[dict[str, Any]] = [
        {"writer": f"{role}/{rank}", "role": role, "rank": rank, "seconds": None, "phases": {}}
        for (role, rank), place in found.items()
        if (role, rank) not in timed and (are_nodes or place.status in DEAD)
    ]
    placed = [(one, found.get((one["role"], one["rank"]), unknown)) for one in (*ranks, *untimed)]
    return [{**one, "host": place.host, "status": place.status} for one, place in placed]


def node_records(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hosts of ranks with their mean time per step, slowest first; none where there is only one."""
    by_host: dict[str | None, list[dict[str, Any]]] = {}
    for one in ranks:
        by_host.setdefault(one["host"], []).append(one)
    if len(by_host) < 2:
        return []
    records = [
        {
            "host": host,
            "seconds": _mean([one["seconds"] for one in of_host if one["seconds"] is not None]),
            "ranks": len(of_host),
            "dead": sum(one["status"] in DEAD for one in of_host),
        }
        for host, of_host in by_host.items()
    ]
    return sorted(records, key=lambda node: (-(node["seconds"] or 0.0), node["host"] or ""))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
