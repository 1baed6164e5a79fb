"""Serving a directory: bind the socket, then run uvicorn until interrupted."""

from __future__ import annotations

import errno
import resource
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlsplit

from barograph.apps.page.http.guard import ANY_ADDRESS, Guard, is_loopback
from barograph.base.errors import BarographError
from barograph.base.installation import install_command
from barograph.delivery.transfer.receiver import ReceiverLimits as TransferLimits
from barograph.delivery.transfer.tokens import TokenFile

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from barograph.apps.page.http.connection_limits import ConnectionLimits

MAX_FILES = 65_536
MAX_PORTS_TRIED = 50  # when looking for a free port to suggest


class ServingError(BarographError):
    """The page cannot be served as asked."""


def bind_socket(host: str, port: int, command: str = "up") -> socket.socket:
    """Bind a socket to an address; a ServingError names another port for the command where this one is in use."""
    try:
        return _bind(host, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            free = _free_port(host, port)
            raise ServingError(f"port {port} is in use: try  barograph {command} --port {free}") from None
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


@dataclass(frozen=True, slots=True)
class TeamOptions:
    """What a server for a team has beside the page: ingest, tokens of projects, a certificate, a proxy in front."""

    ingest: bool = False
    certificate: Path | None = None
    key: Path | None = None
    proxy: str | None = None  # the address at which it serves the page

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ServingError("TLS needs a certificate and its key: give both --tls-cert and --tls-key")
        if self.certificate is not None and self.key is not None:
            _check_certificate(self.certificate, self.key)
        if self.proxy is not None:
            _check_proxy(self.proxy)

    @property
    def proxy_parts(self) -> SplitResult | None:
        """The address of the proxy, split."""
        return None if self.proxy is None else urlsplit(self.proxy)


def _check_certificate(certificate: Path, key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ValueError) as problem:
        raise ServingError(f"cannot use the certificate {certificate} with the key {key}: {problem}") from None


def _check_proxy(proxy: str) -> None:
    try:
        parts = urlsplit(proxy)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address:
        raise ServingError(f"--behind-proxy: expected an address such as https://host/barograph/, got {proxy!r}")


ALONE = TeamOptions()
"""A server on a machine of one's own."""


def token_for(host: str, token: str | None, always: bool = False) -> str | None:
    """Return the token that requests need: a new one where other machines reach the address and none is given."""
    return token or (None if is_loopback(host) and not always else secrets.token_urlsafe(24))


def address(host: str, port: int, token: str | None, options: TeamOptions = ALONE) -> str:
    """Return the address to open."""
    shown = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    base = f"{'https' if options.certificate else 'http'}://{shown}:{port}"
    base = options.proxy.rstrip("/") if options.proxy is not None else base
    return f"{base}/" + (f"?token={quote(token, safe='')}" if token else "")


def make_server(
    dir: Path,
    guard: Guard,
    ready: Callable[[], None] = lambda: None,
    limits: ConnectionLimits | None = None,
    options: TeamOptions = ALONE,
) -> uvicorn.Server:
    """Return a server for a directory; it calls ``ready`` once it accepts requests."""
    from barograph.apps.page.http.app import ProjectApps

    apps = ProjectApps(dir, options.ingest)
    return app_server(apps.guarded(guard), ready, limits, options, apps.end_streams)


async def _no_streams() -> None:
    """Do nothing."""


def app_server(
    app: ASGIApp,
    ready: Callable[[], None],
    limits: ConnectionLimits | None = None,
    options: TeamOptions = ALONE,
    end_streams: Callable[[], Awaitable[None]] = _no_streams,
) -> uvicorn.Server:
    """Return a server for an application; it calls ``ready`` once it accepts requests, ``end_streams`` at its end."""
    import uvicorn

    from barograph.apps.page.http.connection_limits import LimitedProtocol

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
            await end_streams()
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
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return Server(config)


def serve(
    dir: Path,
    host: str,
    port: int,
    token: str | None,
    ready: Callable[[str], None],
    framed: bool = False,
    options: TeamOptions = ALONE,
) -> None:
    """Serve a directory until interrupted; call ``ready`` with the address once requests are accepted.

    With ``framed`` notebooks may show the page in a frame.
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ServingError(f"the page needs {package}: {install_command('page')}")
    tokens = TokenFile(dir) if options.ingest or TokenFile(dir).path.exists() else None
    # Everybody reaches a proxy, also one that asks over loopback; and what a node sends needs a name.
    is_team = options.ingest or options.proxy is not None
    needed = token_for(host, token, always=is_team)
    with bind_socket(host, port) as bound:
        port = bound.getsockname()[1]
        tls = options.certificate is not None
        guard = Guard(host, port, needed, framed, tokens, options.proxy_parts, tls)
        limits = ingest_limits() if options.ingest else None
        # What a service prints is kept in logs: a token that somebody has already is not repeated there.
        opened = address(host, port, None if is_team and token else needed, options)
        make_server(dir, guard, lambda: ready(opened), limits, options).run([bound])


def ingest_limits() -> ConnectionLimits:
    """Return the limits of connections where many nodes keep one open, and may send a large frame."""
    from barograph.apps.page.http.connection_limits import ConnectionLimits

    files = _raised_file_limit()
    largest = TransferLimits().largest_piece
    return ConnectionLimits(connections=max(512, min(files // 2, 8192)), body_bytes=largest, body_seconds=60.0)


def _raised_file_limit() -> int:
    """Raise the limit on open files as far as this process may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
