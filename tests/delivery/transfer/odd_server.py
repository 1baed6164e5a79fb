"""A small server that takes pieces as the real one does, and can be slow, full, rude or wrong.

``python odd_server.py DIR PORT`` serves a directory from a process that can be killed.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from zlib import crc32

from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.receiver import Receiver

STATUS = {"beyond": 409, "differs": 409, "broken": 400, "limit": 413, "name": 404, "busy": 503}

CANNED: dict[str, Any] = {
    "rubbish": (200, b"<html>It works!</html>"),
    "lies": (200, b'{"held": -1, "segments": {"a": "b"}}'),
    "busy": (429, b'{"error": "too many pieces"}', {"Retry-After": "7"}),
    "crash": (500, b"Internal Server Error"),
    "full": (503, b'{"error": "the disk is full"}', {"Retry-After": "30"}),
}
"""Answers to every request, by mood."""


class OddServer(ThreadingHTTPServer):
    """The server; ``mood`` is what goes wrong, ``requests`` what was asked for."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, dir: Path, port: int = 0, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.dir = dir
        self.token = token
        self.mood = ""
        self.requests: list[str] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the other side may be killed at any time."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    server: OddServer
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        mood, url = self.server.mood, urlsplit(self.path)
        self.server.requests.append(f"{self.command} {url.path}")
        if mood in CANNED:
            self._send(*CANNED[mood])
        elif mood in ("cuts", "no http"):
            self.wfile.write(b"220 mail.example.org ESMTP\r\n" if mood == "no http" else b"")
            self.close_connection = True
        elif mood == "endless":
            self._dribble()
        elif self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._send(401, b'{"error": "the token is wrong \\u001b[31m"}')
        elif mood == "write only" and self.command == "GET" and url.path.endswith(".seg"):
            self._send(403, b'{"error": "the token may not read"}')
        else:
            self._transfer(url.path, {name: found[0] for name, found in parse_qs(url.query).items()}, body)
            self.close_connection = mood == "closes"  # an idle connection, after the answer

    def _transfer(self, path: str, query: dict[str, str], body: bytes) -> None:
        project, run, *segment = map(unquote, path.removeprefix("/api/transfer/").split("/"))
        receiver = Receiver(self.server.dir / project / run)
        try:
            if not segment:
                answer: Any = {"segments": receiver.held(), "piece_bytes": 4 << 20}
            elif self.command == "GET":
                return self._send(200, receiver.read(segment[0], int(query["offset"]), int(query["length"])))
            elif segment == ["run.json"]:
                receiver.describe(body)
                answer = {"held": len(body)}
            else:
                assert crc32(body) == int(query["crc"], 16)
                answer = {"held": receiver.append(segment[0], int(query["offset"]), body, "last" in query)}
        except DestinationError as error:
            told = {"error": str(error), "held": error.held, "differs": error.reason == "differs"}
            return self._send(STATUS[error.reason], json.dumps(told).encode())
        return self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _dribble(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while self.server.mood == "endless":
            self.wfile.write(b"x")
            time.sleep(0.01)


@contextmanager
def odd_server(dir: Path, token: str | None = None) -> Iterator[OddServer]:
    """Serve a directory from a thread of this process."""
    with OddServer(dir, token=token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.mood = ""
        server.shutdown()
        thread.join()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


if __name__ == "__main__":
    OddServer(Path(sys.argv[1]), int(sys.argv[2])).serve_forever()
