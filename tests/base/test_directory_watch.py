"""Changes of directories, told by the kernel."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from barograph.base.files import directory_watch
from barograph.base.files.directory_watch import DirectoryWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
def watch() -> DirectoryWatch:
    return DirectoryWatch()


def make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)


def append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"y")


def test_writes_creations_renames_and_removals_are_told_once(watch: DirectoryWatch, tmp_path: Path):
    """Of the directory they happen in, and of no other; then nothing until the next one."""
    one, other = tmp_path / "one", tmp_path / "other"
    make(one, other)
    assert watch.add(one)
    assert watch.add(other)
    assert watch.changed() == set()
    file = one / "a"
    for change in (
        lambda: file.write_bytes(b"x"),
        lambda: append(file),
        lambda: os.truncate(file, 1),
        lambda: os.rename(file, one / "b"),
        lambda: (one / "b").unlink(),
        lambda: (one / "inner").mkdir(),
    ):
        change()
        assert watch.changed() == {one}
        assert watch.changed() == set()


def test_many_writes_are_one_event(watch: DirectoryWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A busy run fills no queue: between two calls the kernel keeps one event of a directory."""
    watch.add(tmp_path)
    files = [(tmp_path / name).open("ab", buffering=0) for name in ("a", "b")]
    watch.changed()
    for number in range(20_000):  # more than the kernel's queue has places
        files[number % 2].write(b"x")
    events = []
    monkeypatch.setattr(watch, "_events", lambda: (events.append(e) or e for e in DirectoryWatch._events(watch)))
    assert watch.changed() == {tmp_path}
    assert len(events) <= 2  # with the one that ends the one-shot
    for file in files:
        file.close()


def test_a_change_right_after_a_call_is_not_lost(watch: DirectoryWatch, tmp_path: Path):
    """The directory is watched again before the call returns."""
    watch.add(tmp_path)
    for number in range(100):
        (tmp_path / str(number)).touch()
        assert watch.changed() == {tmp_path}


def test_a_removed_directory_is_told_and_forgotten(watch: DirectoryWatch, tmp_path: Path):
    """Its name can be watched again."""
    folder = tmp_path / "run"
    make(folder)
    watch.add(folder)
    shutil.rmtree(folder)
    assert watch.changed() == {folder}
    assert not watch.tells(folder)
    make(folder)
    assert watch.add(folder)


def test_a_directory_that_is_replaced_is_watched_with_those_below(watch: DirectoryWatch, tmp_path: Path):
    """Renaming a project moves the runs in it, of which the kernel tells nothing by itself."""
    project = tmp_path / "project"
    run = project / "run"
    make(run, tmp_path / "new" / "run")
    watch.add(project)
    watch.add(run)
    project.rename(tmp_path / "old")
    (tmp_path / "new").rename(project)
    assert watch.changed() == {project, run}
    (run / "a").touch()
    assert watch.changed() == {run}
    (tmp_path / "old" / "run" / "a").touch()
    assert watch.changed() == set()


def test_a_directory_that_is_no_longer_watched_tells_nothing(watch: DirectoryWatch, tmp_path: Path):
    """Also where its event was waiting."""
    watch.add(tmp_path)
    (tmp_path / "a").touch()
    watch.remove(tmp_path)
    assert watch.changed() == set()
    (tmp_path / "b").touch()
    assert watch.changed() == set()
    watch.remove(tmp_path)  # twice is fine


def test_two_links_to_one_directory_are_both_told(watch: DirectoryWatch, tmp_path: Path):
    """The kernel has one watch for them."""
    real, link = tmp_path / "real", tmp_path / "link"
    make(real)
    link.symlink_to(real)
    watch.add(real)
    watch.add(link)
    (real / "a").touch()
    assert watch.changed() == {real, link}
    watch.remove(link)
    (real / "b").touch()
    assert watch.changed() == {real}


def test_after_lost_events_every_directory_is_told(
    watch: DirectoryWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kernel says that its queue was full, and not what was lost."""
    folders = {tmp_path / "a", tmp_path / "b"}
    for folder in folders:
        make(folder)
        watch.add(folder)
    monkeypatch.setattr(watch, "_events", lambda: iter([(-1, directory_watch.IN_Q_OVERFLOW)]))
    assert watch.changed() == folders


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", ""])
def test_a_network_file_system_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    """Other machines write there, and this kernel would not know."""
    monkeypatch.setattr(directory_watch, "mount_kind", lambda directory: kind)
    watch = DirectoryWatch()
    assert not watch.add(tmp_path)
    assert not watch.tells(tmp_path)
    assert watch.changed() == set()


def test_without_inotify_nothing_is_told_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on another system, or where a user has too many instances."""
    monkeypatch.setattr(directory_watch, "_inotify_init", lambda: -1)
    watch = DirectoryWatch()
    assert not watch.add(tmp_path)
    assert watch.changed() == set()
    watch.remove(tmp_path)
    watch.close()


def test_where_a_limit_is_reached_the_others_are_still_told(
    watch: DirectoryWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kernel refuses further watches of a user; one that became free can be had again."""
    one, other = tmp_path / "one", tmp_path / "other"
    make(one, other)
    assert watch.add(one)
    with monkeypatch.context() as full:
        full.setattr(directory_watch._libc(), "inotify_add_watch", lambda *_: -1)
        assert not watch.add(other)
        (one / "a").touch()
        assert watch.changed() == {one}
        assert not watch.tells(one)
    assert watch.add(one)
    assert watch.add(other)


def test_a_closed_watch_tells_nothing(watch: DirectoryWatch, tmp_path: Path):
    """And a file or a missing directory cannot be watched."""
    (tmp_path / "file").touch()
    assert not watch.add(tmp_path / "file")
    assert not watch.add(tmp_path / "missing")
    watch.add(tmp_path)
    watch.close()
    assert not watch.tells(tmp_path)
    assert not watch.add(tmp_path)
    assert watch.changed() == set()
