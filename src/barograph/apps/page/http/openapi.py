"""The OpenAPI description of the endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barograph.answers.views.curves import MEDIA_TYPE
from barograph.apps.page.http.handlers import FILE_TYPE, LIVE_PARAMETERS, Endpoint
from barograph.apps.page.http.parameters import MAX_INTEGER, Field
from barograph.base import __version__

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
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
JSON_TYPES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


def description(endpoints: Iterable[Endpoint], more_paths: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of endpoints, and of paths that are described already."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    paths["/api/live"] = {"get": _live()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "barograph",
            "version": __version__,
            "description": "Metrics of reinforcement-learning runs.",
        },
        "paths": {**paths, **(more_paths or {})},
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    parameters = [parameter.openapi() for parameter in endpoint.parameters]
    if "{run}" in endpoint.path:
        parameters.insert(0, {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}})
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "description": (endpoint.handler.__doc__ or "").strip(),
        "operationId": endpoint.handler.__name__,
        "parameters": parameters,
        "responses": _responses(endpoint),
    }
    if endpoint.body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _object(endpoint.body)}},
        }
    return operation


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if endpoint.is_file:
        content = {FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    if endpoint.binary:
        content[MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}
    found: dict[str, Any] = {"200": {"description": "The response", "content": content}}
    if endpoint.method == "GET":
        found["304"] = {"description": "Not changed since the ETag that was sent"}
    for status in sorted({*COMMON_STATUSES, *endpoint.extra_statuses}):
        found[str(status)] = {
            "description": STATUSES[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return found


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {f.name: _field(f) for f in fields}}


def _field(field: Field) -> dict[str, Any]:
    types = [JSON_TYPES[kind] for kind in field.kinds if not (kind is int and float in field.kinds)]
    schema: dict[str, Any] = {"type": [*types, "null"]}
    if str in field.kinds:
        schema["maxLength"] = field.max_length
    if int in field.kinds:
        schema |= {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
    return schema


def _live() -> dict[str, Any]:
    return {
        "summary": "Server-sent events",
        "operationId": "live",
        "parameters": [parameter.openapi() for parameter in LIVE_PARAMETERS],
        "responses": {
            "200": {
                "description": "A stream of events",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{
                str(status): {"description": STATUSES[status], "content": {"application/json": {"schema": ERROR}}}
                for status in (*COMMON_STATUSES, 404)
            },
        },
    }
