"""The actors that carry segments in a Ray cluster, called without Ray: what they check, write and remove."""

import pickle
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from segment_bytes import row, segment

import barograph
from barograph.base.model import RayPlace, Status, Writer
from barograph.delivery.ray.nodes import sending_nodes
from barograph.delivery.ray.sending import note_lost_writers
from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.receiver import Receiver
from barograph.delivery.transfer.sending import SegmentSender
from barograph.journal.format import frames
from barograph.journal.format.folder import run_mark, segments
from barograph.journal.read import status
from barograph.journal.read.status import segment_end
from barograph.recording.ticket import Ticket

pytest.importorskip("ray", reason="ray is not installed: pip install ray")
from barograph.base.process.identity import process_identity
from barograph.delivery.ray import destination, nodes, sending
from barograph.delivery.ray.destination import RayDestination, RayRun, ReceivingActor


class Direct(RayDestination):
    """The destination with its actor in the same process."""

    def __init__(self, run: RayRun, seconds: float = 1.0) -> None:
        super().__init__(run, seconds)
        self.actor = ReceivingActor(run)

    def _ask(self, question: str, *arguments: Any) -> Any:
        answer = pickle.loads(pickle.dumps(self.actor.ask(question, *arguments)))
        if isinstance(answer, DestinationError):
            raise answer
        return answer


@pytest.fixture
def begun(tmp_path: Path) -> RayRun:
    """Return a run that was begun on a node."""
    with barograph.init(id="r", project="p", dir=tmp_path / "runs") as run:
        run.log({"a": 1.0}, step=0)
    return RayRun(RayPlace("node", run_mark(run.path) or ""), run.path)


