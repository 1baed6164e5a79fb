"""Several ranks: times over ranks, and peaks that are not averaged."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from probing import KnownDevice, Time, known_run

import barograph


def ranks(count: int = 3) -> barograph.View:
    """Record two steps of several ranks; the second rank is the slowest and uses most memory."""
    for rank in range(count):
        time, device = Time(), KnownDevice(rank)
        run = known_run(time, [device], settings={"id": "ranks", "rank": rank, "concurrent": True})
        for step in range(2):
            with run.phase("train"):
                device.hold((10 + rank % 2) * 2**30)
                time.now += 1.0 + rank % 2 + step
            run.commit(step)
    return barograph.open("ranks")


def test_times_over_ranks_are_mean_maximum_with_its_rank_and_minimum():
    """Each rank's own value is unchanged."""
    view = ranks()
    name = "time/train/total"
    assert view.series(name, rank=0).values.tolist() == [1.0, 2.0]
    assert view.series(name, rank=1).values.tolist() == [2.0, 3.0]
    assert view.series(f"{name}/ranks/mean").values.tolist() == [4 / 3, 7 / 3]
    assert view.series(f"{name}/ranks/max").values.tolist() == [2.0, 3.0]
    assert view.series(f"{name}/ranks/min").values.tolist() == [1.0, 2.0]
    assert view.series(f"{name}/ranks/slowest").values.tolist() == [1.0, 1.0]
    assert f"{name}/ranks/max" in view.names("time/*")


def test_the_peak_of_the_step_is_the_maximum_over_ranks():
    """It is not a mean."""
    view = ranks()
    assert view.series("memory/step/max_allocated").values.tolist() == [11.0, 11.0]
    assert view.series("memory/step/max_allocated", rank=0).values.tolist() == [10.0, 10.0]


def test_memory_of_ranks_is_per_device():
    """Every device has its own metric."""
    names = ranks().names("memory/train/end/onload/max_allocated/*")
    assert sorted(names) == [f"memory/train/end/onload/max_allocated/{n}" for n in range(3)]


def test_a_rank_that_is_behind_is_left_out_of_later_steps():
    """Statistics are over the ranks that have the step."""
    for rank, steps in ((0, 3), (1, 1)):
        time = Time()
        run = known_run(time, settings={"id": "lag", "rank": rank, "concurrent": True})
        for step in range(steps):
            with run.timer("adv"):
                time.now += 1.0 + rank
            run.commit(step)
    view = barograph.open("lag")
    assert view.series("time/adv/ranks/max").values.tolist() == [2.0, 1.0, 1.0]
    assert view.series("time/adv/ranks/slowest").values.tolist() == [1.0, 0.0, 0.0]


def test_a_single_rank_has_no_names_over_ranks():
    """They would repeat its values."""
    run = known_run()
    with run.phase("train"):
        pass
    run.commit(0)
    assert barograph.open(run.path).names("*/ranks/*") == []


RANK = """
import time, barograph
run = barograph.init(id="job")
for step in range(2):
    with run.phase("train"):
        time.sleep(0.2 if run.writer.rank == 2 else 0.01)
    run.commit(step)
"""


def test_real_processes_show_the_slowest_rank(tmp_path: Path):
    """Four processes that do not communicate; a reader finds the slowest."""
    processes = []
    for rank in range(4):
        environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path), "RANK": str(rank), "WORLD_SIZE": "4"}
        processes.append(subprocess.Popen([sys.executable, "-c", textwrap.dedent(RANK)], env=environment))
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    view = barograph.open("job", dir=tmp_path)
    assert view.series("time/train/total/ranks/slowest").values.tolist() == [2.0, 2.0]
    assert len(view.phases(step=1)) == 4
