"""Tests of the sender: whatever fails on the way, the destination ends up with the bytes of the segments."""

import errno
import os
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from segment_bytes import RUN_JSON, row, segment

from barograph.delivery.transfer import sending as sender_module
from barograph.delivery.transfer import state
from barograph.delivery.transfer.claiming import claim_on, unasked_writer
from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.pieces import complete_frames
from barograph.delivery.transfer.receiver import Receiver
from barograph.delivery.transfer.sending import MAX_PAUSE, Pauses, SegmentSender, SegmentTransfer, pull_new_bytes
from barograph.delivery.transfer.state import TransferProgress, read_progress, unsent_bytes, write_progress
from barograph.journal.format import frames

NAME = "trainer.0.1.0.seg"
FINISH = frames.frame(frames.record_payload(frames.Kind.EVENT, {"event": "finish", "status": "finished", "time": 1.0}))


class Counted:
    """A receiver that counts its calls, and fails before or after some of them."""

    def __init__(self, folder: Path, chosen: random.Random | None = None) -> None:
        self.receiver = Receiver(folder)
        self.pieces: list[tuple[str, int, int]] = []
        self._chosen = chosen

    def _fail(self) -> None:
        if self._chosen is not None and self._chosen.random() < 0.2:
            raise DestinationError("the line is cut", "unreachable")

    def held(self) -> Mapping[str, int]:
        self._fail()
        return self.receiver.held()

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        self._fail()
        held = self.receiver.append(segment, offset, data, last)
        self.pieces.append((segment, offset, len(data)))
        self._fail()
        return held

    def describe(self, info: bytes) -> None:
        self._fail()
        self.receiver.describe(info)

    def read(self, segment: str, offset: int, length: int) -> bytes:
        self._fail()
        return self.receiver.read(segment, offset, length)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "lab" / "run1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "lab" / "run1"


def write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_fails_the_bytes_are_equal_in_the_end(
    seed: int, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
):
    """Calls fail before and after they took effect, senders are begun anew, frames are torn and cut off again."""
    monkeypatch.setattr(sender_module, "PIECE_BYTES", 700)
    monkeypatch.setattr(sender_module, "FIRST_PAUSE", 0.0)
    chosen = random.Random(seed)
    (here / "run.json").write_bytes(RUN_JSON)
    content = {NAME: running(seed) + FINISH, "trainer.1.1.0.seg": running(seed + 100) + FINISH + b"torn"}
    written = dict.fromkeys(content, 0)
    sender, done = SegmentSender(here, Counted(there, chosen)), False
    while not done:
        for name, data in content.items():
            written[name] = chosen.choice([end for end in ends_of(data) if end >= written[name]][:5])
            # A frame that cannot be written completely is cut off again, and others follow.
            torn = row(7777)[: chosen.randrange(20)] if written[name] < len(data) else b""
            (here / name).write_bytes(data[: written[name]] + torn)
        if chosen.random() < 0.3:
            sender = SegmentSender(here, Counted(there, chosen))
        with suppress(DestinationError):
            done = sender.send_new_bytes() and written == {name: len(data) for name, data in content.items()}
    for name, data in content.items():
        assert (there / name).read_bytes() == data
    assert (there / "run.json").read_bytes() == RUN_JSON


def running(seed: int, rows: int = 30) -> bytes:
    """Return a segment of a process that has written just now."""
    sign_of_life = frames.record_payload(frames.Kind.EVENT, {"event": "heartbeat", "time": time.time()})
    return frames.segment_head() + frames.frame(sign_of_life) + segment(seed, rows)[0][frames.SEGMENT_HEAD.size :]


def ends_of(data: bytes) -> list[int]:
    """Return where frames of a segment end, and where it does."""
    return [*(stop for _, stop in complete_frames(data, frames.SEGMENT_HEAD.size)), len(data)]


def test_only_new_bytes_are_sent_and_a_new_sender_sends_one_piece_to_be_compared(here: Path, there: Path):
    """What is held is the cursor; nothing else is kept."""
    data = running(1)
    write(here / NAME, data)
    target = Counted(there)
    sender = SegmentSender(here, target)
    assert not sender.send_new_bytes()
    assert not sender.send_new_bytes()
    assert target.pieces == [(NAME, 0, len(data))]
    write(here / NAME, row(99))
    sender.send_new_bytes()
    assert target.pieces[1:] == [(NAME, len(data), len(row(99)))]
    again = SegmentSender(here, target)
    again.send_new_bytes()
    again.send_new_bytes()
    assert target.pieces[2:] == [(NAME, 0, len(data) + len(row(99)))]
    assert again.sent == {NAME: len(data) + len(row(99))}


