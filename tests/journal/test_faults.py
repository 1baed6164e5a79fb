"""Writing while calls of the operating system fail: nothing that was acknowledged is lost, and failures are counted."""

import errno
import itertools
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from journals import WRITER, read

import barograph
from barograph.base.formatting import counted
from barograph.importers.summary import run_warnings
from barograph.journal.format.folder import segments
from barograph.journal.write import segment as segment_module
from barograph.journal.write.writer import JournalWriter


def log(journal: JournalWriter, steps: range) -> None:
    for step in steps:
        assert journal.row(("x", "y"), (step / 7, 0.0), step)


def fail_if(real: Callable[..., int], fails: Callable[[], bool], code: int = errno.EIO) -> Callable[..., int]:
    """Return a call that raises an error whenever ``fails`` says so."""

    def call(*args: object, **kwargs: object) -> int:
        if fails():
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    return call


def test_single_errors_do_not_stop_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With one failing write in fifty, one call writes everything that waits."""
    journal, chance = JournalWriter(tmp_path, WRITER), random.Random(1)
    monkeypatch.setattr(os, "write", fail_if(os.write, lambda: chance.random() < 0.02))
    log(journal, range(2000))
    assert journal.segment.waiting > 100
    journal.segment.maintain()
    assert (journal.segment.waiting, journal.segment.trouble) == (0, None)
    assert journal.segment.failed_writes > 10
    monkeypatch.undo()
    assert journal.close() == 0
    assert read(tmp_path).series("x").steps.tolist() == list(range(2000))


def test_close_tries_again_until_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that has room again within the timeout gets everything; one that stays full costs no more than that."""
    journal, until = JournalWriter(tmp_path / "a", WRITER, prepare=(tmp_path / "a").mkdir), time.monotonic() + 0.4
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_if(os.write, lambda: time.monotonic() < until, errno.ENOSPC))
        log(journal, range(10))
        assert journal.close(timeout=20) == 0
    assert read(tmp_path / "a").series("x").steps.tolist() == list(range(10))
    journal, began = JournalWriter(tmp_path / "b", WRITER, prepare=(tmp_path / "b").mkdir), time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_if(os.write, lambda: True, errno.ENOSPC))
        log(journal, range(10))
        assert journal.close(timeout=0.3) == 10
    assert 0.3 <= time.monotonic() - began < 10


def test_a_failing_fsync_is_counted_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Bytes that did not reach the disk stay marked, and the reason stays known."""
    journal = JournalWriter(tmp_path, WRITER)
    log(journal, range(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_if(os.fsync, lambda: True))
        journal.segment.maintain()
        journal.segment.maintain()
    assert (journal.segment.failed_syncs, journal.segment.sync_trouble) == (2, "Input/output error")
    journal.segment.maintain()
    journal.close()
    assert journal.segment.counts == {"dropped": 0, "waiting": 0, "failed_writes": 0, "failed_syncs": 2}


def test_a_frame_that_fits_in_no_file_is_dropped_and_the_others_are_kept(tmp_path: Path):
    """Under a limit of file size, a frame above it does not hold up what comes after it."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        journal = JournalWriter(tmp_path, WRITER)
        journal._announce = lambda: journal.event("start")
        log(journal, range(3))
        journal.event("large", text="x" * 10_000)
        log(journal, range(3, 6))
        assert journal.close() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.segment.dropped == 1
    assert len(segments(tmp_path)) <= 3
    assert read(tmp_path).series("x").steps.tolist() == list(range(6))


def test_a_directory_that_was_removed_and_made_again_gets_everything(tmp_path: Path):
    """Where another file has the segment's name, the journal is restored in a further segment, and that is told."""
    folder = tmp_path / "run"
    journal = JournalWriter(folder, WRITER, prepare=lambda: folder.mkdir(exist_ok=True))
    log(journal, range(10))
    old = journal.segment.path
    shutil.rmtree(folder)
    folder.mkdir()
    other = JournalWriter(folder, WRITER)
    assert other.segment.path == old
    log(journal, range(10, 20))
    journal.segment.maintain()
    log(journal, range(20, 30))
    notices = journal.segment.take_notices()
    assert len(notices) == 1
    assert str(old) in notices[0]
    journal.close()
    other.close()
    assert [segment.index for segment in segments(folder)] == [0, 1]
    assert read(folder).series("x").steps.tolist() == list(range(30))


def test_a_directory_that_was_moved_and_made_again_is_told(tmp_path: Path):
    """Where the file still exists under another path, writing continues there, and that is told once."""
    folder = tmp_path / "run"
    journal = JournalWriter(folder, WRITER, prepare=lambda: folder.mkdir(exist_ok=True))
    log(journal, range(10))
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    other = JournalWriter(folder, WRITER)
    log(journal, range(10, 20))
    journal.segment.maintain()
    journal.segment.maintain()
    assert len(journal.segment.take_notices()) == 1
    journal.close()
    other.close()
    assert read(tmp_path / "moved").series("x").steps.tolist() == list(range(20))


