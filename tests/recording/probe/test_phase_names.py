"""Very many different names of phases: the metrics of a process are bounded, and it is told once."""

import pytest
from probing import Time, known_run

import barograph
from barograph.metrics import probe_values
from barograph.recording.probe.recorder import Probe


@pytest.fixture(autouse=True)
def few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three names have metrics."""
    monkeypatch.setattr(probe_values, "MAX_PHASES", 3)


def record_steps(time: Time, count: int) -> barograph.Run:
    """Record steps of one second, each with a phase of another name and ten generated tokens."""
    run = known_run(time)
    for step in range(count):
        with run.phase(f"part{step}", tokens={"generated": 10}):
            time.now += 1.0
        run.commit(step)
    run.finish()
    return run


def probe_of(run: barograph.Run) -> Probe:
    return run._collectors.phases.probe  # type: ignore[no-any-return]


def test_further_names_are_recorded_without_metrics():
    """The spans are all there, and so is the throughput of their steps."""
    view = barograph.open(record_steps(Time(), 6).path)
    assert [span.name for span in view.phases()] == [f"part{n}" for n in range(6)]
    assert sorted(view.names("time/*/total")) == ["time/part0/total", "time/part1/total", "time/part2/total"]
    assert view.series("system/generated_tokens_per_second").values.tolist() == [10.0] * 6
    assert view.series("time/unaccounted").values.tolist() == [0.0] * 6


def test_it_is_told_once(capsys: pytest.CaptureFixture[str]):
    """On standard error and in the run, with what to do."""
    run = record_steps(Time(), 9)
    assert capsys.readouterr().err.count("more than 3 different names of phases: 'part3' and further ones") == 1
    [problem] = barograph.open(run.path).problems()
    assert (problem.call, problem.count) == ("run.phase", 1)
    assert "give phases of one kind one name" in problem.error


def test_what_is_kept_does_not_grow_with_the_names():
    """Neither metric names nor totals."""
    runs = [record_steps(Time(), count) for count in (10, 100)]
    few, many = ([len(probe_of(run)._names._known), len(probe_of(run)._step.phases)] for run in runs)
    assert few == many


def test_names_that_have_metrics_keep_them():
    """Also after the limit was reached."""
    run = known_run(time := Time())
    for step in range(8):
        for name in ("train", f"part{step}"):
            with run.phase(name):
                time.now += 1.0
        run.commit(step)
    run.finish()
    assert len(barograph.open(run.path).series("time/train/total")) == 8


def test_sampling_leaves_out_phases_without_metrics():
    """Their averages would be metrics too."""
    run = known_run(time := Time())
    for name in "abc":
        with run.phase(name):
            time.now += 1.0
    with run.phase("d"):
        assert probe_of(run).open_names() == set()
    with run.phase("a"):
        assert probe_of(run).open_names() == {"a"}
    run.finish()
