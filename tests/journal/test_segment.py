"""Writing when the disk is full, the file may not grow, the directory is gone or read-only, or writes come short."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from journals import WRITER, read

from barograph.journal.format.folder import segments
from barograph.journal.write import segment as segment_module
from barograph.journal.write.writer import JournalWriter


def assert_whole(folder: Path, steps: int) -> None:
    """Check that every step is there once, with its value, and nothing is damaged."""
    attempt = read(folder)
    series = attempt.series("x")
    assert series.steps.tolist() == list(range(steps))
    assert series.values.tolist() == [step / 7 for step in range(steps)]
    assert attempt.damage == []


def log(journal: JournalWriter, steps: range) -> None:
    for step in steps:
        journal.row(("x", "y"), (step / 7, 0.0), step)


def test_short_writes_leave_no_torn_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A write that takes only some of the bytes is completed by the next."""
    real = os.write
    calls = iter(range(10**6))

    def short(fd: int, data: bytes) -> int:
        return real(fd, bytes(data)[: max(1, len(data) // 2)] if next(calls) % 3 == 0 else data)

    journal = JournalWriter(tmp_path, WRITER)
    monkeypatch.setattr(os, "write", short)
    log(journal, range(50))
    monkeypatch.undo()
    assert journal.close() == 0
    assert_whole(tmp_path, 50)


def test_a_short_write_before_a_full_disk_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What was written of a frame that does not fit is cut off, the frame waits, and nothing written is harmed."""
    real = os.write
    journal = JournalWriter(tmp_path, WRITER)
    log(journal, range(5))
    path = journal.segment.path
    assert path is not None
    whole = path.read_bytes()
    pieces = iter([10, None])

    def full(fd: int, data: bytes) -> int:
        size = next(pieces, None)
        if size is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, bytes(data)[:size])

    monkeypatch.setattr(os, "write", full)
    log(journal, range(5, 10))
    monkeypatch.undo()
    assert path.read_bytes() == whole
    assert (journal.segment.waiting, journal.segment.trouble) == (5, "No space left on device")
    journal.segment.maintain()
    assert (journal.segment.waiting, journal.segment.trouble) == (0, None)
    journal.close()
    assert_whole(tmp_path, 10)


def test_what_exceeds_the_backlog_is_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Memory stays bounded while nothing can be written, and names are written anew for what comes after."""
    journal = JournalWriter(tmp_path, WRITER)
    monkeypatch.setattr(segment_module, "BACKLOG_LIMIT", 1000)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    kept = [step for step in range(100) if journal.row(("x", "y"), (step / 7, 0.0), step)]
    assert journal.segment.dropped > 50
    assert journal.segment.dropped + len(kept) >= 100
    monkeypatch.setattr(os, "write", real)
    journal.segment.maintain()
    journal.row(("x", "y"), (100 / 7, 0.0), 100)
    journal.close()
    assert read(tmp_path).series("x").steps.tolist() == [*kept, 100]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a filesystem of 64 kB, where that is allowed."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small filesystem is not allowed here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_disk_that_fills_up_and_has_room_again_loses_nothing(small_disk: Path):
    """On a really full filesystem rows wait, and they are written when a file was removed."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(40_000))
    journal = JournalWriter(small_disk / "run", WRITER, prepare=(small_disk / "run").mkdir)
    log(journal, range(800))
    journal.segment.maintain()
    assert journal.segment.trouble == "No space left on device"
    assert journal.segment.waiting > 0
    ballast.unlink()
    journal.segment.maintain()
    assert (journal.segment.waiting, journal.segment.trouble) == (0, None)
    journal.close()
    assert_whole(small_disk / "run", 800)


def test_a_file_that_may_not_grow_is_continued_in_another_part(tmp_path: Path):
    """Under a limit of file size (ulimit -f) the segment goes on in a further file, readable by itself."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        journal = JournalWriter(tmp_path, WRITER)
        for start in range(0, 400, 10):
            log(journal, range(start, start + 10))
            journal.segment.maintain()
        assert journal.close() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(segments(tmp_path)) > 1
    assert_whole(tmp_path, 400)


def test_a_removed_directory_comes_back_with_everything(tmp_path: Path):
    """Where the directory is removed under a run, the journal is restored from the open file."""
    folder = tmp_path / "run"
    journal = JournalWriter(folder, WRITER, prepare=lambda: folder.mkdir(exist_ok=True))
    log(journal, range(10))
    shutil.rmtree(folder)
    log(journal, range(10, 20))
    journal.segment.maintain()
    log(journal, range(20, 30))
    journal.close()
    assert_whole(folder, 30)


def test_a_directory_that_cannot_be_written_makes_rows_wait(tmp_path: Path):
    """Rows logged before the directory can be made are there once it can."""
    blocker = tmp_path / "run"
    blocker.write_text("a file where the directory should be")
    journal = JournalWriter(blocker, WRITER, prepare=lambda: blocker.mkdir(exist_ok=True))
    log(journal, range(5))
    assert journal.segment.path is None
    assert journal.segment.trouble == "File exists"
    blocker.unlink()
    journal.segment.maintain()
    log(journal, range(5, 8))
    journal.close()
    assert_whole(blocker, 8)


def test_threads_may_write_at_once(tmp_path: Path):
    """Rows of several threads are all there, each whole."""
    journal = JournalWriter(tmp_path, WRITER)

    def work(number: int) -> None:
        for step in range(number, 4000, 8):
            journal.row(("x", "y"), (step / 7, 0.0), step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert_whole(tmp_path, 4000)


def test_a_row_never_comes_before_the_names_that_it_needs(tmp_path: Path):
    """What another thread logs with new names is readable as soon as its call returns, whoever writes the names."""
    journal = JournalWriter(tmp_path, WRITER)
    append, copy = journal.segment.append, tmp_path / "killed-here"

    def interrupted(frame: bytes) -> bool:
        journal._append = append
        other = threading.Thread(target=journal.row, args=(("x", "y"), (1 / 7, 0.0), 1))
        other.start()
        other.join(10)
        shutil.copytree(tmp_path, copy)
        return append(frame)

    journal._append = interrupted
    journal.row(("x", "y"), (0.0, 0.0), 0)
    journal.close()
    assert read(copy).series("x").steps.tolist() == [1]
    assert_whole(tmp_path, 2)


FORKING = """
import os, sys
from pathlib import Path
from barograph.journal.write.writer import JournalWriter
from barograph.base.model import Writer
journal = JournalWriter(Path(sys.argv[1]), Writer("trainer", 0, 1))
log = lambda steps: [journal.row(("x", "y"), (step / 7, 0.0), step) for step in steps]
log(range(0, 10))
children = []
for number in range(3):
    child = os.fork()
    if not child:
        log(range(20 + number * 10, 30 + number * 10))
        os._exit(0)
    children.append(child)
silent = os.fork()
if not silent:
    os._exit(0)
log(range(10, 20))
for child in [*children, silent]:
    os.waitpid(child, 0)
journal.close()
"""


def test_a_forked_child_writes_to_a_part_of_its_own(tmp_path: Path):
    """Parent and children never share a file, and a child that logs nothing makes none."""
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], check=True)
    assert [segment.index for segment in segments(tmp_path)] == [0, 1, 2, 3]
    assert_whole(tmp_path, 50)
