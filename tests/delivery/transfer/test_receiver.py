"""Tests of the receiver: any order of pieces gives the segment's bytes, and nothing else is ever written."""

import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from segment_bytes import RUN_JSON, row, segment

from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.receiver import Receiver, ReceiverLimits, check_run_path, check_segment_name
from barograph.journal.format import frames

NAME = "trainer.0.1.0.seg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lab" / "run1"


@pytest.fixture
def receiver(folder: Path) -> Receiver:
    return Receiver(folder)


def refused(receiver: Receiver, *piece: object) -> DestinationError:
    with pytest.raises(DestinationError) as caught:
        receiver.append(*piece)  # type: ignore[arg-type]
    return caught.value


def piece_of(data: bytes, ends: list[int], chosen: random.Random) -> tuple[int, bytes]:
    """Return the offset and the bytes of any piece that ends with a frame."""
    start, end = sorted(chosen.choices([0, *ends], k=2))
    return (start, data[start:end]) if end > start else (0, data[: ends[0]])


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_pieces_gives_the_bytes_of_the_segment(seed: int, folder: Path):
    """Pieces are split anywhere, repeated, reordered, cut short and changed; receivers come and go."""
    data, ends = segment(seed)
    chosen = random.Random(seed)
    receiver, held = Receiver(folder), 0
    while held < len(data):
        offset, piece = piece_of(data, ends, chosen)
        if chosen.random() < 0.2:
            piece = mutated(piece, chosen)
        if chosen.random() < 0.3:
            receiver = Receiver(folder)
        with suppress(DestinationError):
            assert receiver.append(NAME, offset, piece) >= held
        now = receiver.held().get(NAME, 0)
        assert now >= held
        assert (folder / NAME).read_bytes() == data[:now] if now else not (folder / NAME).exists()
        held = now
    assert sorted(path.name for path in folder.iterdir()) == [NAME, "transfer"]


def mutated(piece: bytes, chosen: random.Random) -> bytes:
    """Return a piece that is cut short, or in which one byte before its last frame's end differs."""
    if chosen.random() < 0.5:
        return piece[: chosen.randrange(len(piece))]
    place = len(piece) - 1 - chosen.randrange(min(len(piece), 9))  # within the last frame, so that it cannot be damage
    return piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :]


def test_a_repeated_piece_changes_nothing(receiver: Receiver, folder: Path):
    """Neither the bytes nor the time of the file; what is held is returned again."""
    data, ends = segment(1)
    assert receiver.append(NAME, 0, data) == len(data)
    before = (folder / NAME).stat().st_mtime_ns
    assert receiver.append(NAME, 0, data[: ends[3]]) == len(data)
    assert receiver.append(NAME, ends[1], data[ends[1] :]) == len(data)
    assert (folder / NAME).stat().st_mtime_ns == before
    assert (folder / NAME).read_bytes() == data


def test_a_piece_after_a_gap_says_where_to_go_on(receiver: Receiver):
    """Also for a segment that is not there."""
    data, ends = segment(2)
    error = refused(receiver, NAME, ends[0], data[ends[0] :])
    assert (error.reason, error.held, error.permanent) == ("beyond", 0, False)
    receiver.append(NAME, 0, data[: ends[0]])
    error = refused(receiver, NAME, ends[1], data[ends[1] :])
    assert (error.reason, error.held, error.permanent) == ("beyond", ends[0], False)


def test_other_bytes_are_refused_for_good(receiver: Receiver, folder: Path):
    """What is held is never changed, even where the piece is longer."""
    data, ends = segment(3)
    receiver.append(NAME, 0, data[: ends[2]])
    other = data[: ends[1]] + row(99) * 5
    error = refused(receiver, NAME, 0, other)
    assert (error.reason, error.held, error.permanent) == ("differs", ends[2], True)
    assert (folder / NAME).read_bytes() == data[: ends[2]]


def test_a_write_that_was_interrupted_is_completed(receiver: Receiver, folder: Path):
    """The bytes of half a frame stay, and the piece that comes again adds the rest."""
    data, ends = segment(4)
    receiver.append(NAME, 0, data[: ends[0]])
    with open(folder / NAME, "ab") as file:
        file.write(data[ends[0] : ends[1] - 5])
    assert receiver.held() == {NAME: ends[1] - 5}
    assert receiver.append(NAME, ends[0], data[ends[0] : ends[1]]) == ends[1]
    with open(folder / NAME, "ab") as file:
        file.write(data[ends[1] : ends[1] + 7])
    assert receiver.append(NAME, ends[1] + 7, data[ends[1] + 7 :]) == len(data)  # a sender that does not look back
    assert (folder / NAME).read_bytes() == data


