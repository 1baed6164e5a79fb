"""Handlers of the endpoints of one run, and of several runs that are compared.

A handler is called in a worker thread and returns what is encoded.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from barograph.answers.comparison import compared_run, comparison
from barograph.answers.groups import RunSeries, bands_view, groups_view
from barograph.answers.open_run import OpenRun, SeriesRequest, Window
from barograph.answers.reports.embedded import collect_report
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.views import curves, details
from barograph.answers.views.curves import Curve
from barograph.answers.views.evaluation import evaluation_view
from barograph.answers.views.meanings import meanings_view, names_view
from barograph.answers.views.memory import memory_view
from barograph.answers.views.overview import findings_view, overview
from barograph.answers.views.phases import phases_view, timeline_view
from barograph.answers.views.samples import TEXTS, sample_view, samples_view, token_sums_view
from barograph.apps.page.http.endpoints import (
    MAX_COMPARED,
    RUN,
    Arguments,
    Endpoints,
    Parameter,
    limit_parameter,
    parse_body,
    points_parameter,
)
from barograph.base.errors import RequestError
from barograph.catalogue.describe import describe
from barograph.catalogue.sources import check_source
from barograph.catalogue.user_metrics import nearest
from barograph.journal.samples.query import SORTS, Query

ENDPOINTS = Endpoints()

REGEX_SECONDS = 5.0

POINTS = Parameter("points", "maximum number of buckets; 0: every point", "integer", 600, minimum=0, maximum=2_000_000)

FROM_X = Parameter("from", "start on the x axis, inclusive", "number")

TO_X = Parameter("to", "end on the x axis, inclusive", "number")

X = Parameter("x", "x axis", default="step", choices=curves.AXES)

BRANCHES = Parameter("branches", "include superseded attempts", "boolean", False)

FORMAT = Parameter("format", "binary or json", choices=("binary", "json"))

WRITER = (
    Parameter("role", "role of a single writer"),
    Parameter("rank", "rank of a single writer", "integer"),
    Parameter("attempt", "a single attempt", "integer"),
)

FACTOR = Parameter("factor", kind="number", default=1.0)

SERIES_FIELDS = (Parameter("run"), Parameter("name"), *WRITER, Parameter("since"), FACTOR)

LINE_FIELDS = (Parameter("run"), Parameter("name"), FACTOR)

FROM = Parameter("from", "first step, inclusive", "integer")

TO = Parameter("to", "last step, inclusive", "integer")

STEP = Parameter("step", "the step", "integer")

SINCE = Parameter("since", "number of the first item; negative counts from the end", "integer", 0)

RUNS = Parameter("run", "a key; repeat it", repeated=True, required=True)

SAMPLE_FILTERS = (
    Parameter("min_reward", "at least this reward", "number"),
    Parameter("max_reward", "at most this reward", "number"),
    Parameter("min_length", "at least this many tokens", "integer"),
    Parameter("max_length", "at most this many tokens", "integer"),
    Parameter("task", "only this task"),
    Parameter("group", "only this group"),
    Parameter("finish_reason", "only this finish reason"),
    Parameter("grep", "only samples that contain this text, ignoring case"),
    Parameter("regex", f"only samples that match this regular expression, for at most {REGEX_SECONDS:g} s"),
    Parameter("where", "conditions on columns: reward.format < 0.5 and correct = false"),
)


@ENDPOINTS.add("GET", f"{RUN}/overview", "Everything that the overview shows", points_parameter(160))
def run_overview(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return everything that the overview shows."""
    with directory.open_runs.use(arguments["run"]) as opened:
        points = arguments["points"]
        found = opened.judged(("overview", points), lambda: overview(opened, points))
    listed = directory.listing.one(arguments["run"])
    listed.pop("reward")
    return {"run": listed, **found}


@ENDPOINTS.add_of_run("findings", "What the doctor says about a run")
def findings(opened: OpenRun, arguments: Arguments) -> Any:
    """Return what the doctor says about a run."""
    return opened.judged("findings", lambda: findings_view(opened))


@ENDPOINTS.add_of_run("names", "Every metric, grouped into charts")
def names(opened: OpenRun, arguments: Arguments) -> Any:
    """Return every metric of a run, grouped into charts."""
    return opened.cached("names", lambda: names_view(opened))


@ENDPOINTS.add_of_run("meanings", "What each name means")
def meanings(opened: OpenRun, arguments: Arguments) -> Any:
    """Return what each name of a run means, and how to teach the others."""
    return opened.cached("meanings", lambda: meanings_view(opened))


