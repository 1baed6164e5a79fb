"""Runs that are sent to a server by a process beside the training, and processes that join from other machines."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from odd_server import OddServer, odd_server, until

import barograph
from barograph.apps.cli import main
from barograph.base.errors import RunNotFoundError, SettingsError
from barograph.base.model import Writer
from barograph.delivery.transfer import claiming, sending
from barograph.delivery.transfer.destination import ServerRun
from barograph.delivery.transfer.receiver import Receiver, ReceiverLimits
from barograph.delivery.transfer.sending import Sending, ServerClient
from barograph.delivery.transfer.spool import SpoolClient
from barograph.delivery.transfer.state import read_progress
from barograph.journal.format import frames
from barograph.journal.format.folder import segments
from barograph.recording.ticket import Ticket
from barograph.session import _joined_run

TOKEN = "wsk_1_hunter2hunter2hunter2"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OddServer]:
    with odd_server(tmp_path_factory.mktemp("served"), TOKEN) as server:
        yield server


@pytest.fixture
def server(served: OddServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OddServer:
    monkeypatch.setenv("BAROGRAPH_TOKEN", TOKEN)
    monkeypatch.setattr(sending, "SEND_SECONDS", 0.05)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    served.mood = ""
    served.requests.clear()
    return served


def copies(server: OddServer, run: barograph.Run) -> dict[str, bytes]:
    """Return the segments of a run on the server."""
    return contents(server.dir / run.project / run.id)


def contents(folder: Path) -> dict[str, bytes]:
    return {segment.path.name: segment.path.read_bytes() for segment in segments(folder)}


def client_of(run: barograph.Run) -> ServerClient:
    client = run._clients[-1]
    assert isinstance(client, ServerClient)
    return client


def run_on(server: OddServer, run: barograph.Run) -> ServerRun:
    return ServerRun.of(server.url, run.project, run.id)


def ticket_elsewhere(run: barograph.Run) -> str:
    """Return the ticket of a run as a machine sees it that does not have its directory."""
    return run.ticket().replace(str(run.path.parent.parent), "/another/machine")


def test_a_run_is_recorded_here_and_held_by_the_server_when_it_ends(
    server: OddServer, capsys: pytest.CaptureFixture[str]
):
    """The bytes are equal; the token is in no argument, environment or file, and the lag is logged."""
    run = barograph.init(project="p", server=server.url)
    run.log({"a": 1.0}, step=0)
    assert client_of(run).values()["barograph/transfer/lag_bytes"] > 0
    process = client_of(run)._helper.process
    assert process is not None
    visible = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    assert TOKEN.encode() not in visible
    assert "server=" in run.ticket()
    assert TOKEN not in run.ticket()
    run._maintain_clients()
    run.finish(timeout=60)
    assert copies(server, run) == contents(run.path)
    assert (server.dir / "p" / run.id / "run.json").read_bytes() == (run.path / "run.json").read_bytes()
    assert "barograph/transfer/lag_bytes" in barograph.open(server.dir / "p" / run.id).names()
    assert not any(TOKEN.encode() in path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    assert capsys.readouterr().err == ""
    assert process.wait(30) == 0


def test_what_is_left_at_the_end_is_told_and_can_be_pushed(
    server: OddServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A token that is refused costs a warning; no call of the training fails or waits."""
    monkeypatch.setenv("BAROGRAPH_TOKEN", "wrong")
    run = barograph.init(project="p", server=server.url)
    run.log({"a": 1.0}, step=0)
    client = client_of(run)
    until(lambda: bool(read_progress(run.path).error))
    client.maintain()
    assert "a problem with the run's server" in capsys.readouterr().err
    run.finish(timeout=0.0)
    told = capsys.readouterr().err
    assert "of the run are not sent" in told
    assert "the token is wrong" in told
    command = told.partition("barograph push ")[2].split()
    assert main(["push", *command]) == 1
    assert "the run is not sent" in capsys.readouterr().err
    assert copies(server, run) == {}
    monkeypatch.setenv("BAROGRAPH_TOKEN", TOKEN)
    for _ in range(2):  # a second time changes nothing
        assert main(["push", *command]) == 0
        assert f"1 segment of p/{run.id}" in capsys.readouterr().out
    assert copies(server, run) == contents(run.path)


MOODS = ("cuts", "rubbish", "lies", "no http", "busy", "crash", "full")