def test_a_segment_with_other_bytes_is_refused_for_good_and_the_others_are_sent(here: Path, there: Path):
    """Also where the copies differ before the last piece that is held."""
    target = Counted(there)
    target.receiver.append(NAME, 0, segment(1)[0])
    write(here / NAME, segment(2)[0] + FINISH)
    write(here / "trainer.1.1.0.seg", segment(3)[0] + FINISH)
    sender = SegmentSender(here, target)
    assert not sender.send_new_bytes()
    assert list(sender.refused) == [NAME]
    assert "other bytes" in sender.refused[NAME]
    assert sender.send_new_bytes()
    assert (there / NAME).read_bytes() == segment(1)[0]
    assert (there / "trainer.1.1.0.seg").read_bytes() == segment(3)[0] + FINISH


def test_a_description_that_is_refused_does_not_hold_up_the_segments(here: Path, there: Path):
    """It is of another run, say, or too large."""
    (here / "run.json").write_bytes(RUN_JSON.replace(b'"run1"', b'"run2"'))
    write(here / NAME, segment(5)[0] + FINISH)
    sender = SegmentSender(here, Counted(there))
    assert not sender.send_new_bytes()
    assert sender.send_new_bytes()
    assert "describes 'lab/run2'" in sender.refused["run.json"]
    assert (there / NAME).read_bytes() == segment(5)[0] + FINISH


