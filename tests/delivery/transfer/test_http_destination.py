"""Tests of a server as a destination: one kept connection, and an error of barograph for all that a server can do."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from odd_server import OddServer, odd_server
from segment_bytes import RUN_JSON, row, segment

from barograph.delivery.transfer import destination as http_destination
from barograph.delivery.transfer.destination import DestinationError, HttpDestination, ServerRun

NAME = "trainer.0.1.0.seg"
PIECE = segment(1)[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OddServer]:
    with odd_server(tmp_path_factory.mktemp("served"), token="right") as server:
        yield server


@pytest.fixture
def server(served: OddServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[OddServer]:
    monkeypatch.setattr(http_destination, "ANSWER_SECONDS", 0.3)
    served.mood, served.connections = "", 0
    served.requests.clear()
    yield served
    served.mood = ""


opened: list[HttpDestination] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def destination(server: OddServer, run: str = "run1", token: str = "right", url: str = "") -> HttpDestination:
    opened.append(HttpDestination(ServerRun(url or server.url, "lab", run, token)))
    return opened[-1]


def error_of(server: OddServer, mood: str, token: str = "right") -> DestinationError:
    server.mood = mood
    with pytest.raises(DestinationError) as caught:
        destination(server, token=token).append(NAME, 0, PIECE)
    return caught.value


def test_a_run_is_described_sent_listed_and_read_over_one_connection(server: OddServer):
    """A piece that is held already changes nothing."""
    target = destination(server)
    target.describe(RUN_JSON)
    assert target.append(NAME, 0, PIECE) == len(PIECE)
    assert target.append(NAME, 0, PIECE, last=True) == len(PIECE)
    assert target.append("a%2Fb c.0.1.0.seg".replace(" ", "%20"), 0, PIECE) == len(PIECE)
    assert target.held() == {NAME: len(PIECE), "a%2Fb%20c.0.1.0.seg": len(PIECE)}
    assert target.read(NAME, 10, 100) == PIECE[10:110]
    assert target.read("run.json", 0, 1 << 20) == RUN_JSON
    target.close()
    assert server.connections == 1
    assert (server.dir / "lab" / "run1" / NAME).read_bytes() == PIECE


def test_a_connection_that_the_server_closed_is_made_again(server: OddServer):
    """Every request may be repeated."""
    target = destination(server, "run2")
    server.mood = "closes"
    assert [target.append(NAME, 0, PIECE) for _ in range(3)] == [len(PIECE)] * 3
    assert server.connections == 3


@pytest.mark.parametrize(
    ("mood", "reason", "told"),
    [
        ("cuts", "unreachable", "cannot be reached"),
        ("no http", "unreachable", "cannot be reached"),
        ("rubbish", "unreachable", "does not answer as a barograph server does"),
        ("lies", "unreachable", "does not answer as a barograph server does"),
        ("endless", "unreachable", "not complete after"),
        ("crash", "busy", "status 500"),
        ("busy", "busy", "too many pieces"),
    ],
)
def test_a_server_that_fails_is_tried_again(server: OddServer, mood: str, reason: str, told: str):
    """Nothing else than DestinationError is raised, and the error does not last."""
    error = error_of(server, mood)
    assert (error.reason, error.permanent) == (reason, False)
    assert told in str(error)
    assert error.retry_after == (7.0 if mood == "busy" else None)


def test_refusals_tell_why_and_where_to_go_on(server: OddServer):
    """A wrong token, other bytes, a gap, a broken piece, a wrong name."""
    denied = error_of(server, "", token="wrong")
    assert (denied.reason, denied.permanent) == ("access", True)
    assert "\x1b" not in str(denied)
    assert "wrong" in str(denied)
    target = destination(server, "run3")
    target.append(NAME, 0, PIECE)
    refused = []
    pieces = ((NAME, 0, segment(2)[0]), (NAME, 99_999, row(1)), (NAME, 0, PIECE + b"x"), ("../x", 0, PIECE))
    for piece in pieces:
        with pytest.raises(DestinationError) as caught:
            target.append(*piece)
        refused.append((caught.value.reason, caught.value.held))
    assert refused == [("differs", len(PIECE)), ("beyond", len(PIECE)), ("broken", None), ("name", None)]


def test_a_server_that_is_away_and_one_without_tls_cannot_be_reached(server: OddServer, tmp_path: Path):
    """Neither blocks; the reason is told, the token is not."""
    for url in ("http://127.0.0.1:9", server.url.replace("http:", "https:")):
        with pytest.raises(DestinationError, match="cannot be reached") as caught:
            destination(server, url=url).held()
        assert "right" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ssl.SSLError | OSError)


def test_a_server_behind_a_path_is_asked_there(server: OddServer):
    """As a proxy serves it."""
    with pytest.raises(DestinationError):
        destination(server, "my run", url=f"{server.url}/base").append(NAME, 0, PIECE)
    assert server.requests == [f"POST /base/api/transfer/lab/my%20run/{NAME}"]