def test_only_complete_frames_are_taken_until_the_writer_has_ended(receiver: Receiver, folder: Path):
    """The last piece may end with any bytes, also before the segment's head was complete."""
    data, ends = segment(5)
    torn = data + row(1)[:-4]
    assert refused(receiver, NAME, 0, torn).reason == "broken"
    assert refused(receiver, NAME, 0, data[16:]).reason == "broken"  # without a head
    assert refused(receiver, NAME, 0, b"").reason == "broken"
    assert not folder.exists()
    receiver.append(NAME, 0, data)
    assert receiver.append(NAME, ends[-1], torn[ends[-1] :], last=True) == len(torn)
    assert receiver.append("trainer.1.1.0.seg", 0, data[:7], last=True) == 7
    assert receiver.append("trainer.2.1.0.seg", 0, b"", last=True) == 0
    assert receiver.held() == {NAME: len(torn), "trainer.1.1.0.seg": 7, "trainer.2.1.0.seg": 0}
    assert receiver.append(NAME, len(data) - 1, torn[len(data) - 1 :] + row(2)) == len(torn) + len(row(2))


def test_a_segment_may_end_with_names_and_begin_with_damage(receiver: Receiver):
    """A sender decides what the writer will not cut off; damaged bytes before a frame belong to the segment."""
    names = frames.frame(frames.schema_payload(1, ["a", "b"]))
    data = frames.segment_head() + b"damaged" + row(1) + names
    assert receiver.add(NAME, 0, data) == (len(data), len(data), 1001.0, False)


def test_heads_that_name_all_that_follows_cost_no_quadratic_time(receiver: Receiver):
    """A piece of 20,000 such heads is given up after a few times its size."""
    heads = b"".join(frames.FRAME_HEAD.pack(frames.FRAME_MAGIC, 12 * (20_000 - one), 0) for one in range(1, 20_000))
    assert refused(receiver, NAME, 0, frames.segment_head() + heads).reason == "broken"


def test_a_segment_that_was_recorded_here_is_left_alone(receiver: Receiver, folder: Path):
    """Its own bytes may be sent, but nothing is appended; other segments of the run are taken."""
    data, ends = segment(6)
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(data[: ends[2]])
    (folder / "trainer.1.1.0.seg").write_bytes(b"")
    assert receiver.append(NAME, 0, data[: ends[1]]) == ends[2]
    for name in (NAME, "trainer.1.1.0.seg"):
        error = refused(receiver, name, 0, data)
        assert (error.reason, error.permanent) == ("differs", True)
    assert (folder / NAME).read_bytes() == data[: ends[2]]
    assert receiver.append("trainer.2.1.0.seg", 0, data) == len(data)


def test_threads_and_receivers_can_send_the_same_segment(folder: Path):
    """Each piece is appended once, whoever comes first."""
    data, ends = segment(7, rows=12)

    def send() -> None:
        receiver, held = Receiver(folder), 0
        for end in ends:
            held = max(held, receiver.append(NAME, min(held, end), data[min(held, end) : end]) if end > held else held)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folder / NAME).read_bytes() == data
    assert (folder / "transfer" / "received").read_text() == f"{NAME}\n"


def test_run_json_is_written_once_and_only_for_its_own_run(receiver: Receiver, folder: Path):
    """Another description, one of another run, and one that is not JSON change nothing."""
    for wrong in (
        b"[]",
        b"{",
        b"\xff",
        b"[" * 9000,
        RUN_JSON.replace(b"run1", b"run2"),
        RUN_JSON.replace(b"lab", b".."),
    ):
        with pytest.raises(DestinationError) as caught:
            receiver.describe(wrong)
        assert caught.value.permanent
    assert not folder.exists()
    receiver.describe(RUN_JSON)
    receiver.describe(RUN_JSON.replace(b"first", b"second"))
    assert (folder / "run.json").read_bytes() == RUN_JSON
    assert receiver.read("run.json", 0, 99999) == RUN_JSON
    assert os.listdir(folder) == ["run.json"]


