"""The application: every request passes the guard, works in a thread, and answers with an ETag."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windsock.errors import JournalError
from windsock.server.http.endpoints import ENDPOINTS, LIVE, Endpoint
from windsock.server.http.files import Files
from windsock.server.http.guard import HEADERS, LOOPBACK, Guard, Pass, Refusal
from windsock.server.http.openapi import description
from windsock.server.http.parameters import read_all, read_fields
from windsock.server.responses import Binary, RequestError, encode
from windsock.server.runs.directory import Site
from windsock.server.runs.live import Hub
from windsock.server.views.curves import MEDIA_TYPE

THREADS = 8
LONGEST_BODY = 1 << 20
PACKED_FROM = 4096  # bytes from which gzip pays, where a network lies between
Handler = Callable[[Request], Awaitable[Response]]


def make_app(dir: Path, guard: Guard | None = None) -> Starlette:
    """Return the application that serves a directory."""
    site = Site(dir)
    hub = Hub(site)
    files = Files()
    limiter = anyio.CapacityLimiter(THREADS)
    described = description(ENDPOINTS)

    async def about_api(request: Request) -> Response:
        return _json(request, described)

    async def live(request: Request) -> Response:
        asked = read_all(LIVE, request.query_params)
        if asked["run"] is not None:
            await anyio.to_thread.run_sync(site.library.entry, asked["run"], limiter=limiter)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(hub.stream(asked["run"], asked["list"]), 200, headers, "text/event-stream")

    async def file(request: Request) -> Response:
        return _file(request, files)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await hub.close()
        site.close()

    routes = [Route(one.path, _handler(site, one, limiter), methods=[one.method]) for one in ENDPOINTS]
    routes += [Route("/api/openapi.json", about_api), Route("/api/live", live), Route("/{path:path}", file)]
    app = Starlette(
        routes=routes,
        exception_handlers={RequestError: _refused, HTTPException: _refused, JournalError: _refused},
        lifespan=lifespan,
    )
    app.add_middleware(Gate, guard=guard or Guard())
    app.state.site, app.state.hub = site, hub
    return app


def _handler(site: Site, endpoint: Endpoint, limiter: anyio.CapacityLimiter) -> Handler:
    async def answer(request: Request) -> Response:
        asked = read_all(endpoint.parameters, request.query_params) | request.path_params
        if endpoint.body:
            body = await _body(request)
            asked |= read_fields(endpoint.body, body) | {"given": body}
        if endpoint.binary and not asked.get("format"):
            asked["format"] = "json" if "application/json" in request.headers.get("accept", "") else "binary"
        made = await anyio.to_thread.run_sync(_made, site, endpoint, asked, limiter=limiter)
        return _sent(request, made)

    return answer


def _made(site: Site, endpoint: Endpoint, asked: dict[str, Any]) -> Binary:
    """Do the work and the encoding, both off the event loop."""
    found = endpoint.work(site, asked)
    return found if isinstance(found, Binary) else Binary(encode(found), "application/json")


async def _body(request: Request) -> Any:
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > LONGEST_BODY:
                raise RequestError(413, f"a body of more than {LONGEST_BODY} bytes")
    except ClientDisconnect:
        raise RequestError(400, "the request ended in its middle") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is no JSON") from None


def _json(request: Request, value: Any) -> Response:
    return _sent(request, Binary(encode(value), "application/json"))


def _sent(request: Request, made: Binary) -> Response:
    etag = f'"{hashlib.blake2b(made.body, digest_size=9).hexdigest()}"'
    headers = {"cache-control": "no-cache, private", "etag": etag, "vary": "Accept, Accept-Encoding"}
    if request.method in ("GET", "HEAD") and etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    body = made.body
    near = request.client is None or request.client.host in LOOPBACK
    if not near and made.media_type != MEDIA_TYPE and len(body) >= PACKED_FROM and _takes_gzip(request):
        body = gzip.compress(body, 5, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, 200, headers, made.media_type)


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _file(request: Request, files: Files) -> Response:
    found = files.get(request.url.path)
    if found is None:
        raise RequestError(404, f"nothing is served at {request.url.path[:200]}")
    headers = {"cache-control": "no-cache", "etag": found.etag, "vary": "Accept-Encoding"}
    if request.url.path == "/":
        headers["link"] = files.ahead()
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    if found.packed is not None and _takes_gzip(request):
        return Response(found.packed, 200, {**headers, "content-encoding": "gzip"}, found.media_type)
    return Response(found.body, 200, headers, found.media_type)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(encode({"error": message}), status, headers, "application/json")


async def _refused(request: Request, problem: Exception) -> Response:
    if isinstance(problem, HTTPException):
        return _error(problem.status_code, str(problem.detail), dict(problem.headers or {}))
    return _error(problem.status if isinstance(problem, RequestError) else 404, str(problem))


class Gate:
    """Lets pass what the guard lets pass, and sends our headers with every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        judged = self._guard.judge(scope["method"], scope["path"], query, headers)
        cookie = judged.cookie if isinstance(judged, Pass) else None

        async def send_ours(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = {**HEADERS, **({"set-cookie": cookie} if cookie else {})}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in ours.items())]
            await send(message)

        if isinstance(judged, Refusal):
            extra = {"www-authenticate": "Bearer"} if judged.status == 401 else None
            await _error(judged.status, judged.message, extra)(scope, receive, send_ours)
        elif judged.location is not None:
            await RedirectResponse(judged.location, 303)(scope, receive, send_ours)
        else:
            await self._app(scope, receive, send_ours)