@ENDPOINTS.add(
    "GET",
    f"{RUN}/series",
    "Many series of one run",
    Parameter("name", "a metric as logged; repeat it", repeated=True),
    POINTS,
    FROM_X,
    TO_X,
    X,
    Parameter("since", "cursors of an earlier response, in the order of the names", repeated=True),
    *WRITER,
    BRANCHES,
    FORMAT,
    statuses=(413,),
    binary=True,
)
def run_series(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return many series of one run."""
    run, names = arguments["run"], arguments["name"]
    since = [*arguments["since"], *[None] * (len(names) - len(arguments["since"]))]
    writer = arguments["role"], arguments["rank"], arguments["attempt"]
    wanted = [SeriesRequest(run, name, *writer, cursor) for name, cursor in zip(names, since, strict=False)]
    return _series_response(directory, wanted, _window(arguments), arguments["format"])


@ENDPOINTS.add(
    "POST",
    "/api/series",
    "Many series of several runs",
    Parameter("series", kind="array", default=[]),
    POINTS,
    FROM_X,
    TO_X,
    X,
    BRANCHES,
    replace(FORMAT, default="binary"),
    statuses=(404,),
    binary=True,
)
def posted_series(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return many series of several runs."""
    curves.check_size(len(arguments["series"]), 0)
    wanted = [SeriesRequest(**parse_body(SERIES_FIELDS, one)) for one in arguments["series"]]
    if not all(one.run and one.name for one in wanted):
        raise RequestError(400, "series: expected objects with run and name")
    return _series_response(directory, wanted, _window(arguments), arguments["format"])


def _window(arguments: Arguments) -> Window:
    return Window(arguments["points"], arguments["from"], arguments["to"], arguments["x"], arguments["branches"])


def _series_response(directory: RunDirectory, wanted: list[SeriesRequest], window: Window, format: str) -> Any:
    curves.check_size(len(wanted), len(wanted) * window.points)
    made: list[Curve] = []
    versions: dict[str, int] = {}
    runs = list(dict.fromkeys(one.run for one in wanted))
    without_axis: list[str] = []
    for run in runs:
        of_run = [one for one in wanted if one.run == run]
        with directory.open_runs.use(run) as opened:
            if len(runs) == 1 or curves.has_axis(opened, window.x):
                made += curves.make_curves(opened, of_run, window)
            else:  # report its series as not found, so that the other runs are still drawn
                made += map(curves.missing_curve, of_run)
                without_axis.append(run)
            versions[run] = opened.version
        curves.check_size(len(made), sum(len(curve.columns.get("x", ())) for curve in made))
    if runs and without_axis == runs:
        raise RequestError(400, f"x={window.x}: none of the runs counts {window.x}; /names lists their axes")
    header = {"version": next(iter(versions.values()), 0), "versions": versions, "x": window.x}
    return curves.as_binary(made, header) if format == "binary" else curves.as_json(made, header)


@ENDPOINTS.add_of_run(
    "histograms",
    "Histograms of a name over steps",
    Parameter("name", "the name as logged", required=True),
    points_parameter(200),
)
def histograms(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the histograms of a name."""
    return details.histograms_view(opened, arguments["name"], arguments["points"])


@ENDPOINTS.add_of_run("phases", "Time by phase and step", points_parameter(200), FROM, TO)
def phases(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the seconds of phases over steps."""
    return phases_view(opened, Window(arguments["points"], arguments["from"], arguments["to"]))


@ENDPOINTS.add_of_run("timeline", "Spans of one step", STEP)
def timeline(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the spans of one step."""
    return timeline_view(opened, arguments["step"])


@ENDPOINTS.add_of_run("memory", "Memory of a step", STEP)
def memory(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the memory of a step at each moment of its phases."""
    return memory_view(opened, arguments["step"])


@ENDPOINTS.add_of_run("evaluation", "Task sets", points_parameter(400))
def evaluation(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the task sets with their statistics."""
    points = arguments["points"]
    return opened.cached(("evaluation", points), lambda: evaluation_view(opened, points))


@ENDPOINTS.add_of_run(
    "samples",
    "Search completions",
    STEP,
    FROM,
    TO,
    *SAMPLE_FILTERS,
    Parameter("sort", f"{', '.join(SORTS)} or another column; with a minus the largest first", default="step"),
    Parameter("texts", "prompts and completions, shortened turns, or whole turns", "string", "full", choices=TEXTS),
    limit_parameter(50, 500),
    Parameter("offset", "number of samples to skip", "integer", 0, minimum=0, maximum=1_000_000),
)
def samples(opened: OpenRun, arguments: Arguments) -> Any:
    """Search completions."""
    steps = arguments["from"], arguments["to"]
    step = arguments["step"] if arguments["step"] is not None else steps if steps != (None, None) else None
    filters = {one.name: None if arguments[one.name] == "" else arguments[one.name] for one in SAMPLE_FILTERS}
    try:
        query = Query(step=step, sort=arguments["sort"] or "step", regex_seconds=REGEX_SECONDS, **filters)
    except ValueError as problem:
        raise RequestError(400, str(problem)) from None
    return samples_view(opened, query, arguments["offset"], arguments["limit"], arguments["texts"])


@ENDPOINTS.add_of_run(
    "sample",
    "One sample with its tokens",
    Parameter("place", "the place of a sample in the journal", required=True),
)
def sample(opened: OpenRun, arguments: Arguments) -> Any:
    """Return one sample with its tokens."""
    return sample_view(opened, arguments["place"])


@ENDPOINTS.add_of_run(
    "token_sums",
    "Tokens of a step by the sums of a value",
    Parameter("step", "the step of the samples", "integer", required=True),
    Parameter("value", "the value that is summed: entropy, log_prob, …", required=True),
    limit_parameter(30, 500),
)
def token_sums(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the tokens of a step that carry most of a value."""
    return token_sums_view(opened, arguments["step"], arguments["value"], arguments["limit"])


@ENDPOINTS.add_of_run("details", "Config, environment, writers, relay and notices")
def run_details(opened: OpenRun, arguments: Arguments) -> Any:
    """Return config, environment, writers and notices."""
    return details.details_view(opened)


@ENDPOINTS.add_of_run("events", "Events in order of time", SINCE, limit_parameter(500, 10_000))
def events(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the events of a run in order of time."""
    return details.events_view(opened, arguments["since"], arguments["limit"])


@ENDPOINTS.add_of_run("texts", "Logged texts", Parameter("name", "only this name"), SINCE, limit_parameter(200, 1000))
def texts(opened: OpenRun, arguments: Arguments) -> Any:
    """Return logged texts."""
    return details.texts_view(opened, arguments["name"], arguments["since"], arguments["limit"])


@ENDPOINTS.add("GET", "/api/compare", "Runs side by side", RUNS, statuses=(404, 413))
def compare(directory: RunDirectory, arguments: Arguments) -> Any:
    """Compare runs."""
    return _comparison(directory, arguments["run"])


def _comparison(directory: RunDirectory, runs: list[str]) -> dict[str, Any]:
    keys = list(dict.fromkeys(runs))
    if len(keys) > MAX_COMPARED:
        raise RequestError(413, f"{len(keys)} runs requested; at most {MAX_COMPARED} are compared")
    compared = []
    for key in keys:
        with directory.open_runs.use(key) as opened:
            compared.append(opened.cached("compared", lambda opened=opened: compared_run(opened)))  # type: ignore[misc]
    return comparison(compared)


@ENDPOINTS.add(
    "GET",
    "/api/groups",
    "Groups of runs compared",
    RUNS,
    Parameter("by", "seeds, group, tag or a column of the table; repeat it", repeated=True),
    Parameter("metric", "a chart of /api/compare; without it validation or the reward"),
    statuses=(404, 413),
)
def groups(directory: RunDirectory, arguments: Arguments) -> Any:
    """Compare groups of runs by one metric."""
    compared = _comparison(directory, arguments["run"])
    found = directory.listing.groups(list(dict.fromkeys(arguments["run"])), arguments["by"] or ["seeds"])
    return groups_view(directory.open_runs, found, compared, arguments["metric"])


@ENDPOINTS.add(
    "POST",
    "/api/bands",
    "Means of groups of series",
    Parameter("groups", kind="array", default=[]),
    points_parameter(160),
    statuses=(404,),
)
def bands(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the means of groups of series with their intervals."""
    asked = arguments["groups"]
    if not all(isinstance(group, list) for group in asked):
        raise RequestError(400, "groups: expected lists of objects with run and name")
    lines = [[RunSeries(**parse_body(LINE_FIELDS, one)) for one in group] for group in asked]
    if not all(line.run and line.name for group in lines for line in group):
        raise RequestError(400, "groups: expected lists of objects with run and name")
    return bands_view(directory.open_runs, lines, arguments["points"])


@ENDPOINTS.add(
    "GET",
    "/api/explain",
    "The catalogue's explanation of a name",
    Parameter("name", "a metric name as logged, or a catalogue id", required=True),
    Parameter("source", "vocabulary of the name, as in barograph explain"),
)
def explain(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the catalogue's explanation of a name."""
    name, source = arguments["name"], arguments["source"] or None
    if source is not None:
        check_source(source)
    found = {lang: describe(name, lang, source) for lang in ("en", "zh")}
    known = found["en"] is not None
    texts = {lang: asdict(one) if one is not None else None for lang, one in found.items()}
    return {"name": name, "known": known, **texts, "nearest": [] if known else nearest(name)}


@ENDPOINTS.add_of_run(
    "report",
    "All data of a run",
    points_parameter(400),
    Parameter("samples", "maximum number of samples", "integer", 50, minimum=0, maximum=500),
    statuses=(413,),
)
def report(opened: OpenRun, arguments: Arguments) -> Any:
    """Return all data of a run."""
    return collect_report(opened, arguments["points"], arguments["samples"])
