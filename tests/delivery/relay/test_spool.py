"""Runs on a network mount: written to a local spool, whose bytes are copied."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kept import until

import barograph
from barograph.base.files.mounts import is_remote, mount_kind
from barograph.base.model import Writer
from barograph.base.settings import resolve
from barograph.delivery.relay.supervisor import RelayOptions, run_end_with_spool
from barograph.delivery.transfer.spool import LOCK, SegmentCopy, SpoolClient, SpoolCopy, lag
from barograph.journal.format.folder import segments
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.write import segment as segment_module
from barograph.journal.write.writer import JournalWriter

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /home rw,relatime shared:2 - nfs4 filer:/home rw
31 21 0:41 / /mnt/bucket rw - fuse.mountpoint-s3 mountpoint-s3 rw
32 21 0:42 / /mnt/two\\040words rw - cifs //server/share rw
33 30 0:43 / /home/me/scratch rw - xfs /dev/nvme0n1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "far"),
    [
        ("/var/runs", "ext4", False),
        ("/home/me/runs", "nfs4", True),
        ("/homework", "ext4", False),
        ("/home/me/scratch/runs", "xfs", False),
        ("/mnt/bucket/runs", "fuse.mountpoint-s3", True),
        ("/mnt/two words/runs", "cifs", True),
    ],
)
def test_network_and_object_store_mounts_are_recognised(path: str, kind: str, far: bool):
    """By the longest mount point above the directory, which need not exist."""
    assert mount_kind(Path(path), MOUNTS) == kind
    assert is_remote(Path(path), MOUNTS) is far


def test_a_spool_is_a_setting_and_by_default_depends_on_the_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A directory, or off; by default a spool is used if the runs are remote and the temporary directory is not."""
    assert resolve({}, {"dir": tmp_path}).spool is None
    assert resolve({}, {"dir": tmp_path, "spool": tmp_path / "s"}).spool == tmp_path / "s"
    monkeypatch.setattr("barograph.base.settings.is_remote", lambda path: path == tmp_path)
    assert resolve({}, {"dir": tmp_path}).spool is not None
    assert resolve({}, {"dir": tmp_path, "spool": "off"}).spool is None


def test_a_spooled_run_reads_as_any_other_and_leaves_no_spool(tmp_path: Path):
    """When finish returns, all bytes are in the run's directory; trackers get everything too."""
    run = barograph.init(dir=tmp_path / "runs", spool=tmp_path / "spool", track_with="jsonl")
    for step in range(50):
        run.log({"a": step}, step=step)
    run.finish()
    view = barograph.open(run.path)
    assert view.series("a").values.tolist() == list(range(50))
    assert view.status.word == "finished"
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) >= 50
    until(lambda: not (tmp_path / "spool" / run.id).exists())


def test_a_mount_that_is_missing_for_a_while_loses_nothing(tmp_path: Path):
    """The training logs on, and the bytes are copied when the directory is back."""
    run = barograph.init(dir=tmp_path / "runs", spool=tmp_path / "spool")
    run.log({"a": 0}, step=0)
    moved = tmp_path / "away"
    shutil.move(tmp_path / "runs", moved)
    (tmp_path / "runs").write_text("the mount is gone")
    for step in range(1, 20):
        run.log({"a": step}, step=step)
    time.sleep(1.0)
    (tmp_path / "runs").unlink()
    shutil.move(moved, tmp_path / "runs")
    run.finish(timeout=60)
    assert barograph.open(run.path).series("a").values.tolist() == list(range(20))


TRAINER = textwrap.dedent("""
    import sys, barograph
    run = barograph.init(id="killed", dir=sys.argv[1], spool=sys.argv[2])
    for step in range(10**9):
        run.log({"a": step}, step=step)
        print(step, flush=True)
""")


def test_bytes_before_a_kill_are_copied(tmp_path: Path):
    """The trainer dies; the copying process copies the rest of the spool, and then exits."""
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "runs"), str(tmp_path / "spool")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        for _ in range(300):
            last = int(trainer.stdout.readline())
        os.kill(trainer.pid, signal.SIGKILL)
    until(lambda: not (tmp_path / "spool" / "killed").exists())
    assert len(barograph.open("killed", dir=tmp_path / "runs").series("a")) > last


def test_a_run_whose_first_bytes_are_not_copied_yet_has_not_ended(tmp_path: Path):
    """A delivery waits for the segment of the process that started it, for a limited time."""
    run = barograph.init(id="there", dir=tmp_path)
    run.finish()
    options = RelayOptions("session", {}, segment="segments/trainer-0.9.seg", give_up=5.0)
    now = time.monotonic()
    assert run_end_with_spool(run.path, options, now) is None
    assert run_end_with_spool(run.path, options, now - 6.0) is not None
    assert run_end_with_spool(run.path, replace(options, segment=""), now) is not None


