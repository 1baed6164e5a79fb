"""The memory of open runs: estimated, and limited by closing the least recently used ones."""

import mmap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.answers import open_run
from barograph.answers.open_run import held_bytes
from barograph.answers.runs import open_runs
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.runs.open_runs import OpenRuns


def record(dir: Path, id: str, steps: int = 5, phases: int = 0) -> Path:
    run = barograph.init(id=id, project="p", dir=dir)
    for step in range(steps):
        for _ in range(phases):
            with run.phase("generate"):
                pass
        run.log({"critic/score/mean": 1.0}, step=step)
    run.finish()
    return Path(run.path)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (np.zeros(1_000_000), 8e6),
        ([np.zeros(1000) for _ in range(1000)], 8e6),
        ({"a": {number: bytes(1000) for number in range(10_000)}}, 1.0e7),
        ([{"time": float(number), "name": f"n{number}"} for number in range(20_000)], 5.5e6),
        ([np.zeros(1_000_000)[start:] for start in range(3)], 24e6),
    ],
)
def test_the_estimate_is_about_right(held: Any, expected: float):
    """For arrays, texts, records, and few or many of them."""
    assert held_bytes(held) == pytest.approx(expected, rel=0.35)


def test_what_is_shared_or_mapped_counts_once_or_not():
    """Parts of an array are the array; the pages of a file are the system's; modules and functions are not ours."""
    whole = np.zeros(1_000_000)
    assert held_bytes([whole[start : start + 10] for start in range(1000)]) < 1.1 * whole.nbytes
    with mmap.mmap(-1, 1 << 24) as mapped:
        array = np.frombuffer(mapped, dtype="u1")
        assert held_bytes(array) < 10_000
        del array
    assert held_bytes([np, held_bytes, threading.Thread, {"self": np.add}]) < 10_000
    circle: list[Any] = []
    circle.append(circle)
    assert held_bytes(circle) < 1000


def test_the_estimate_looks_at_few_objects(monkeypatch: pytest.MonkeyPatch):
    """However many there are, also where no container is large."""
    nested: list[Any] = [[[[number] for _ in range(40)] for _ in range(40)] for number in range(60)]
    visited: list[int] = []
    size = open_run.sys.getsizeof
    monkeypatch.setattr(open_run.sys, "getsizeof", lambda one: visited.append(1) or size(one))
    estimated = held_bytes(nested)
    assert len(visited) == open_run.MAX_VISITED
    assert 0.5 < estimated / (60 * 40 * 40 * 72) < 2


def test_memory_counts_and_not_the_size_of_files(tmp_path: Path):
    """Spans take many times the memory of their bytes on the disk: two such runs are not open at once."""
    dir = tmp_path / "runs"
    folders = {id: record(dir, id, phases=2000) for id in ("a", "b")}
    disk = sum(path.stat().st_size for path in folders["a"].iterdir() if path.is_file())
    opened = OpenRuns(dir, max_bytes=4 * disk)
    for id in folders:
        with opened.use(id) as run:
            assert len(run.view.phases()) == 10_000
            run.cached("phases", run.view.phases)
        run.estimated_at = -1e9
    assert run.bytes > 2.1 * disk
    opened._close_oldest()
    assert [id for id in folders if opened.get_open(id)] == ["b"]


def test_room_is_made_before_a_large_run_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not afterwards, when both are in memory."""
    dir = tmp_path / "runs"
    for id in ("a", "b"):
        record(dir, id, steps=3000)
    found = OpenRuns(dir, max_bytes=100_000)
    with found.use("a"):
        pass
    open_then: list[bool] = []
    opens = open_run.OpenRun

    def opening(*given: Any) -> Any:
        open_then.append(found.get_open("a") is not None)
        return opens(*given)

    monkeypatch.setattr(open_runs, "OpenRun", opening)
    with found.use("b"):
        pass
    assert open_then == [False]


def test_reading_a_reward_keeps_the_run_in_view_open(tmp_path: Path):
    """Unless the other run is large too, when its memory is needed."""
    dir = tmp_path / "runs"
    record(dir, "shown", steps=3000)
    record(dir, "small")
    record(dir, "large", steps=3000)
    found = OpenRuns(dir, max_bytes=200_000)
    with found.use("shown"):
        pass
    with found.room_for(found.location("small")):
        assert found.get_open("shown") is not None
    found._max_bytes = 100_000
    with found.room_for(found.location("large")):
        assert found.get_open("shown") is None
    assert found._reading == 0


def test_a_closed_run_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its memory is given back to the system when it was much."""
    given_back: list[float] = []
    monkeypatch.setattr(open_runs, "MIN_TRIM_BYTES", 0)
    monkeypatch.setattr(open_runs, "give_back_memory", lambda: given_back.append(time.monotonic()))
    dir = tmp_path / "runs"
    for id in ("a", "b"):
        record(dir, id)
    directory = RunDirectory(dir)
    directory.open_runs._max_bytes = 1
    for id in ("a", "b"):
        with directory.open_runs.use(id):
            pass
    assert len(given_back) == 1
    directory.close()


def test_looking_at_the_list_does_not_count_as_a_use(tmp_path: Path):
    """The run that was requested least recently is closed, whatever the list asks about the others."""
    dir = tmp_path / "runs"
    for id in ("a", "b", "c"):
        record(dir, id)
    found = OpenRuns(dir)
    for id in ("a", "b", "a"):
        with found.use(id):
            pass
    assert found.get_open("b") is not None
    found._max_bytes = int(2.5 * found._opened["a"].bytes)  # for two of them
    with found.use("c"):
        pass
    assert found.get_open("b") is None
    assert found.get_open("a") is not None


@pytest.mark.parametrize(("age", "expected"), [(30.0, 0), (70.0, 3)])
def test_small_runs_in_use_are_estimated_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, expected: int
):
    """Twenty of them that go on would otherwise cost more than their steps."""
    dir = tmp_path / "runs"
    for id in ("a", "b", "c"):
        record(dir, id)
    found = OpenRuns(dir, max_bytes=1 << 40)
    for id in ("a", "b", "c"):
        with found.use(id):
            pass
    found._close_oldest()
    for opened in found._opened.values():
        opened.estimated_at -= age
    estimated: list[object] = []
    monkeypatch.setattr("barograph.answers.open_run.held_bytes", lambda held: estimated.append(held) or 1000)
    for id in ("a", "b", "c") * 2:
        with found.use(id):
            pass
    assert len(estimated) == expected