def test_a_server_that_is_wrong_in_any_way_is_tried_again_until_it_is_right(server: OddServer):
    """The progress tells why nothing is sent; what was recorded meanwhile follows."""
    run = barograph.init(id="moods", project="p")
    there = Sending(run.path, run_on(server, run))
    for step, mood in enumerate(MOODS):
        run.log({"a": float(step)}, step=step)
        server.mood = mood
        pause = there.turn()
        assert pause is not None
        assert read_progress(run.path).error
        assert pause >= {"busy": 7.0, "full": 30.0}.get(mood, 0.0)
        server.mood = ""
        there.turn()
        assert read_progress(run.path).error == ""
    run.finish()
    while there.turn() is not None:
        pass
    assert copies(server, run) == contents(run.path)
    there._target.close()


def test_a_process_without_the_directory_joins_and_all_see_its_rows(server: OddServer, tmp_path: Path):
    """It claims a rank on the server and records into a spool, which is removed; the first machine fetches its rows."""
    run = barograph.init(project="p", vocabulary="trl", server=server.url, samples_per_step=3)
    run.log({"a": 0.0}, step=0)
    other = barograph.join(ticket_elsewhere(run), role="explorer")
    same = barograph.join(ticket_elsewhere(run), role="explorer")
    assert same is other
    assert other.writer == Writer("explorer", 0, 1)
    assert (other.info.vocabulary, other._recording.settings.samples_per_step) == ("trl", 3)
    assert other.ticket().startswith(f"file:///another/machine/p/{run.id}?role=explorer&")
    assert not any(isinstance(client, SpoolClient) for client in other._clients)
    other.log({"a": 1.0}, step=0)
    spool = Path(client_of(other)._folder)
    assert spool.is_relative_to(tmp_path / "tmp")
    other.finish(timeout=60)
    process = client_of(other)._helper.process
    assert process is not None
    assert process.wait(60) == 0
    assert not spool.exists()
    name = "explorer.0.1.0.seg"
    until(lambda: contents(run.path).get(name) == copies(server, run)[name])
    assert barograph.open(run.path).series("a", role="explorer").values.tolist() == [1.0]
    run.finish(timeout=60)
    assert copies(server, run) == contents(run.path)
    assert barograph.open(server.dir / "p" / run.id).info.vocabulary == "trl"


def test_processes_that_join_get_ranks_that_no_launcher_gave(server: OddServer):
    """Also one that sees the directory asks the server: ranks of several machines differ."""
    run = barograph.init(project="p", world_size=4, rank=0, server=server.url)
    others = [another_process(ticket_elsewhere(run)), another_process(run.ticket())]
    assert [(other.writer.rank, other.writer.attempt) for other in others] == [(4, 1), (5, 1)]
    others.append(another_process(ticket_elsewhere(run), rank=4))
    assert (others[-1].writer.rank, others[-1].writer.attempt) == (4, 2)
    for one in (*others, run):
        one.finish(timeout=60)
    assert set(copies(server, run)) == {f"trainer.{writer}.0.seg" for writer in ("0.1", "4.1", "5.1", "4.2")}


def test_a_process_that_joins_begins_its_segment_before_another_one_pulls_it(
    server: OddServer, monkeypatch: pytest.MonkeyPatch
):
    """The process that sends the run also pulls what others have sent."""
    run = barograph.init(project="p", world_size=4, rank=0, server=server.url)
    elsewhere = another_process(ticket_elsewhere(run))
    until(lambda: (run.path / "trainer.4.1.0.seg").exists())  # it pulls
    claim = claiming.claim_in_process

    def slow_claim(*arguments: Any) -> Any:
        found = claim(*arguments)
        time.sleep(2)  # longer than a turn of the process
        return found

    monkeypatch.setattr(claiming, "claim_in_process", slow_claim)
    other = another_process(run.ticket())
    assert (other.writer.rank, other.writer.attempt) == (5, 1)
    for one in (elsewhere, other, run):
        one.finish(timeout=60)


def another_process(ticket: str, rank: int | None = None) -> barograph.Run:
    """Join as a process does that has not joined yet."""
    return _joined_run(Ticket.parse(ticket), {"role": None, "rank": rank})


