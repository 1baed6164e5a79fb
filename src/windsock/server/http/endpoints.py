"""The addresses: what each takes and what it gives. ``docs/api.md`` tells the same for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from windsock import __version__
from windsock.catalogue.describe import describe
from windsock.catalogue.names import check_source, nearest
from windsock.catalogue.spec import CatalogueError
from windsock.samples.query import SORTS, Query
from windsock.server.http.parameters import Field, Parameter, read_fields
from windsock.server.responses import RequestError
from windsock.server.runs.directory import Site
from windsock.server.views import curves, details
from windsock.server.views.charts import names_view
from windsock.server.views.comparison import comparison, side_of
from windsock.server.views.curves import Curve, Wanted, Window
from windsock.server.views.evaluation import evaluation_view
from windsock.server.views.memory import memory_view
from windsock.server.views.overview import overview
from windsock.server.views.phases import phases_view, timeline_view
from windsock.server.views.report import report_of

Asked = dict[str, Any]
Work = Callable[[Site, Asked], Any]
FORMATS = ("binary", "json")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address. ``work`` runs in a thread of its own and may take its time."""

    method: str
    path: str
    summary: str
    work: Work
    parameters: tuple[Parameter, ...] = ()
    body: tuple[Field, ...] = ()
    also: tuple[int, ...] = ()  # statuses beside 200 and those that every address has
    binary: bool = field(default=False)


def about(site: Site, asked: Asked) -> Any:
    """Say who serves what."""
    return {
        "windsock": __version__,
        "directory": str(site.dir),
        "languages": ["en", "zh"],
        "axes": list(curves.AXES),
        "most_series": curves.MOST_SERIES,
        "most_points": curves.MOST_POINTS,
    }


def runs(site: Site, asked: Asked) -> Any:
    """List the runs."""
    return site.listing.view(asked["since"])


def mark(site: Site, asked: Asked) -> Any:
    """Pin, rename, hide or note a run."""
    site.library.entry(asked["run"])
    changes = {field.name: asked[field.name] for field in MARKS if field.name in asked["given"]}
    site.marks.set(asked["run"], {name: _as_mark(name, value) for name, value in changes.items()})
    return site.listing.one(asked["run"])


def _as_mark(name: str, value: Any) -> Any:
    if name == "name":
        return (value or "").strip() or None
    return bool(value) if name in ("pinned", "hidden") else value or ""


def run_overview(site: Site, asked: Asked) -> Any:
    """Give all of the first picture."""
    with site.library.use(asked["run"]) as opened:
        points = asked["points"]
        found = opened.once(("overview", points), lambda: overview(opened, points))
    listed = site.listing.one(asked["run"])
    listed.pop("reward")
    return {"run": listed, **found}


def names(site: Site, asked: Asked) -> Any:
    """Give every metric as charts."""
    with site.library.use(asked["run"]) as opened:
        return opened.once("names", lambda: names_view(opened))


def run_series(site: Site, asked: Asked) -> Any:
    """Draw many series of one run."""
    since = [*asked["since"], *[None] * (len(asked["name"]) - len(asked["since"]))]
    place = asked["role"], asked["rank"], asked["attempt"]
    wanted = [Wanted(asked["run"], name, *place, cursor) for name, cursor in zip(asked["name"], since, strict=False)]
    window = Window(asked["points"], asked["from"], asked["to"], asked["x"], asked["branches"])
    return _drawn(site, wanted, window, asked["format"])


def posted_series(site: Site, asked: Asked) -> Any:
    """Draw many series of several runs."""
    if asked["x"] not in curves.AXES:
        raise RequestError(400, f"x: expected one of {', '.join(curves.AXES)}, got {asked['x'][:40]!r}")
    if asked["format"] not in FORMATS:
        raise RequestError(400, f"format: expected one of {', '.join(FORMATS)}, got {asked['format'][:40]!r}")
    curves.check_amount(len(asked["series"]), 0)
    wanted = [Wanted(**read_fields(WANTED, one)) for one in asked["series"]]
    if not all(one.run and one.name for one in wanted):
        raise RequestError(400, "series: expected objects with run and name")
    points = POINTS.checked(asked["points"])
    window = Window(int(points), asked["from"], asked["to"], asked["x"], bool(asked["branches"]))
    return _drawn(site, wanted, window, asked["format"])


def _drawn(site: Site, wanted: list[Wanted], window: Window, format: str) -> Any:
    curves.check_amount(len(wanted), len(wanted) * window.points)
    drawn: list[Curve] = []
    versions: dict[str, int] = {}
    runs = list(dict.fromkeys(one.run for one in wanted))
    lacking: list[str] = []
    for run in runs:
        mine = [one for one in wanted if one.run == run]
        with site.library.use(run) as opened:
            if len(runs) == 1 or curves.has_axis(opened, window.x):
                drawn += curves.curves(opened, mine, window)
            else:  # it does not cost the others
                drawn += map(curves.unknown, mine)
                lacking.append(run)
            versions[run] = opened.version
        curves.check_amount(len(drawn), sum(len(curve.columns.get("x", ())) for curve in drawn))
    if runs and lacking == runs:
        raise RequestError(400, f"x={window.x}: none of the runs counts {window.x}; /names lists their axes")
    facts = {"version": next(iter(versions.values()), 0), "versions": versions, "x": window.x}
    return curves.as_binary(drawn, facts) if format == "binary" else curves.as_json(drawn, facts)


