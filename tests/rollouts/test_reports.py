"""The calls of a run about rollouts and evaluation, in every vocabulary, from threads and from several processes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import windsock
from windsock.catalogue.names import recognise

SEED = Path(__file__).parents[1] / "data/seed_metrics.tsv"
FILLED = {"{metric}": "accuracy", "{taskset}": "gsm8k", "{k}": "4", "{operator}": "filter"}
OURS = ("rollout/", "eval/", "bench/", "experience_pipeline/", "sample/", "time/experience_pipeline/", "val/score/")


def report_everything(run: windsock.Run, **options: bool) -> None:
    with run.rollouts(0) as rollouts:
        rollouts.add(task="a", run=0, metrics={"accuracy": 1.0})
    for prefix in ("eval", "bench"):
        with run.evaluation("gsm8k", step=0, repeats=4, prefix=prefix, **options) as evaluation:
            for number in range(4):
                evaluation.add(task="a", run=number, metrics={"accuracy": number % 2}, answer="x")
    validation = run.validation(0)
    validation.add_many([1.0, 0.0, 0.5], tags=["lake", "lake", "town"])
    validation.close()
    run.pipeline(count=3, rewards=[1.0, 0.0], groups=[7, 7], metrics={"accuracy": 2}, seconds={"filter": 0.5}, step=0)
    run.drawn(versions=[3, 4], tasks=["a", "a"], trainer_version=5, step=0)
    run.log({"sample/accuracy": 1.0}, step=0)
    run.commit(0)


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_every_documented_name_of_rollouts_and_evaluation_is_produced(vocabulary: str):
    """The list of the documentation, with and without detailed statistics, from one step; all are recognised."""
    with SEED.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["vocabulary"] == vocabulary]
    wanted = set()
    for row in rows:
        name = row["name"]
        for placeholder, value in FILLED.items():
            name = name.replace(placeholder, value)
        if name.startswith(OURS):
            stats = ("mean", "std", "max", "min")
            wanted |= {name.replace("{mean|std|max|min}", s) for s in stats} if "|" in name else {name}
    found = set()
    for detailed in (False, True):
        run = windsock.init(vocabulary=vocabulary)
        report_everything(run, detailed_stats=detailed)
        run.finish()
        found |= set(windsock.open(run.path).names())
    assert wanted <= found
    assert vocabulary == "trl" or len(wanted) >= 3
    unknown = [name for name in found if not recognise(name, f"windsock:{vocabulary}").matches]
    assert not unknown


def test_detailed_stats_is_a_setting():
    """Trinity's ``monitor: {detailed_stats: true}`` holds for every evaluation of the run."""
    run = windsock.init({"monitor": {"detailed_stats": True}})
    report_everything(run)
    assert "eval/gsm8k/accuracy/mean@4/std" in windsock.open(run.path).names()


def test_validation_is_over_episodes_and_by_tag():
    """``val/score`` is over all episodes, each with one score."""
    run = windsock.init()
    report_everything(run)
    view = windsock.open(run.path)
    assert [view.series(f"val/score/{stat}").last for stat in ("mean", "max", "min")] == [0.5, 1.0, 0.0]
    assert view.series("validation/town/score/mean").last == 0.5


def test_staleness_is_how_far_samples_lag():
    """Trainer version minus sample version, over all draws of the step."""
    run = windsock.init(vocabulary="trinity")
    run.drawn(versions=[1, 2], tasks=["a", "b"], trainer_version=4)
    run.drawn(versions=[4], tasks=["b"], trainer_version=4)
    run.commit(0)
    view = windsock.open(run.path)
    assert view.series("sample/staleness/mean").last == pytest.approx(5 / 3)
    assert view.series("sample/staleness/max").last == 3
    assert view.series("sample/model_version/mean").last == pytest.approx(7 / 3)
    assert view.series("sample/task_count").last == 2


def test_many_threads_report_at_once():
    """Nothing is lost and nothing counted twice."""
    run = windsock.init()

    def explore(worker: int) -> None:
        for n in range(500):
            run.rollouts(n % 3).add(task=n, metrics={"r": 1.0}, run=worker)

    threads = [threading.Thread(target=explore, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    assert windsock.open(run.path).series("rollout/coverage/runs_observed").values.sum() == 4000


def test_parts_are_merged_by_the_driver():
    """Explorers send bytes; the driver merges and closes once."""
    run = windsock.init()
    driver = run.evaluation("s", step=1, repeats=2)
    for worker in range(2):
        part = windsock.init(alongside=True).evaluation("s", step=1, repeats=2)
        for task in range(3):
            part.add(task=task, run=worker, metrics={"r": worker})
        driver.merge(part.state())
    driver.close(expected_tasks=3)
    view = windsock.open(run.path)
    assert view.series("eval/s/r/mean@2").last == 0.5
    assert view.series("eval/s/r/pass@2").last == 1.0
    assert view.series("eval/s/coverage/tasks_partial").last == 0


EXPLORER = textwrap.dedent("""
    import sys, windsock
    rank = int(sys.argv[1])
    run = windsock.init(id="shared", role="explorer", rank=rank)
    for step in range(2):
        rollouts = run.rollouts(step)
        for task in range(6):
            for number in range(rank, 4, 2):                  # the runs of each task lie in both processes
                rollouts.add(task=task, run=number, metrics={"r": task + number * step})
        rollouts.close(expected_tasks=[f"{task}" for task in range(6)], expected_runs=4)
        run.commit(step)
    run.finish()
""")


def test_explorers_that_each_hold_a_part_are_merged_by_the_reader(tmp_path: Path):
    """Two real processes, every task split between them: the value is that of the whole, and so is its coverage."""
    environment = {**os.environ, "WORLD_SIZE": "2", "WINDSOCK_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", EXPLORER, str(rank)], env=environment | {"RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    view = windsock.open("shared", dir=tmp_path)
    means = view.series("rollout/r/mean", role="explorer")
    assert means.values.tolist() == [2.5, 2.5 + 1.5]
    for what, value in {"tasks_observed": 6, "runs_observed": 24, "runs_expected": 24, "tasks_partial": 0}.items():
        assert view.series(f"rollout/coverage/{what}", role="explorer").last == value
    assert view.series("rollout/r/mean", role="explorer", rank=0).values.tolist()[1] == 2.5 + 1.0