def test_late_and_repeated_pieces_change_nothing(begun: RayRun):
    """Other bytes, a gap and a damaged piece are refused, with where to go on; the file is the segment in the end."""
    target, (data, ends) = Direct(begun), segment(1)
    name, half = "explorer.0.1.0.seg", ends[len(ends) // 2]
    assert target.append(name, 0, data[:half]) == half
    with pytest.raises(DestinationError) as gap:
        target.append(name, half + 1, data[half + 1 :])
    assert (gap.value.reason, gap.value.held) == ("beyond", half)
    for _ in range(2):
        assert target.append(name, half, data[half:]) == len(data)
        assert target.append(name, 0, data[:half]) == len(data)
    with pytest.raises(DestinationError, match="other bytes"):
        target.append(name, half, data[half:-4] + b"oops", last=True)
    refusal = target.actor.ask("append", name, len(data), row(99), 1, False)
    assert str(refusal) == "the piece was damaged on its way"
    assert (begun.folder / name).read_bytes() == data == target.read(name, 0, len(data))
    assert target.held()[name] == len(data)


def test_a_folder_that_is_not_the_runs_gets_nothing(begun: RayRun, tmp_path: Path):
    """Not even a copy of it: there is nothing to tell which of the two the reader looks at."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", begun.folder, copy], check=True)
    for folder in (copy, tmp_path / "missing"):
        with pytest.raises(DestinationError, match=f"no run in {folder}") as error:
            Direct(RayRun(begun.place, folder)).append("explorer.0.1.0.seg", 0, frames.segment_head() + row(0))
        assert error.value.permanent
    assert [one.path.name for one in segments(copy)] == ["trainer.0.1.0.seg"]
    assert not (tmp_path / "missing").exists()


def test_ranks_are_claimed_by_the_rules_of_a_shared_directory(begun: RayRun, monkeypatch: pytest.MonkeyPatch):
    """An actor that is restarted elsewhere keeps its rank, also before its first frames have arrived."""
    monkeypatch.setattr(destination, "actor_id", lambda: "actor 1")
    target = Direct(begun)
    first = target.claim("trainer", None, is_fixed=False)
    assert first.writer == Writer("trainer", 1, 1)
    assert (begun.folder / "trainer.1.1.0.seg").read_bytes() == first.head
    identity = process_identity()
    assert target.claim("trainer", None, is_fixed=False).writer == Writer("trainer", 2, 1)
    monkeypatch.setattr(destination, "process_identity", lambda: {**identity, "machine": "another"})
    assert target.claim("trainer", None, is_fixed=False).writer == Writer("trainer", 1, 2)
    assert target.claim("trainer", 2, is_fixed=True).writer == Writer("trainer", 2, 2)


def test_a_spool_is_removed_when_everything_is_sent(begun: RayRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its node is then forgotten; before that, the end of the run tells what may be left and how to get it."""
    spool, ended, is_sent = tmp_path / "spool" / "r", threading.Event(), threading.Event()
    spool.mkdir(parents=True)
    data, _ = segment(2)
    finish = frames.frame(frames.record_payload(frames.Kind.EVENT, {"event": "finish", "time": 1.0}))
    (spool / "explorer.0.1.0.seg").write_bytes(data + finish)
    monkeypatch.setattr(sending, "RayDestination", Direct)
    monkeypatch.setattr(sending, "STAY_SECONDS", 0.0)
    monkeypatch.setattr(sending, "SEND_SECONDS", 0.0)
    monkeypatch.setattr(sending, "end_this_actor", ended.set)
    actor = sending.SendingActor.__new__(sending.SendingActor)
    monkeypatch.setattr(actor, "_end", lambda: is_sent.wait(10) and type(actor)._end(actor))
    actor.__init__(begun, spool)
    assert actor.send_now() == ""
    (told,) = nodes.NodesClient(begun.folder).wait(Status("finished"), 1.0)
    assert "Ray was shut down before the run was finished" in told
    assert f":{spool}/*.seg' '{begun.folder}/'" in told
    assert actor.stay()
    is_sent.set()
    assert ended.wait(10)
    assert not actor.stay()
    assert not spool.exists()
    assert sending_nodes(begun.folder) == []
    assert (begun.folder / "explorer.0.1.0.seg").read_bytes() == data + finish


def test_the_end_of_a_killed_process_is_known_on_other_machines(
    begun: RayRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A process of its machine writes it, once, in a further segment; a step does not wait an hour for that rank."""
    settings = {"id": "r", "project": "p", "dir": str(tmp_path), "role": "explorer"}
    code = f"import os, barograph; barograph.init(**{settings}).log({{'a': 1}}, 0); os._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    spool = tmp_path / "p" / "r"
    for _ in range(2):
        note_lost_writers(spool, segments(spool))
    SegmentSender(spool, Receiver(begun.folder)).send_new_bytes()
    monkeypatch.setattr(status, "machine_id", lambda: "that of the driver")
    view = barograph.open(begun.folder)
    assert [one.path.name for one in segments(begun.folder)][:2] == ["explorer.0.1.0.seg", "explorer.0.1.1.seg"]
    assert view.writer_statuses()[Writer("explorer", 0, 1)] == status.KILLED
    assert segment_end(begun.folder / "explorer.0.1.0.seg") == "lost"
    assert view.series("a", role="explorer").values.tolist() == [1.0]


def test_a_ticket_has_the_place_in_a_ray_cluster(begun: RayRun):
    """The process that gets it, and those to which that one passes it on."""
    text = str(Ticket(begun.folder, "trainer", {}, begun.place))
    assert Ticket.parse(text).ray_place == begun.place
    assert Ticket.parse(text.partition("?")[0]).ray_place is None


def test_a_process_records_also_where_ray_does_not_answer(
    begun: RayRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It warns, has a rank that no other process has, looks for the actor again, and tells what is left at the end."""
    looked: list[Path] = []

    def fail(run: RayRun, spool: Path, *_: Any) -> Any:
        looked.append(spool)
        raise DestinationError("too slow", "unreachable")

    monkeypatch.setattr("barograph.session.node_id", lambda: "another node")
    monkeypatch.setattr(sending, "claim_over_ray", fail)
    monkeypatch.setattr(sending, "sending_actor", fail)
    monkeypatch.setattr(sending, "SILENT_SECONDS", 0.0)
    place = RayPlace(begun.place.node, "of another disk")
    ticket = str(Ticket(begun.folder, "trainer", {}, place))
    run = barograph.join(ticket, spool=tmp_path / "spool")
    assert Ticket.parse(run.ticket()).ray_place == place
    run.log({"a": 2.0}, step=1)
    run.finish(timeout=0.2)
    told = capsys.readouterr().err
    assert f"could not be claimed where the run began (too slow); recording as trainer/{run.writer.rank}" in told
    assert f"rsync -a '{platform.node()}:{tmp_path}/spool/r/*.seg' '{begun.folder}/'" in told
    assert len(str(run.writer.rank)) == 9
    assert [one.writer for one in segments(tmp_path / "spool" / "r")] == [run.writer]
    assert len(looked) > 2
    assert set(looked) == {tmp_path / "spool" / "r"}
    assert [one.path.name for one in segments(begun.folder)] == ["trainer.0.1.0.seg"]


def test_a_ticket_of_a_run_that_is_nowhere_is_an_error(begun: RayRun, monkeypatch: pytest.MonkeyPatch):
    """The node where it was begun does not have it either; without Ray the path alone decides."""

    def fail(*_: Any) -> Any:
        raise DestinationError("no run in /x on a", "name", permanent=True)

    monkeypatch.setattr("barograph.session.node_id", lambda: "another node")
    monkeypatch.setattr(sending, "claim_over_ray", fail)
    ticket = str(Ticket(begun.folder, "trainer", {}, RayPlace("node", "of another disk")))
    with pytest.raises(
        barograph.RunNotFoundError, match=r"no run in /x on a, and none on .*: a process joins a run in"
    ):
        barograph.join(ticket, spool="off")
    monkeypatch.setattr("barograph.session.node_id", lambda: None)
    with barograph.join(ticket) as run:
        assert run.writer == Writer("trainer", 1, 1)
