"""The endpoints that take pieces of segments from other machines, ``/api/transfer/{project}/{run}``.

A plain ASGI application: it is called for every piece, and a thousand nodes send one each second.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from zlib import crc32

import anyio
import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windsock.journal.folder import RUN_FILE
from windsock.server.http.ingest_metrics import IngestMetrics
from windsock.server.http.parameters import Parameter, parse_query
from windsock.server.responses import RequestError, encode
from windsock.transfer.destination import DestinationError
from windsock.transfer.received_runs import ReceivedRuns
from windsock.transfer.receiver import Added, Receiver
from windsock.transfer.tokens import Grant, Right

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
        self._limiter: anyio.CapacityLimiter | None = None

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
        method, grant, query = scope["method"], scope["windsock.grant"], QueryParams(scope["query_string"])
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
            raise DestinationError("the piece was damaged on its way: send it again", "broken", held=held)
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
        if self._limiter is None:  # there is no event loop before the first request
            self._limiter = anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)

    @contextmanager
    def _reserved(self, project: str, length: int) -> Iterator[int]:
        """Reserve memory for a piece; refuse it where all pieces together, or those of one project, have too much."""
        most = self._runs.limits.of_run.largest_piece
        if length > most:
            raise DestinationError(f"the piece has {length:,} bytes; at most {most:,} are taken", "limit")
        if self._waiting and self._waiting + length > self._max_waiting:
            raise DestinationError("the server is busy: try again later", "busy", retry_after=RETRY_SECONDS)
        if self._of_project[project] and self._of_project[project] + length > self._max_waiting // 2:
            raise RequestError(429, "the server is busy with other pieces of this project: try again later")
        self._change_waiting(project, length)
        try:
            yield length
        finally:
            self._change_waiting(project, -length)

    @property
    def _waiting(self) -> int:
        return self._metrics.waiting_bytes

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