def test_a_server_that_lost_bytes_gets_them_again(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch):
    """It was restored from an older copy, say, which ends within a frame."""
    monkeypatch.setattr(sender_module, "FIRST_PAUSE", 0.0)
    data, _ = segment(4)
    write(here / NAME, data)
    sender = SegmentSender(here, Counted(there))
    sender.send_new_bytes()
    os.truncate(there / NAME, len(data) // 2)
    write(here / NAME, FINISH)
    while not sender.send_new_bytes():
        pass
    assert (there / NAME).read_bytes() == data + FINISH


def test_a_lost_connection_does_not_make_it_read_the_segment_again(monkeypatch: pytest.MonkeyPatch, there: Path):
    """A segment may have gigabytes; only what was being sent is read again."""
    monkeypatch.setattr(sender_module, "PIECE_BYTES", 1000)
    data, chosen = running(6, rows=200) + FINISH, random.Random(6)
    transfer, target, read = SegmentTransfer(NAME), Counted(there, chosen), []
    failures = 0
    while transfer.held < len(data):
        try:
            transfer.send(lambda length, offset: read.append(length) or data[offset : offset + length], True, target)
        except DestinationError:
            failures += 1
    assert failures > 20
    assert sum(read) < len(data) * 2 + 3000 * (failures + 1)
    assert (there / NAME).read_bytes() == data


def test_what_was_received_is_not_sent_and_what_is_recorded_is_not_received(here: Path, there: Path):
    """A machine sends its own segments, and fetches those of the others."""
    write(here / NAME, segment(1)[0])
    server, other = Receiver(there), "trainer.1.1.0.seg"
    server.append(other, 0, segment(2)[0])
    SegmentSender(here, server).send_new_bytes()
    assert pull_new_bytes(server, here, Receiver(here)) == len(segment(2)[0])
    assert pull_new_bytes(server, here, Receiver(here)) == 0
    assert (here / other).read_bytes() == segment(2)[0]
    assert [one.path.name for one in SegmentSender(here, server).own_segments()] == [NAME]
    os.truncate(here / NAME, 100)  # a machine that lost power has less than it sent
    assert pull_new_bytes(server, here, Receiver(here)) == 0


def test_a_segment_that_a_process_claims_is_not_pulled_before_it_is_begun(here: Path, there: Path):
    """The server holds its first bytes before; other segments are continued meanwhile."""
    server, other = Receiver(there), "trainer.7.1.0.seg"
    data = segment(2)[0]
    server.append(other, 0, data[:100], last=True)
    assert pull_new_bytes(server, here, Receiver(here)) == 100
    server.append(other, 100, data[100:])
    with state.claiming(here):
        claim = claim_on(server, here, "trainer")
        assert pull_new_bytes(server, here, Receiver(here)) == len(data) - 100
        claim.begin(here)
    assert pull_new_bytes(server, here, Receiver(here)) == 0
    name = f"trainer.{claim.writer.rank}.1.0.seg"
    assert name in [one.path.name for one in SegmentSender(here, server).own_segments()]
    assert (here / name).read_bytes() == claim.head
    server.append("trainer.8.1.0.seg", 0, data)
    assert pull_new_bytes(server, here, Receiver(here)) == len(data)


def test_a_filesystem_without_locks_costs_no_claim_and_no_segment(here: Path, monkeypatch: pytest.MonkeyPatch):
    """Then a claimed segment may come from the server first, which is rare."""

    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr(state, "fcntl", SimpleNamespace(flock=flock, LOCK_SH=1, LOCK_EX=2, LOCK_NB=4))
    with state.claiming(here), state.without_claims(here) as may_begin:
        assert may_begin


def test_a_rank_is_claimed_by_the_first_bytes_of_its_segment(here: Path, there: Path, tmp_path: Path):
    """Processes of several machines get different ranks; one with a rank gets a new attempt of it."""
    server = Receiver(there)
    server.append(NAME, 0, segment(1)[0])
    other = tmp_path / "other"
    other.mkdir()
    first = claim_on(server, here, "trainer")
    assert (first.writer.rank, first.writer.attempt) == (1, 1)
    first.begin(here)
    listed = server.held()

    class Late(Counted):
        def held(self) -> Mapping[str, int]:
            return {name: size for name, size in listed.items() if name == NAME}

    second = claim_on(Late(there), other, "trainer")
    assert second.writer.rank == 2
    assert claim_on(server, other, "trainer", wanted=0).writer.attempt == 2
    assert claim_on(server, other, "trainer", first=8).writer.rank == 8
    assert claim_on(server, other, "explorer").writer.rank == 0
    with pytest.raises(FileExistsError):
        first.begin(here)
    SegmentSender(here, server).send_new_bytes()
    assert (there / "trainer.1.1.0.seg").read_bytes() == first.head


def test_a_process_that_can_ask_nobody_is_like_no_other():
    """Its rank is that of its actor, or of the process; its attempt is later than any that was counted."""
    one, other = unasked_writer("trainer", None, "actor 1"), unasked_writer("trainer", None, "actor 2")
    assert one.rank != other.rank
    assert one.rank == unasked_writer("trainer", None, "actor 1").rank
    assert unasked_writer("trainer", None, None).rank == unasked_writer("trainer", None, None).rank
    assert unasked_writer("trainer", 3, None).rank == 3
    assert one.attempt > 1_000_000


def test_pauses_grow_and_are_as_long_as_the_server_asks_for():
    """Up to a limit; a success begins anew."""
    pauses, busy = Pauses(), DestinationError("later", "busy", retry_after=45.0)
    error = DestinationError("away", "unreachable")
    grown = [pauses.after(error) for _ in range(12)]
    assert grown[0] <= 1.0
    assert MAX_PAUSE / 2 <= min(grown[8:]) <= max(grown) <= MAX_PAUSE
    assert pauses.after(busy) == 45.0
    assert pauses.after(DestinationError("much later", "busy", retry_after=1e9)) == sender_module.MAX_RETRY_AFTER
    pauses.after(None)
    assert pauses.after(error) <= 1.0


def test_the_progress_tells_what_is_left_and_odd_files_tell_nothing(here: Path):
    """Of another server nothing was sent."""
    write(here / NAME, b"x" * 100)
    assert unsent_bytes(here, "http://a") == 100
    write_progress(here, TransferProgress("http://a", "lab", {NAME: 60}, "slow"))
    assert read_progress(here).error == "slow"
    assert unsent_bytes(here, "http://a") == 40
    assert unsent_bytes(here, "http://b") == 100
    for odd in (b"", b"[]", b'{"server": 3, "sent": {}}', b'{"server": "http://a", "sent": {"x": -1}}', b"\xff"):
        (here / "transfer" / "progress.json").write_bytes(odd)
        assert read_progress(here) == TransferProgress()
