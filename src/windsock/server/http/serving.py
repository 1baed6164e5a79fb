"""Serving a directory: bind the socket, then run uvicorn until interrupted."""

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
from windsock.server.http.guard import ANY_ADDRESS, Guard, is_loopback

if TYPE_CHECKING:
    import uvicorn

    from windsock.server.http.connection_limits import Limits

MAX_PORTS_TRIED = 50  # when looking for a free port to suggest


class ServingError(WindsockError):
    """The page cannot be served as asked."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to an address; a ServingError names another port where this one is in use."""
    try:
        return _bind(host, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ServingError(f"port {port} is in use: try  windsock up --port {_free_port(host, port)}") from None
        raise ServingError(f"cannot serve at {host}:{port}: {problem.strerror or problem}") from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, OverflowError):
        bound.close()
        raise
    return bound


def _free_port(host: str, port: int) -> int:
    for candidate in range(port + 1, min(port + MAX_PORTS_TRIED, 65536)):
        try:
            _bind(host, candidate).close()
        except OSError:
            continue
        return candidate
    return 0


def token_for(host: str, token: str | None) -> str | None:
    """Return the token that requests need: a new one where other machines reach the address and none is given."""
    return token or (None if is_loopback(host) else secrets.token_urlsafe(24))


def address(host: str, port: int, token: str | None) -> str:
    """Return the address to open."""
    shown = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def make_server(
    dir: Path, guard: Guard, ready: Callable[[], None] = lambda: None, limits: Limits | None = None
) -> uvicorn.Server:
    """Return a server for a directory; it calls ``ready`` once it accepts requests."""
    import uvicorn

    from windsock.server.http.app import make_app
    from windsock.server.http.connection_limits import LimitedProtocol

    app = make_app(dir, guard)

    class Protocol(LimitedProtocol):
        pass

    if limits is not None:
        Protocol.limits = limits

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # uvicorn waits for open responses: end the event streams first.
            await app.state.hub.close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=3,
        http=Protocol,
        h11_max_incomplete_event_size=Protocol.limits.head_bytes,
    )
    return Server(config)


def serve(
    dir: Path, host: str, port: int, token: str | None, ready: Callable[[str], None], framed: bool = False
) -> None:
    """Serve a directory until interrupted; call ``ready`` with the address once requests are accepted.

    With ``framed`` notebooks may show the page in a frame.
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ServingError(f"the page needs {package}: pip install 'windsock[page]'")
    with bind_socket(host, port) as bound:
        port = bound.getsockname()[1]
        guard = Guard(host, port, token_for(host, token), framed)
        make_server(dir, guard, lambda: ready(address(host, port, guard.token))).run([bound])
