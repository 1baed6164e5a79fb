"""Tests of the public calls of a run, recorded and disabled: the same names, and no call raises."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.base.model import Problem
from barograph.importers.summary import run_warnings
from barograph.recording.collectors.rollout_handles import Evaluation, Rollouts, Validation
from barograph.recording.context import Collector
from barograph.recording.probe.phases import Phase

PROPERTIES = {"config", "ended", "id", "info", "name", "path", "project", "should_stop", "step", "url", "writer"}
CALLS = {
    "annotate", "commit", "count", "drawn", "evaluation", "finish", "log", "measure", "phase", "pipeline", "rollouts",
    "sample", "samples", "shards", "staleness", "text", "ticket", "timer", "tokenizer", "update_config", "validation",
    "watch_engine",
}  # fmt: skip
BATCH = {"response_mask": [[1, 1]], "scores": [0.5]}


@pytest.fixture(params=["online", "disabled"])
def run(request: pytest.FixtureRequest) -> Iterator[barograph.Run]:
    with barograph.init(mode=request.param, project="p", name="n", config={"lr": 1}) as run:
        yield run


def recorded(run: barograph.Run) -> bool:
    return run.id != "disabled"


class Hostile:
    """An object that raises whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("hostile")

    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __float__ = __iter__ = __len__ = __hash__ = __eq__ = __bool__ = __str__  # type: ignore[assignment]


BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a number": lambda: -1.5,
    "a string": lambda: "text",
    "bytes": lambda: b"bytes",
    "a list": lambda: [1, 2],
    "a mapping": lambda: {"a": object()},
    "an object": object,
    "hostile": Hostile,
}


def test_the_public_names_of_a_run_are_pinned(run: barograph.Run):
    """A run has the names that a user calls, and no others; disabled or not."""
    assert {name for name in dir(run) if not name.startswith("_")} == PROPERTIES | CALLS
    assert type(run) is barograph.Run


def test_every_property_has_a_value(run: barograph.Run, tmp_path: Path):
    """Identity, place and config are known in both modes."""
    assert (run.name, run.project, run.info.name, run.config["lr"]) == ("n", "p", "n", 1)
    assert run.id == run.info.id
    assert run.path.is_relative_to(tmp_path)
    assert run.url.startswith("file://")
    assert (run.writer.role, run.writer.rank, run.step, run.ended) == ("trainer", 0, None, False)
    assert "n" in repr(run)


def test_every_call_takes_good_arguments(run: barograph.Run, capfd: pytest.CaptureFixture[str]):
    """Nothing raises and nothing is printed; what is recorded depends on the mode."""
    run.log({"x": 1.0})
    run.text("note", "hello")
    run.count(tokens=10)
    run.measure(BATCH)
    run.sample("p", "c", reward=1.0)
    run.samples([{"completion": "d"}])
    run.shards([1.0, 2.0], [1.5, 1.5])
    run.pipeline(count=3, rewards=[1.0, 0.0], groups=[1, 1], metrics={"kept": 2}, seconds={"filter": 0.1})
    run.staleness(weight_versions=[1, 2], tasks=["a", "b"], trainer_version=3)
    run.update_config({"steps": 2})
    run.watch_engine("http://127.0.0.1:9", name="engine0")
    with run.timer("load"):
        pass
    run.commit(0)
    run.finish()
    run.finish()
    assert run.ended
    assert capfd.readouterr().err == ""
    if recorded(run):
        view = barograph.open(run.path)
        assert {"x", "tokens", "time/load", "sample/staleness/mean", "critic/score/mean"} <= set(view.names())
        assert view.problems() == []
        assert (run.step, view.config["steps"], len(view.texts()), len(view.samples())) == (0, 2, 1, 2)
    else:
        assert run.step is None


