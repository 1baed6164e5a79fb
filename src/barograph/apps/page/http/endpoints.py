"""The endpoints of the API: address, parameters and handler of each. `docs/api.md` describes them for people."""

from __future__ import annotations

from barograph.answers.runs.table import SORTS as SORT_RUNS
from barograph.answers.views import curves
from barograph.answers.views.samples import TEXTS
from barograph.apps.page.http.handlers import (
    ANNOTATION_FIELDS,
    BAND_FIELDS,
    FORMATS,
    POINTS,
    REGEX_SECONDS,
    REPORT_NAME,
    REPORT_TEXT,
    VIEW_FIELDS,
    WINDOW_FIELDS,
    WRITTEN_FIELDS,
    Endpoint,
    about,
    annotate,
    bands,
    columns,
    compare,
    evaluation,
    events,
    explain,
    findings,
    groups,
    histograms,
    meanings,
    memory,
    names,
    phases,
    points_parameter,
    posted_series,
    report,
    reports,
    run_details,
    run_overview,
    run_series,
    runs,
    sample,
    samples,
    save_report,
    save_view,
    saved_views,
    table,
    texts,
    timeline,
    token_sums,
    written,
    written_file,
)
from barograph.apps.page.http.parameters import Parameter
from barograph.journal.samples.query import SORTS

FROM_X = Parameter("from", "start on the x axis, inclusive", "number")

TO_X = Parameter("to", "end on the x axis, inclusive", "number")

FROM = Parameter("from", "first step, inclusive", "integer")

TO = Parameter("to", "last step, inclusive", "integer")

STEP = Parameter("step", "the step", "integer")

SINCE = Parameter("since", "number of the first item; negative counts from the end", "integer", 0)

RUN = "/api/runs/{run}"


def _limit(default: int, most: int) -> Parameter:
    return Parameter("limit", "maximum number of items", "integer", default, minimum=1, maximum=most)


