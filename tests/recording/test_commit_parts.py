"""A commit: the values that it returns, and its parts, of which one that fails costs only itself."""

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.base.model import Problem
from barograph.base.scalars import Deferred

BATCH = {"response_mask": [[1, 1], [1, 0]], "scores": [0.5, 1.5]}


def use_all_parts(run: barograph.Run, value: float) -> None:
    """Give every part of a commit something to write."""
    torch = pytest.importorskip("torch")
    run.log({"logged": value})
    run._collectors.device_values.add({"on_device": torch.tensor(value)}, None)
    run.measure(BATCH)
    run.rollouts().add("task", {"reward": value})
    with run.phase("work"):
        pass
    run.count(tokens=1)
    run.sample("p", f"c{value}", reward=value)


def test_a_commit_returns_the_values_of_the_step():
    """What was measured, with the reasons for what is missing, and the values of rollouts and evaluations."""
    run = barograph.init()
    run.measure(BATCH, part=None)
    run.rollouts().add("a", {"reward": 2.0})
    with run.evaluation("math", 3) as named, run.evaluation("code") as unnamed:
        named.add("t", {"acc": 1.0})
        unnamed.add("t", {"acc": 0.5})
    with run.evaluation("later", 4) as later:
        later.add("t", {"acc": 0.25})
    values = run.commit(3)
    assert values["critic/score/mean"] == 1.0
    assert "no log_probs" in values.missing["actor/ratio_mean"]
    assert values["rollout/reward/mean"] == 2.0
    assert (values["eval/math/acc/mean@1"], values["eval/code/acc/mean@1"]) == (1.0, 0.5)
    assert "eval/later/acc/mean@1" not in values
    assert values.get("unknown") is None
    following = run.commit(4)
    assert following["eval/later/acc/mean@1"] == 0.25
    assert all(name.startswith("eval/later/") for name in following)
    assert dict(run.commit(5)) == {}
    view = barograph.open(run.path)
    assert {name: view.series(name).values[0] for name in values} == values


def test_returned_values_are_a_mapping_that_can_be_pickled_and_logged():
    """They can be sent to another process, printed, compared and logged under another name."""
    run = barograph.init()
    run.measure(BATCH)
    values = run.commit(0)
    copy = pickle.loads(pickle.dumps(values))
    assert (copy, copy.missing) == (values, values.missing)
    assert repr(values) == repr(dict(values))
    run.log(values, step=1)
    assert barograph.open(run.path).series("critic/score/mean").values.tolist() == [1.0, 1.0]


def test_values_are_computed_when_they_are_read(monkeypatch: pytest.MonkeyPatch):
    """A rank other than 0 that ignores them finishes nothing; what raises then is reported and not raised."""
    from barograph.metrics.batch.step import Measurement

    finished: list[int] = []
    finish = Measurement.finish
    monkeypatch.setattr(Measurement, "finish", lambda self, names: finished.append(1) or finish(self, names))
    run = barograph.init(rank=1)
    run.measure(BATCH)
    values = run.commit(0)
    assert finished == []
    assert values["critic/score/mean"] == values["critic/score/max"] - 0.5 == 1.0
    assert finished == [1]
    run.measure(BATCH)
    values = run.commit(1)
    with monkeypatch.context() as patch:
        patch.setattr(Measurement, "finish", lambda self, names: 1 / 0)
        assert dict(values) == {}
    assert barograph.open(run.path).problems() == [
        Problem("values of a commit", "ZeroDivisionError: division by zero", 1)
    ]


def test_a_disabled_run_and_a_failing_commit_return_no_values(monkeypatch: pytest.MonkeyPatch):
    """The result is a mapping in any case, so that the loop can ask it for a name."""
    run = barograph.init(mode="disabled")
    assert dict(run.commit(0)) == dict(run.commit(1, gather=True)) == {}
    assert dict(run.commit(0).missing) == {}
    run = barograph.init()
    monkeypatch.setattr(run._collectors, "commit", lambda *_: 1 / 0)
    run.log({"x": 1.0})
    assert dict(run.commit(0)) == {}
    assert barograph.open(run.path).series("x").steps.tolist() == [0]


def test_gathering_without_a_process_group_gives_the_own_values(capsys: pytest.CaptureFixture[str]):
    """A process that is not alone says so, once."""
    run = barograph.init()
    run.measure(BATCH)
    assert run.commit(0, gather=True)["critic/score/mean"] == 1.0
    assert "process group" not in capsys.readouterr().err
    run = barograph.init(rank=1)
    for step in range(2):
        run.measure(BATCH)
        assert run.commit(step, gather=True)["critic/score/mean"] == 1.0
    assert capsys.readouterr().err.count("no process group that this process is in") == 1


