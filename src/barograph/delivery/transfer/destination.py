"""Places that take copies of a run's segments.

The interface, and a server as such a place, over one connection that is kept open and made again when it is lost.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self
from urllib.parse import quote, urlsplit
from zlib import crc32

from barograph.base.errors import BarographError
from barograph.base.formatting import printable, size
from barograph.journal.format.folder import RUN_FILE

Reason = Literal["access", "beyond", "broken", "busy", "differs", "limit", "name", "unreachable"]
"""Why a destination does not take a piece.

``beyond``: it begins after the bytes that are held; ``differs``: other bytes are held; ``broken``: it is not made of
complete frames, or was damaged on its way; ``name``: the run or the segment cannot have that name.
"""


PERMANENT: tuple[Reason, ...] = ("access", "broken", "differs", "limit", "name")
"""Reasons for which the same call mostly fails again."""


class DestinationError(BarographError):
    """A destination did not take a piece, or could not be asked.

    ``permanent``: the same call fails again, by default for a reason of ``PERMANENT``; ``retry_after``: the seconds to
    wait before the next one; ``held``: the bytes of the segment that are held, where sending can go on.
    """

    def __init__(
        self,
        message: str,
        reason: Reason,
        *,
        permanent: bool | None = None,
        retry_after: float | None = None,
        held: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.permanent = reason in PERMANENT if permanent is None else permanent
        self.retry_after = retry_after
        self.held = held

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how the error is pickled, with its attributes."""
        return DestinationError, (str(self), self.reason), self.__dict__


class Destination(Protocol):
    """A place that holds copies of the segments of one run. Every call may block, and raises DestinationError."""

    def held(self) -> Mapping[str, int]:
        """Return how many bytes of each segment are held, by file name."""
        ...

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        """Append a piece of a segment; return how many bytes of it are held then.

        A piece that is held already changes nothing. With ``last`` the writer has ended, and the piece may end with
        any bytes. ``held`` lies within a frame where a write was interrupted: a piece may begin before it.
        """
        ...

    def describe(self, info: bytes) -> None:
        """Store the run's ``run.json``; the first one counts."""
        ...

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Return bytes of a segment or of ``run.json``; fewer than asked at its end and where a piece has fewer."""
        ...


TOKEN_VARIABLE = "BAROGRAPH_TOKEN"

CONNECT_SECONDS = 10.0

ANSWER_SECONDS = 30.0  # for a request and all of its answer

MAX_ANSWER = 16 << 20  # bytes of JSON; a list of 65,536 segments has 3 MB

MAX_MESSAGE = 300  # characters of a server's words that are shown

REASONS: Mapping[int, Reason] = {400: "broken", 401: "access", 403: "access", 404: "name", 413: "limit", 422: "name"}
"""Why a request is refused, by status; others may succeed later."""

LOST = (http.client.HTTPException, OSError)  # the connection, or a server that speaks something else


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A run on a server, and the token for it; processes get it on standard input, never as an argument."""

    server: str
    project: str  # the directory's name on the server
    id: str
    token: str | None = field(repr=False)
    is_spooled: bool = False  # the local folder is removed when all is sent

    @classmethod
    def of(cls, server: str, project: str, id: str, is_spooled: bool = False) -> Self:
        """Return a run with the token of the environment."""
        return cls(server, project, id, os.environ.get(TOKEN_VARIABLE) or None, is_spooled)


