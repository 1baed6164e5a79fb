"""Limits of one connection: time to send a head and a body, bytes of a body, time without reading, and the number.

uvicorn has a time limit for idle connections only, and a limit on the head for its h11 parser only. This protocol is
always used, so that what is installed beside barograph (httptools) changes no limit.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LINGER_SECONDS = 2.0  # time to send the error response, before the connection is aborted


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a server's connections."""

    connections: int = 512  # half of the usual limit on open files: runs are read from the others
    head_bytes: int = 256 << 10  # URLs with many metric names are long
    body_bytes: int = 4 << 20  # the rest of a body that was answered with 413 is read up to here and dropped
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 30.0  # without progress; a slow client may read for longer


class LimitedProtocol(H11Protocol):
    """An HTTP connection that is closed when it exceeds one of its limits."""

    limits = ConnectionLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: tuple[Any, Any] | None = None
        self._body_bytes = 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # The methods that asyncio and uvicorn call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first head; make room where too many connections are open."""
        super().connection_made(transport)
        self._restart_timer()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        for timer in (self._read_timer, self._write_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; reject a body that is too large, and start the time limit of what is awaited now."""
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._body_bytes += len(data)
            if self._body_bytes > self.limits.body_bytes:
                self._reject(413, f"the body is larger than {self.limits.body_bytes} bytes")
                return
        super().data_received(data)
        self._restart_timer()

    def on_response_complete(self) -> None:
        """Start the time limit of the next head."""
        super().on_response_complete()
        self._restart_timer()

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read."""
        super().pause_writing()
        self._watch_writing(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the time limit of a client that does not read."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    # The limits

    def _restart_timer(self) -> None:
        """Start the time limit when a head or a body begins to be awaited; more of the same does not extend it."""
        awaited = self.conn.their_state, self.cycle
        if awaited == self._awaited or self.transport.is_closing():
            return
        self._awaited = awaited
        self._body_bytes = 0
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if self.conn.their_state is h11.IDLE:
            self._reject_after(self.limits.head_seconds, "head")
        elif self.conn.their_state is h11.SEND_BODY:
            self._reject_after(self.limits.body_seconds, "body")

    def _reject_after(self, seconds: float, what: str) -> None:
        message = f"the {what} of the request was not complete after {seconds:g} seconds"
        self._read_timer = self.loop.call_later(seconds, self._reject, 408, message)

    def _watch_writing(self, unsent: int) -> None:
        self._write_timer = self.loop.call_later(self.limits.write_seconds, self._check_writing, unsent)

    def _check_writing(self, before: int) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent >= before:
            self.transport.abort()
        else:
            self._watch_writing(unsent)

    def _make_room(self) -> None:
        """Abort the connection whose time limit ends next; where none awaits a request, reject this one."""
        still_open = [one for one in self.connections if not one.transport.is_closing()]
        if len(still_open) <= self.limits.connections:
            return
        others = [one for one in still_open if isinstance(one, LimitedProtocol) and one is not self]
        waiting = [(one._read_timer.when(), one.transport) for one in others if one._read_timer is not None]
        if waiting:
            min(waiting, key=lambda pair: pair[0])[1].abort()
        else:
            self._reject(503, f"{self.limits.connections} connections are open: try again later")

    def _reject(self, status: int, message: str) -> None:
        """Send an error where no response has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": message}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application may not respond any more
            self.cycle.message_event.set()
        self.transport.close()
        self._read_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
