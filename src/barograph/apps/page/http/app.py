"""The ASGI applications.

Each request passes the guard, runs in a worker thread, and is answered with an ETag. On a server for a team each
token is served by the application of its project's directory, which knows no other directory, beside the ingest
endpoints.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barograph.answers.responses import BinaryBody, encode
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.views.curves import MEDIA_TYPE
from barograph.apps.page.files import StaticFiles
from barograph.apps.page.http import directory_handlers, run_handlers
from barograph.apps.page.http.endpoints import (
    LIVE_PARAMETERS,
    MAX_COMPARED,
    Endpoint,
    description,
    parse_body,
    parse_query,
)
from barograph.apps.page.http.guard import FOR_PROGRAMS, Allowed, Guard, RejectedRequest
from barograph.apps.page.http.ingest import CONTENT_TYPE, PATHS, PREFIX, Ingest, IngestMetrics
from barograph.apps.page.http.live import Hub
from barograph.base.errors import JournalError, RequestError
from barograph.catalogue.spec import CatalogueError
from barograph.delivery.transfer.receiver import DirectoryLimits, ReceivedRuns
from barograph.delivery.transfer.tokens import Grant, Right

ENDPOINTS = (*directory_handlers.ENDPOINTS, *run_handlers.ENDPOINTS)

THREADS = 8

MAX_BODY = 1 << 20

MIN_GZIP_BYTES = 4096  # smaller bodies are not worth compressing

# The list, while the script is still loading: exactly as the page asks for it, unless the address says otherwise.
PRELOAD = "<api/runs?sort=began&hidden=0&offset=0&limit=100>; rel=preload; as=fetch; crossorigin"

OTHER_LISTS = frozenset({"run", "with", "q", "sort"})

RouteHandler = Callable[[Request], Awaitable[Response]]


def page_app(dir: Path, more_paths: Mapping[str, Any] | None = None) -> Starlette:
    """Return the application that serves a directory to everybody; ``more_paths`` are described beside its own."""
    directory = RunDirectory(dir)
    hub = Hub(directory)
    files = StaticFiles()
    limiter = anyio.CapacityLimiter(THREADS)
    openapi = description(ENDPOINTS, more_paths)

    async def openapi_json(request: Request) -> Response:
        return _response(request, BinaryBody(encode(openapi), "application/json"))

    async def live(request: Request) -> Response:
        arguments = parse_query(LIVE_PARAMETERS, request.query_params)
        runs = [key for key in arguments["run"] if key]
        await anyio.to_thread.run_sync(_check_watched, directory, runs, limiter=limiter)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = hub.stream(runs, arguments["list"])
        return StreamingResponse(stream, 200, headers, "text/event-stream")

    async def file(request: Request) -> Response:
        return _file_response(request, files)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threading.Thread(target=directory.prepare, name="barograph-prepare", daemon=True).start()
        yield
        await hub.close()
        directory.close()

    routes = [Route(one.path, _route_handler(directory, one, limiter), methods=[one.method]) for one in ENDPOINTS]
    routes += [Route("/api/openapi.json", openapi_json), Route("/api/live", live), Route("/{path:path}", file)]
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys((RequestError, CatalogueError, HTTPException, JournalError), _error_handler),
        lifespan=lifespan,
    )
    app.state.directory, app.state.hub = directory, hub
    return app


def _route_handler(directory: RunDirectory, endpoint: Endpoint, limiter: anyio.CapacityLimiter) -> RouteHandler:
    async def handle(request: Request) -> Response:
        if endpoint.has_body:
            body = await _json_body(request)
            arguments = parse_body(endpoint.parameters, body) | {"given": body}
        else:
            arguments = parse_query(endpoint.parameters, request.query_params)
        arguments |= request.path_params
        if endpoint.binary and not arguments.get("format"):
            arguments["format"] = "json" if "application/json" in request.headers.get("accept", "") else "binary"
        encoded = await anyio.to_thread.run_sync(_call_and_encode, directory, endpoint, arguments, limiter=limiter)
        return _response(request, encoded)

    return handle


def _call_and_encode(directory: RunDirectory, endpoint: Endpoint, arguments: dict[str, Any]) -> BinaryBody:
    """Call the endpoint and encode its result, both in the worker thread: encoding takes long too."""
    result = endpoint.handler(directory, arguments)
    return result if isinstance(result, BinaryBody) else BinaryBody(encode(result), "application/json")


def _check_watched(directory: RunDirectory, runs: list[str]) -> None:
    """Reject runs that do not exist, and more than a page compares."""
    if len(runs) > MAX_COMPARED:
        raise RequestError(413, f"{len(runs)} runs requested; at most {MAX_COMPARED} are watched")
    for key in runs:
        directory.open_runs.location(key)


async def _json_body(request: Request) -> Any:
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_BODY:
                raise RequestError(413, f"the body is larger than {MAX_BODY} bytes")
    except ClientDisconnect:
        raise RequestError(400, "the client disconnected before the end of the body") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not valid JSON") from None


def _response(request: Request, encoded: BinaryBody) -> Response:
    etag = f'"{hashlib.blake2b(encoded.body, digest_size=9).hexdigest()}"'
    headers = {"cache-control": "no-cache, private", "etag": etag, "vary": "Accept, Accept-Encoding"}
    if request.method in ("GET", "HEAD") and etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    body = encoded.body
    # Also over loopback, which may be the end of an SSH tunnel; arrays of floats hardly compress at all.
    compressible = encoded.media_type != MEDIA_TYPE and len(body) >= MIN_GZIP_BYTES
    if compressible and _accepts_gzip(request):
        body = gzip.compress(body, 5, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, 200, headers, encoded.media_type)


def _accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _file_response(request: Request, files: StaticFiles) -> Response:
    file = files.get(request.url.path)
    if file is None:
        raise RequestError(404, f"nothing is served at {request.url.path[:200]}")
    headers = {"cache-control": "no-cache", "etag": file.etag, "vary": "Accept-Encoding"}
    if request.url.path == "/" and OTHER_LISTS.isdisjoint(request.query_params.keys()):
        headers["link"] = PRELOAD
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    if file.gzipped is not None and _accepts_gzip(request):
        return Response(file.gzipped, 200, {**headers, "content-encoding": "gzip"}, file.media_type)
    return Response(file.body, 200, headers, file.media_type)


def _error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(encode({"error": message}), status, headers, "application/json")


async def _error_handler(request: Request, problem: Exception) -> Response:
    if isinstance(problem, HTTPException):
        return _error_response(problem.status_code, str(problem.detail), dict(problem.headers or {}))
    if isinstance(problem, RequestError):
        return _error_response(problem.status, str(problem))
    return _error_response(400 if isinstance(problem, CatalogueError) else 404, str(problem))


class GuardMiddleware:
    """Middleware that applies the guard to every request and the security headers to every response."""

    def __init__(self, app: ASGIApp, guard: Guard, on_refusal: Callable[[str], None] = lambda path: None) -> None:
        self._app = app
        self._guard = guard
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        base, query = self._guard.base_path, scope["query_string"].decode("latin-1")
        if base and scope["path"] == base:  # the page's addresses are below a slash
            await RedirectResponse(f"{base}/?{query}" if query else f"{base}/", 307)(scope, receive, send)
            return
        scope = _without_base(scope, base)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        check = partial(self._guard.check, scope["method"], scope["path"], query, headers)
        decision = check()
        cookie = decision.cookie if isinstance(decision, Allowed) else None
        added = {**self._guard.headers, **({"set-cookie": cookie} if cookie else {})}
        if isinstance(decision, RejectedRequest):
            extra = {"www-authenticate": "Bearer"} if decision.status == 401 else None
            if decision.status == 401:
                self._on_refusal(scope["path"])
            response: ASGIApp = _error_response(decision.status, decision.message, extra)
        elif decision.location is not None:
            response = RedirectResponse(decision.location, 303)
        else:
            response = self._app
            scope["barograph.grant"] = decision.grant
        await response(scope, receive, GuardedSend(send, added, lambda: isinstance(check(), Allowed)))


class GuardedSend:
    """The sending of a response: with the security headers, and no longer than the request is allowed.

    An event stream goes on for days; that of a token that was revoked ends with its next event.
    """

    def __init__(self, send: Send, headers: Mapping[str, str], is_allowed: Callable[[], bool]) -> None:
        self._send = send
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._is_allowed = is_allowed
        self._is_over = False

    async def __call__(self, message: Message) -> None:
        """Send one message of the response."""
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *self._headers]
        elif message.get("more_body") and not self._is_allowed():
            self._is_over = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)


def _without_base(scope: Scope, base: str) -> Scope:
    """Return a request without the path below which a proxy serves the page; some proxies remove it themselves."""
    path = scope["path"]
    if not base or not path.startswith(f"{base}/"):
        return scope
    raw = scope.get("raw_path") or path.encode("utf-8", "surrogateescape")
    return {**scope, "path": path.removeprefix(base), "raw_path": raw.removeprefix(quote(base).encode())}


MAX_OPEN = 64  # applications of projects

READING_POSTS = ("/api/series", "/api/bands", "/api/report", "/api/report_file")  # all others need the right to write


class ProjectApps:
    """An ASGI application that gives each request to the one for its grant; the guard is in front of it.

    With ``ingest`` it also takes runs of other machines.
    """

    def __init__(self, dir: Path, ingest: bool = False, limits: DirectoryLimits | None = None) -> None:
        self._dir = dir
        self.metrics = IngestMetrics()
        self._ingest = Ingest(ReceivedRuns(dir, limits), self.metrics) if ingest else None
        self._paths = PATHS if ingest else None
        self._apps: OrderedDict[str | None, Starlette] = OrderedDict({None: page_app(dir, self._paths)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the start and the end of the server."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            while self._apps:
                await _close(self._apps.popitem()[1])
            await send({"type": "lifespan.shutdown.complete"})
            return
        await (await self._app(scope))(scope, receive, send)

    def guarded(self, guard: Guard) -> GuardMiddleware:
        """Return the application behind a guard."""
        return GuardMiddleware(self, guard, self._count_refusal)

    def _count_refusal(self, path: str) -> None:
        self.metrics.refused_tokens += path.startswith(FOR_PROGRAMS)

    async def end_streams(self) -> None:
        """End all event streams, for which a server would wait."""
        for app in self._apps.values():
            await app.state.hub.close()

    async def _app(self, scope: Scope) -> ASGIApp:
        grant: Grant = scope["barograph.grant"]
        path, method = scope["path"], scope["method"]
        if self._ingest is not None and path.startswith(PREFIX):
            return self._ingest
        if self._ingest is not None and path == "/metrics":
            if not grant.allows("read"):
                return _error_response(
                    403, "the metrics are of all projects: they need a token of all that grants the right to read"
                )
            return Response(self.metrics.text(), 200, {"cache-control": "no-store"}, CONTENT_TYPE)
        is_change = method not in ("GET", "HEAD") and path not in READING_POSTS
        needed: tuple[Right, ...] = ("read", "write") if is_change else ("read",)
        for right in needed:
            if not grant.allows(right, grant.project):
                return _error_response(403, f"the token does not grant the right to {right}")
        return await self._page(grant.project)

    async def _page(self, project: str | None) -> Starlette:
        found = self._apps.get(project)
        if found is None:
            dir = self._dir
            if project is not None:
                dir = dir / project
                dir.mkdir(exist_ok=True)  # a token may be older than the first run
            found = self._apps[project] = page_app(dir, self._paths)
            if len(self._apps) > MAX_OPEN:
                await _close(self._apps.popitem(last=False)[1])
        self._apps.move_to_end(project)
        return found


async def _close(app: Starlette) -> None:
    await app.state.hub.close()
    app.state.directory.close()
