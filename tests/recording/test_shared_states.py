"""States of a process that does not know whether it is alone, open reports, and replicas."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.journal.format.frames import Kind
from barograph.metrics.batch.plan import PackedStates
from barograph.metrics.batch.step_states import laid_out
from barograph.metrics.states.layout import Layout
from barograph.recording import context
from barograph.recording.collectors import measurements
from segment_frames import of_rank, reports, states

BATCH = {"response_mask": [[1, 1], [1, 0]], "scores": [0.5, 1.5]}


def train(run: barograph.Run, steps: range) -> None:
    for step in steps:
        run.measure(BATCH)
        run.rollouts().add("task", {"reward": float(step)})
        run.commit(step)


def events(run: barograph.Run, name: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in event.items() if key not in ("event", "time", "writer")}
        for event in barograph.open(run.path).events()
        if event["event"] == name
    ]


def test_states_are_kept_until_another_process_may_join():
    """With the first ticket they are written, in order, and an event says since when there are any."""
    run = barograph.init()
    train(run, range(3))
    assert states(run.path) == reports(run.path) == []
    run.ticket()
    train(run, range(3, 5))
    assert states(run.path) == [0, 1, 2, 3, 4]
    assert reports(run.path) == [("rollout", "", step) for step in range(5)]
    assert events(run, "shared") == [
        {"kind": "measured", "since": 0, "dropped": 0},
        {"kind": "rollouts", "since": 0, "dropped": 0},
    ]
    assert len(list(of_rank(run.path, 0, Kind.LAYOUT))) == 2  # of sparse states and of the others
    times = [e["time"] for e in barograph.open(run.path).events() if e["event"] == "shared"]
    assert barograph.open(run.path).series("critic/score/mean").times[0] < times[0]


def test_states_are_laid_out_when_they_are_written(monkeypatch: pytest.MonkeyPatch):
    """A process that stays alone keeps them as they were measured."""
    written = []

    def spied(states: PackedStates) -> tuple[Layout, Any]:
        written.append(states)
        return laid_out(states)

    monkeypatch.setattr(measurements, "laid_out", spied)
    run = barograph.init()
    train(run, range(3))
    assert written == []
    run.ticket()
    train(run, range(3, 4))
    assert len(written) == 4
    assert states(run.path) == [0, 1, 2, 3]


def test_states_that_were_kept_are_written_at_the_end():
    """A ticket that was issued after the last commit is soon enough."""
    run = barograph.init()
    train(run, range(3))
    run.ticket()
    run.finish()
    assert states(run.path) == [0, 1, 2]
    assert reports(run.path) == [("rollout", "", step) for step in range(3)]


def test_the_states_of_the_last_steps_are_kept():
    """Of 70 steps the last 64; the event has the first of them, and how many are gone."""
    run = barograph.init()
    train(run, range(70))
    run.ticket()
    train(run, range(70, 71))
    # The commit that finds another process adds its own state to the kept ones.
    assert states(run.path) == list(range(6, 71))
    assert [event["since"] for event in events(run, "shared")] == [6, 6]
    assert [event["dropped"] for event in events(run, "shared")] == [6, 6]


def test_kept_states_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    """Large reports push out older ones."""
    monkeypatch.setattr(context, "MAX_KEPT_BYTES", 5000)
    run = barograph.init()
    for step in range(20):
        run.rollouts().add_many([f"{step}-{n}" for n in range(100)], {"reward": list(range(100))})
        run.commit(step)
    run.ticket()
    run.finish()
    [event] = events(run, "shared")
    assert event["dropped"] == event["since"] > 0
    assert reports(run.path) == [("rollout", "", step) for step in range(event["since"], 20)]


def test_a_process_that_is_alone_keeps_nothing():
    """The launcher or the user has said that there is one process."""
    run = barograph.init(world_size=1)
    train(run, range(2))
    assert run._collectors.measured._states._kept == run._collectors.rollouts._states._kept
    assert len(run._collectors.measured._states._kept) == 0


def test_a_shared_process_writes_states_at_once_and_no_event():
    """There are no earlier steps without states."""
    run = barograph.init(rank=0)
    train(run, range(2))
    assert states(run.path) == [0, 1]
    assert events(run, "shared") == []


JOIN = """
import sys, barograph
run = barograph.join(sys.argv[1])
for step in range(2):
    run.measure({"response_mask": [[1]], "scores": [4.0]})
    run.rollouts().add("other", {"reward": 3.0})
    run.commit(step)
"""


def test_a_process_that_joins_later_is_merged_with_the_earlier_steps(tmp_path: Path):
    """A real process joins by a ticket after two steps, and measures its share of the same steps."""
    run = barograph.init()
    train(run, range(2))
    script = tmp_path / "join.py"
    script.write_text(textwrap.dedent(JOIN))
    subprocess.run([sys.executable, str(script), run.ticket()], check=True, timeout=100, env={**os.environ})
    run.finish()
    view = barograph.open(run.path)
    assert view.series("critic/score/mean").values.tolist() == [2.0, 2.0]
    assert view.series("rollout/reward/mean").values.tolist() == [1.5, 2.0]


def test_reports_that_stay_open_over_their_commit_are_told():
    """Once each; a reader then knows that the step's value is not yet the whole."""
    run = barograph.init(rank=0)
    evaluation = run.evaluation("math", 1)
    run.validation(0).add(1.0)
    run.rollouts(1).add("a", {"reward": 1.0})
    for step in range(3):
        run.commit(step)
    late = run.evaluation("code", 0)
    expected = [("validation", "", 0), ("eval", "math", 1), ("eval", "code", 0)]
    assert [(e["kind"], e["taskset"], e["step"]) for e in events(run, "open_report")] == expected
    evaluation.close()
    late.close()
    run.commit(3)
    assert len(events(run, "open_report")) == 3


def test_a_process_that_is_alone_tells_no_open_reports():
    """When another one joins, those that are still open are told."""
    run = barograph.init()
    run.evaluation("math", 0)
    run.commit(0)
    assert events(run, "open_report") == []
    run.ticket()
    run.commit(1)
    assert events(run, "open_report") == [{"kind": "eval", "taskset": "math", "step": 0}]


def test_a_replica_records_its_own_logs_and_times_only(capsys: pytest.CaptureFixture[str]):
    """It gets the values of what it measured; states, reports and counts are those of another process."""
    run = barograph.init(id="tp", rank=1, world_size=2, replica=1)
    for step in range(2):
        run.log({"loss": 1.0})
        run.measure(BATCH)
        run.rollouts().add("a", {"reward": 2.0})
        run.count(tokens=5)
        with run.evaluation("math", step) as evaluation, run.phase("work"):
            evaluation.add("t", {"acc": 1.0})
        run.evaluation("open", step)
        values = run.commit(step)
        assert (values["critic/score/mean"], values["rollout/reward/mean"], values["eval/math/acc/mean@1"]) == (1, 2, 1)
    run.finish()
    assert states(run.path, 1) == reports(run.path, 1) == []
    written = b"".join(of_rank(run.path, 1, Kind.SCHEMA))
    assert b"loss" in written
    assert b"time/work/total" in written
    assert not [name for name in (b"critic/", b"rollout/", b"eval/", b"tokens") if name in written]
    assert events(run, "open_report") == []
    assert barograph.open(run.path).problems() == []
    assert capsys.readouterr().err == ""
