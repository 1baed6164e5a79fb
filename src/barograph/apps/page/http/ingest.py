"""The endpoints that take pieces of segments from other machines, `/api/transfer/{project}/{run}`: a plain ASGI
application, since a thousand nodes send a piece each second.

With their numbers for Prometheus, and their OpenAPI description.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import anyio
import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from barograph.answers.responses import encode
from barograph.apps.page.http.endpoints import Parameter, json_content, operation, parse_query, path_parameter
from barograph.base.errors import RequestError
from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.receiver import Added, ReceivedRuns, Receiver
from barograph.delivery.transfer.tokens import Grant, Right
from barograph.journal.format.folder import RUN_FILE

OPEN_SECONDS = 300.0  # a segment counts as open for so long after a piece of it

MAX_SEGMENTS = 100_000

CONTENT_TYPE = "text/plain; version=0.0.4"

Segment = tuple[str, str, str]
"""Project, run and file name."""


class OpenSegment(NamedTuple):
    """A segment that grows: the time of its last piece, and how old the last row was when it arrived."""

    seen: float
    lag: float


class IngestMetrics:
    """What the server has received since it started."""

    def __init__(self) -> None:
        self.pieces = 0
        self.repeated = 0  # pieces of which nothing was new
        self.bytes = 0
        self.refused: Counter[str] = Counter()  # pieces by reason
        self.refused_tokens = 0
        self.waiting_bytes = 0
        self._open: dict[Segment, OpenSegment] = {}  # the one that has waited longest first

    def received(self, segment: Segment, added: Added) -> None:
        """Count a piece."""
        self.pieces += 1
        self.bytes += added.new_bytes
        self.repeated += not added.new_bytes
        now = time.time()
        before = self._open.pop(segment, None)
        if added.is_last:
            return
        lag = before.lag if before is not None else 0.0
        self._open[segment] = OpenSegment(now, lag if added.newest_time is None else max(now - added.newest_time, 0.0))
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Forget segments without a piece for long, and the oldest where there are too many."""
        while self._open:
            first = next(iter(self._open))
            if len(self._open) <= MAX_SEGMENTS and self._open[first].seen >= now - OPEN_SECONDS:
                return
            del self._open[first]

    def text(self) -> str:
        """Return all metrics."""
        now = time.time()
        self._forget(now)
        lag = max((segment.lag for segment in self._open.values()), default=0.0)
        silent = max((now - segment.seen for segment in self._open.values()), default=0.0)
        lines = [
            *_counter("pieces", "Pieces of segments that were taken.", {"": self.pieces}),
            *_counter("repeated_pieces", "Pieces of which every byte was held already.", {"": self.repeated}),
            *_counter("bytes", "Bytes that were written.", {"": self.bytes}),
            *_counter("refused", "Pieces that were not taken.", dict(self.refused)),
            *_counter("refused_tokens", "Requests without a valid token.", {"": self.refused_tokens}),
            *_gauge("lag_seconds", "Age of the last row of a piece when it arrived, of the slowest open segment.", lag),
            *_gauge("silent_seconds", "Time since the last piece of the open segment that is silent longest.", silent),
            *_gauge("open_segments", "Segments with a piece in the last five minutes that go on.", len(self._open)),
            *_gauge("open_runs", "Runs with such a segment.", len({key[:2] for key in self._open})),
            *_gauge("waiting_bytes", "Bytes of pieces that are being received or written.", self.waiting_bytes),
        ]
        return "\n".join(lines) + "\n"