def histograms(site: Site, asked: Asked) -> Any:
    """Give the histograms of a name."""
    with site.library.use(asked["run"]) as opened:
        return details.histograms_view(opened, asked["name"], asked["points"])


def phases(site: Site, asked: Asked) -> Any:
    """Give the seconds of phases over steps."""
    with site.library.use(asked["run"]) as opened:
        return phases_view(opened, Window(asked["points"], asked["from"], asked["to"]))


def timeline(site: Site, asked: Asked) -> Any:
    """Give one step as spans."""
    with site.library.use(asked["run"]) as opened:
        return timeline_view(opened, asked["step"])


def memory(site: Site, asked: Asked) -> Any:
    """Give the staircase of a step."""
    with site.library.use(asked["run"]) as opened:
        return memory_view(opened, asked["step"])


def evaluation(site: Site, asked: Asked) -> Any:
    """Give the task sets."""
    with site.library.use(asked["run"]) as opened:
        points = asked["points"]
        return opened.once(("evaluation", points), lambda: evaluation_view(opened, points))


def samples(site: Site, asked: Asked) -> Any:
    """Search completions."""
    steps = asked["from"], asked["to"]
    step = asked["step"] if asked["step"] is not None else steps if steps != (None, None) else None
    same = {name: asked[name] for name in SAMPLE_FIELDS}
    with site.library.use(asked["run"]) as opened:
        return details.samples_view(opened, Query(step=step, **same), asked["offset"], asked["limit"])


def run_details(site: Site, asked: Asked) -> Any:
    """Give config, surroundings, writers and troubles."""
    with site.library.use(asked["run"]) as opened:
        return details.details_view(opened)


def events(site: Site, asked: Asked) -> Any:
    """Give what happened."""
    with site.library.use(asked["run"]) as opened:
        return details.events_view(opened, asked["since"], asked["limit"])


def texts(site: Site, asked: Asked) -> Any:
    """Give logged texts."""
    with site.library.use(asked["run"]) as opened:
        return details.texts_view(opened, asked["name"], asked["since"], asked["limit"])


def compare(site: Site, asked: Asked) -> Any:
    """Compare runs."""
    keys = list(dict.fromkeys(asked["run"]))
    if len(keys) > MOST_COMPARED:
        raise RequestError(413, f"{len(keys)} runs at once; at most {MOST_COMPARED}")
    sides = []
    for key in keys:
        with site.library.use(key) as opened:
            sides.append(opened.once("side", lambda opened=opened: side_of(opened)))  # type: ignore[misc]
    return comparison(sides)


def explain(site: Site, asked: Asked) -> Any:
    """Say all that the catalogue knows about a name."""
    name, source = asked["name"], asked["source"] or None
    try:
        if source:
            check_source(source)
    except CatalogueError as problem:
        raise RequestError(400, str(problem)) from None
    told = {lang: describe(name, lang, source) for lang in ("en", "zh")}
    known = told["en"] is not None
    texts = {lang: asdict(one) if one is not None else None for lang, one in told.items()}
    return {"name": name, "known": known, **texts, "nearest": [] if known else nearest(name)}


def report(site: Site, asked: Asked) -> Any:
    """Give everything of a run in one answer."""
    with site.library.use(asked["run"]) as opened:
        return report_of(opened, asked["points"], asked["samples"])


MOST_COMPARED = 32
POINTS = Parameter("points", "at most so many buckets; 0: every point", "integer", 600, least=0, most=2_000_000)
FROM_X = Parameter("from", "where on the axis to begin, included", "number")
TO_X = Parameter("to", "where on the axis to end, included", "number")
FROM = Parameter("from", "the first step, included", "integer")
TO = Parameter("to", "the last step, included", "integer")
STEP = Parameter("step", "the step", "integer")
SINCE = Parameter("since", "number of the first one that is new; negative: so many from the end", "integer", 0)
MARKS = (
    Field("name", (str,), most=200),
    Field("pinned", (bool,)),
    Field("hidden", (bool,)),
    Field("note", (str,), most=20_000),
)
WANTED = (
    Field("run", (str,)),
    Field("name", (str,)),
    Field("role", (str,)),
    Field("rank", (int,)),
    Field("attempt", (int,)),
    Field("since", (str,)),
    Field("factor", (int, float), 1.0),
)
WINDOW = (
    Field("series", (list,), []),
    Field("points", (int,), 600),
    Field("from", (int, float)),
    Field("to", (int, float)),
    Field("x", (str,), "step"),
    Field("branches", (bool,), False),
    Field("format", (str,), "binary"),
)
SAMPLE_FIELDS = (
    "min_reward", "max_reward", "min_length", "max_length", "task", "group", "finish_reason", "grep", "sort",
)  # fmt: skip
RUN = "/api/runs/{run}"
LIVE = (Parameter("run", "a run's key"), Parameter("list", "also the list", "boolean", False))


