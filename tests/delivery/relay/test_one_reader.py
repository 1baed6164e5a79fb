"""A tracker receives what a view shows: steps and merging over ranks have one rule each."""

from __future__ import annotations

import os
from pathlib import Path

import barograph
from barograph.answers.export import wide_table
from barograph.base.model import Status
from barograph.delivery.relay.delivery import Delivery


def deliver(run: barograph.Run, path: Path) -> dict[str, dict[int, float]]:
    """Deliver a finished run to a file and return the main writer's series, the last value of each step."""
    from kept import lines

    Delivery(run.path, "jsonl", {"path": str(path)}, lambda: Status("finished")).deliver()
    found: dict[str, dict[int, float]] = {}
    for line in lines(path):
        if "writer" not in line:
            for name, value in line["metrics"].items():  # type: ignore[attr-defined]
                found.setdefault(name, {})[line["step"]] = value  # type: ignore[index]
    return found


def shown(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_memory_of_two_ranks_is_the_larger_in_the_view_and_in_the_tracker(tmp_path: Path):
    """Rank 0 uses 1 and rank 1 uses 5: both show 5."""
    runs = [barograph.init(id="two", rank=rank, concurrent=True) for rank in range(2)]
    for rank, run in enumerate(runs):
        run.log({"memory/host/used": 1.0 + 4 * rank})
        run.commit(0)
    for run in runs:
        run.finish()
    assert shown(barograph.open("two"), "memory/host/used") == {0: 5.0}
    assert deliver(runs[0], tmp_path / "rows.jsonl")["memory/host/used"] == {0: 5.0}


def test_an_open_row_of_a_forked_child_has_the_same_step_in_the_view_and_in_the_tracker(tmp_path: Path):
    """The child never commits: its row belongs to the parent's next commit."""
    run = barograph.init(id="forked")
    run.log({"parent": 1.0}, step=4)
    child = os.fork()
    if not child:
        run.log({"child": 7.0})
        os._exit(0)
    os.waitpid(child, 0)
    run.commit(5)
    run.finish()
    assert shown(barograph.open("forked"), "child") == {5: 7.0}
    assert deliver(run, tmp_path / "rows.jsonl")["child"] == {5: 7.0}


def test_an_exported_table_has_the_values_that_the_tracker_has():
    """The first rank's rows have the values of all ranks; those of the others are their own."""
    runs = [barograph.init(id="two", rank=rank, concurrent=True) for rank in range(2)]
    for rank, run in enumerate(runs):
        run.log({"memory/host/used": 1.0 + 4 * rank, "time/train": 2.0 + rank})
        run.commit(0)
    for run in runs:
        run.finish()
    view = barograph.open("two")
    table = wide_table(view, ["memory/host/used", "time/train", "time/train/ranks/max"])
    assert [(head[1:3], values) for head, values in table.rows()] == [
        ((0, 0), {"memory/host/used": 5.0, "time/train": 2.0, "time/train/ranks/max": 3.0}),
        ((1, 0), {"memory/host/used": 5.0, "time/train": 3.0}),
    ]
