"""Runs held open, within a bound, and read on instead of again."""

import shutil
import time
from pathlib import Path

import pytest
from serving_runs import eventually

import windsock
from windsock.server.responses import RequestError
from windsock.server.runs.annotations import Annotations
from windsock.server.runs.directory import RunDirectory
from windsock.server.runs.listing import Listing
from windsock.server.runs.open_runs import OpenRuns


def record(id: str, value: float = 1.0, steps: int = 5) -> Path:
    run = windsock.init(id=id, project="p")
    for step in range(steps):
        run.log({"critic/score/mean": value}, step=step)
    run.finish()
    return Path(run.path)


def test_only_so_much_is_held_open(tmp_path: Path):
    """The run that was not asked for the longest is let go of; one is always kept."""
    for id in ("a", "b", "c"):
        record(id)
    open_runs = OpenRuns(tmp_path / "runs", max_bytes=1)
    for id in ("a", "b", "c"):
        with open_runs.use(id) as opened:
            assert opened.view.names() == ["critic/score/mean"]
    assert [id for id in ("a", "b", "c") if open_runs.get_open(id)] == ["c"]


def test_an_opened_run_is_read_on_and_what_was_made_of_it_is_made_once(tmp_path: Path):
    """Until it grows; then its version counts on."""
    run = windsock.init(id="grows", project="p")
    run.log({"a": 1.0}, step=0)
    open_runs = OpenRuns(tmp_path / "runs")
    made: list[int] = []

    def length() -> tuple[int, int]:
        with open_runs.use("grows") as opened:

            def make() -> int:
                made.append(1)
                return len(opened.view.series("a"))

            return opened.cached("length", make), opened.version

    assert [length(), length(), len(made)] == [(1, 1), (1, 1), 1]
    run.log({"a": 2.0}, step=1)
    found, version = length()
    assert (found, len(made)) == (2, 2)
    assert version > 1
    run.finish()


def test_a_run_that_was_replaced_is_opened_anew(tmp_path: Path):
    """Removed and recorded again under the same id: the old values are gone."""
    folder = record("again", 1.0, steps=50)
    open_runs = OpenRuns(tmp_path / "runs")
    with open_runs.use("again") as opened:
        assert len(opened.view.series("critic/score/mean")) == 50
    shutil.rmtree(folder)
    record("again", 2.0)
    with open_runs.use("again") as opened:
        assert opened.view.series("critic/score/mean").values.tolist() == [2.0] * 5


def test_two_runs_of_one_id_have_different_keys(tmp_path: Path):
    """A copied run does not hide the other."""
    folder = record("twin")
    shutil.copytree(folder, folder.parent.parent / "q" / "twin")
    entries = OpenRuns(tmp_path / "runs").locations()
    assert len(entries) == 2
    assert sorted(entry.folder.parent.name for entry in entries.values()) == ["p", "q"]
    with pytest.raises(RequestError, match="no run"):
        OpenRuns(tmp_path / "runs").location("nobody")


def test_a_second_server_knows_the_rewards_that_the_first_has_read(tmp_path: Path):
    """From an index that can be deleted, and that does not outlive what it speaks of."""
    folder = record("kept", 0.25)
    first = RunDirectory(tmp_path / "runs")
    first.listing.view()
    eventually(lambda: first.listing.view()["pending"] == 0)
    eventually(lambda: (tmp_path / "runs" / ".page" / "list.sqlite").exists())
    second = eventually(lambda: (v := _fresh(tmp_path).view())["pending"] == 0 and v)
    assert second["runs"][0]["reward"]["last"] == 0.25
    shutil.rmtree(folder)
    time.sleep(0.01)
    record("kept", 0.75)
    third = _fresh(tmp_path)
    eventually(lambda: third.view()["pending"] == 0)
    assert third.view()["runs"][0]["reward"]["last"] == 0.75


def _fresh(tmp_path: Path) -> Listing:
    dir = tmp_path / "runs"
    return Listing(OpenRuns(dir), Annotations(dir))
