"""The folders of a served directory: what changed is looked at, and nothing else."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barograph
from barograph.answers import open_run
from barograph.answers.runs import folders as log_folders
from barograph.answers.runs import folders as run_folders
from barograph.answers.runs.folders import RunFolders
from barograph.answers.runs.listing import RunDirectory
from barograph.base.files import directory_watch
from barograph.journal.format.folder import run_files

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of changes")


def record(dir: Path, id: str, project: str = "p", steps: int = 2) -> Path:
    run = barograph.init(id=id, project=project, dir=dir)
    for step in range(steps):
        run.log({"critic/score/mean": 1.0}, step=step)
    run.finish()
    return Path(run.path)


def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folders, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(run_folders, "FOLDERS_PER_SECOND", 1e9)
    monkeypatch.setattr(log_folders, "LOG_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(log_folders, "LOGS_PER_SECOND", 1e9)


def search_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folders, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(log_folders, "PAUSE_SHARE", 0.0)
    monkeypatch.setattr(log_folders, "SEARCH_SECONDS", 60.0)
    monkeypatch.setattr(log_folders, "FIRST_SECONDS", 60.0)


def tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_watch, "mount_kind", lambda directory: "nfs")


@pytest.fixture(params=["told", "not told"])
def folders(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolders]:
    """Return the folders of a directory that the kernel watches, and of one that it does not."""
    look_always(monkeypatch)
    if request.param == "not told":
        tell_nothing(monkeypatch)
    search_always(monkeypatch)
    found = RunFolders(tmp_path / "runs")
    yield found
    found.close()


def names(folders: RunFolders) -> list[str]:
    folders.update()
    return [path.relative_to(folders.dir).as_posix() for path in folders.journals()]


def changed(folders: RunFolders, count: int = 0) -> set[str]:
    folders.update()
    return {path.name for path in folders.changed_since(count)[1]}


def test_runs_that_appear_grow_and_disappear_are_noticed(folders: RunFolders, tmp_path: Path):
    """Whether the kernel tells or not, and before there is a directory."""
    dir = tmp_path / "runs"
    assert names(folders) == []
    a = record(dir, "a")
    assert names(folders) == ["p/a"]
    record(dir, "b", "q")
    assert names(folders) == ["p/a", "q/b"]
    count = folders.changed_since(0)[0]
    assert changed(folders, count) == set()
    record(dir, "a", steps=3)
    assert changed(folders, count) == {"a"}
    assert folders.files(a).bytes == sum(path.stat().st_size for path in a.iterdir() if path.is_file())
    shutil.rmtree(a)
    assert names(folders) == ["q/b"]
    shutil.rmtree(dir / "q")
    assert names(folders) == []
    record(dir, "b", "q")
    assert names(folders) == ["q/b"]


def test_a_folder_that_becomes_a_run_is_noticed(folders: RunFolders, tmp_path: Path):
    """Also one that stops being one, and a run that is renamed or takes the place of another."""
    dir = tmp_path / "runs"
    kept = record(tmp_path / "aside", "x")
    record(dir, "other")
    (dir / "p" / "late").mkdir()
    assert names(folders) == ["p/other"]
    shutil.copy(kept / "run.json", dir / "p" / "late" / "run.json")
    assert names(folders) == ["p/late", "p/other"]
    (dir / "p" / "late" / "run.json").unlink()
    assert names(folders) == ["p/other"]
    kept.rename(dir / "p" / "moved")
    assert names(folders) == ["p/moved", "p/other"]
    (dir / "p").rename(dir / "z")
    assert names(folders) == ["z/moved", "z/other"]
    (dir / "z" / "moved").rename(dir / "alone")  # a run beside the projects
    assert names(folders) == ["alone", "z/other"]


def test_a_link_that_leads_elsewhere_is_another_run(folders: RunFolders, tmp_path: Path):
    """The folder that it leads to is watched."""
    one, two = record(tmp_path / "aside", "one"), record(tmp_path / "aside", "two", steps=5)
    link = tmp_path / "runs" / "p" / "link"
    link.parent.mkdir(parents=True)
    link.symlink_to(one)
    (link.parent / "itself").symlink_to(link.parent / "itself")
    assert names(folders) == ["p/link"]
    before = folders.files(link)
    link.unlink()
    link.symlink_to(two)
    assert names(folders) == ["p/link"]
    assert folders.files(link) != before
    count = folders.changed_since(0)[0]
    record(tmp_path / "aside", "two")
    assert changed(folders, count) == {"link"}


def places(folders: RunFolders) -> list[str]:
    folders.update()
    return [place.relative_to(folders.dir).as_posix() for place, _ in folders.logs()]


def test_logs_are_found_anywhere(folders: RunFolders, tmp_path: Path):
    """When they appear, grow and are removed; those inside a run that barograph has recorded are its own business."""
    dir = tmp_path / "runs"
    record(dir, "a")
    folders.update()
    deep = dir / "x" / "y" / "z"
    deep.mkdir(parents=True)
    folders.update()
    row = '{"step": 1, "loss": 0.5}\n'
    (deep / "train.jsonl").write_text(row)
    (deep / "notes.txt").write_text("nothing to see\n")
    (dir / "p" / "a" / "train.jsonl").write_text(row)
    assert places(folders) == ["x/y/z/train.jsonl"]
    count = folders.changed_since(0)[0]
    (deep / "train.jsonl").write_text(row * 2)
    assert changed(folders, count) == {"train.jsonl"}
    assert folders.latest_files(deep / "train.jsonl").bytes == 2 * len(row)
    (dir / "later.jsonl").write_text(row)
    assert places(folders) == ["later.jsonl", "x/y/z/train.jsonl"]
    shutil.rmtree(dir / "x")
    (dir / "later.jsonl").unlink()
    assert places(folders) == []


def test_a_log_that_is_empty_at_first_is_found_when_it_has_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A training opens its log long before the first step."""
    look_always(monkeypatch)
    search_always(monkeypatch)
    log = tmp_path / "train.jsonl"
    log.touch()
    folders = RunFolders(tmp_path)
    assert places(folders) == []
    log.write_text('{"step": 1, "loss": 0.5}\n')
    assert places(folders) == ["train.jsonl"]
    folders.close()