class HttpDestination:
    """The copies of one run on a server. Not for use by several threads."""

    def __init__(self, run: ServerRun) -> None:
        parts = urlsplit(run.server)
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._base = f"{parts.path.rstrip('/')}/api/transfer/{quote(run.project, safe='')}/{quote(run.id, safe='')}"
        self._headers = {"Authorization": f"Bearer {run.token}"} if run.token else {}
        self._host, self._port = parts.hostname or "", parts.port
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def held(self) -> Mapping[str, int]:
        """Return how many bytes of each segment are held, by file name."""
        found = self._asked("GET", "").get("segments")
        if not isinstance(found, dict) or not all(type(count) is int and count >= 0 for count in found.values()):
            raise self._rubbish()
        return found

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        """Append a piece of a segment; return how many bytes of it are held then."""
        query = f"?offset={offset}&crc={crc32(data):08x}{'&last=1' if last else ''}"
        held = self._asked("POST", f"/{quote(segment, safe='')}{query}", data).get("held")
        if type(held) is not int or held < offset + len(data):
            raise self._rubbish()
        return held

    def describe(self, info: bytes) -> None:
        """Store the run's ``run.json``; the first one counts."""
        self._asked("POST", f"/{RUN_FILE}", info)

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Return bytes of a segment or of ``run.json``."""
        return self._answered("GET", f"/{quote(segment, safe='')}?offset={offset}&length={length}", b"", length)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        return self._parsed(self._answered(method, path, body, MAX_ANSWER))

    def _parsed(self, answer: bytes) -> dict[str, Any]:
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._rubbish()
        return found

    def _answered(self, method: str, path: str, body: bytes, limit: int) -> bytes:
        """Return the body of the answer to a request; raise DestinationError if there is none or it is a refusal."""
        is_kept = self._connection is not None
        try:
            try:
                response, answer = self._exchange(method, path, body, limit)
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server closes a connection that was idle; every request may be repeated.
                self.close()
                if not is_kept:
                    raise
                response, answer = self._exchange(method, path, body, limit)
        except LOST as problem:
            self.close()
            raise DestinationError(f"{self.address} cannot be reached: {_why(problem)}", "unreachable") from problem
        if response.status != http.client.OK:
            raise self._refusal(response, answer)
        return answer

    def _exchange(self, method: str, path: str, body: bytes, limit: int) -> tuple[http.client.HTTPResponse, bytes]:
        deadline = time.monotonic() + ANSWER_SECONDS
        connection = self._connected()
        headers = {**self._headers, **({"Content-Type": "application/octet-stream"} if method == "POST" else {})}
        connection.request(method, self._base + path, body if method == "POST" else None, headers)
        response = connection.getresponse()
        answer = bytearray()
        # In parts: a server that sends a byte now and then would never run into the timeout of the socket.
        while part := response.read1(min(limit + 1 - len(answer), 1 << 16)):
            answer += part
            if len(answer) > limit:
                raise http.client.HTTPException(f"the answer has more than {size(limit)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer is not complete after {ANSWER_SECONDS:.0f} s")
        if response.length:
            raise http.client.IncompleteRead(bytes(answer), response.length)
        response.close()  # for the next request on the connection
        if response.will_close:
            self.close()
        return response, bytes(answer)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._context is not None:
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=CONNECT_SECONDS, context=self._context
                )
            else:
                made = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
            self._connection = made
            made.connect()
            made.sock.settimeout(ANSWER_SECONDS)
            # A request is a head and a body in two writes: without this the second waits for an acknowledgement.
            made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _refusal(self, response: http.client.HTTPResponse, answer: bytes) -> DestinationError:
        """Return the error that an answer with another status than 200 stands for."""
        try:
            found = self._parsed(answer)
        except DestinationError:
            found = {}
        held = found.get("held") if type(found.get("held")) is int else None
        words = found.get("error")
        told = printable(words)[:MAX_MESSAGE] if isinstance(words, str) else f"status {response.status}"
        message = f"{self.address}: {told}"
        if response.status == http.client.CONFLICT and held is not None:
            return DestinationError(message, "differs" if found.get("differs") is True else "beyond", held=held)
        if response.status in REASONS:
            return DestinationError(message, REASONS[response.status])
        return DestinationError(message, "busy", retry_after=_seconds(response.getheader("Retry-After")))

    def _rubbish(self) -> DestinationError:
        return DestinationError(f"{self.address} does not answer as a barograph server does", "unreachable")


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; a date counts as none."""
    return float(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _why(problem: BaseException) -> str:
    return (isinstance(problem, OSError) and problem.strerror) or str(problem) or type(problem).__name__
