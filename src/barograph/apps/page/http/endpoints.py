"""Endpoints of the API: each is declared once, with its parameters, to parse requests and to describe it in OpenAPI."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, Protocol

from barograph.answers.open_run import OpenRun
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.views.curves import MEDIA_TYPE
from barograph.base import __version__
from barograph.base.errors import RequestError

MAX_COMPARED = 64  # runs in one answer

MAX_INTEGER = 2**53  # JavaScript's numbers are exact up to here

MAX_TEXT = 4096

TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no", "")

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


class QueryParameters(Protocol):
    """The query of a request, as Starlette provides it."""

    def getlist(self, key: Any) -> list[Any]:
        """Return all values of a name."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, or one field of a JSON body."""

    name: str
    description: str = ""
    kind: Literal["string", "integer", "number", "boolean", "array"] = "string"
    default: Any = None
    repeated: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = MAX_TEXT

    def parse(self, given: list[str]) -> Any:
        """Return the value of a query, or raise a RequestError that names the expected one."""
        if self.required and (not given or (not given[-1] and self.kind != "string")):
            raise RequestError(400, f"{self.name} is missing: {self.description}")
        if self.repeated:
            return [self._parse_one(text) for text in given]
        return self._parse_one(given[-1]) if given and (given[-1] or self.kind == "string") else self.default

    def _parse_one(self, text: str) -> Any:
        if self.kind == "string":
            return self._checked_text(text)
        if self.kind == "boolean":
            if text.lower() not in TRUE + FALSE:
                raise RequestError(400, f"{self.name}: expected 0 or 1, got {text[:40]!r}")
            return text.lower() in TRUE
        try:
            return self._checked_number(int(text) if self.kind == "integer" else float(text))
        except ValueError:
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)}, got {text[:40]!r}") from None

    def check(self, value: Any) -> Any:
        """Return the value of a JSON body, or raise a RequestError that names the expected type."""
        kinds = KINDS[self.kind]
        if value is None:
            return self.default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):  # bool is a subclass of int
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise RequestError(400, f"{self.name}: expected {expected}, got {type(value).__name__}")
        if isinstance(value, str):
            return self._checked_text(value)
        if isinstance(value, int | float):
            if not abs(value) <= MAX_INTEGER:
                raise RequestError(400, f"{self.name}: expected a number up to {MAX_INTEGER}")
            return self._checked_number(value)
        return value

    def _checked_text(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise RequestError(400, f"{self.name}: expected one of {', '.join(self.choices)}, got {text[:40]!r}")
        if len(text) > self.max_length:
            raise RequestError(400, f"{self.name}: expected at most {self.max_length} characters, got {len(text)}")
        return text

    def _checked_number(self, value: float | int) -> float | int:
        minimum, maximum = self._limits()
        bounded = self.kind == "integer" or self.minimum is not None or self.maximum is not None
        if math.isnan(value) or (bounded and not minimum <= value <= maximum):
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)} from {minimum:g} to {maximum:g}")
        return value

    def _limits(self) -> tuple[float, float]:
        minimum = -MAX_INTEGER if self.minimum is None else self.minimum
        return minimum, MAX_INTEGER if self.maximum is None else self.maximum

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description of a parameter of a query."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.kind == "integer":
            schema["minimum"], schema["maximum"] = self._limits()
        if self.default is not None:
            schema["default"] = self.default
        schema = {"type": "array", "items": schema} if self.repeated else schema
        described = {"name": self.name, "in": "query", "description": self.description, "schema": schema}
        return described | ({"required": True} if self.required else {})

    def field_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a field of a body."""
        schema: dict[str, Any] = {"type": [self.kind, "null"]}
        if self.kind == "string":
            schema["maxLength"] = self.max_length
        if self.kind in ("integer", "number"):
            schema |= {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
        return schema


def _article(kind: str) -> str:
    return "an integer" if kind == "integer" else f"a {kind}"


def parse_query(parameters: Iterable[Parameter], query: QueryParameters) -> dict[str, Any]:
    """Parse the declared parameters of a request; unknown ones are ignored."""
    return {parameter.name: parameter.parse(query.getlist(parameter.name)) for parameter in parameters}


def parse_body(fields: Iterable[Parameter], body: Any) -> dict[str, Any]:
    """Parse a JSON object; an unknown field is an error that lists the known ones."""
    if not isinstance(body, dict):
        raise RequestError(400, f"expected a JSON object, got {type(body).__name__}")
    known = {field.name: field for field in fields}
    unknown = [name for name in body if name not in known]
    if unknown:
        raise RequestError(400, f"unknown fields: {', '.join(map(repr, unknown[:5]))}; expected {', '.join(known)}")
    return {name: field.check(body.get(name)) for name, field in known.items()}


def points_parameter(default: int) -> Parameter:
    """Return the parameter for the number of buckets of a curve."""
    return Parameter("points", "maximum number of buckets", "integer", default, minimum=1, maximum=10_000)


def limit_parameter(default: int, most: int) -> Parameter:
    """Return the parameter for the number of items of a list."""
    return Parameter("limit", "maximum number of items", "integer", default, minimum=1, maximum=most)


LIVE_PARAMETERS = (
    Parameter("run", "keys of runs", repeated=True),
    Parameter("list", "also report changes of the list", "boolean", False),
)

Arguments = dict[str, Any]

Handler = Callable[[RunDirectory, Arguments], Any]

RunHandler = Callable[[OpenRun, Arguments], Any]

RUN = "/api/runs/{run}"

FILE_TYPE = "application/octet-stream"  # that a browser saves, and never opens as a page of the server

STATUSES = {
    400: "A parameter is wrong",
    401: "The token is missing or wrong",
    403: "The request comes from another site",
    404: "No such run, metric or step",
    405: "Method not allowed",
    409: "The change cannot be stored",
    413: "The response or the body would be too large",
    421: "The Host header names another host",
}

COMMON_STATUSES = (400, 401, 403, 405, 421)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. The handler runs in a worker thread and may block.

    ``parameters`` are those of the query; of a method other than GET they are the fields of the body. ``statuses`` are
    those that do not follow from the path and the body.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = ()
    binary: bool = False
    is_file: bool = False  # the response is a file to save

    @property
    def has_body(self) -> bool:
        """Whether a request has a body."""
        return self.method != "GET"

    def openapi(self) -> dict[str, Any]:
        """Return the endpoint's OpenAPI description."""
        is_of_run = "{run}" in self.path
        content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
        if self.is_file:
            content = {FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}
        if self.binary:
            content[MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        query = () if self.has_body else self.parameters
        statuses = {
            *COMMON_STATUSES,
            *self.statuses,
            *((404,) if is_of_run else ()),
            *((413,) if self.has_body else ()),
        }
        fields = {field.name: field.field_schema() for field in self.parameters}
        return operation(
            self.handler.__name__,
            self.summary,
            content,
            {status: STATUSES[status] for status in sorted(statuses)},
            [*([path_parameter("run")] if is_of_run else []), *(parameter.openapi() for parameter in query)],
            description=(self.handler.__doc__ or "").strip(),
            error={"$ref": "#/components/schemas/Error"},
            body=json_content({"type": "object", "additionalProperties": False, "properties": fields})
            if self.has_body
            else None,
            has_etag=not self.has_body,
        )


class Endpoints(list[Endpoint]):
    """The endpoints of a module, each declared above its handler."""

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        *parameters: Parameter,
        statuses: tuple[int, ...] = (),
        binary: bool = False,
        is_file: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare an endpoint of the directory."""

        def declare(handler: Handler) -> Handler:
            self.append(Endpoint(method, path, summary, handler, parameters, statuses, binary, is_file))
            return handler

        return declare

    def add_of_run(
        self, name: str, summary: str, *parameters: Parameter, statuses: tuple[int, ...] = ()
    ) -> Callable[[RunHandler], RunHandler]:
        """Declare an endpoint of a run, whose handler gets the open run."""

        def declare(view: RunHandler) -> RunHandler:
            @wraps(view)
            def handler(directory: RunDirectory, arguments: Arguments) -> Any:
                with directory.open_runs.use(arguments["run"]) as opened:
                    return view(opened, arguments)

            self.add("GET", f"{RUN}/{name}", summary, *parameters, statuses=statuses)(handler)
            return view

        return declare


def json_content(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a JSON body or answer."""
    return {"application/json": {"schema": schema}}


def path_parameter(name: str) -> dict[str, Any]:
    """Return the description of a part of a path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def operation(
    id: str,
    summary: str,
    content: dict[str, Any],
    errors: Mapping[int, str],
    parameters: Iterable[dict[str, Any]] = (),
    *,
    error: dict[str, Any],
    description: str = "",
    answer: str = "The response",
    body: dict[str, Any] | None = None,
    has_etag: bool = False,
) -> dict[str, Any]:
    """Return the OpenAPI description of an operation.

    ``errors`` are the meanings of its statuses, whose bodies have the schema ``error``.
    """
    not_changed = {"304": {"description": "Not changed since the ETag that was sent"}} if has_etag else {}
    return {
        "summary": summary,
        **({"description": description} if description else {}),
        "operationId": id,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": answer, "content": content},
            **not_changed,
            **{
                str(status): {"description": meaning, "content": json_content(error)}
                for status, meaning in errors.items()
            },
        },
        **({"requestBody": {"required": True, "content": body}} if body is not None else {}),
    }


def description(endpoints: Iterable[Endpoint], more_paths: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of endpoints, and of paths that are described already."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = endpoint.openapi()
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    live = operation(
        "live",
        "Server-sent events",
        {"text/event-stream": {"schema": {"type": "string"}}},
        {status: STATUSES[status] for status in (*COMMON_STATUSES, 404)},
        [parameter.openapi() for parameter in LIVE_PARAMETERS],
        answer="A stream of events",
        error=error,
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "barograph",
            "version": __version__,
            "description": "Metrics of reinforcement-learning runs.",
        },
        "paths": {**paths, "/api/live": {"get": live}, **(more_paths or {})},
        "components": {"schemas": {"Error": error}},
    }
