"""Running the server: a socket that is ours before anything is promised, and an end that keeps nobody waiting."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from windsock.errors import WindsockError
from windsock.server.http.guard import EVERYWHERE, Guard, is_loopback

if TYPE_CHECKING:
    import uvicorn

NEIGHBOURS = 50  # ports that are tried when one is to be proposed
LONGEST_REQUEST = 256 << 10  # addresses with many metric names are long


class ServingError(WindsockError):
    """The page cannot be served as asked."""


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, or say what to do instead."""
    try:
        return _bound(host, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ServingError(f"port {port} is in use: try  windsock up --port {_free_port(host, port)}") from None
        raise ServingError(f"cannot serve at {host}:{port}: {problem.strerror or problem}") from None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except (OSError, OverflowError):
        found.close()
        raise
    return found


def _free_port(host: str, port: int) -> int:
    for candidate in range(port + 1, min(port + NEIGHBOURS, 65536)):
        try:
            _bound(host, candidate).close()
        except OSError:
            continue
        return candidate
    return 0


def token_for(host: str, token: str | None) -> str | None:
    """Return the token that requests must show: a new one where others can reach the address and none is given."""
    return token or (None if is_loopback(host) else secrets.token_urlsafe(24))


def address(host: str, port: int, token: str | None) -> str:
    """Return the address to open."""
    shown = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def make_server(dir: Path, guard: Guard, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return a server for a directory that ends its streams before it waits for them, and tells when it is ready."""
    import uvicorn

    from windsock.server.http.app import make_app

    app = make_app(dir, guard)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await app.state.hub.close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=LONGEST_REQUEST,
    )
    return Server(config)


def serve(dir: Path, host: str, port: int, token: str | None, ready: Callable[[str], None]) -> None:
    """Serve a directory until interrupted; ``ready`` is told the address once requests are taken."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ServingError(f"the page needs {package}: pip install 'windsock[page]'")
    with bound(host, port) as taken:
        port = taken.getsockname()[1]
        guard = Guard(host, port, token_for(host, token))
        make_server(dir, guard, lambda: ready(address(host, port, guard.token))).run([taken])