def _counter(name: str, help: str, values: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a counter; ``values`` are by reason, which is empty where there is none."""
    full = f"barograph_ingest_{name}_total"
    yield from (f"# HELP {full} {help}", f"# TYPE {full} counter")
    for reason, value in sorted(values.items()):
        yield f'{full}{{reason="{reason}"}} {value}' if reason else f"{full} {value}"


def _gauge(name: str, help: str, value: float) -> Iterator[str]:
    full = f"barograph_ingest_{name}"
    yield from (f"# HELP {full} {help}", f"# TYPE {full} gauge", f"{full} {value:.15g}")


PREFIX = "/api/transfer/"

THREADS = 16  # most of the time they wait for the disk

MAX_WAITING = 256 << 20  # bytes of pieces in memory; half of them may be of one project

RETRY_SECONDS = 1.0

STATUSES = {"access": 403, "beyond": 409, "broken": 400, "busy": 503, "differs": 409, "limit": 413, "name": 400}

NO_STORE = {"cache-control": "no-store"}

OFFSET = Parameter("offset", "place of the first byte in the segment", "integer", required=True, minimum=0)

CRC = Parameter("crc", "CRC-32 of the body: 8 hexadecimal digits", required=True)

LAST = Parameter("last", "the writer has ended, and the piece may end with any bytes", "boolean", False)

LENGTH = Parameter("length", "number of bytes", "integer", required=True, minimum=0)

PIECE_PARAMETERS = (OFFSET, CRC, LAST)

READ_PARAMETERS = (OFFSET, LENGTH)

Result = TypeVar("Result")


class Ingest:
    """The endpoints of a directory; an ASGI application behind the guard, which has found out who asks."""

    def __init__(self, runs: ReceivedRuns, metrics: IngestMetrics, max_waiting: int = MAX_WAITING) -> None:
        self._runs = runs
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._of_project: Counter[str] = Counter()  # bytes of pieces in memory
        self._limiter = anyio.CapacityLimiter(THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(scope, receive)
        except DestinationError as problem:
            self._metrics.refused[problem.reason] += 1
            response = _refusal(problem)
        except RequestError as problem:
            self._metrics.refused["request"] += 1
            headers = {"retry-after": "1"} if problem.status == 429 else {}
            response = _json({"error": str(problem)}, problem.status, headers)
        except ClientDisconnect:
            self._metrics.refused["disconnected"] += 1
            return
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        parts = scope["path"].removeprefix(PREFIX).split("/")
        if len(parts) not in (2, 3):
            raise RequestError(404, f"nothing is served at {scope['path'][:200]}")
        project, run, *names = parts
        method, grant, query = scope["method"], scope["barograph.grant"], QueryParams(scope["query_string"])
        if method == "GET" and not names:
            _require(grant, project, "read", "write")
            return await self._held(self._runs.receiver(project, run))
        if method == "GET":
            _require(grant, project, "read")
            return await self._read(self._runs.receiver(project, run), names[0], query)
        if method == "POST" and names:
            _require(grant, project, "write")
            with self._reserved(project, _content_length(scope)) as length:
                body = await _body(receive, length)
                return await self._store(project, run, names[0], query, body)
        allowed = "GET, POST" if names else "GET"
        return _json({"error": f"{method} is not allowed; expected {allowed}"}, 405, {"allow": allowed})

    async def _held(self, receiver: Receiver) -> Response:
        held = await self._in_thread(receiver.held)
        return _json({"segments": held, "piece_bytes": receiver.limits.piece_bytes})

    async def _read(self, receiver: Receiver, name: str, query: QueryParams) -> Response:
        asked = parse_query(READ_PARAMETERS, query)
        try:
            data = await self._in_thread(receiver.read, name, asked["offset"], asked["length"])
        except DestinationError as problem:
            raise RequestError(404 if problem.reason == "name" else 400, str(problem)) from None
        return Response(data, 200, NO_STORE, "application/octet-stream")

    async def _store(self, project: str, run: str, name: str, query: QueryParams, body: bytes) -> Response:
        receiver = self._runs.receiver(project, run)
        if name == RUN_FILE:
            await self._in_thread(self._describe, receiver, body)
            return _json({"held": len(body)})
        asked = parse_query(PIECE_PARAMETERS, query)
        if not re.fullmatch("[0-9a-fA-F]{8}", asked["crc"]):
            raise RequestError(400, f"crc: expected 8 hexadecimal digits, got {asked['crc'][:40]!r}")
        if int(asked["crc"], 16) != crc32(body):
            held = (await self._in_thread(receiver.held)).get(name, 0)
            message = "the piece was damaged on its way: send it again"
            raise DestinationError(message, "broken", permanent=False, held=held)
        added = await self._in_thread(self._add, receiver, name, asked["offset"], body, asked["last"])
        self._metrics.received((project, run, name), added)
        return _json({"held": added.held})

    def _describe(self, receiver: Receiver, info: bytes) -> None:
        self._runs.check_room(receiver)
        receiver.describe(info)

    def _add(self, receiver: Receiver, segment: str, offset: int, data: bytes, last: bool) -> Added:
        self._runs.check_room(receiver)
        return receiver.add(segment, offset, data, last)

    async def _in_thread(self, call: Callable[..., Result], *arguments: Any) -> Result:
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)

    @contextmanager
    def _reserved(self, project: str, length: int) -> Iterator[int]:
        """Reserve memory for a piece; refuse it where all pieces together, or those of one project, have too much."""
        most = self._runs.limits.of_run.largest_piece
        if length > most:
            raise DestinationError(f"the piece has {length:,} bytes; at most {most:,} are taken", "limit")
        waiting = self._metrics.waiting_bytes
        if waiting and waiting + length > self._max_waiting:
            raise DestinationError("the server is busy: try again later", "busy", retry_after=RETRY_SECONDS)
        if self._of_project[project] and self._of_project[project] + length > self._max_waiting // 2:
            raise RequestError(429, "the server is busy with other pieces of this project: try again later")
        self._change_waiting(project, length)
        try:
            yield length
        finally:
            self._change_waiting(project, -length)

    def _change_waiting(self, project: str, change: int) -> None:
        self._metrics.waiting_bytes += change
        self._of_project[project] += change
        if not self._of_project[project]:
            del self._of_project[project]


def _require(grant: Grant, project: str, *rights: Right) -> None:
    if not any(grant.allows(right, project) for right in rights):
        raise DestinationError(f"the token does not grant the right to {' or '.join(rights)} here", "access")


def _content_length(scope: Scope) -> int:
    """Return the length of the body, which must be given: memory is reserved for it."""
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if not given.isdigit() or len(given) > 15:
        raise RequestError(411, "expected a Content-Length")
    return int(given)


async def _body(receive: Receive, length: int) -> bytes:
    parts: list[bytes] = []
    left = length
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        left -= len(parts[-1])
        if left < 0:
            raise RequestError(400, "the body is longer than its Content-Length")
        if not message.get("more_body", False):
            return b"".join(parts)


def _refusal(problem: DestinationError) -> Response:
    status = STATUSES[problem.reason] if problem.permanent or problem.held is None else 409
    record: dict[str, Any] = {"error": str(problem)}
    if problem.held is not None:
        record["held"] = problem.held
    if problem.reason == "differs":
        record["differs"] = True
    headers = {"retry-after": str(math.ceil(problem.retry_after))} if problem.retry_after else {}
    return _json(record, status, headers)


def _json(record: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(record), status, {**NO_STORE, **(headers or {})}, "application/json")


STATUS_MEANINGS = {
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


def _operation(
    id: str,
    summary: str,
    answer: dict[str, Any],
    statuses: Iterable[int],
    parameters: Iterable[Parameter] = (),
    takes_bytes: bool = False,
) -> dict[str, Any]:
    meanings = {status: STATUS_MEANINGS[status] for status in statuses}
    described = [parameter.openapi() for parameter in parameters]
    return operation(id, summary, answer, meanings, described, error=ERROR, body=BYTES if takes_bytes else None)


RUN = f"{PREFIX}{{project}}/{{run}}"

OF_RUN = [path_parameter("project"), path_parameter("run")]

PATHS: dict[str, Any] = {
    RUN: {
        "parameters": OF_RUN,
        "get": _operation(
            "transfer_held", "Bytes of each segment that are held", json_content(SEGMENTS), (*COMMON, 503)
        ),
    },
    f"{RUN}/run.json": {
        "parameters": OF_RUN,
        "post": _operation(
            "transfer_info", "Store run.json once", json_content(HELD), (*COMMON, *TAKING), takes_bytes=True
        ),
    },
    f"{RUN}/{{segment}}": {
        "parameters": [*OF_RUN, path_parameter("segment")],
        "get": _operation("transfer_read", "Read bytes of a segment", BYTES, COMMON, READ_PARAMETERS),
        "post": _operation(
            "transfer_piece", "Append a piece", json_content(HELD), (*COMMON, *TAKING), PIECE_PARAMETERS, True
        ),
    },
    "/metrics": {
        "get": _operation(
            "metrics", "Metrics of the server", {CONTENT_TYPE: {"schema": {"type": "string"}}}, (401, 403)
        )
    },
}