def use_default_spool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let the temporary directory be one of the test, and the runs be on a mount; return this user's directory."""
    (tmp_path / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr("barograph.base.settings.is_remote", lambda path: path == tmp_path / "runs")
    return tmp_path / "tmp" / f"barograph-{os.geteuid()}"


def test_the_default_spool_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only the user may enter its directories, whatever the umask is."""
    user = use_default_spool(monkeypatch, tmp_path)
    before = os.umask(0)
    try:
        run = barograph.init(dir=tmp_path / "runs")
    finally:
        os.umask(before)
    for folder in (user, user / "spool", user / "spool" / run.id):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def foreign(folder: Path) -> None:
    """Make a directory of another user's."""
    folder.mkdir()
    os.chown(folder, 12345, 12345)


def link(folder: Path) -> None:
    """Make a symbolic link to another directory."""
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def writable(folder: Path) -> None:
    """Make a directory that the group may write to."""
    folder.mkdir()
    folder.chmod(0o770)


UNSAFE = {
    "link": (link, "is a symbolic link"),
    "foreign": (foreign, "belongs to user 12345"),
    "writable": (writable, "has mode 0770"),
    "fifo": (os.mkfifo, "is not a directory"),
}


@pytest.mark.parametrize("kind", UNSAFE)
@pytest.mark.parametrize("place", ["", "spool", "spool/unsafe"])
def test_a_spool_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, place: str
):
    """The journal is written to the run's directory instead, nothing is lost, and the reason is told."""
    if kind == "foreign" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    folder = use_default_spool(monkeypatch, tmp_path) / place
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    make, told = UNSAFE[kind]
    make(folder)
    run = barograph.init(id="unsafe", dir=tmp_path / "runs")
    run.log({"a": 1.0}, step=1)
    assert "".join(capsys.readouterr().err.split("\n")).count(told) == 1
    assert barograph.open(run.path).series("a").values.tolist() == [1.0]
    run.finish()
    assert list(tmp_path.rglob("*.seg")) == [run.path / "trainer.0.1.0.seg"]


def test_a_chosen_spool_may_be_shared_unless_anybody_may_replace_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A scratch disk has the sticky bit; the directory of the run is private there."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch").chmod(0o1777)
    run = barograph.init(id="one", dir=tmp_path / "runs", spool=tmp_path / "scratch")
    assert stat.S_IMODE((tmp_path / "scratch" / "one").stat().st_mode) == 0o700
    run.finish()
    assert capsys.readouterr().err == ""
    (tmp_path / "scratch").chmod(0o777)
    run = barograph.init(id="two", dir=tmp_path / "runs", spool=tmp_path / "scratch")
    assert "has mode 0777" in capsys.readouterr().err
    assert not (tmp_path / "scratch" / "two").exists()


class Pair:
    """A journal in a spool and the copy of its segment, made when a test asks for it."""

    def __init__(self, tmp_path: Path) -> None:
        self.spool, self.folder = tmp_path / "spool", tmp_path / "run"
        self.spool.mkdir()
        self.folder.mkdir()
        self.journal = JournalWriter(self.spool, Writer("trainer", 0, 1))
        self.copy = SegmentCopy(segments(self.spool)[0], self.folder)

    def log(self, *steps: int, **more: float) -> None:
        """Write rows."""
        for step in steps:
            assert self.journal.row(("a", *more), (step / 7, *more.values()), step)

    def turn(self, ended: bool = False) -> int:
        """Copy what is new; return the lag."""
        self.copy.copy_new_bytes(ended)
        return lag(self.spool, self.folder)

    def steps(self) -> list[int]:
        """Return the steps of the rows that a reader finds in the copy."""
        reader = SegmentReader(self.folder / "trainer.0.1.0.seg")
        reader.poll()
        assert reader.damage == []
        chunks = [chunk for table in reader.tables.values() for chunk in table.chunks]
        return sorted(step for chunk in chunks for step in chunk.steps.tolist())


@pytest.mark.parametrize("part", [0.03, 0.4, 0.7, 0.98])
@pytest.mark.parametrize("new_names", [False, True])
def test_bytes_that_the_writer_cuts_off_again_cost_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float, new_names: bool
):
    """A frame is written in part, then copied from, then cut off by the writer; other frames follow."""
    pair, names = Pair(tmp_path), {"b": 1.0} if new_names else {}
    pair.log(1, 2)
    assert pair.turn() == 0
    real, seen = os.write, []

    def torn(fd: int, data: bytes) -> int:
        if seen:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(fd, bytes(data)[: int(len(data) * part)])
        with monkeypatch.context() as whole:
            whole.setattr(os, "write", real)
            seen.append((pair.turn(), count))
        return count

    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "BACKLOG_LIMIT", 0)  # the frame is dropped, not written again
        patch.setattr(os, "write", torn)
        assert not pair.journal.row(("a", *names), (3 / 7, *names.values()), 3)
    assert [left for left, _ in seen] == [count for _, count in seen]  # the torn bytes are not copied
    assert lag(pair.spool, pair.folder) == 0
    pair.log(*range(4, 40))
    assert pair.turn() == 0
    assert pair.steps() == [1, 2, *range(4, 40)]
    pair.journal.close()