def test_handles_work_in_both_modes(run: barograph.Run):
    """A disabled run has handles of the same classes, whose calls do nothing."""
    with run.rollouts(0, reductions={"tokens": "sum"}) as rollouts:
        rollouts.add("a", {"r": 1.0, "tokens": 3}, run=0)
        rollouts.add_many(["a", "b"], {"r": [0.0, 1.0]}, runs=[1, 0])
        rollouts.fail("b", 1, "timeout")
        rollouts.merge(rollouts.state())
    with run.evaluation("math", 0, repeats=2) as evaluation:
        evaluation.add("a", {"r": 1.0}, run=0, answer="4")
        evaluation.close(expected_tasks=2)
    validation = run.validation(0)
    validation.add(0.5, tag="lake")
    validation.add_many([0.5], tags=["lake"])
    validation.fail()
    validation.close()
    run.commit(0)
    assert [type(rollouts), type(evaluation), type(validation)] == [Rollouts, Evaluation, Validation]
    assert rollouts.closed == evaluation.closed == validation.closed == recorded(run)
    assert "rollout" in repr(rollouts)
    assert isinstance(rollouts.state(), bytes)
    if recorded(run):
        assert {"rollout/tokens/sum", "eval/math/r/mean@2", "val/score/mean"} <= set(barograph.open(run.path).names())


def test_the_state_of_a_disabled_handle_can_be_merged():
    """A process that records nothing sends a state without reports."""
    state = barograph.init(mode="disabled").rollouts(0).state()
    run = barograph.init()
    rollouts = run.rollouts(0)
    rollouts.add("a", {"r": 1.0})
    rollouts.merge(state)
    run.commit(0)
    view = barograph.open(run.path)
    assert view.series("rollout/r/mean").last == 1.0
    assert view.problems() == []


def test_phases_call_onload_and_offload_in_both_modes(run: barograph.Run):
    """They are the caller's work, which must be done in any case; a decorator and ``async with`` work too."""
    import asyncio

    called: list[str] = []
    with run.phase("train", onload=lambda: called.append("on"), offload=lambda: called.append("off")) as span:
        span.tokens = 3
    phase = run.phase("infer", lambda: called.append("on"), lambda: called.append("off"))
    assert isinstance(phase, Phase)
    assert phase(lambda: 5)() == 5

    async def body() -> None:
        async with run.phase("async", tokens=5, clock="device"):
            called.append("body")

    asyncio.run(body())
    with run.timer("t", 5), pytest.raises(ZeroDivisionError), run.phase("fails"):
        _ = 1 / 0
    assert called == ["on", "off", "on", "off", "body"]


@pytest.mark.parametrize("kind", BAD)
def test_no_call_raises_whatever_it_is_given(run: barograph.Run, kind: str):
    """Bad values in every place, too many and too few arguments: the run goes on, and its rows are there."""
    bad = BAD[kind]()
    run.log(bad)
    run.log(bad, step=bad)
    run.log({"x": bad}, step=bad)
    for call in sorted(CALLS - {"drawn", "finish", "log", "ticket"}):
        method: Callable[..., Any] = getattr(run, call)
        for arguments, options in (
            ((bad,), {}),
            ((bad, bad), {}),
            ((), {}),
            (range(20), {}),
            ((), {"unknown": bad}),
            (("x",), {"step": bad}),
        ):
            result = method(*arguments, **options)
            if call in ("rollouts", "evaluation", "validation"):
                result.add(bad, bad)
                result.fail(bad, bad)
                result.merge(bad)
                result.close(bad)
    run.log({"after": 1.0}, step=5)
    run.commit(7)
    run.finish()
    if recorded(run):
        view = barograph.open(run.path)
        assert view.series("after").last == 1.0
        assert view.status.word == "finished"
        assert {"run.commit", "run.measure", "run.timer"} <= {problem.call for problem in view.problems()}


@pytest.mark.parametrize("bad", ["crashed", 3, object()])
def test_a_bad_status_ends_the_run_as_finished(run: barograph.Run, bad: Any, capfd: pytest.CaptureFixture[str]):
    """It is reported, and the end is recorded."""
    run.finish(bad)
    assert run.ended
    if recorded(run):
        assert barograph.open(run.path).status.word == "finished"
        assert "finish: expected a barograph.Status" in capfd.readouterr().err


def _child(run: barograph.Run) -> None:
    run.log({"from_child": 1.0}, step=0)
    with run.rollouts(0) as rollouts:
        rollouts.add("a", {"r": 1.0})
    run.commit(0)
    run.finish()