def test_bytes_are_read_in_pieces(folder: Path):
    """At most as many as a piece has; none after the end."""
    data, _ = segment(8)
    receiver = Receiver(folder, ReceiverLimits(piece_bytes=100))
    receiver.append(NAME, 0, data)
    assert receiver.read(NAME, 5, 20) == data[5:25]
    assert receiver.read(NAME, 5, 2000) == data[5:105]
    assert receiver.read(NAME, len(data), 10) == b""
    for segment_name, offset, length in (
        ("trainer.9.1.0.seg", 0, 1),
        ("../run.json", 0, 1),
        (NAME, -1, 1),
        (NAME, 0, -1),
    ):
        with pytest.raises(DestinationError):
            receiver.read(segment_name, offset, length)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"largest_piece": 100}, "limit"),
        ({"segment_bytes": 100}, "limit"),
        ({"run_bytes": 100}, "limit"),
        ({"segments": 0}, "limit"),
        ({"free_bytes": 1 << 60}, "busy"),
    ],
)
def test_everything_has_a_limit(limits: dict[str, int], reason: str, folder: Path):
    """A piece, a segment, a run, their number, and the room on the disk, which may come back."""
    data, _ = segment(9)
    error = refused(Receiver(folder, ReceiverLimits(**limits)), NAME, 0, data)
    assert (error.reason, error.permanent) == (reason, reason == "limit")
    assert (error.retry_after is not None) == (reason == "busy")
    assert not (folder / NAME).exists() or not (folder / NAME).read_bytes()
    with pytest.raises(DestinationError):
        Receiver(folder, ReceiverLimits(info_bytes=10)).describe(RUN_JSON)


def test_links_and_other_things_are_not_written_through(tmp_path: Path, folder: Path, receiver: Receiver):
    """A link in the place of a segment, of the list or of the folder leads nowhere."""
    data, _ = segment(10)
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.mkdir(parents=True)
    (outside / "file").write_bytes(b"")
    (folder / NAME).symlink_to(outside / "file")
    os.mkfifo(folder / "trainer.1.1.0.seg")
    for name in (NAME, "trainer.1.1.0.seg"):
        assert refused(receiver, name, 0, data).permanent
    assert receiver.held() == {}
    with pytest.raises(DestinationError):
        receiver.read(NAME, 0, 1)
    (folder.parent / "run2").symlink_to(outside)
    assert refused(Receiver(folder.parent / "run2"), NAME, 0, data).permanent
    (tmp_path / "linked").symlink_to(outside)
    assert refused(Receiver(tmp_path / "linked" / "run1"), NAME, 0, data).permanent
    assert [(path.name, path.stat().st_size) for path in outside.iterdir()] == [("file", 0)]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "run.json", "../trainer.0.1.0.seg", "a/trainer.0.1.0.seg", "trainer.0.1.0.seg/"),
        *("trainer.00.1.0.seg", "trainer.0.1.seg", "trainer.-1.1.0.seg", "trainer.٣.1.0.seg", "trainer.0.1.0.SEG"),
        *("a b.0.1.0.seg", "trainer.0.1.0.seg\n", "tr\0.0.1.0.seg", "%2e.0.1.0.seg", ".0.1.0.seg", "\udc80.0.1.0.seg"),
        f"{'a' * 260}.0.1.0.seg",
    ],
)
def test_a_name_that_no_writer_gives_is_refused(name: str, receiver: Receiver):
    """There is one name for each segment, and none of them is a path."""
    assert refused(receiver, name, 0, segment(1)[0]).reason == "name"


def test_names_of_writers_projects_and_runs_are_taken():
    """Whatever a project or a role is called, its directory has a name that is accepted."""
    for name in ("trainer.0.1.0.seg", "%2E%2E.12.3.4.seg", "%E4%B8%AD.0.1.0.seg", "a%2Fb.0.1.0.seg"):
        check_segment_name(name)
    for project in ("lab", "a%2Fb", "中文 项目", "%2E", "100%25", "a.b-c_d"):
        check_run_path(project, "abc234")


@pytest.mark.parametrize(
    ("project", "run"),
    [
        *((name, "r") for name in ("..", ".", "", ".page", "a/b", "a%2fb", "a\0", "a\n", "\\", "p" * 256, "\udc80")),
        *(("p", name) for name in ("..", "", "a/b", ".hidden", "a" * 65, "a\n", "\udc80")),
    ],
)
def test_a_path_that_no_run_has_is_refused(project: str, run: str):
    """Both are single names of directories, as barograph makes them."""
    with pytest.raises(DestinationError):
        check_run_path(project, run)
