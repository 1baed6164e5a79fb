"""Handlers of the endpoints of a directory: the list and the table of runs, annotations, saved views and reports.

A handler is called in a worker thread and returns what is encoded.
"""

from __future__ import annotations

from typing import Any

from barograph.answers.reports.embedded import with_curves
from barograph.answers.reports.written import MAX_TEXT, compared_runs, plain_notes, written_report
from barograph.answers.responses import BinaryBody, bilingual
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.runs.table import FACTS, SORTS, ListQuery
from barograph.answers.views import curves
from barograph.apps.page.files import report_page
from barograph.apps.page.http.endpoints import (
    FILE_TYPE,
    MAX_COMPARED,
    RUN,
    Arguments,
    Endpoints,
    Parameter,
    limit_parameter,
)
from barograph.base import __version__
from barograph.base.errors import RequestError
from barograph.catalogue.headline import headlines
from barograph.catalogue.sources import check_source

ENDPOINTS = Endpoints()

REPORT_POINTS = 400

DRAFTED_CHARTS = 4

SINCE_CURSOR = Parameter("since", "cursor of an earlier response to the same request")

NAME = Parameter("name", max_length=100)

TEXT = Parameter("text", max_length=MAX_TEXT)

REPORT_FIELDS = (
    NAME,
    TEXT,
    Parameter("runs", kind="array", default=[]),
    Parameter("draft", kind="boolean", default=False),
)

ANNOTATION_FIELDS = (
    Parameter("name", max_length=200),
    Parameter("pinned", kind="boolean"),
    Parameter("hidden", kind="boolean"),
    Parameter("note", max_length=20_000),
    Parameter("source", max_length=100),
    Parameter("colour", "number of the page's palette", "integer", minimum=0, maximum=11),
    Parameter("tags", max_length=2000),
)


@ENDPOINTS.add("GET", "/api/about", "Version, directory and limits")
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


@ENDPOINTS.add(
    "GET",
    "/api/runs",
    "The list of runs",
    SINCE_CURSOR,
    Parameter("q", "only runs that contain each of these words", default=""),
    Parameter("sort", "sort order", default="began", choices=tuple(SORTS)),
    Parameter("hidden", "with hidden runs", "boolean", True),
    Parameter("offset", "number of runs to skip", "integer", 0, minimum=0, maximum=10_000_000),
    limit_parameter(100, 1000),
    Parameter("key", "a run that is returned in any case; repeat it", repeated=True),
)
def runs(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return a page of the list of runs, or the changes of it since a cursor."""
    of_page = {name: arguments[name] for name in ("q", "sort", "hidden", "offset", "limit")}
    return directory.listing.view(arguments["since"], ListQuery(keys=tuple(arguments["key"]), **of_page))


@ENDPOINTS.add(
    "GET",
    "/api/table",
    "Columns of all runs",
    Parameter("column", "a fact, config key, or number of a metric such as best:validation", repeated=True),
    Parameter("where", "conditions: status = running and actor.lr > 1e-6", default=""),
    Parameter("group", "seeds, group, tag or a config key; repeat it", repeated=True),
    Parameter("hidden", "with hidden runs", "boolean", False),
    Parameter("choices", "with the columns that the table can have", "boolean", False),
    Parameter("shown", "a run that is in sight, to be judged first; repeat it", repeated=True),
    SINCE_CURSOR,
)
def table(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return columns of all runs that fulfil conditions, or the changes of them since a cursor."""
    options = {name: arguments[name] for name in ("hidden", "shown")}
    by = [key for key in arguments["group"] if key]
    found = directory.listing.table(arguments["since"], arguments["column"], arguments["where"], by, **options)
    return {**found, "choices": columns(directory, arguments)} if arguments["choices"] else found


@ENDPOINTS.add("GET", "/api/columns", "Columns that the table can have")
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


@ENDPOINTS.add(
    "PATCH",
    RUN,
    "Pin, rename, hide or annotate a run, or choose the source of its names",
    *ANNOTATION_FIELDS,
    statuses=(409,),
)
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
        if name == "source" and text:
            check_source(text)
        return text
    if name == "colour":
        return value
    return bool(value) if name in ("pinned", "hidden") else value or ""


@ENDPOINTS.add("GET", "/api/views", "The saved views of the page")
def saved_views(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the saved views of the page."""
    return {"views": directory.annotations.views()}


@ENDPOINTS.add(
    "POST",
    "/api/views",
    "Save a view of the page under a name, or remove it",
    NAME,
    Parameter("state", max_length=20_000),
    statuses=(409,),
)
def save_view(directory: RunDirectory, arguments: Arguments) -> Any:
    """Save a view of the page under a name, or remove it."""
    directory.annotations.save_view(_given_name(arguments), arguments["state"])
    return saved_views(directory, arguments)


@ENDPOINTS.add("GET", "/api/reports", "The names of the reports")
def reports(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return the names of the reports."""
    return {"reports": directory.annotations.reports()}


@ENDPOINTS.add("POST", "/api/reports", "Save a report under a name, or remove it", NAME, TEXT, statuses=(409,))
def save_report(directory: RunDirectory, arguments: Arguments) -> Any:
    """Save a report under a name, or remove it; the answer has the text that it had before."""
    name = _given_name(arguments)
    before = directory.annotations.report(name)
    directory.annotations.save_report(name, arguments["text"])
    return {**reports(directory, arguments), "before": before}


def _given_name(arguments: Arguments) -> str:
    name = (arguments["name"] or "").strip()
    if not name:
        raise RequestError(400, "name: expected a name that is not empty")
    return str(name)


@ENDPOINTS.add("POST", "/api/report", "A report as the page draws it", *REPORT_FIELDS, statuses=(404,))
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


@ENDPOINTS.add("POST", "/api/report_file", "A report as one HTML file", *REPORT_FIELDS, statuses=(404,), is_file=True)
def written_file(directory: RunDirectory, arguments: Arguments) -> Any:
    """Return a report as one HTML file."""
    report = with_curves(written(directory, arguments), directory.open_runs, REPORT_POINTS)
    return BinaryBody(report_page(report).encode("utf-8", "backslashreplace"), FILE_TYPE)
