"""The handlers of the API's endpoints: each is called with a directory or an open run and the parsed arguments, in a
worker thread, and returns what is encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any

from barograph.answers.comparison import compared_run, comparison
from barograph.answers.groups import RunSeries, bands_view, groups_view
from barograph.answers.open_run import OpenRun, SeriesRequest, Window
from barograph.answers.reports.embedded import collect_report, with_curves
from barograph.answers.reports.written import MAX_TEXT as MAX_REPORT
from barograph.answers.reports.written import compared_runs, plain_notes, written_report
from barograph.answers.responses import BinaryBody, bilingual
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.runs.table import FACTS, ListQuery
from barograph.answers.views import curves, details
from barograph.answers.views.curves import Curve
from barograph.answers.views.evaluation import evaluation_view
from barograph.answers.views.meanings import meanings_view, names_view
from barograph.answers.views.memory import memory_view
from barograph.answers.views.overview import findings_view, overview
from barograph.answers.views.phases import phases_view, timeline_view
from barograph.answers.views.samples import sample_view, samples_view, token_sums_view
from barograph.apps.page.files import report_page
from barograph.apps.page.http.parameters import Field, Parameter, parse_body
from barograph.base import __version__
from barograph.base.errors import RequestError
from barograph.catalogue.describe import describe
from barograph.catalogue.headline import headlines
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import CatalogueError
from barograph.catalogue.user_metrics import nearest
from barograph.journal.samples.query import Query

Arguments = dict[str, Any]

Handler = Callable[[RunDirectory, Arguments], Any]

FORMATS = ("binary", "json")

MAX_COMPARED = 64

REGEX_SECONDS = 5.0

FILE_TYPE = "application/octet-stream"  # that a browser saves, and never opens as a page of the server

REPORT_POINTS = 400

DRAFTED_CHARTS = 4


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. The handler runs in a worker thread and may block."""

    method: str
    path: str
    summary: str
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: tuple[Field, ...] = ()
    extra_statuses: tuple[int, ...] = ()  # besides 200 and COMMON_STATUSES of openapi.py
    binary: bool = False
    is_file: bool = False  # the response is a file to save


def _with_run(view: Callable[[OpenRun, Arguments], Any]) -> Handler:
    """Make a handler of a function that takes the open run."""

    @wraps(view)
    def handler(directory: RunDirectory, arguments: Arguments) -> Any:
        with directory.open_runs.use(arguments["run"]) as opened:
            return view(opened, arguments)

    return handler


