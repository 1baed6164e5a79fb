"""The Time view of a run: phases over steps, the load of inference engines, ranks and hosts, and the timeline of one
step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.open_run import OpenRun, Window, names_of
from barograph.answers.phases import PhaseSummary, TimelineRow, summaries, timeline
from barograph.answers.views.charts import family_records, group_into_charts, metric_records
from barograph.answers.views.phase_seconds import inside, phase_seconds, span_table, step_windows
from barograph.base.errors import RequestError
from barograph.base.model import PhaseSpan
from barograph.journal.read.spans import SpanTable

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
    table = span_table(opened)
    wanted = inside(table.steps, window)
    steps = len(np.unique(table.steps[wanted]))
    ranks = with_places(_writer_times(table, wanted), places(opened))
    outermost = {phase["name"]: phase for phase in found["phases"]}
    return {
        "version": opened.version,
        **found,
        "summaries": [_summary(one, outermost, steps) for one in summaries(table, step_windows(opened), wanted)],
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
        for chart in group_into_charts(names, names_of(opened))
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
    spans, windows = span_table(opened), step_windows(opened)
    steps = np.unique(spans.steps).tolist()
    if not steps:
        return {"step": None, "steps": None, "groups": []}
    if step is None:
        recorded = set(steps)
        done = [known for of_writer in windows.values() for known in of_writer if known in recorded]
        step = max(done, default=steps[-1])
    laid = timeline(spans.of_step(step), windows, step, _now(opened))
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


def _now(opened: OpenRun) -> float:
    """Return the end of open spans: now while the run is running, else its last sign of life."""
    return opened.view.span[1] if opened.view.status.ended else time.time()


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
