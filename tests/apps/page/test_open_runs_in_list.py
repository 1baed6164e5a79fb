"""The list while runs are open: how often rewards and verdicts are computed again."""

from pathlib import Path
from typing import Any

import pytest
from serving_runs import eventually

import barograph
from barograph.answers.runs import listing
from barograph.answers.runs import open_runs as health
from barograph.answers.runs.listing import RunDirectory

WORK = ("_read_reward", "_judge")


@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_the_more_runs_are_open_the_less_often_each_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
):
    """Beside many that go on the page stays quick; one that ends is read at once."""
    for module in (listing, health):
        monkeypatch.setattr(module, "OPEN_SECONDS", seconds)
    runs = [barograph.init(id=f"r{number}", concurrent=True) for number in range(3)]
    for run in runs:
        run.log({"critic/score/mean": 0.5}, step=0)
    directory = RunDirectory(tmp_path / "runs")
    for run in runs:
        with directory.open_runs.use(run.id):
            pass
    done: list[tuple[str, str]] = []
    for name in WORK:
        monkeypatch.setattr(directory.listing, name, counted(directory.listing, name, done))

    assert set(settled(directory, done)) == {(name, run.id) for name in WORK for run in runs}
    for run in runs:
        run.log({"critic/score/mean": 0.6}, step=1)
    eventually(lambda: {run["last_step"] for run in directory.listing.view()["runs"]} == {1})
    assert bool(settled(directory, done)) == (seconds == 0)
    runs[1].finish()
    eventually(lambda: directory.listing.one("r1")["status"] == "finished")
    assert {(name, "r1") for name in WORK} <= set(settled(directory, done))
    directory.close()
    runs[0].finish()
    runs[2].finish()


def test_runs_are_read_after_the_first_list_and_with_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A page shows the list before the server is busy with sparklines, and its requests do not wait for all of them."""
    for number in range(3):
        run = barograph.init(id=f"r{number}")
        run.log({"critic/score/mean": 0.5}, step=0)
        run.finish()
    directory = RunDirectory(tmp_path / "runs")
    directory.prepare()
    assert directory.listing._thread is None
    monkeypatch.setattr("barograph.journal.directory.read_facts", None)  # they are known since a server has started
    done: list[tuple[str, str]] = []
    monkeypatch.setattr(directory.listing, "_rest", lambda seconds: done.append(("rest", str(seconds >= 0.5))))
    monkeypatch.setattr(directory.listing, "_read_reward", counted(directory.listing, "_read_reward", done))
    found = settled(directory, done)
    assert found[0] == ("rest", "True")
    assert [what for what, _ in found[1:7]] == ["_read_reward", "rest"] * 3
    directory.close()


def counted(of_list: Any, name: str, done: list[tuple[str, str]]) -> Any:
    """Return a method of the list that also notes its name and the run."""
    work = getattr(of_list, name)

    def wrapper(run: Any) -> None:
        done.append((name, run.location.key))
        work(run)

    return wrapper


def settled(directory: RunDirectory, done: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what was done since the last call, when the thread of the list has nothing more to do."""
    directory.listing.view()
    eventually(lambda: directory.listing._thread is None or not directory.listing._thread.is_alive())
    found, done[:] = [*done], []
    return found