@pytest.mark.parametrize("mode", ["online", "disabled"])
def test_a_commit_imports_no_torch(tmp_path: Path, mode: str):
    """There is no process group where the training has not imported it; nor NumPy, if nothing was measured."""
    code = f"""
        import sys, barograph
        run = barograph.init(dir={str(tmp_path)!r}, mode={mode!r})
        run.log({{"x": 1.0}})
        assert dict(run.commit(0, gather=True)) == {{}}
        run.finish()
        assert {{"torch", "numpy"}}.isdisjoint(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


@pytest.mark.parametrize("part", ["device_values", "measured", "rollouts", "phases", "counters", "samples"])
def test_a_part_that_fails_costs_only_itself(part: str, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """The others are written under their step, the failure is told and counted, and the next step is complete."""
    names = {
        "logged": "logged", "device_values": "on_device", "measured": "critic/score/mean",
        "rollouts": "rollout/reward/mean", "phases": "time/work/total", "counters": "tokens",
    }  # fmt: skip
    run = barograph.init()
    for step in range(3):
        use_all_parts(run, float(step))
        with monkeypatch.context() as patch:
            if step == 1:
                patch.setattr(getattr(run._collectors, part), "commit", _fail)
            run.commit(step)
    run.finish()
    view = barograph.open(run.path)
    assert f"commit of {part} failed: ValueError: injected" in capsys.readouterr().err
    assert view.problems() == [Problem(f"commit of {part}", "ValueError: injected", 1)]
    assert view.series(f"barograph/problems/{part}").steps.tolist() == [1]
    assert view.series(f"barograph/problems/{part}").values.tolist() == [1.0]
    for other, name in names.items():
        if other != part:
            assert view.series(name).steps.tolist() == [0, 1, 2], name
    assert view.series("logged").values.tolist() == [0.0, 1.0, 2.0]


SPOILERS: dict[str, Callable[[barograph.Run, pytest.MonkeyPatch], None]] = {
    "device_values": lambda run, patch: patch.setattr(run._collectors.device_values._rows[0][3], "values", _fail),
    "device_names": lambda run, patch: run._collectors.device_values._rows.insert(
        0, ((1,), *run._collectors.device_values._rows[0][1:3], Deferred([]))
    ),
    "measured": lambda run, patch: patch.setattr(run._collectors.measured, "_keep_state", _fail),
    "measured_values": lambda run, patch: patch.setattr(run._collectors.measured, "_write_values", _fail),
    "rollouts": lambda run, patch: patch.setattr("barograph.recording.collectors.rollouts.StepStatistics", _fail),
    "rollouts_late": lambda run, patch: patch.setattr(run._collectors.rollouts, "_write_late", _fail),
    "phases": lambda run, patch: patch.setattr(run._collectors.phases.probe, "_step_values", _fail),
    "phases_row": lambda run, patch: patch.setattr(run._collectors.phases, "_write", _fail),
    "counters": lambda run, patch: patch.setattr(run._collectors.counters, "_total_before", _fail),
    "samples": lambda run, patch: patch.setattr(run._collectors.samples, "_write", _fail),
}


@pytest.mark.parametrize("place", SPOILERS)
def test_a_failure_inside_a_part_moves_nothing_to_the_next_step(place: str, monkeypatch: pytest.MonkeyPatch):
    """Wherever a part fails, its data of that step is not found in a later one, and it is counted."""
    run = barograph.init()
    use_all_parts(run, 1.0)
    with monkeypatch.context() as patch:
        SPOILERS[place](run, patch)
        run.commit(0)
    run.log({"logged": 2.0})
    run.commit(1)
    run.finish()
    view = barograph.open(run.path)
    assert view.series("logged").values.tolist() == [1.0, 2.0]
    part = place if place == "device_values" else place.partition("_")[0].replace("device", "device_values")
    assert view.series(f"barograph/problems/{part}").values.tolist()[-1] >= 1
    for name in ("on_device", "critic/score/mean", "rollout/reward/mean", "time/work/total"):
        if name in view.names():
            assert 1 not in view.series(name).steps.tolist(), name


def test_problems_are_written_when_their_number_changes():
    """Steps without a failure have no row of it; failures between commits are those of their part."""
    run = barograph.init()
    for step in range(5):
        if step in (1, 3):
            run.measure({"scores": [1.0]})
            run.count(tokens="many")
        run.commit(step)
    view = barograph.open(run.path)
    series = view.series("barograph/problems/measured")
    assert (series.steps.tolist(), series.values.tolist()) == ([1, 3], [1.0, 2.0])
    assert [name for name in view.names() if name.startswith("barograph/problems")] == ["barograph/problems/measured"]
    assert np.isfinite(series.values).all()


def _fail(*_: Any, **__: Any) -> Any:
    raise ValueError("injected")