def test_show_tells_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A run whose writes and syncs failed for a while has that in its finish event and its summary."""
    run = barograph.init(dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(segment_module.os, "write", fail_if(os.write, lambda: True, errno.ENOSPC))
        run.log({"x": 1.0}, step=1)
        run._maintain()
    with monkeypatch.context() as patch:
        patch.setattr(segment_module.os, "fsync", fail_if(os.fsync, lambda: True))
        run._maintain()
    run.finish()
    view = barograph.open(run.path)
    finish = next(event for event in view.events() if event["event"] == "finish")
    assert finish["failed_writes"] > 0
    assert finish["failed_syncs"] > 0
    warnings = "\n".join(run_warnings(view))
    assert f"{counted(finish['failed_writes'], 'write')} failed" in warnings
    assert f"{counted(finish['failed_syncs'], 'sync')} to the disk failed" in warnings
    assert "cannot sync" in capsys.readouterr().err


def test_trackers_get_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a failure the counts are metrics of a run with trackers, so that Prometheus can alert on them."""
    run = barograph.init(dir=tmp_path, track_with="jsonl")
    run.log({"x": 1.0}, step=1)
    run._heartbeat()
    assert "barograph/journal/failed_syncs" not in barograph.open(run.path).names()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_if(os.fsync, lambda: True))
        run.log({"x": 2.0}, step=2)
        run._maintain()
    run._heartbeat()
    run.finish()
    assert barograph.open(run.path).series("barograph/journal/failed_syncs").values[-1] >= 1


class Faults:
    """Calls of the journal to the operating system, of which some fail: from call ``first`` on, ``count`` of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, how: str, first: int, count: int = 1) -> None:
        self.calls = 0
        self._name, self._how = name, how
        self._first, self._last = first, first + count - 1
        self._real = getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        if not sys._getframe(1).f_code.co_filename.endswith("segment.py"):
            return self._real(*args, **kwargs)
        self.calls += 1
        if not self._first <= self.calls <= self._last:
            return self._real(*args, **kwargs)
        if self._how == "short":
            return self._real(args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
        code = getattr(errno, self._how)
        raise OSError(code, os.strerror(code))


def record(dir: Path, timeout: float = 20.0) -> barograph.Run:
    """Record a short run with rows, new key sets, commits, maintenance, a heartbeat and the end."""
    run = barograph.init(dir=dir, id="run")
    for step in range(12):
        run.log({"x": step / 7, f"set/{step // 3}": 1.0}, step=step)
        if step % 4 == 3:
            run.commit(step)
            run._maintain()
    run.text("note", "kept")
    run._heartbeat()
    run.finish(timeout=timeout)
    return run


def assert_complete(run: barograph.Run) -> dict[str, Any]:
    """Check that every row and the end are there; return the finish event."""
    view = barograph.open(run.path)
    series = view.series("x")
    assert series.steps.tolist() == list(range(12))
    assert series.values.tolist() == [step / 7 for step in range(12)]
    assert view.damage() == []
    assert view.status.word == "finished"
    finish = next(event for event in view.events() if event["event"] == "finish")
    assert finish["dropped"] == 0
    return finish


@pytest.mark.parametrize("how", ["EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_failing_write_loses_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, count: int):
    """Each write of a run, from init to finish, fails in turn; every row and the end of the run are there."""
    first, calls = 1, 2
    while first <= calls:
        with monkeypatch.context() as patch:
            faults = Faults(patch, "write", how, first, count)
            run = record(tmp_path / str(first))
        finish = assert_complete(run)
        assert how == "short" or finish["failed_writes"] > 0 or first >= faults.calls - count
        first, calls = first + 1, faults.calls - count
    assert first > 20


@pytest.mark.parametrize(("name", "how"), [("fsync", "EIO"), ("fsync", "ENOSPC"), ("open", "EIO"), ("open", "EACCES")])
def test_no_failing_sync_or_open_loses_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, how: str
):
    """Each fsync and each open of a segment fails in turn; every row is there, and the failure is told."""
    for first in itertools.count(1):
        with monkeypatch.context() as patch:
            faults = Faults(patch, name, how, first)
            run = record(tmp_path / str(first))
        if faults.calls < first:
            break
        finish, told = assert_complete(run), capsys.readouterr().err
        if name == "open":
            assert finish["failed_writes"] == 1
        else:
            assert finish["failed_syncs"] == 1 or "cannot sync" in told
    assert first > 1


@pytest.mark.parametrize("how", ["EIO", "ENOSPC"])
def test_what_could_not_be_kept_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
):
    """Where writes fail for good from some call on, all before it is there, and the number of lost frames is told."""
    for first in itertools.count(1):
        with monkeypatch.context() as patch:
            faults = Faults(patch, "write", how, first, 10**9)
            run = record(tmp_path / str(first), timeout=0.0)
        if faults.calls < first:
            break
        assert re.search(r"[1-9]\d* frames? could not be written", capsys.readouterr().err)
        view = barograph.open(run.path)
        found = view.series("x").steps.tolist() if "x" in view.names() else []
        assert found == list(range(len(found)))
    assert first > 20
