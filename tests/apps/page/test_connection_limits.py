"""Hostile connections: half-sent requests, endless heads and bodies, clients that do not read, too many clients."""

import re
import socket
import time

import pytest
from serving_runs import Serve, eventually

import barograph
from barograph.apps.page.http.connection_limits import ConnectionLimits

PATCH = b"PATCH /api/runs/demo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GET = b"GET /api/about HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def connect(port: int | None, data: bytes = b"") -> socket.socket:
    """Connect and send; every later call is bounded."""
    connection = socket.create_connection(("127.0.0.1", port or 0), timeout=20)
    connection.sendall(data)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo", GET + b"Connection: keep-alive\r\n\r\nGET / HT"])
def test_a_head_that_is_not_completed_is_rejected(sent: bytes, serve: Serve):
    """A silent connection too, and a second request on a connection."""
    port = serve(limits=ConnectionLimits(head_seconds=0.5)).base_url.port
    with connect(port, sent) as connection:
        assert b"HTTP/1.1 408" in read_all(connection)


def test_sending_slowly_does_not_extend_the_time_limit(serve: Serve):
    """A byte now and then keeps neither a head nor a body open."""
    port = serve(limits=ConnectionLimits(head_seconds=1, body_seconds=1)).base_url.port
    for start in (b"GET / HTTP/1.1\r\nX: ", PATCH + b"Content-Length: 9999\r\n\r\n{"):
        with connect(port, start) as connection:
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                while time.monotonic() < began + 20:
                    time.sleep(0.1)
                    connection.sendall(b" ")


def test_a_body_that_is_not_completed_is_rejected(serve: Serve, demo: barograph.Run):
    """Also where the response does not wait for the body."""
    port = serve(limits=ConnectionLimits(body_seconds=0.5)).base_url.port
    with connect(port, PATCH + b"Content-Length: 9\r\n\r\n{") as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 408")
    with connect(port, GET + b"Content-Length: 9\r\n\r\n{") as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("token", [None, "secret"])
def test_an_endless_head_or_body_is_cut(token: str | None, serve: Serve):
    """With and without access; whichever parsers are installed."""
    port = serve(token=token).base_url.port
    for start, most in (
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", 8 << 20),
        (b"GET /" + b"a" * 1000, 8 << 20),
        (GET + b"Content-Length: 99999999\r\n\r\n", 16 << 20),
        (PATCH + b"Content-Length: 99999999\r\n\r\n", 16 << 20),
    ):
        sent = 0
        with connect(port, start) as connection, pytest.raises(ConnectionError):
            while sent < 64 << 20:
                connection.sendall(b"a" * 65536)
                sent += 65536
        assert sent <= most  # the buffers of both sockets hold a few megabytes


def test_a_large_head_is_served(serve: Serve):
    """Below the limit: addresses with many metric names are long."""
    with connect(serve().base_url.port, GET + b"X: " + b"a" * 200_000 + b"\r\nConnection: close\r\n\r\n") as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_disconnected(serve: Serve):
    """Its responses wait in memory only for a while."""
    client = serve(limits=ConnectionLimits(write_seconds=0.5))
    request = b"GET /bundle/page.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(client.base_url.port) as connection, pytest.raises(ConnectionError):
        for _ in range(200_000):
            connection.sendall(request)
    assert client.get("/api/about").status_code == 200


def test_half_sent_requests_give_way_to_complete_ones(serve: Serve):
    """Above the bound on connections the one that has waited longest for a complete request is closed."""
    client = serve(limits=ConnectionLimits(connections=8, head_seconds=5))
    port = client.base_url.port
    held = [connect(port, b"GET / HTTP/1.1\r\nHo") for _ in range(20)]
    with connect(port, GET + b"Connection: close\r\n\r\n") as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert sum(read_all(connection) == b"" for connection in held) >= 12  # the others get 408 at the end of their time
    for connection in held:
        connection.close()


def test_connections_above_the_bound_are_rejected(serve: Serve):
    """Where every open one has a response under way."""
    client = serve(limits=ConnectionLimits(connections=3))
    port = client.base_url.port
    live = [connect(port, b"GET /api/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") for _ in range(3)]
    for connection in live:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    with connect(port) as connection:
        assert re.match(rb"HTTP/1.1 503", read_all(connection))
    live[0].close()
    assert eventually(lambda: client.get("/api/about").status_code == 200)
    for connection in live:
        connection.close()
