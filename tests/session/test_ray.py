"""Real Ray: actors and tasks that get the run as an argument, in a local cluster with a working directory."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import answers_of

import barograph
from barograph.base.model import Writer
from barograph.journal.format.folder import segments
from barograph.journal.read.status import glance, start_event

DRIVER = Path(__file__).with_name("ray_driver.py")
LAUNCHED = {"RANK": "0", "WORLD_SIZE": "1"}  # the driver says that it is alone, and its workers inherit that

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray")


@dataclass(frozen=True)
class Cluster:
    """What the workers answered, and the run that they recorded."""

    answers: dict[str, Any]
    folder: Path

    @property
    def view(self) -> barograph.View:
        return barograph.open("travels", dir=self.folder / "barograph-runs")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Run all cases once."""
    return Cluster(*answers_of(tmp_path_factory, DRIVER, **LAUNCHED))


def test_actors_that_get_the_run_have_ranks_of_their_own(cluster: Cluster):
    """Also one that has it in a closure; the run's value is the mean of all that measured, one of which was killed."""
    places = [*cluster.answers["measured"], cluster.answers["closure"]]
    assert sorted(places) == [["trainer", rank, 1] for rank in range(1, 6)]
    assert cluster.view.series("critic/score/mean").values[0] == (1 + 3 + 8 + 12) / 4


def test_an_actor_that_gets_the_run_again_has_it_already(cluster: Cluster):
    """Every call may bring the run along."""
    first = cluster.answers["measured"][0]
    assert cluster.answers["again"] == [first, first]


def test_a_restarted_actor_takes_over_its_rank_as_a_new_attempt(cluster: Cluster):
    """It is found by the actor id in its start event."""
    role, rank, attempt = cluster.answers["measured"][3]
    assert cluster.answers["restarted"] == [role, rank, attempt + 1]
    starts = [start_event(s.path) or {} for s in segments(cluster.view.path) if s.writer.rank == rank]
    assert len(starts) == 2
    assert starts[0]["actor"] == starts[1]["actor"]
    assert starts[0]["pid"] != starts[1]["pid"]


def test_tasks_of_pooled_workers_write_as_one_rank_for_each_process(cluster: Cluster):
    """However many tasks a process runs, and no rank is shared by two processes."""
    pairs = {tuple(pair) for pair in cluster.answers["pooled"]}
    assert len(cluster.answers["pooled"]) == 20
    assert len(pairs) == len({process for process, _ in pairs}) == len({rank for _, rank in pairs})


def test_no_rank_has_been_given_twice(cluster: Cluster):
    """Every rank has one process, but for that of the restarted actor.

    A worker with ``RANK=1`` takes rank 1 over if the actor that had it was killed.
    """
    killed, restarted = (cluster.answers["measured"][place][1] for place in (2, 3))
    again = {writer.rank for writer in cluster.view.writers() if writer.attempt > 1}
    assert {restarted} <= again <= {restarted, killed}
    assert max(writer.attempt for writer in cluster.view.writers()) == 2


def test_a_relative_dir_in_a_copy_of_the_working_directory_is_an_error(cluster: Cluster):
    """The message tells what to do, and no second run is made."""
    assert "is in the copy that Ray makes of the working directory" in cluster.answers["begun"]["relative"]
    assert "worker.remote(run), or give an absolute dir= or BAROGRAPH_DIR" in cluster.answers["begun"]["relative"]
    assert cluster.answers["begun"]["absolute"] == str(cluster.folder / "absolute" / "default" / "absolute")


def test_a_relative_dir_in_such_a_copy_is_an_error_without_ray_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The driver of a submitted job works in a copy, and may begin its run before it imports Ray."""
    copy = tmp_path / "session_1" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    monkeypatch.delenv("BAROGRAPH_DIR")
    with pytest.raises(barograph.SettingsError, match="in the copy that Ray makes"):
        barograph.init()
    barograph.init(mode="disabled").finish()
    barograph.init(dir=tmp_path / "runs").finish()
    assert list(copy.iterdir()) == []


def test_workers_of_ray_train_share_a_run_id(cluster: Cluster):
    """They have ranks from their launcher, and a placement group in common."""
    first, second = cluster.answers["group"]
    assert first == second
    assert Path(first).name.startswith("ray-")
    assert barograph.open(first).writers() == [Writer("trainer", 0, 1), Writer("trainer", 1, 1)]


def test_a_task_finds_the_run_that_the_driver_shares(cluster: Cluster):
    """It joins once. Nothing is found under another name, or without Ray, which is not started by that."""
    before, found, another = cluster.answers["shared"]
    assert found == [["travels", "reward", 0, True]] * 2
    assert another == [None, None]
    assert before is None


def test_a_disabled_run_is_disabled_in_actors(cluster: Cluster):
    """Its writer has no attempt."""
    assert cluster.answers["disabled"] == ["trainer", 0, 0]


def test_a_place_that_a_worker_does_not_see_fails_the_task_and_says_so(cluster: Cluster):
    """Nothing is created there."""
    assert f"no run in {cluster.folder}/missing" in cluster.answers["unreachable"]
    assert "dir= that all machines see" in cluster.answers["unreachable"]
    assert not (cluster.folder / "missing").exists()


def test_the_command_of_an_actor_is_its_class_and_its_driver(cluster: Cluster):
    """The run's own command is that of its main writer, whoever wrote last."""
    commands = cluster.answers["commands"]
    driver = Path(sys.executable).name
    rank = cluster.answers["measured"][0][1]
    assert commands[f"{rank}.1"][1].startswith(f"ray actor Trainer (driver: {driver} {DRIVER} ")
    assert commands["view"] == commands["0.1"]
    assert commands["0.1"][1] == str(DRIVER)


def test_all_values_of_a_cluster_that_was_shut_down_can_be_read(cluster: Cluster):
    """Actors that never finished their run leave nothing damaged, and the run has finished with its driver."""
    view = cluster.view
    assert view.status.word == glance(view.path).status.word == "finished"
    assert view.damage() == []
    assert view.problems() == []
    assert view.writer_statuses()[Writer("trainer", 0, 1)].word == "finished"
    pooled = {rank for _, rank in cluster.answers["pooled"]}
    assert {rank for rank in pooled if len(view.series("pooled", rank=rank))} == pooled