def test_a_copy_that_differs_from_its_segment_is_cut_where_it_does(tmp_path: Path):
    """Also by a process that was started later: no row of the segment is lost."""
    pair = Pair(tmp_path)
    pair.log(*range(10))
    pair.turn()
    target = pair.folder / "trainer.0.1.0.seg"
    for change in (b"torn bytes", b"\0" * 100):
        with target.open("ab") as copy:
            copy.write(change)
        assert lag(pair.spool, pair.folder) == len(change)
        pair.log(*range(10, 20))
        assert pair.turn() == 0
        assert target.read_bytes() == pair.journal.segment.path.read_bytes()
        with target.open("ab") as copy:
            copy.write(change)
        pair.copy = SegmentCopy(segments(pair.spool)[0], pair.folder)
        pair.log(*range(20, 30))
        assert pair.turn() == 0
        assert target.read_bytes() == pair.journal.segment.path.read_bytes()
    pair.journal.close()


def test_a_segment_that_is_restored_under_the_copy_is_waited_for(tmp_path: Path):
    """The copy keeps its bytes while the segment is shorter, and the lag tells of them."""
    pair = Pair(tmp_path)
    pair.log(*range(10))
    pair.turn()
    path = pair.journal.segment.path
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:200])
    assert pair.turn() == len(whole) - 200
    assert pair.steps() == list(range(10))
    path.write_bytes(whole)
    assert pair.turn() == 0
    pair.journal.close()


def test_the_end_of_a_writer_that_was_killed_is_copied(tmp_path: Path):
    """A torn frame is the end of its segment: nothing is left behind, and the lag is 0."""
    pair = Pair(tmp_path)
    pair.log(*range(10))
    with pair.journal.segment.path.open("ab") as segment:
        segment.write(b"\xf5WSK\x50\0\0\0torn")
    assert pair.turn() == 12
    assert pair.turn(ended=True) == 0
    pair.journal.close()


def test_frames_around_damaged_bytes_and_above_a_chunk_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Damage in a segment, and a frame that is larger than a read, hold up nothing."""
    monkeypatch.setattr("barograph.delivery.transfer.spool.CHUNK", 1000)
    pair = Pair(tmp_path)
    pair.log(*range(10))
    with pair.journal.segment.path.open("ab") as segment:
        segment.write(b"\xf5WSK\x50\0\0\0torn" * 300)
    pair.journal.event("large", text="x" * 10_000)
    pair.log(*range(10, 40))
    assert pair.turn() == 0
    pair.journal.close()


def test_a_segment_that_cannot_be_copied_does_not_hold_up_the_others(tmp_path: Path):
    """A FIFO is in place of the copy of one: the others are copied, and the lag tells."""
    pair = Pair(tmp_path)
    other = JournalWriter(pair.spool, Writer("trainer", 1, 1))
    for journal in (pair.journal, other):
        journal.event("finish", status="finished")
        journal.close()
    os.mkfifo(pair.folder / "trainer.0.1.0.seg")
    copy = SpoolCopy(pair.spool, pair.folder)
    assert not copy.copy_new_bytes()
    assert copy.failed
    assert lag(pair.spool, pair.folder) == os.path.getsize(pair.spool / "trainer.0.1.0.seg")
    (pair.folder / "trainer.0.1.0.seg").unlink()
    assert not copy.copy_new_bytes()
    assert copy.copy_new_bytes()


def test_a_fifo_in_place_of_a_file_of_the_spool_holds_up_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Without its log the copying goes on; without its lock it is tried again, and the bytes that are left are told."""
    spool = tmp_path / "spool" / "odd"
    spool.mkdir(parents=True, mode=0o700)
    os.mkfifo(spool / "copy.log")
    os.mkfifo(spool / LOCK)
    run = barograph.init(id="odd", dir=tmp_path / "runs", spool=tmp_path / "spool")
    run.log({"a": 1.0}, step=1)
    client = run._clients[0]
    assert isinstance(client, SpoolClient)
    assert run._background is not None
    run._background.stop()  # it calls maintain too
    until(lambda: client._helper.process is not None and client._helper.process.poll() is not None)
    for _ in range(20):
        client.maintain()
    assert client._restarts == 1
    assert client.values()["barograph/spool/lag_bytes"] > 0
    assert client.wait(barograph.Status("finished"), 0.0) != []
    (spool / LOCK).unlink()
    run.finish(timeout=60)
    assert barograph.open(run.path).series("a").values.tolist() == [1.0]
    assert "had exited and was started again" in capsys.readouterr().err


def test_finish_starts_a_copying_process_that_was_killed(tmp_path: Path):
    """The last bytes are copied before finish returns, whenever the process died."""
    run = barograph.init(dir=tmp_path / "runs", spool=tmp_path / "spool")
    client = run._clients[0]
    assert isinstance(client, SpoolClient)
    assert run._background is not None
    run._background.stop()  # nobody else starts it again
    for step in range(3):
        client.maintain()
        assert client._helper.process is not None
        client._helper.process.kill()
        client._helper.process.wait(30)
        run.log({"a": step}, step=step)
    run.finish(timeout=60)
    assert barograph.open(run.path).series("a").values.tolist() == [0, 1, 2]
