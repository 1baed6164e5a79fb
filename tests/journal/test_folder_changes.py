"""Notice of changes in a directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.base.files import directory_watch
from barograph.base.files.directory_watch import DirectoryWatch, FolderChanges


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory whose changes the system tells."""
    if not DirectoryWatch().add(tmp_path):
        pytest.skip("the system does not tell of changes here")
    return tmp_path


def test_a_change_is_told_once(folder: Path):
    """Whatever it is: a new file, a longer one, one that is renamed or removed."""
    changes = FolderChanges(folder)
    assert changes.take()  # the first time
    assert not changes.take()
    (folder / "a").write_bytes(b"1")
    assert changes.take()
    with (folder / "a").open("ab") as file:
        file.write(b"2")
    assert changes.take()
    (folder / "a").rename(folder / "b")
    assert changes.take()
    (folder / "b").unlink()
    assert changes.take()
    assert not changes.take()


def test_two_who_watch_one_directory_are_both_told(folder: Path):
    """One of them does not take the notices of the other."""
    one, other = FolderChanges(folder), FolderChanges(folder)
    assert one.take()
    assert other.take()
    (folder / "a").write_bytes(b"1")
    assert one.take()
    assert other.take()
    del one
    (folder / "a").write_bytes(b"2")
    assert other.take()


def test_a_directory_that_was_replaced_has_changed(folder: Path):
    """The one in its place is watched from then on."""
    run = folder / "run"
    run.mkdir()
    changes = FolderChanges(run)
    changes.take()
    shutil.rmtree(run)
    run.mkdir()
    assert changes.take()
    (run / "a").write_bytes(b"1")
    assert changes.take()
    shutil.rmtree(run)
    assert changes.take()
    assert changes.take()  # nothing is told of a directory that does not exist


def test_a_directory_is_read_now_and_then_without_a_notice(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that has another name elsewhere changes without one."""
    changes = FolderChanges(folder)
    changes.take()
    assert not changes.take()
    monkeypatch.setattr(directory_watch, "MAX_AGE", 0.0)
    assert changes.take()


def test_without_notices_a_directory_counts_as_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On other systems, and on disks that other machines write to."""
    monkeypatch.setattr(DirectoryWatch, "add", lambda self, directory: False)
    changes = FolderChanges(tmp_path)
    assert changes.take()
    assert changes.take()


def test_a_forked_process_leaves_the_notices_to_its_parent(folder: Path):
    """Otherwise the parent would miss what the child has read."""
    changes = FolderChanges(folder)
    changes.take()
    (folder / "a").write_bytes(b"1")
    child = os.fork()
    if not child:
        os._exit(0 if changes.take() and changes.take() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert changes.take()


def test_a_view_lists_a_directory_that_has_changed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A refresh of a run in which nothing happens makes no call for any of its files."""
    run = barograph.init(dir=folder / "runs")
    run.log({"loss": 1.0}, step=0)
    run.finish()
    segment = next(run.path.glob("*.seg"))
    content = segment.read_bytes()
    segment.write_bytes(content[:-10])
    view = barograph.open(run.path)
    listed: list[Any] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    for _ in range(3):
        assert not view.refresh()
    assert not listed
    segment.write_bytes(content)
    assert view.refresh()
    assert listed == [run.path]


def test_a_view_follows_a_segment_that_is_a_link(folder: Path):
    """Its changes are in another directory."""
    run = barograph.init(dir=folder / "real")
    run.log({"loss": 1.0}, step=0)
    linked = folder / "linked"
    linked.mkdir()
    for path in run.path.iterdir():
        (linked / path.name).symlink_to(path)
    view = barograph.View(linked)
    view.refresh()
    run.log({"loss": 2.0}, step=1)
    assert view.refresh()
    run.finish()
