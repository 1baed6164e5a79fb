"""What trackers are told of a step that several ranks hold parts of."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from kept import lines

import windsock
from windsock.relay import ranks
from windsock.relay.delivery import Delivery, config_of

RANK = textwrap.dedent("""
    import sys, numpy as np, windsock
    rank = int(sys.argv[1])
    run = windsock.init(id="both", project="p", track_with="jsonl")
    for step in range(3):
        scores = np.arange(4.0) + 10 * rank + step
        run.measure(windsock.Batch(response_mask=np.ones((4, 2)), scores=scores))
        with run.rollouts(step) as rollouts:
            for task, score in enumerate(scores):
                rollouts.add(task=f"{rank}-{task}", metrics={"r": score})
        run.log({"lr": 0.1})
        run.commit(step)
    run.finish(timeout=30)
""")


def test_a_tracker_is_told_the_values_of_all_ranks(tmp_path: Path):
    """Two real processes, one tracker: means, maxima and coverage are those of the whole batch, once for each step."""
    environment = {**os.environ, "WORLD_SIZE": "2", "WINDSOCK_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank)], env=environment | {"RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    told: dict[int, dict[str, float]] = {}
    for line in lines(tmp_path / "p" / "both" / "metrics.jsonl"):
        if "writer" not in line:
            told.setdefault(line["step"], {}).update(line["metrics"])  # type: ignore[call-overload]
    for step in range(3):
        whole = np.concatenate([np.arange(4.0) + 10 * rank + step for rank in range(2)])
        assert told[step]["critic/score/mean"] == pytest.approx(whole.mean())
        assert told[step]["critic/score/max"] == whole.max()
        assert told[step]["rollout/r/mean"] == pytest.approx(whole.mean())
        assert told[step]["rollout/coverage/tasks_observed"] == 8
        assert told[step]["lr"] == 0.1


def test_a_rank_that_never_comes_is_waited_for_and_then_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Rank 1 of two died before it began: rank 0's own values are told, after a while."""
    monkeypatch.setattr(ranks, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = windsock.init(id="alone")
    for step in range(2):
        run.measure(windsock.Batch(response_mask=np.ones((1, 2)), scores=np.array([1.0])))
        run.commit(step)
    path = tmp_path / "told.jsonl"
    follower = ranks.RankedFollower(run.path)
    assert follower.new_rows() == []
    assert follower.places() == {}
    run.finish()
    desk = Delivery(run.path, "jsonl", {"path": str(path)}, lambda: run._ended).carry()
    assert desk.state == "done"
    assert [line["step"] for line in lines(path)] == [0, 1]


def test_what_a_rank_prints_of_itself_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Stdout shows the rows of its own process, also where others will never come."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    run = windsock.init(track_with="stdout")
    run.measure(windsock.Batch(response_mask=np.ones((4, 2)), scores=np.arange(4.0)))
    run.commit(0)
    run.finish(timeout=30)
    told = capsys.readouterr()
    assert "critic/score/mean" in told.out + told.err
    assert "not delivered" not in told.err
    assert "sync" not in told.err


def test_of_a_config_that_ranks_say_again_the_newest_counts():
    """As the reader unites it."""
    runs = [windsock.init(id="both", rank=rank, config={"lr": 1}, concurrent=True) for rank in range(2)]
    runs[0].update_config({"lr": 2})
    for run in runs:
        run.finish()
    assert config_of(runs[0].path) == windsock.open("both").config == {"lr": 2}