def _limit(default: int, most: int) -> Parameter:
    return Parameter("limit", "at most so many", "integer", default, least=1, most=most)


def _points(default: int) -> Parameter:
    return Parameter("points", "at most so many buckets", "integer", default, least=1, most=10_000)


ENDPOINTS = (
    Endpoint("GET", "/api/about", "Who serves what", about),
    Endpoint(
        "GET",
        "/api/runs",
        "The list of runs",
        runs,
        (Parameter("since", "the cursor of an earlier answer"),),
    ),
    Endpoint("PATCH", RUN, "Pin, rename, hide or note a run", mark, body=MARKS, also=(404, 409, 413)),
    Endpoint("GET", f"{RUN}/overview", "All of the first picture", run_overview, (_points(160),), also=(404,)),
    Endpoint("GET", f"{RUN}/names", "Every metric as charts, explained", names, also=(404,)),
    Endpoint(
        "GET",
        f"{RUN}/series",
        "Many series of one run",
        run_series,
        (
            Parameter("name", "a metric as logged; repeat it", many=True),
            POINTS,
            FROM_X,
            TO_X,
            Parameter("x", "the axis", default="step", choices=curves.AXES),
            Parameter("since", "cursors of an earlier answer, in the order of the names", many=True),
            Parameter("role", "one writer's own: its role"),
            Parameter("rank", "one writer's own: its rank", "integer"),
            Parameter("attempt", "one attempt's own", "integer"),
            Parameter("branches", "also the attempts that were superseded", "boolean", False),
            Parameter("format", "binary or json", choices=FORMATS),
        ),
        also=(404, 413),
        binary=True,
    ),
    Endpoint(
        "POST", "/api/series", "Many series of several runs", posted_series, body=WINDOW, also=(404, 413), binary=True
    ),
    Endpoint(
        "GET",
        f"{RUN}/histograms",
        "Histograms of a name over steps",
        histograms,
        (Parameter("name", "the name as logged", required=True), _points(200)),
        also=(404,),
    ),
    Endpoint("GET", f"{RUN}/phases", "Seconds of phases over steps", phases, (_points(200), FROM, TO), also=(404,)),
    Endpoint("GET", f"{RUN}/timeline", "One step as spans", timeline, (STEP,), also=(404,)),
    Endpoint("GET", f"{RUN}/memory", "The staircase of a step", memory, (STEP,), also=(404,)),
    Endpoint("GET", f"{RUN}/evaluation", "Task sets", evaluation, (_points(400),), also=(404,)),
    Endpoint(
        "GET",
        f"{RUN}/samples",
        "Search completions",
        samples,
        (
            STEP,
            FROM,
            TO,
            Parameter("min_reward", "at least this reward", "number"),
            Parameter("max_reward", "at most this reward", "number"),
            Parameter("min_length", "at least so many tokens", "integer"),
            Parameter("max_length", "at most so many tokens", "integer"),
            Parameter("task", "only of this task"),
            Parameter("group", "only of this group"),
            Parameter("finish_reason", "only those that ended so"),
            Parameter("grep", "only with this text, regardless of case"),
            Parameter(
                "sort", "the order", default="step", choices=tuple(sign + name for name in SORTS for sign in ("", "-"))
            ),
            _limit(50, 500),
            Parameter("offset", "leave out so many", "integer", 0, least=0, most=1_000_000),
        ),
        also=(404,),
    ),
    Endpoint("GET", f"{RUN}/details", "Config, surroundings, writers, relay, troubles", run_details, also=(404,)),
    Endpoint("GET", f"{RUN}/events", "What happened, by time", events, (SINCE, _limit(500, 10_000)), also=(404,)),
    Endpoint(
        "GET",
        f"{RUN}/texts",
        "Logged texts",
        texts,
        (Parameter("name", "only under this name"), SINCE, _limit(200, 1000)),
        also=(404,),
    ),
    Endpoint(
        "GET",
        "/api/compare",
        "Runs side by side",
        compare,
        (Parameter("run", "a key; repeat it", many=True, required=True),),
        also=(404, 413),
    ),
    Endpoint(
        "GET",
        "/api/explain",
        "All that the catalogue knows about a name",
        explain,
        (
            Parameter("name", "a metric as somebody logs it, or its id", required=True),
            Parameter("source", "who wrote it, as in windsock explain"),
        ),
    ),
    Endpoint(
        "GET",
        f"{RUN}/report",
        "Everything of a run in one answer",
        report,
        (_points(400), Parameter("samples", "so many samples", "integer", 50, least=0, most=500)),
        also=(404, 413),
    ),
)
