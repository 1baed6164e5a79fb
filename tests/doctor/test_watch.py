"""The doctor's watch over a run: what is told, once, and what a later process knows of it."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import barograph
from barograph.diagnosis.client import WatchOptions
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.watch import Watch, main
from barograph.journal import findings

SICK_FROM = 60


@pytest.fixture
def run(tmp_path: Path) -> Iterator[barograph.Run]:
    """A run that is written by the test."""
    with barograph.init(dir=tmp_path, project="p", source="trl/grpo") as found:
        yield found


def log(run: barograph.Run, steps: range, sick: range = range(0)) -> None:
    """Log healthy steps, with a gradient norm that is not a number in some."""
    for step in steps:
        noise = random.Random(step).gauss
        bad = step in sick
        run.log(
            {
                "reward": 0.5 + noise(0, 0.03) + 0.001 * step,
                "reward_std": 0.3 + noise(0, 0.01),
                "grad_norm": float("nan") if bad else 0.8 + noise(0, 0.05),
                "entropy": 1.0 + noise(0, 0.01),
                "loss": noise(0, 0.01),
            }
        )
        run.commit(step)


def told(run: barograph.Run) -> list[tuple[str, str, str]]:
    """What was told so far: kind, rule and severity."""
    return [(one.kind, one.finding.rule, one.finding.severity) for one in findings.read_told(run.path).changes]


def watch_growing(run: barograph.Run, sick: range) -> None:
    """Look at a run after every other step, twice."""
    watch = Watch(run.path, WatchOptions())
    for first in range(0, 100, 2):
        log(run, range(first, first + 2), sick)
        watch.look()
        watch.look()


def test_a_finding_is_told_when_it_begins_and_when_it_is_over(run: barograph.Run):
    """Once, however often the run is looked at."""
    watch_growing(run, range(SICK_FROM, SICK_FROM + 2))
    assert told(run) == [("opened", "nonfinite", "warning"), ("closed", "nonfinite", "warning")]
    opened, closed = findings.read_told(run.path).changes
    assert opened.finding.onset == SICK_FROM
    assert opened.step - SICK_FROM <= 2
    assert (closed.finding.last, closed.finding.is_open) == (SICK_FROM + 1, False)
    assert findings.read_told(run.path).open == {}


def test_a_finding_is_told_again_when_it_gets_worse(run: barograph.Run):
    """It is the same one, since the same step."""
    watch_growing(run, range(SICK_FROM, SICK_FROM + 20))
    assert told(run) == [("opened", "nonfinite", "warning"), ("worse", "nonfinite", "critical")]
    assert {change.finding.onset for change in findings.read_told(run.path).changes} == {SICK_FROM}
    assert findings.read_told(run.path).open == {"nonfinite": "critical"}


def test_another_process_goes_on_where_the_first_ended(run: barograph.Run):
    """It repeats nothing, and knows what is open."""
    log(run, range(62), sick=range(SICK_FROM, 62))
    Watch(run.path, WatchOptions()).look()
    before = told(run)
    assert before == [("opened", "nonfinite", "warning")]
    Watch(run.path, WatchOptions()).look()
    assert told(run) == before
    log(run, range(62, 100))
    Watch(run.path, WatchOptions()).look()
    assert told(run) == [*before, ("closed", "nonfinite", "warning")]


def test_what_seemed_to_be_over_is_not_told_twice(run: barograph.Run):
    """If the same stretch counts as a finding again."""
    log(run, range(70), sick=range(SICK_FROM, 70))
    Watch(run.path, WatchOptions()).look()
    known = findings.read_told(run.path)
    findings.write_told(run.path, barograph.journal.findings.Told(changes=known.changes, sent=1))
    Watch(run.path, WatchOptions()).look()
    assert len(told(run)) == 1


def test_a_healthy_run_is_told_nothing_about(run: barograph.Run):
    """The file has its verdict, and how far the run was looked at."""
    watch = Watch(run.path, WatchOptions(stop_on="warning"))
    log(run, range(100))
    watch.look()
    found = findings.read_told(run.path)
    assert (found.verdict, found.step, found.changes) == ("healthy", 99, ())
    assert findings.read_stop(run.path) is None
    assert watch.is_done


def test_a_run_without_a_step_is_looked_at(run: barograph.Run):
    """There is nothing to say yet."""
    Watch(run.path, WatchOptions()).look()
    found = findings.read_told(run.path)
    assert (found.verdict, found.step) == ("cannot tell", None)


def test_one_process_is_asked_to_stop_at_once(run: barograph.Run):
    """Only from the severity on that the user names."""
    log(run, range(62), sick=range(SICK_FROM, 62))
    watch = Watch(run.path, WatchOptions(stop_on="critical"))
    watch.look()
    assert told(run) == [("opened", "nonfinite", "warning")]
    assert findings.read_stop(run.path) is None
    log(run, range(62, 66), sick=range(SICK_FROM, 66))
    watch.look()
    stop = findings.read_stop(run.path)
    assert stop is not None
    assert stop.step == 65
    assert stop.reason.startswith("critical since step 60: NaN or infinity.")


def test_several_processes_are_asked_to_stop_at_a_step_that_none_has_done(run: barograph.Run):
    """Far enough ahead that each has read the request before."""
    other = barograph.join(run.ticket(), rank=1)
    log(other, range(66), sick=range(SICK_FROM, 66))
    log(run, range(66), sick=range(SICK_FROM, 66))
    watch = Watch(run.path, WatchOptions(stop_on="critical"))
    watch.look()
    assert findings.read_stop(run.path) is None  # how fast they are is not known yet
    for step in range(66, 70):
        log(run, range(step, step + 1))
        watch.look()
    stop = findings.read_stop(run.path)
    assert stop is not None
    assert stop.step >= 67 + 2
    log(run, range(70, 90))
    watch.look()
    assert findings.read_stop(run.path) == stop


def test_the_process_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a last look."""
    run = barograph.init(dir=tmp_path, project="p", source="trl/grpo")
    log(run, range(70), sick=range(SICK_FROM, 70))
    run.finish()
    options = WatchOptions(command="true")
    monkeypatch.setattr("barograph.diagnosis.watch.given_options", lambda: options)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("os.nice", lambda *_: None)  # all later tests of this process would have to wait
    assert main([str(run.path)]) == 0
    assert told(run) == [("opened", "nonfinite", "critical")]
    assert findings.read_told(run.path).sent == 1


