"""The hooks of the doctor: what a receiver gets, and what happens when it does not answer."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from barograph.base.model import RunInfo
from barograph.catalogue.spec import Text
from barograph.diagnosis import watch
from barograph.diagnosis.watch import ChangeSender, TemporaryError, command, message, signature, webhook
from barograph.journal.findings import Change, Finding

INFO = RunInfo("r1", "math", "seed 1", 0.0)
FINDING = Finding(
    "nonfinite", "critical", Text("NaN", "非数"), Text("grad_norm.", "梯度。"), "g", "policy/g", 7, 9, True
)
CHANGE = Change(3, "opened", 9, 1.0, FINDING)


class Receiver:
    """A server that answers with the given codes, one after another, the last one again and again."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                code = receiver.codes.pop(0) if len(receiver.codes) > 1 else receiver.codes[0]
                self.send_response(code)
                if code in (301, 307):
                    self.send_header("Location", receiver.url + "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/secret-path"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that takes everything."""
    found = Receiver([200])
    yield found
    found.close()


def test_the_receiver_gets_the_run_the_change_and_a_sentence(receiver: Receiver):
    """With a signature that it can check, and a name by which it knows a repeated delivery."""
    webhook(receiver.url, "key")(message(INFO, CHANGE))
    ((headers, body),) = receiver.got
    found = json.loads(body)
    assert found["text"] == "math/seed 1: critical since step 7: NaN. grad_norm."
    assert (found["kind"], found["step"], found["run"]["id"]) == ("opened", 9, "r1")
    assert found["finding"] == FINDING.record()
    assert headers[watch.SIGNATURE] == f"sha256={signature('key', headers[watch.TIMESTAMP], body)}"
    assert headers[watch.DELIVERY] == "r1-3"


def test_without_a_key_there_is_no_signature(receiver: Receiver):
    """The receiver is not led to believe that it was signed."""
    webhook(receiver.url, "")(message(INFO, CHANGE))
    assert watch.SIGNATURE not in receiver.got[0][0]


@pytest.mark.parametrize("code", [500, 503, 429, 408])
def test_an_answer_that_may_change_is_asked_for_again(receiver: Receiver, code: int, monkeypatch: pytest.MonkeyPatch):
    """After a pause, and until it is taken."""
    receiver.codes[:] = [code, code, 200]
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.0)
    told: list[str] = []
    sender = ChangeSender(webhook(receiver.url, ""), told.append)
    assert [sender.take(message(INFO, CHANGE)) for _ in range(3)] == [False, False, True]
    assert len(receiver.got) == 3
    assert told == [f"the webhook answered {code}; trying again"] * 2


def test_there_is_a_pause_before_the_next_try(receiver: Receiver):
    """A receiver that is down is not called at every look."""
    receiver.codes[:] = [500]
    sender = ChangeSender(webhook(receiver.url, ""), lambda text: None)
    assert not sender.take(message(INFO, CHANGE))
    assert not sender.take(message(INFO, CHANGE))
    assert len(receiver.got) == 1


@pytest.mark.parametrize("code", [400, 401, 404, 410, 301, 307])
def test_a_refusal_is_told_and_not_repeated(receiver: Receiver, code: int):
    """A redirect is one: what is sent must not go elsewhere."""
    receiver.codes[:] = [code]
    told: list[str] = []
    assert ChangeSender(webhook(receiver.url, ""), told.append).take(message(INFO, CHANGE))
    assert len(receiver.got) == 1
    assert str(code) in told[0]


def test_a_receiver_that_is_not_there_is_tried_again_and_its_address_is_not_told(receiver: Receiver):
    """The address of a webhook is a secret."""
    receiver.close()
    told: list[str] = []
    assert not ChangeSender(webhook(receiver.url, ""), told.append).take(message(INFO, CHANGE))
    assert "cannot be reached" in told[0]
    assert "secret-path" not in told[0]


def test_after_an_hour_a_change_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """So that those after it are sent."""
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])

    def fail(found: object) -> None:
        raise TemporaryError("no")

    sender = ChangeSender(fail, lambda text: None)
    now[0] = 1.0
    assert not sender.take(message(INFO, CHANGE))
    now[0] = 2.0 + watch.GIVE_UP_SECONDS
    assert sender.take(message(INFO, CHANGE))


def test_a_command_gets_the_change(tmp_path: Path):
    """On its standard input and in its environment; no shell reads it."""
    script = tmp_path / "take it.py"
    script.write_text(
        "import json, os, sys\n"
        "found = json.load(sys.stdin)\n"
        "found['rule'] = os.environ['BAROGRAPH_FINDING_RULE']\n"
        "open(sys.argv[1], 'w').write(json.dumps(found))\n"
    )
    line = f"'{sys.executable}' '{script}' '{tmp_path / '$HOME.json'}'"
    command(line)(message(INFO, CHANGE))
    found = json.loads((tmp_path / "$HOME.json").read_text())
    assert (found["rule"], found["finding"]["onset"]) == ("nonfinite", 7)


def test_a_command_that_fails_is_told():
    """And not run again for the same change."""
    told: list[str] = []
    assert ChangeSender(command(f"'{sys.executable}' -c 'raise SystemExit(3)'"), told.append).take(
        message(INFO, CHANGE)
    )
    assert told == ["ValueError: the command ended with 3"]


def test_a_closed_finding_says_when_it_was_over():
    """Not that it goes on."""
    over = replace(CHANGE, kind="closed", finding=replace(FINDING, is_open=False))
    assert message(INFO, over)["text"] == "math/seed 1: over since step 9: NaN (began at step 7)"