def about(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the version, the directory and the limits."""
    return {
        "barograph": __version__,
        "directory": str(directory.path),
        "languages": ["en", "zh"],
        "axes": list(curves.AXES),
        "most_series": curves.MAX_SERIES,
        "most_points": curves.MAX_POINTS,
    }


def runs(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return a page of the list of runs, or the changes of it since a cursor."""
    of_page = {name: arguments[name] for name in ("q", "sort", "hidden", "offset", "limit")}
    return directory.listing.view(arguments["since"], ListQuery(keys=tuple(arguments["key"]), **of_page))


def table(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return columns of all runs that fulfil conditions, or the changes of them since a cursor."""
    options = {name: arguments[name] for name in ("hidden", "shown")}
    by = [key for key in arguments["group"] if key]
    found = directory.listing.table(arguments["since"], arguments["column"], arguments["where"], by, **options)
    return {**found, "choices": columns(directory, arguments)} if arguments["choices"] else found


def columns(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the columns that the table of runs can have."""
    found = directory.listing.choices()
    titles = {headline.key: bilingual(headline.title) for headline in headlines()}
    return {
        "facts": list(FACTS),
        "headlines": [{"key": key, "title": titles[key]} for key in found.headlines],
        "config": list(found.config),
        "varying": list(found.varying),
        "metrics": list(found.metrics),
    }


def annotate(directory: RunDirectory, arguments: Arguments) -> Any:
    """Pin, rename, hide or annotate a run, or choose the source of its names; the answer has what was before."""
    key = arguments["run"]
    directory.open_runs.location(key)
    given = [field.name for field in ANNOTATION_FIELDS if field.name in arguments["given"]]
    directory.annotations.refresh()
    before = {name: directory.annotations.get(key)[name] for name in given}
    directory.annotations.set(key, {name: _annotation(name, arguments[name]) for name in given})
    return {**directory.listing.one(key), "before": before}


def _annotation(name: str, value: Any) -> Any:
    if name == "tags":
        return None if value is None else value.strip()
    if name in ("name", "source"):
        text = (value or "").strip() or None
        return _checked_source(text) if name == "source" else text
    if name == "colour":
        return None if value is None else COLOUR.check_range(value)
    return bool(value) if name in ("pinned", "hidden") else value or ""


def _checked_source(source: str | None) -> str | None:
    """Return a source; a RequestError reports an unknown one."""
    try:
        if source:
            check_source(source)
    except CatalogueError as problem:
        raise RequestError(400, str(problem)) from None
    return source


def saved_views(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the saved views of the page."""
    return {"views": directory.annotations.views()}


def save_view(directory: RunDirectory, arguments: Arguments) -> Any:
    """Save a view of the page under a name, or remove it."""
    name = (arguments["name"] or "").strip()
    if not name:
        raise RequestError(400, "name: expected a name that is not empty")
    directory.annotations.save_view(name, arguments["state"])
    return saved_views(directory, arguments)


def reports(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the names of the reports."""
    return {"reports": directory.annotations.reports()}


def save_report(directory: RunDirectory, arguments: Arguments) -> Any:
    """Save a report under a name, or remove it; the answer has the text that it had before."""
    name = (arguments["name"] or "").strip()
    if not name:
        raise RequestError(400, "name: expected a name that is not empty")
    before = directory.annotations.report(name)
    directory.annotations.save_report(name, arguments["text"])
    return {**reports(directory, arguments), "before": before}


def written(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return a report as the page draws it: a saved one, one whose text is given, or a first draft."""
    name, text, keys = arguments["name"] or "", arguments["text"], [str(key) for key in arguments["runs"]]
    if text is None and arguments["draft"]:
        compared = compared_runs(directory.open_runs, keys[:MAX_COMPARED])
        text = plain_notes(name, compared, keys[:MAX_COMPARED], DRAFTED_CHARTS)
    elif text is None:
        text = directory.annotations.report(name)
    if text is None:
        raise RequestError(404, f"no report {name!r}; /api/reports lists them")
    return written_report(text, directory.open_runs, directory.listing.names(), keys, name)


def written_file(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return a report as one HTML file."""
    report = with_curves(written(directory, arguments), directory.open_runs, REPORT_POINTS)
    return BinaryBody(report_page(report).encode("utf-8", "backslashreplace"), FILE_TYPE)


def run_overview(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return everything that the overview shows."""
    with directory.open_runs.use(arguments["run"]) as opened:
        points = arguments["points"]
        found = opened.judged(("overview", points), lambda: overview(opened, points))
    listed = directory.listing.one(arguments["run"])
    listed.pop("reward")
    return {"run": listed, **found}


@_with_run
def findings(opened: OpenRun, arguments: Arguments) -> Any:
    """Return what the doctor says about a run."""
    return opened.judged("findings", lambda: findings_view(opened))


@_with_run
def names(opened: OpenRun, arguments: Arguments) -> Any:
    """Return every metric of a run, grouped into charts."""
    return opened.cached("names", lambda: names_view(opened))


@_with_run
def meanings(opened: OpenRun, arguments: Arguments) -> Any:
    """Return what each name of a run means, and how to teach the others."""
    return opened.cached("meanings", lambda: meanings_view(opened))


def run_series(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return many series of one run."""
    run, names = arguments["run"], arguments["name"]
    since = [*arguments["since"], *[None] * (len(names) - len(arguments["since"]))]
    writer = arguments["role"], arguments["rank"], arguments["attempt"]
    wanted = [SeriesRequest(run, name, *writer, cursor) for name, cursor in zip(names, since, strict=False)]
    window = Window(arguments["points"], arguments["from"], arguments["to"], arguments["x"], arguments["branches"])
    return _series_response(directory, wanted, window, arguments["format"])


def posted_series(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return many series of several runs."""
    if arguments["x"] not in curves.AXES:
        raise RequestError(400, f"x: expected one of {', '.join(curves.AXES)}, got {arguments['x'][:40]!r}")
    if arguments["format"] not in FORMATS:
        raise RequestError(400, f"format: expected one of {', '.join(FORMATS)}, got {arguments['format'][:40]!r}")
    curves.check_size(len(arguments["series"]), 0)
    wanted = [SeriesRequest(**parse_body(SERIES_FIELDS, one)) for one in arguments["series"]]
    if not all(one.run and one.name for one in wanted):
        raise RequestError(400, "series: expected objects with run and name")
    points = POINTS.check_range(arguments["points"])
    window = Window(int(points), arguments["from"], arguments["to"], arguments["x"], bool(arguments["branches"]))
    return _series_response(directory, wanted, window, arguments["format"])


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


@_with_run
def histograms(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the histograms of a name."""
    return details.histograms_view(opened, arguments["name"], arguments["points"])


@_with_run
def phases(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the seconds of phases over steps."""
    return phases_view(opened, Window(arguments["points"], arguments["from"], arguments["to"]))


@_with_run
def timeline(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the spans of one step."""
    return timeline_view(opened, arguments["step"])


@_with_run
def memory(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the memory of a step at each moment of its phases."""
    return memory_view(opened, arguments["step"])


@_with_run
def evaluation(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the task sets with their statistics."""
    points = arguments["points"]
    return opened.cached(("evaluation", points), lambda: evaluation_view(opened, points))


@_with_run
def samples(opened: OpenRun, arguments: Arguments) -> Any:
    """Search completions."""
    steps = arguments["from"], arguments["to"]
    step = arguments["step"] if arguments["step"] is not None else steps if steps != (None, None) else None
    filters = {name: None if arguments[name] == "" else arguments[name] for name in SAMPLE_FIELDS}
    try:
        query = Query(step=step, sort=arguments["sort"] or "step", regex_seconds=REGEX_SECONDS, **filters)
    except ValueError as problem:
        raise RequestError(400, str(problem)) from None
    return samples_view(opened, query, arguments["offset"], arguments["limit"], arguments["texts"])


@_with_run
def sample(opened: OpenRun, arguments: Arguments) -> Any:
    """Return one sample with its tokens."""
    return sample_view(opened, arguments["place"])


@_with_run
def token_sums(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the tokens of a step that carry most of a value."""
    return token_sums_view(opened, arguments["step"], arguments["value"], arguments["limit"])


@_with_run
def run_details(opened: OpenRun, arguments: Arguments) -> Any:
    """Return config, environment, writers and notices."""
    return details.details_view(opened)


@_with_run
def events(opened: OpenRun, arguments: Arguments) -> Any:
    """Return the events of a run in order of time."""
    return details.events_view(opened, arguments["since"], arguments["limit"])


@_with_run
def texts(opened: OpenRun, arguments: Arguments) -> Any:
    """Return logged texts."""
    return details.texts_view(opened, arguments["name"], arguments["since"], arguments["limit"])


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


def groups(directory: RunDirectory, arguments: Arguments) -> Any:
    """Compare groups of runs by one metric."""
    compared = _comparison(directory, arguments["run"])
    found = directory.listing.groups(list(dict.fromkeys(arguments["run"])), arguments["by"] or ["seeds"])
    return groups_view(directory.open_runs, found, compared, arguments["metric"])


def bands(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the means of groups of series with their intervals."""
    points = int(points_parameter(160).check_range(arguments["points"]))
    asked = arguments["groups"]
    if not all(isinstance(group, list) for group in asked):
        raise RequestError(400, "groups: expected lists of objects with run and name")
    lines = [[RunSeries(**parse_body(LINE_FIELDS, one)) for one in group] for group in asked]
    if not all(line.run and line.name for group in lines for line in group):
        raise RequestError(400, "groups: expected lists of objects with run and name")
    return bands_view(directory.open_runs, lines, points)


def explain(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the catalogue's explanation of a name."""
    name, source = arguments["name"], _checked_source(arguments["source"] or None)
    found = {lang: describe(name, lang, source) for lang in ("en", "zh")}
    known = found["en"] is not None
    texts = {lang: asdict(one) if one is not None else None for lang, one in found.items()}
    return {"name": name, "known": known, **texts, "nearest": [] if known else nearest(name)}


@_with_run
def report(opened: OpenRun, arguments: Arguments) -> Any:
    """Return all data of a run."""
    return collect_report(opened, arguments["points"], arguments["samples"])


POINTS = Parameter("points", "maximum number of buckets; 0: every point", "integer", 600, minimum=0, maximum=2_000_000)

COLOUR = Parameter("colour", "number of the page's palette", "integer", minimum=0, maximum=11)

ANNOTATION_FIELDS = (
    Field("name", (str,), max_length=200),
    Field("pinned", (bool,)),
    Field("hidden", (bool,)),
    Field("note", (str,), max_length=20_000),
    Field("source", (str,), max_length=100),
    Field("colour", (int,)),
    Field("tags", (str,), max_length=2000),
)

VIEW_FIELDS = (Field("name", (str,), max_length=100), Field("state", (str,), max_length=20_000))

REPORT_NAME = Field("name", (str,), max_length=100)

REPORT_TEXT = Field("text", (str,), max_length=MAX_REPORT)

WRITTEN_FIELDS = (REPORT_NAME, REPORT_TEXT, Field("runs", (list,), []), Field("draft", (bool,), False))

SERIES_FIELDS = (
    Field("run", (str,)),
    Field("name", (str,)),
    Field("role", (str,)),
    Field("rank", (int,)),
    Field("attempt", (int,)),
    Field("since", (str,)),
    Field("factor", (int, float), 1.0),
)

LINE_FIELDS = (Field("run", (str,)), Field("name", (str,)), Field("factor", (int, float), 1.0))

BAND_FIELDS = (Field("groups", (list,), []), Field("points", (int,), 160))

WINDOW_FIELDS = (
    Field("series", (list,), []),
    Field("points", (int,), 600),
    Field("from", (int, float)),
    Field("to", (int, float)),
    Field("x", (str,), "step"),
    Field("branches", (bool,), False),
    Field("format", (str,), "binary"),
)

SAMPLE_FIELDS = (
    "min_reward", "max_reward", "min_length", "max_length", "task", "group", "finish_reason", "grep", "regex", "where",
)  # fmt: skip

LIVE_PARAMETERS = (
    Parameter("run", "keys of runs", repeated=True),
    Parameter("list", "also report changes of the list", "boolean", False),
)


def points_parameter(default: int) -> Parameter:
    """Return the parameter for the number of buckets of a curve."""
    return Parameter("points", "maximum number of buckets", "integer", default, minimum=1, maximum=10_000)