ENDPOINTS = (
    Endpoint("GET", "/api/about", "Version, directory and limits", about),
    Endpoint(
        "GET",
        "/api/runs",
        "The list of runs",
        runs,
        (
            Parameter("since", "cursor of an earlier response to the same request"),
            Parameter("q", "only runs that contain each of these words", default=""),
            Parameter("sort", "sort order", default="began", choices=tuple(SORT_RUNS)),
            Parameter("hidden", "with hidden runs", "boolean", True),
            Parameter("offset", "number of runs to skip", "integer", 0, minimum=0, maximum=10_000_000),
            _limit(100, 1000),
            Parameter("key", "a run that is returned in any case; repeat it", repeated=True),
        ),
    ),
    Endpoint(
        "GET",
        "/api/table",
        "Columns of all runs",
        table,
        (
            Parameter("column", "a fact, config key, or number of a metric such as best:validation", repeated=True),
            Parameter("where", "conditions: status = running and actor.lr > 1e-6", default=""),
            Parameter("group", "seeds, group, tag or a config key; repeat it", repeated=True),
            Parameter("hidden", "with hidden runs", "boolean", False),
            Parameter("choices", "with the columns that the table can have", "boolean", False),
            Parameter("shown", "a run that is in sight, to be judged first; repeat it", repeated=True),
            Parameter("since", "cursor of an earlier response to the same request"),
        ),
    ),
    Endpoint("GET", "/api/columns", "Columns that the table can have", columns),
    Endpoint(
        "PATCH",
        RUN,
        "Pin, rename, hide or annotate a run, or choose the source of its names",
        annotate,
        body=ANNOTATION_FIELDS,
        extra_statuses=(404, 409, 413),
    ),
    Endpoint("GET", "/api/views", "The saved views of the page", saved_views),
    Endpoint(
        "POST",
        "/api/views",
        "Save a view of the page under a name, or remove it",
        save_view,
        body=VIEW_FIELDS,
        extra_statuses=(409, 413),
    ),
    Endpoint("GET", "/api/reports", "The names of the reports", reports),
    Endpoint(
        "POST",
        "/api/reports",
        "Save a report under a name, or remove it",
        save_report,
        body=(REPORT_NAME, REPORT_TEXT),
        extra_statuses=(409, 413),
    ),
    Endpoint(
        "POST",
        "/api/report",
        "A report as the page draws it",
        written,
        body=WRITTEN_FIELDS,
        extra_statuses=(404, 413),
    ),
    Endpoint(
        "POST",
        "/api/report_file",
        "A report as one HTML file",
        written_file,
        body=WRITTEN_FIELDS,
        extra_statuses=(404, 413),
        is_file=True,
    ),
    Endpoint(
        "GET",
        f"{RUN}/overview",
        "Everything that the overview shows",
        run_overview,
        (points_parameter(160),),
        extra_statuses=(404,),
    ),
    Endpoint("GET", f"{RUN}/findings", "What the doctor says about a run", findings, extra_statuses=(404,)),
    Endpoint("GET", f"{RUN}/names", "Every metric, grouped into charts", names, extra_statuses=(404,)),
    Endpoint("GET", f"{RUN}/meanings", "What each name means", meanings, extra_statuses=(404,)),
    Endpoint(
        "GET",
        f"{RUN}/series",
        "Many series of one run",
        run_series,
        (
            Parameter("name", "a metric as logged; repeat it", repeated=True),
            POINTS,
            FROM_X,
            TO_X,
            Parameter("x", "x axis", default="step", choices=curves.AXES),
            Parameter("since", "cursors of an earlier response, in the order of the names", repeated=True),
            Parameter("role", "role of a single writer"),
            Parameter("rank", "rank of a single writer", "integer"),
            Parameter("attempt", "a single attempt", "integer"),
            Parameter("branches", "include superseded attempts", "boolean", False),
            Parameter("format", "binary or json", choices=FORMATS),
        ),
        extra_statuses=(404, 413),
        binary=True,
    ),
    Endpoint(
        "POST",
        "/api/series",
        "Many series of several runs",
        posted_series,
        body=WINDOW_FIELDS,
        extra_statuses=(404, 413),
        binary=True,
    ),
    Endpoint(
        "GET",
        f"{RUN}/histograms",
        "Histograms of a name over steps",
        histograms,
        (Parameter("name", "the name as logged", required=True), points_parameter(200)),
        extra_statuses=(404,),
    ),
    Endpoint(
        "GET",
        f"{RUN}/phases",
        "Time by phase and step",
        phases,
        (points_parameter(200), FROM, TO),
        extra_statuses=(404,),
    ),
    Endpoint("GET", f"{RUN}/timeline", "Spans of one step", timeline, (STEP,), extra_statuses=(404,)),
    Endpoint("GET", f"{RUN}/memory", "Memory of a step", memory, (STEP,), extra_statuses=(404,)),
    Endpoint("GET", f"{RUN}/evaluation", "Task sets", evaluation, (points_parameter(400),), extra_statuses=(404,)),
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
            Parameter("min_length", "at least this many tokens", "integer"),
            Parameter("max_length", "at most this many tokens", "integer"),
            Parameter("task", "only this task"),
            Parameter("group", "only this group"),
            Parameter("finish_reason", "only this finish reason"),
            Parameter("grep", "only samples that contain this text, ignoring case"),
            Parameter("regex", f"only samples that match this regular expression, for at most {REGEX_SECONDS:g} s"),
            Parameter("where", "conditions on columns: reward.format < 0.5 and correct = false"),
            Parameter("sort", f"{', '.join(SORTS)} or another column; with a minus the largest first", default="step"),
            Parameter(
                "texts", "prompts and completions, shortened turns, or whole turns", "string", "full", choices=TEXTS
            ),
            _limit(50, 500),
            Parameter("offset", "number of samples to skip", "integer", 0, minimum=0, maximum=1_000_000),
        ),
        extra_statuses=(404,),
    ),
    Endpoint(
        "GET",
        f"{RUN}/sample",
        "One sample with its tokens",
        sample,
        (Parameter("place", "the place of a sample in the journal", required=True),),
        extra_statuses=(404,),
    ),
    Endpoint(
        "GET",
        f"{RUN}/token_sums",
        "Tokens of a step by the sums of a value",
        token_sums,
        (
            Parameter("step", "the step of the samples", "integer", required=True),
            Parameter("value", "the value that is summed: entropy, log_prob, …", required=True),
            _limit(30, 500),
        ),
        extra_statuses=(404,),
    ),
    Endpoint(
        "GET", f"{RUN}/details", "Config, environment, writers, relay and notices", run_details, extra_statuses=(404,)
    ),
    Endpoint(
        "GET", f"{RUN}/events", "Events in order of time", events, (SINCE, _limit(500, 10_000)), extra_statuses=(404,)
    ),
    Endpoint(
        "GET",
        f"{RUN}/texts",
        "Logged texts",
        texts,
        (Parameter("name", "only this name"), SINCE, _limit(200, 1000)),
        extra_statuses=(404,),
    ),
    Endpoint(
        "GET",
        "/api/compare",
        "Runs side by side",
        compare,
        (Parameter("run", "a key; repeat it", repeated=True, required=True),),
        extra_statuses=(404, 413),
    ),
    Endpoint(
        "GET",
        "/api/groups",
        "Groups of runs compared",
        groups,
        (
            Parameter("run", "a key; repeat it", repeated=True, required=True),
            Parameter("by", "seeds, group, tag or a column of the table; repeat it", repeated=True),
            Parameter("metric", "a chart of /api/compare; without it validation or the reward"),
        ),
        extra_statuses=(404, 413),
    ),
    Endpoint("POST", "/api/bands", "Means of groups of series", bands, body=BAND_FIELDS, extra_statuses=(404, 413)),
    Endpoint(
        "GET",
        "/api/explain",
        "The catalogue's explanation of a name",
        explain,
        (
            Parameter("name", "a metric name as logged, or a catalogue id", required=True),
            Parameter("source", "vocabulary of the name, as in barograph explain"),
        ),
    ),
    Endpoint(
        "GET",
        f"{RUN}/report",
        "All data of a run",
        report,
        (
            points_parameter(400),
            Parameter("samples", "maximum number of samples", "integer", 50, minimum=0, maximum=500),
        ),
        extra_statuses=(404, 413),
    ),
)
