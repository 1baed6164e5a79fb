"""Tools about metrics: list them, their series at a chosen resolution, what a name means, and the time of phases."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from barograph.answers.explanation import explained, explained_in_run, unit_of
from barograph.answers.open_run import OpenRun
from barograph.answers.phases import phases_of, phases_record
from barograph.answers.questions import metric_named
from barograph.answers.schemas import ANY, FLAG, INTEGER, NUMBER, PHASE, TEXT, VALUE, list_of, nullable, record
from barograph.apps.mcp.runs import ServedRuns
from barograph.apps.mcp.tool import (
    OFFSET,
    RUN,
    Arguments,
    Items,
    ToolAnswer,
    ToolError,
    answer_schema,
    is_match,
    number,
    plain_text,
    text,
    texts,
    tool,
)
from barograph.catalogue.sources import check_source
from barograph.journal.read.series import Series

MAX_POINTS = 100  # of a series

MAX_ROWS = 130  # of all series of an answer

MAX_SERIES = 20

BUCKET = ("first_step", "last_step", "min", "max", "last")

POINT = ("step", "value")

MAX_NAMES = 10  # of a metric in other frameworks

PHASE_FIELDS = (
    "name", "count", "mean", "p95", "max", "share", "slowest", "writers", "failed", "tokens_per_second", "token_kind",
    "peak", "rss",
)  # fmt: skip

MORE_METRICS = "call again with offset={next}, or narrow with match"

AT = record({"step": INTEGER, "value": VALUE})

PHASE_ROW = record({"name": TEXT}, {key: PHASE["properties"][key] for key in PHASE_FIELDS[1:]})

METRIC = record(
    {"name": TEXT, "last": VALUE, "step": INTEGER, "points": INTEGER}, {"unit": TEXT, "meaning": TEXT, "title": TEXT}
)

METRICS = answer_schema({"run": TEXT, "total": INTEGER, "metrics": list_of(METRIC)})

ONE_SERIES = record(
    {
        "name": TEXT, "points": INTEGER, "nonfinite": INTEGER, "columns": list_of(TEXT),
        "rows": list_of(list_of(VALUE)),
    },
    {"asked": TEXT, "meaning": TEXT, "unit": TEXT, "lowest": AT, "highest": AT},
)  # fmt: skip

SERIES = answer_schema({"run": TEXT, "series": list_of(ONE_SERIES)})

EXPLAINED = answer_schema(
    {"name": TEXT, "known": FLAG},
    {
        "ambiguous": FLAG, "id": TEXT, "title": TEXT, "family": TEXT, "about": TEXT, "band": TEXT, "healthy": TEXT,
        "next": TEXT, "nearest": list_of(TEXT), "why": list_of(TEXT), "facts": list_of(TEXT),
        "meanings": list_of(ANY), "traps": list_of(TEXT), "names": list_of(TEXT),
    },
)  # fmt: skip

PHASES = answer_schema(
    {"run": TEXT, "phases": list_of(PHASE_ROW)},
    {
        "step": record({"step": INTEGER, "unaccounted_share": NUMBER, "overlap_share": NUMBER, "seconds": NUMBER}),
        "timeline": list_of(record({"name": TEXT, "writer": TEXT, "seconds": nullable(NUMBER), "begin": NUMBER})),
    },
)


@tool(
    "Metrics of a run",
    {
        "run": RUN,
        "match": text("part of a name, or a pattern such as 'actor/*'"),
        "limit": number("metrics in an answer", 1, 200, 50),
        "offset": OFFSET,
    },
    1,
    METRICS,
)
def list_metrics(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """The metrics of one run with last value, unit, and what each means."""
    with runs.use(arguments["run"]) as opened:
        names = [name for name in opened.view.names() if is_match(name, arguments["match"])]
        offset, limit = arguments["offset"], arguments["limit"]
        rows = [_metric(opened, name, runs.lang) for name in names[offset : offset + limit]]
        data = {"run": opened.location.key, "total": len(names)}
        return ToolAnswer(data, [Items("metrics", rows, MORE_METRICS, offset, len(names))])


def _metric(opened: OpenRun, name: str, lang: str) -> dict[str, Any]:
    match, series = opened.meanings().match(name), opened.view.series(name)
    row = {
        "name": name,
        "last": series.last,
        "step": series.steps[-1],
        "points": len(series),
        "unit": unit_of(match),
        "meaning": match.metric.id if match is not None else None,
        "title": match.metric.title.get(lang) if match is not None else "",
    }
    return {key: value for key, value in row.items() if value not in ("", None)}


@tool(
    "Series of metrics",
    {
        "run": RUN,
        "metrics": texts("names, patterns such as 'actor/*', or names of another framework", 1, MAX_SERIES),
        "points": number("at most so many rows per series", 1, MAX_POINTS, 20),
        "first_step": number("first step"),
        "last_step": number("last step, included"),
    },
    2,
    SERIES,
)
def get_series(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Values of metrics over steps.

    A long series is given in buckets, each with its true minimum, maximum and last value, so that no spike is lost;
    zoom in with first_step and last_step. 'lowest' and 'highest' have the steps of the extremes. Numbers have six
    digits; NaN and infinities are texts.
    """
    with runs.use(arguments["run"]) as opened:
        found = _names(opened, arguments["metrics"])
        shown = found[:MAX_SERIES]
        points = min(arguments["points"], max(1, MAX_ROWS // len(shown)))
        window = arguments["first_step"], arguments["last_step"]
        rows = [_series(opened, name, asked, window, points) for name, asked in shown]
        is_coarse = points < arguments["points"] and any(one["points"] > points for one in rows)
        coarse = f"rows: {points} per series, not {arguments['points']}: ask for fewer series, or for fewer steps"
        left_out = [coarse] if is_coarse else []
        series = Items("series", rows, "ask for fewer metrics", total=len(found), max_inner=MAX_POINTS)
        return ToolAnswer({"run": opened.location.key}, [series], left_out)


def _names(opened: OpenRun, wanted: list[str]) -> list[tuple[str, str]]:
    """Return the names of the run's metrics that are asked for, each with the text that asked for it."""
    names = opened.view.names()
    found: dict[str, str] = {}
    for asked in wanted:
        matching = [name for name in names if name == asked or fnmatchcase(name, asked) or plain_text(name) == asked]
        for name in matching or [metric_named(opened.view, opened.meanings(), asked)[0]]:
            found.setdefault(name, asked)
    return list(found.items())


def _series(
    opened: OpenRun, name: str, asked: str, window: tuple[int | None, int | None], points: int
) -> dict[str, Any]:
    match, whole = opened.meanings().match(name), opened.view.series(name)
    buckets = whole.zoom(*window, points)
    if not len(buckets):
        first, last = int(whole.steps[0]), int(whole.steps[-1])
        raise ToolError(f"{name} has no points in these steps; it has steps {first} to {last}")
    is_exact = int(buckets.count.max()) == 1
    columns = (
        (buckets.first_step, buckets.last)
        if is_exact
        else (buckets.first_step, buckets.last_step, buckets.min, buckets.max, buckets.last)
    )
    row = {
        "name": name,
        "asked": asked if asked != name and "*" not in asked else "",
        "meaning": match.metric.id if match is not None else "",
        "unit": unit_of(match),
        "points": int(buckets.count.sum()),
        "nonfinite": int(buckets.nonfinite.sum()),
        **_extremes(whole, int(buckets.first_step[0]), int(buckets.last_step[-1])),
        "columns": POINT if is_exact else BUCKET,
        "rows": [list(one) for one in zip(*columns, strict=True)],
    }
    return {key: value for key, value in row.items() if value not in ("", None)}


def _extremes(series: Series, first: int, last: int) -> dict[str, Any]:
    """Return the lowest and the highest finite value between two steps, with their steps."""
    part = series.since(first).before(last + 1)
    finite = np.flatnonzero(np.isfinite(part.values))
    if not len(finite):
        return {}
    places = finite[np.argmin(part.values[finite])], finite[np.argmax(part.values[finite])]
    return {
        name: {"step": part.steps[place], "value": part.values[place]}
        for name, place in zip(("lowest", "highest"), places, strict=True)
    }


@tool(
    "Explain a metric",
    {
        "name": text("a name as any framework logs it, or the id of a metric"),
        "run": RUN,
        "source": text("framework that wrote the name, such as trl/grpo or verl"),
    },
    1,
    EXPLAINED,
)
def explain_metric(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """What a metric means: definition, unit, how it looks in a healthy run, what to look at next, traps, names in
    other frameworks.

    With run it is what the name means in that run, and why.
    """
    name, source = arguments["name"], arguments["source"]
    if source is not None:
        check_source(source)
    if arguments["run"] is not None:
        with runs.use(arguments["run"]) as opened:
            found = explained_in_run(name, runs.lang, opened.meanings()).record()
    else:
        found = explained(name, runs.lang, source).record()
    kept = ("name", "known", "ambiguous", "id", "title", "family", "about", "band", "healthy", "next", "nearest", "why")
    data = {key: found[key] for key in kept if found.get(key)}
    names = [_name_line(one) for one in found.get("names", ())]
    printed = f"'barograph explain {name}' prints them"
    lists = [
        Items("facts", [": ".join(one) for one in found.get("facts", ())], printed, share=0.2),
        Items("meanings", found.get("meanings") or found.get("readings", ()), "give source or run", share=0.3),
        Items("traps", [f"{who}: {' '.join(said)}" for who, said in found.get("traps", ())], printed, share=0.2),
        Items("names", names[:MAX_NAMES], printed, total=len(names), share=0.3),
    ]
    return ToolAnswer({"name": name, "known": found["known"], **data}, [one for one in lists if one.entries])


def _name_line(name: dict[str, Any]) -> str:
    """Return a name of a metric with its writers; ``=`` is the same number, ``≈`` a comparable one, ``≠`` none."""
    difference = f": {name['difference']}" if name["difference"] else ""
    return f"{name['mark']} {name['name']} ({', '.join(name['sources'])}){difference}"


@tool("Time and memory of phases", {"run": RUN, "step": number("only this step, with its timeline")}, 1, PHASES)
def run_phases(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Where the time of one run goes: seconds per pass of each phase (mean, p95, max), share of the steps' time,
    slowest process, tokens per second, peak memory in bytes; of one step also its timeline.
    """
    with runs.use(arguments["run"]) as opened:
        found = phases_record(opened.view, phases_of(opened.view, arguments["step"]))
    timeline = found["timeline"]
    order = sorted(found["phases"], key=lambda one: -one["mean"] * one["count"])
    rows = [{key: one[key] for key in PHASE_FIELDS if one[key] not in (None, "", 0)} for one in order]
    lists = [Items("phases", rows, "those that took the least time in all", share=0.6)]
    data: dict[str, Any] = {"run": opened.location.key}
    if timeline is not None:
        data["step"] = {key: timeline[key] for key in ("step", "unaccounted_share", "overlap_share")}
        data["step"]["seconds"] = timeline["end"] - timeline["start"]
    if timeline is not None and arguments["step"] is not None:
        spans = [_span(one, timeline["start"]) for one in timeline["spans"]]
        lists.append(Items("timeline", spans, "later ones, which 'barograph phases --step' prints", share=0.4))
    return ToolAnswer(data, lists)


def _span(span: dict[str, Any], start: float) -> dict[str, Any]:
    kept = {key: span[key] for key in ("name", "writer", "seconds")}
    return {**kept, "begin": span["start"] - start, **({"failed": True} if span["failed"] else {})}


TOOLS = (list_metrics, get_series, explain_metric, run_phases)
