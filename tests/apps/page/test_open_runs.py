"""Open runs: limited in size, and refreshed instead of read again."""

import shutil
import time
from pathlib import Path

import pytest
from serving_runs import eventually

import barograph
from barograph.answers.runs.annotations import Annotations
from barograph.answers.runs.listing import Listing, RunDirectory
from barograph.answers.runs.open_runs import OpenRuns
from barograph.base.errors import RequestError


def record(id: str, value: float = 1.0, steps: int = 5) -> Path:
    run = barograph.init(id=id, project="p")
    for step in range(steps):
        run.log({"critic/score/mean": value}, step=step)
    run.finish()
    return Path(run.path)


def test_the_size_of_open_runs_is_limited(tmp_path: Path):
    """The least recently used run is closed; one always stays open."""
    for id in ("a", "b", "c"):
        record(id)
    open_runs = OpenRuns(tmp_path / "runs", max_bytes=1)
    for id in ("a", "b", "c"):
        with open_runs.use(id) as opened:
            assert opened.view.names() == ["critic/score/mean"]
    assert [id for id in ("a", "b", "c") if open_runs.get_open(id)] == ["c"]


def test_results_of_an_open_run_are_cached_until_it_grows(tmp_path: Path):
    """Then its version increases and they are computed again."""
    run = barograph.init(id="grows", project="p")
    run.log({"a": 1.0}, step=0)
    open_runs = OpenRuns(tmp_path / "runs")
    computed: list[int] = []

    def length() -> tuple[int, int]:
        with open_runs.use("grows") as opened:

            def compute() -> int:
                computed.append(1)
                return len(opened.view.series("a"))

            return opened.cached("length", compute), opened.version

    assert [length(), length(), len(computed)] == [(1, 1), (1, 1), 1]
    run.log({"a": 2.0}, step=1)
    found, version = length()
    assert (found, len(computed)) == (2, 2)
    assert version > 1
    run.finish()


def test_a_replaced_run_is_opened_again(tmp_path: Path):
    """After removing it and recording it again under the same id, the old values are gone."""
    folder = record("again", 1.0, steps=50)
    open_runs = OpenRuns(tmp_path / "runs")
    with open_runs.use("again") as opened:
        assert len(opened.view.series("critic/score/mean")) == 50
    shutil.rmtree(folder)
    record("again", 2.0)
    with open_runs.use("again") as opened:
        assert opened.view.series("critic/score/mean").values.tolist() == [2.0] * 5


@pytest.mark.parametrize("count", [3, 30])
def test_a_run_of_any_length_in_place_of_another_is_opened_again(tmp_path: Path, count: int):
    """Its segments only seem to be the same or to have grown: values, samples and their index are of the new run."""

    def record_samples(word: str, steps: int) -> Path:
        with barograph.init(id="again", project="p") as run:
            for step in range(steps):
                run.log({word: 1.0})
                run.sample("q", word, reward=1.0)
                run.commit(step)
        return Path(run.path)

    folder = record_samples("old", 3)
    open_runs = OpenRuns(tmp_path / "runs")
    with open_runs.use("again") as opened:
        assert [sample.completion for sample in opened.view.samples(grep="old")] == ["old"] * 3
    shutil.rmtree(folder)
    record_samples("new", count)
    with open_runs.use("again") as opened:
        assert opened.view.names() == ["new"]
        assert len(opened.view.samples(grep="new")) == count
        assert not opened.view.samples(grep="old")


def test_two_runs_with_one_id_have_different_keys(tmp_path: Path):
    """A copy does not hide the original; an unknown key is an error."""
    folder = record("twin")
    shutil.copytree(folder, folder.parent.parent / "q" / "twin")
    locations = OpenRuns(tmp_path / "runs").locations()
    assert len(locations) == 2
    assert sorted(location.path.parent.name for location in locations.values()) == ["p", "q"]
    with pytest.raises(RequestError, match="no run"):
        OpenRuns(tmp_path / "runs").location("nobody")


def test_a_second_server_uses_the_rewards_in_the_index(tmp_path: Path):
    """Unless the run was replaced since."""
    folder = record("kept", 0.25)
    first = RunDirectory(tmp_path / "runs")
    first.listing.view()
    eventually(lambda: first.listing.view()["pending"] == 0)
    eventually(lambda: (tmp_path / "runs" / ".page" / "rewards.index").exists())
    second = eventually(lambda: (v := _new_listing(tmp_path).view())["pending"] == 0 and v)
    assert second["runs"][0]["reward"]["last"] == 0.25
    shutil.rmtree(folder)
    time.sleep(0.01)
    record("kept", 0.75)
    third = _new_listing(tmp_path)
    eventually(lambda: third.view()["pending"] == 0)
    assert third.view()["runs"][0]["reward"]["last"] == 0.75


def _new_listing(tmp_path: Path) -> Listing:
    dir = tmp_path / "runs"
    return Listing(OpenRuns(dir), Annotations(dir))


def test_a_run_is_found_as_soon_as_it_exists(tmp_path: Path):
    """The list of a moment ago is not the answer for a run that is not in it: a page may open a run that just began."""
    record("earlier")
    open_runs = OpenRuns(tmp_path / "runs")
    assert list(open_runs.locations()) == ["earlier"]
    record("newer")
    assert open_runs.location("newer").path.name == "newer"