def test_a_process_joins_while_the_server_is_away(
    server: OddServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """It records under a rank like no other, and what it recorded is sent when the server is back."""
    run = barograph.init(project="p", server=server.url)
    server.mood = "crash"
    other = barograph.join(ticket_elsewhere(run))
    assert other.writer.rank >= 100_000_000
    assert "could not be claimed on the server" in capsys.readouterr().err
    other.log({"a": 1.0}, step=0)
    server.mood = ""
    other.finish(timeout=60)
    assert barograph.open(server.dir / "p" / run.id).series("a", rank=other.writer.rank).values.tolist() == [1.0]
    run.finish(timeout=60)


def test_a_run_that_is_continued_on_another_machine_is_a_new_attempt(server: OddServer, tmp_path: Path):
    """The machine has nothing of the earlier one, and fetches it for its trackers."""
    for machine in ("one", "two"):
        run = barograph.init(id="moved", project="p", dir=tmp_path / machine, server=server.url)
        run.log({machine: 1.0}, step=0)
        run.finish(timeout=60)
        until(lambda: copies(server, run) == contents(run.path))  # noqa: B023 - it is called at once
    assert list(contents(run.path)) == ["trainer.0.1.0.seg", "trainer.0.2.0.seg"]


def test_a_process_that_cannot_be_started_is_tried_again(
    server: OddServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The training goes on meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr("barograph.delivery.processes.launch", lambda *_, **__: os.mkdir("/proc/nothing"))
        run = barograph.init(project="p", server=server.url)
    assert "cannot start the process that sends the run" in capsys.readouterr().err
    run.log({"a": 1.0}, step=0)
    run.finish(timeout=60)
    assert copies(server, run) == contents(run.path)


def test_finish_waits_for_the_bytes_of_its_own_process_only(server: OddServer):
    """Others of the machine may go on writing."""
    run = barograph.init(project="p", server=server.url)
    server.mood = "crash"
    other = run.path / "trainer.1.1.0.seg"
    other.write_bytes(b"x" * 1000)
    client = client_of(run)
    total = client.values()["barograph/transfer/lag_bytes"]
    assert client.left() == total - 1000
    other.unlink()
    server.mood = ""
    run.finish(timeout=60)


def test_without_a_server_a_run_elsewhere_cannot_be_joined(tmp_path: Path):
    """The error names both ways."""
    run = barograph.init(id="here", project="p")
    with pytest.raises(RunNotFoundError, match=r"a dir= that all machines see.*or with server="):
        barograph.join(ticket_elsewhere(run))


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://user:word@host", "http://host?token=x"])
def test_an_address_that_is_none_is_refused_at_once(url: str):
    """Without what may be a secret in it."""
    with pytest.raises(SettingsError, match="^server: expected a URL") as caught:
        barograph.init(server=url)
    assert "word" not in str(caught.value)


def test_a_token_that_may_only_write_fetches_nothing(server: OddServer):
    """That is no error: the run is sent."""
    run = barograph.init(id="write", project="p")
    run.finish()
    shutil.copytree(run.path, server.dir / "p" / "write")
    os.rename(server.dir / "p" / "write" / "trainer.0.1.0.seg", server.dir / "p" / "write" / "trainer.1.1.0.seg")
    server.mood = "write only"
    there = Sending(run.path, run_on(server, run))
    there.turn()
    assert there.turn() is None
    assert read_progress(run.path).error == ""
    assert list(contents(run.path)) == ["trainer.0.1.0.seg"]
    there._target.close()


def test_what_cannot_be_fetched_does_not_hold_up_the_sending(server: OddServer):
    """The disk of the first machine is almost full, say: what it records is sent all the same."""
    run = barograph.init(id="nearly", project="p")
    there = Sending(run.path, run_on(server, run))
    Receiver(server.dir / "p" / "nearly").append("trainer.1.1.0.seg", 0, frames.segment_head(), last=True)
    there._receiver = Receiver(run.path, ReceiverLimits(free_bytes=1 << 60))
    there.turn()
    assert there._pauses.failures == 0
    assert "not fetched: cannot be stored now" in read_progress(run.path).error
    run.finish()
    there._receiver, there._fetch_at = Receiver(run.path), 0.0
    there.turn()
    assert read_progress(run.path).error == ""
    assert copies(server, run) == contents(run.path)
    there._target.close()


def test_a_run_is_pulled_and_pulled_again(server: OddServer, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """What is here is not fetched again; an address of no run is an error."""
    run = barograph.init(id="pulled", project="p")
    run.log({"a": 1.0}, step=0)
    run.finish()
    assert main(["push", "pulled", "--to", server.url]) == 0
    address = f"{server.url}/p/pulled"
    for _ in range(2):
        server.requests.clear()
        assert main(["pull", address, "--dir", str(tmp_path / "other")]) == 0
    assert server.requests == ["GET /api/transfer/p/pulled"] * 2
    assert contents(tmp_path / "other" / "p" / "pulled") == contents(run.path)
    assert barograph.open("pulled", dir=tmp_path / "other").name == run.name
    assert main(["pull", address]) == 0  # where it was recorded, nothing is changed
    for wrong, told in (
        (f"{server.url}/p/other", "has no run p/other"),
        ("nothing", "expected an address"),
        (f"{urlsplit(server.url).scheme}://127.0.0.1:9/p/pulled", "cannot be reached"),
    ):
        assert main(["pull", wrong]) == 1
        assert told in capsys.readouterr().err
