"""The ``/metrics`` of an inference engine: one request, with limits for its time and its size."""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from functools import cached_property
from urllib.parse import SplitResult, unquote

from windsock.errors import EngineError

TIMEOUT = 3.0  # seconds; a busy engine answers late
MAX_BYTES = 8 << 20  # 64 data-parallel engines of vLLM in one server have about 4 MiB
CHUNK = 1 << 16
HEADERS = {"Accept": "text/plain;version=0.0.4", "User-Agent": "windsock"}
HINT = "vLLM serves them unless it has --disable-log-stats, SGLang with --enable-metrics"


class Endpoint:
    """An address from which metrics are read. Proxies are not used: an engine is near."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        self.address = (url.scheme, url.hostname, url.port, metrics_path(url.path), url.query)
        query = f"?{url.query}" if url.query else ""
        self._target = metrics_path(url.path) + query
        self._headers = HEADERS | _authorization(url)

    @property
    def place(self) -> str:
        """The address as people see it. Path, query and password may contain secrets and are left out."""
        return f"{self._url.scheme}://{host_and_port(self._url)}"

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def fetch(self) -> str:
        """Return the text of an answer; raise EngineError or OSError if there is none in time."""
        deadline = time.monotonic() + TIMEOUT
        connection = self._connection()
        try:
            connection.request("GET", self._target, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                hint = f"; {HINT}" if answer.status == http.client.NOT_FOUND else ""
                raise EngineError(f"HTTP {answer.status}{hint}")
            return _body(answer, deadline)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)


def _body(answer: http.client.HTTPResponse, deadline: float) -> str:
    """Read a body up to the limits. The socket's timeout is for one packet: an endless body ends here."""
    found = bytearray()
    while chunk := answer.read1(CHUNK):
        found += chunk
        if len(found) > MAX_BYTES:
            raise EngineError(f"the answer has more than {MAX_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    return found.decode("utf-8", "replace")


def metrics_path(path: str) -> str:
    """Return the path of the metrics for one that a user gave: with it, without it, or that of the OpenAI API."""
    path = path.rstrip("/")
    return path if path.endswith("/metrics") else f"{path.removesuffix('/v1')}/metrics"


def host_and_port(url: SplitResult) -> str:
    """Return host and port of a URL without the user's name and password."""
    return url.netloc.rpartition("@")[2]


def _authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    user = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
