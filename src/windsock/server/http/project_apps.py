"""A server for a team: each token is served by an application of its project's directory, beside the ingest endpoints.

A token of one project can name nothing of another: the application that answers it knows no other directory.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from windsock.server.http.app import GuardMiddleware, page_app
from windsock.server.http.guard import FOR_PROGRAMS, Guard
from windsock.server.http.ingest import PREFIX, Ingest
from windsock.server.http.ingest_metrics import CONTENT_TYPE, IngestMetrics
from windsock.server.http.transfer_description import PATHS
from windsock.server.responses import encode
from windsock.transfer.received_runs import DirectoryLimits, ReceivedRuns
from windsock.transfer.tokens import Grant, Right

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
        grant: Grant = scope["windsock.grant"]
        path, method = scope["path"], scope["method"]
        if self._ingest is not None and path.startswith(PREFIX):
            return self._ingest
        if self._ingest is not None and path == "/metrics":
            if not grant.allows("read"):
                return _refused(
                    "the metrics are of all projects: they need a token of all that grants the right to read"
                )
            return Response(self.metrics.text(), 200, {"cache-control": "no-store"}, CONTENT_TYPE)
        is_change = method not in ("GET", "HEAD") and path not in READING_POSTS
        needed: tuple[Right, ...] = ("read", "write") if is_change else ("read",)
        for right in needed:
            if not grant.allows(right, grant.project):
                return _refused(f"the token does not grant the right to {right}")
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


def _refused(message: str) -> Response:
    return Response(encode({"error": message}), 403, None, "application/json")