def test_a_second_process_leaves_the_run_to_the_first(run: barograph.Run, monkeypatch: pytest.MonkeyPatch):
    """Two would tell everything twice."""
    from barograph.delivery.processes import EXIT_BUSY, take_process_lock

    lock = take_process_lock(run.path / findings.FOLDER / "lock", "")
    assert lock is not None
    monkeypatch.setattr("barograph.diagnosis.watch.given_options", WatchOptions)
    monkeypatch.setattr("os.nice", lambda *_: None)
    assert main([str(run.path)]) == EXIT_BUSY
    lock.close()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"changes": [{}]}', '{"changes": 3}', '{"changes": [], "step": "x"}', "null", "[" * 5000]
)
def test_a_file_that_is_no_report_is_none(run: barograph.Run, text: str):
    """Whoever wrote it."""
    path = run.path / findings.FOLDER / "findings.json"
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "stop.json").write_text(text)
    (path.parent / "taken.json").write_text(text)
    assert findings.read_told(run.path) == findings.Told()
    assert findings.read_stop(run.path) is None
    assert findings.read_taken(run.path) == 0


def test_what_was_told_reads_back_as_it_was_written(run: barograph.Run):
    """Also fields of a later version do no harm."""
    log(run, range(70), sick=range(SICK_FROM, 70))
    Watch(run.path, WatchOptions()).look()
    path = run.path / findings.FOLDER / "findings.json"
    record = json.loads(path.read_text())
    record["later"] = record["changes"][0]["later"] = record["changes"][0]["finding"]["later"] = 1
    before = findings.read_told(run.path)
    path.write_text(json.dumps(record))
    assert findings.read_told(run.path) == before
    assert before.changes[0].finding.advice


def test_a_supervised_training_before_is_no_earlier_start(tmp_path: Path):
    """As in a notebook that trains twice: only what logs the reward counts."""
    for names in (("loss",), ("loss", "reward"), ("loss", "reward")):
        with barograph.init(dir=tmp_path, project="p", id="r", source="trl/grpo") as run:
            for step in range(30):
                run.log(dict.fromkeys(names, 1.0), step=step)
    assert len(Visit().case_of(barograph.open(run.path)).attempts) == 2