def test_one_log_can_be_served(tmp_path: Path):
    """Others beside it are not listed, nor are runs."""
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text('{"step": 1, "loss": 0.5}\n')
    record(tmp_path, "a")
    folders = RunFolders(tmp_path / "one.jsonl")
    assert places(folders) == ["one.jsonl"]
    assert folders.journals() == []
    folders.close()


def test_a_search_that_takes_long_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Requests do not wait for it, and what it has found is there."""
    monkeypatch.setattr(log_folders, "FIRST_SECONDS", -1.0)
    monkeypatch.setattr(log_folders, "SEARCH_SECONDS", -1.0)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    folders = RunFolders(tmp_path)
    assert [len(places(folders)) for _ in range(4)] == [0, 1, 2, 3]
    folders.close()


def test_a_run_that_goes_on_after_its_end_is_noticed_where_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A machine that was cut off for an hour goes on writing: the time of its directory stays the same."""
    tell_nothing(monkeypatch)
    look_always(monkeypatch)
    run = record(tmp_path / "runs", "cut-off")
    for path in (run, run.parent, run.parent.parent):
        os.utime(path, (1e9, 1e9))
    folders = RunFolders(tmp_path / "runs")
    folders.update()
    folders.set_ended(run, True)
    count = folders.changed_since(0)[0]
    with next(run.glob("*.seg")).open("ab") as file:
        file.write(b"x")
    folders._turn = [tmp_path]  # another run is looked at first
    folders.update()
    assert folders.changed_since(count)[1] == []
    folders.update()
    assert folders.changed_since(count)[1] == [run]
    folders.set_ended(run, False)
    with next(run.glob("*.seg")).open("ab") as file:
        file.write(b"x")
    assert folders.latest_files(run).bytes == sum(path.stat().st_size for path in run.iterdir() if path.is_file())


class Calls:
    """Counts the calls that look at files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("stat", "scandir", "open", "listdir", "lstat"):
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, call: object) -> object:
        def counted(*given: object, **named: object) -> object:
            self.count += 1
            return call(*given, **named)  # type: ignore[operator]

        return counted


@LINUX
def test_an_idle_list_looks_at_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor at a directory, however many runs and logs there are and however often it is asked."""
    search_always(monkeypatch)
    monkeypatch.setattr(open_run, "NAMES_SECONDS", 60.0)  # these files are looked at once a second
    dir = tmp_path / "runs"
    for number in range(12):
        record(dir, f"r{number}")
    (dir / "other.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    os.utime(dir / "other.jsonl", (1e9, 1e9))
    directory = RunDirectory(dir)
    [log] = [run["key"] for run in directory.listing.view()["runs"] if run["name"] == "other"]
    while directory.listing.view()["pending"]:
        time.sleep(0.01)
    directory.annotations.set("r0", {"pinned": True})
    directory.listing.view()
    with directory.open_runs.use("r3"), directory.open_runs.use(log):
        pass
    assert directory.listing._thread is not None
    directory.listing._thread.join()
    for _ in range(3):
        directory.listing.cursor()
    calls = Calls(monkeypatch)
    cursors = set()
    for _ in range(20):
        cursors.add(directory.listing.cursor())
        with directory.open_runs.use("r3"), directory.open_runs.use(log):
            pass
    assert calls.count == 0
    assert len(cursors) == 1
    directory.close()


@LINUX
def test_a_row_costs_a_look_at_its_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The files of the others are not looked at."""
    dir = tmp_path / "runs"
    for number in range(12):
        record(dir, f"r{number}")
    folders = RunFolders(dir)
    folders.update()
    looked: list[Path] = []
    look = run_files
    monkeypatch.setattr(run_folders, "run_files", lambda folder: looked.append(folder) or look(folder))
    with next((dir / "p" / "r5").glob("*.seg")).open("ab") as file:
        file.write(b"x")
    folders.update()
    assert looked == [dir / "p" / "r5"]


def test_where_nothing_is_told_a_directory_is_one_call_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Their times are compared; files are looked at of runs that go on, and of few of the others."""
    tell_nothing(monkeypatch)
    look_always(monkeypatch)
    dir = tmp_path / "runs"
    runs = [record(dir, f"r{number}") for number in range(12)]
    for path in (*runs, dir / "p", dir):
        os.utime(path, (1e9, 1e9))
    folders = RunFolders(dir)
    folders.update()
    folders.update()
    for run in runs[1:]:
        folders.set_ended(run, True)
    looked: list[Path] = []
    look = run_files
    monkeypatch.setattr(run_folders, "run_files", lambda folder: looked.append(folder) or look(folder))
    search_always(monkeypatch)
    searched: list[Path] = []
    monkeypatch.setattr(log_folders, "walk_logs", lambda folder, *rest: searched.append(folder) or iter(()))
    calls = Calls(monkeypatch)
    folders.update()
    assert searched == []
    assert runs[0] in looked
    assert len(looked) == 2  # with one of those that have ended, in turn
    assert calls.count <= len(runs) + 4 + 4 * len(looked)