def test_a_forked_child_can_use_the_run(run: barograph.Run):
    """The calls work in a child process, in both modes."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(run,))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    if recorded(run):
        assert barograph.open(run.path).series("from_child").last == 1.0


def test_a_disabled_run_starts_no_thread_and_writes_nothing(tmp_path: Path):
    """Nothing is behind it."""
    threads = threading.active_count()
    with barograph.init(mode="disabled") as run:
        run.log({"x": 1.0})
        run.rollouts(0).add("a", {"r": 1.0})
    assert threading.active_count() == threads
    assert not (tmp_path / "runs").exists()


def test_a_problem_is_printed_once_counted_and_shown(capsys: pytest.CaptureFixture[str]):
    """By call and error; the counts are in the journal and in the warnings of ``barograph show``."""
    run = barograph.init()
    for _ in range(3):
        run.measure(BATCH, part="actor")
    run.rollouts(0).merge(b"junk")
    run.finish()
    view = barograph.open(run.path)
    measured, merged = view.problems()
    assert measured == Problem(
        "run.measure", "SettingsError: part: expected one of data, policy, value, got 'actor'", 3
    )
    assert (merged.call, merged.count) == ("rollouts.merge", 1)
    shown = run_warnings(view)
    assert f"run.measure failed 3 times: {measured.error}" in shown
    assert f"rollouts.merge failed once: {merged.error}" in shown
    assert capsys.readouterr().err.count("run.measure failed") == 1


def test_problems_of_a_run_that_was_killed_are_known():
    """The first failure is written at once, and further ones with the next heartbeat."""
    run = barograph.init()
    for _ in range(3):
        run.measure(BATCH, part="actor")
    assert [problem.count for problem in barograph.open(run.path).problems()] == [1]
    run._heartbeat()
    assert [problem.count for problem in barograph.open(run.path).problems()] == [3]


def test_problems_of_all_processes_add_up():
    """A forked child counts its own."""
    run = barograph.init()
    run.measure(BATCH, part="actor")
    process = multiprocessing.get_context("fork").Process(target=_failing_child, args=(run,))
    process.start()
    process.join(30)
    run.finish()
    assert [problem.count for problem in barograph.open(run.path).problems()] == [3]


def _failing_child(run: barograph.Run) -> None:
    run.measure(BATCH, part="actor")
    run.measure(BATCH, part="actor")
    run.finish()


def test_a_secret_in_an_error_is_not_shown(capsys: pytest.CaptureFixture[str]):
    """Neither on standard error nor in the journal."""
    run = barograph.init(config={"api_key": "very-secret-key"})
    run.measure(BATCH, part="very-secret-key")
    run.finish()
    (problem,) = barograph.open(run.path).problems()
    assert "very-secret-key" not in problem.error + capsys.readouterr().err


class Broken(Collector):
    """A collector that fails."""

    def commit(self, step: int) -> None:
        raise OSError("no device")

    finish = commit  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["device_values", "measured", "rollouts", "phases", "counters", "samples"])
def test_a_collector_that_fails_costs_only_itself(name: str):
    """The other collectors and the commit are written, and the failure is counted."""
    run = barograph.init()
    setattr(run._collectors, name, Broken())
    calls: dict[str, Callable[[], object]] = {
        "measured": lambda: run.measure(BATCH),
        "rollouts": lambda: run.rollouts().add("a", {"r": 1.0}),
        "phases": lambda: run.timer("t").__enter__(),
        "counters": lambda: run.count(tokens=1),
        "samples": lambda: run.sample("p", "c"),
    }
    written = {"measured": "critic/score/mean", "rollouts": "rollout/r/mean", "counters": "tokens"}
    for step in range(2):
        run.log({"x": 1.0})
        for other, call in calls.items():
            if other != name:
                call()
        run.commit(step)
    run.finish()
    view = barograph.open(run.path)
    assert view.series("x").steps.tolist() == [0, 1]
    assert view.status.word == "finished"
    assert Problem(f"commit of {name}", "OSError: no device", 2) in view.problems()
    assert [other for other, metric in written.items() if metric not in view.names()] == [name] * (name in written)
    assert name == "samples" or len(view.samples()) == 2


@pytest.mark.parametrize("mode", ["online", "disabled"])
def test_old_names_work_and_warn_until_0_3(mode: str):
    """``drawn``, ``declared=`` and ``alongside=``, with the caller's line in the warning."""
    run = barograph.init(mode=mode)
    with pytest.warns(DeprecationWarning, match=r"alongside.*now 'concurrent'; .* until 0.3") as seen:
        other = barograph.init(mode=mode, alongside=True)
    assert not run.ended
    with pytest.warns(DeprecationWarning, match=r"run.drawn.* is now run.staleness") as drawn:
        other.drawn(versions=[1, 2], tasks=["a", "b"], trainer_version=3)
    assert {warning.filename for warning in [*seen, *drawn]} == {__file__}
    if mode == "disabled":
        return
    for step, method in enumerate((other.rollouts, lambda **options: other.evaluation("s", **options))):
        with pytest.warns(DeprecationWarning, match=r"declared= is now reductions=") as declared:
            handle = method(step=step, declared={"tokens": "sum"})
        assert {warning.filename for warning in declared} == {__file__}
        handle.add("a", {"tokens": 3})
        handle.add("b", {"tokens": 4})
        handle.close()
    other.commit(1)
    view = barograph.open(other.path)
    assert view.series("rollout/tokens/sum").last == view.series("eval/s/tokens/sum").last == 7
    assert view.series("sample/staleness/mean").last == 1.5


