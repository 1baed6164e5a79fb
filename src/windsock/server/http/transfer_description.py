"""The OpenAPI description of the ingest endpoints and of ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windsock.server.http.ingest import PIECE_PARAMETERS, PREFIX, READ_PARAMETERS
from windsock.server.http.ingest_metrics import CONTENT_TYPE
from windsock.server.http.parameters import Parameter

STATUSES = {
    400: "A name or a parameter is wrong, or the piece is not made of complete frames",
    401: "The token is missing or wrong",
    403: "The token does not grant this",
    404: "No such run or segment",
    405: "Method not allowed",
    409: "Go on from `held`; with `differs` other bytes are held, and nothing more is taken",
    411: "The Content-Length is missing",
    413: "The piece, the segment, the run or their number is too large",
    429: "Too many pieces of the project: try again after Retry-After",
    503: "The server is busy or its disk is full: try again after Retry-After",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "held": {"type": "integer"}, "differs": {"type": "boolean"}},
}
COUNT = {"type": "integer", "minimum": 0}
HELD = {"type": "object", "required": ["held"], "properties": {"held": COUNT}}
SEGMENTS = {
    "type": "object",
    "required": ["segments", "piece_bytes"],
    "properties": {"segments": {"type": "object", "additionalProperties": COUNT}, "piece_bytes": COUNT},
}
COMMON = (400, 401, 403, 404, 405)
TAKING = (409, 411, 413, 429, 503)
BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

METRICS = {CONTENT_TYPE: {"schema": {"type": "string"}}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    id: str, summary: str, answer: dict[str, Any], statuses: Iterable[int], parameters: Iterable[Parameter] = ()
) -> dict[str, Any]:
    errors = {str(one): {"description": STATUSES[one], "content": _json(ERROR)} for one in statuses}
    return {
        "summary": summary,
        "operationId": id,
        "parameters": [parameter.openapi() for parameter in parameters],
        "responses": {"200": {"description": "The response", "content": answer}, **errors},
    }


def _below_run(*names: str) -> dict[str, Any]:
    return {"parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]}


def _taking(operation: dict[str, Any]) -> dict[str, Any]:
    return {**operation, "requestBody": {"required": True, "content": BYTES}}


RUN = f"{PREFIX}{{project}}/{{run}}"
PATHS: dict[str, Any] = {
    RUN: {
        **_below_run("project", "run"),
        "get": _operation("transfer_held", "Bytes of each segment that are held", _json(SEGMENTS), (*COMMON, 503)),
    },
    f"{RUN}/run.json": {
        **_below_run("project", "run"),
        "post": _taking(_operation("transfer_info", "Store run.json once", _json(HELD), (*COMMON, *TAKING))),
    },
    f"{RUN}/{{segment}}": {
        **_below_run("project", "run", "segment"),
        "get": _operation("transfer_read", "Read bytes of a segment", BYTES, COMMON, READ_PARAMETERS),
        "post": _taking(
            _operation("transfer_piece", "Append a piece", _json(HELD), (*COMMON, *TAKING), PIECE_PARAMETERS)
        ),
    },
    "/metrics": {
        "get": _operation(
            "metrics", "Metrics of the server", {CONTENT_TYPE: {"schema": {"type": "string"}}}, (401, 403)
        )
    },
}