def test_the_old_name_of_a_setting_works_in_yaml(tmp_path: Path):
    """It warns at the caller of init."""
    path = tmp_path / "config.yaml"
    path.write_text("barograph: {alongside: true}")
    first = barograph.init()
    with pytest.warns(DeprecationWarning, match="alongside") as seen:
        barograph.init(path)
    assert {warning.filename for warning in seen} == {__file__}
    assert not first.ended


def test_a_deprecated_name_raises_where_warnings_are_errors():
    """The guard does not hide what a user asked to see."""
    run = barograph.init()
    with pytest.raises(DeprecationWarning):
        run.rollouts(declared={"a": "sum"})


@pytest.mark.parametrize(("name", "text"), [("note", 3), (3, "text"), (None, None), (("a",), ["b"])])
def test_a_text_that_is_no_string_is_written_as_one(name: Any, text: Any):
    """Under a name that may be anything, too."""
    run = barograph.init()
    run.text(name, text, step=4)
    (logged,) = barograph.open(run.path).texts()
    assert (logged.name, logged.text, logged.step) == (str(name), str(text), 4)


def test_a_text_that_cannot_be_a_string_is_a_problem():
    """It costs the other texts nothing."""
    run = barograph.init()
    run.text("bad", Hostile())  # type: ignore[arg-type]
    run.text(Hostile(), "text")  # type: ignore[arg-type]
    run.text("good", "text", step="x")  # type: ignore[arg-type]
    run.commit(3)
    view = barograph.open(run.path)
    assert [(logged.name, logged.step) for logged in view.texts()] == [("good", 3)]
    run.finish()
    assert barograph.open(run.path).problems() == [Problem("run.text", "RuntimeError: hostile", 2)]


def test_messages_about_steps_name_the_value(capsys: pytest.CaptureFixture[str]):
    """What was expected, what was given, and what was done."""
    run = barograph.init()
    run.log({"x": 1.0}, step="a")  # type: ignore[arg-type]
    run.log({"x": 1.0}, step=2**63)
    run.commit("b")  # type: ignore[arg-type]
    shown = capsys.readouterr().err
    assert "step must be an int; got 'a', logged without a step" in shown
    assert f"step must be an int of 64 bits; got {2**63}, logged without a step" in shown
    assert "step must be an int; got 'b', committed as step 0" in shown


def test_a_disabled_run_is_replaced_without_a_warning(capsys: pytest.CaptureFixture[str]):
    """The next init finishes it."""
    first = barograph.init(mode="disabled")
    second = barograph.init()
    assert first.ended
    assert not second.ended
    assert capsys.readouterr().err == ""
