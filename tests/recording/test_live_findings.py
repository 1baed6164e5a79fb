"""The doctor beside a training: from the rows of a loop to its user, through real processes."""

import io
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import barograph
from barograph.catalogue.spec import Text
from barograph.journal import findings
from barograph.journal.findings import TEXT_NAME, Change, Finding, Told, ask_to_stop

FINDING = Finding(
    "nonfinite", "critical", Text("NaN", "非数"), Text("grad_norm.", "梯度。"), "g", "policy/g", 7, 9, True
)

TRAINING = """
import random, sys, time
import barograph

def tell(finding):
    print("told", finding.rule, finding.severity, finding.onset, run.step, flush=True)

run = barograph.init(
    dir=sys.argv[1], project="p", doctor=True, source="trl/grpo", on_finding=tell, stop_on="critical",
    id="shared", rank=int(sys.argv[2]), world_size=int(sys.argv[3]),
)
for step in range(2000):
    gauss = random.Random(step).gauss
    bad = step >= 60
    run.log({
        "reward": 0.5 + gauss(0, 0.03) + 0.001 * step, "reward_std": 0.3 + gauss(0, 0.01), "loss": gauss(0, 0.01),
        "grad_norm": float("nan") if bad else 0.8 + gauss(0, 0.05), "entropy": 1.0 + gauss(0, 0.01),
    })
    run.commit(step)
    if run.should_stop:
        print("stopped", step, flush=True)
        break
    time.sleep(0.01 if step < 58 else 0.1)
run.finish()
"""


def train(tmp_path: Path, rank: int = 0, world_size: int = 1) -> subprocess.Popen[str]:
    """Start a training that becomes sick at step 60, and that stops when it is told to."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    return subprocess.Popen(
        [sys.executable, script, tmp_path / "runs", str(rank), str(world_size)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True)
def _doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAROGRAPH_DOCTOR")


def test_a_training_hears_of_its_sickness_and_stops(tmp_path: Path):
    """The user's function, standard error, the journal and the text for trackers have it."""
    out, err = train(tmp_path).communicate(timeout=120)
    lines = out.splitlines()
    assert lines[0].startswith("told nonfinite ")
    assert lines[-1].startswith("stopped ")
    stopped = int(lines[-1].split()[1])
    assert 60 < stopped < 200
    assert "since step 60: NaN or infinity." in err
    assert "barograph doctor shared" in err
    view = barograph.open(tmp_path / "runs" / "p" / "shared")
    events = [event for event in view.events() if event["event"] == "finding"]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert Finding.of_record(events[0]["finding"]).onset == 60
    texts = [text.text for text in view.texts() if text.name == TEXT_NAME]
    assert texts[-1].startswith("critical since step 60: NaN or infinity.")
    assert barograph.doctor(view).verdict == "sick"


def test_two_processes_stop_at_the_same_step(tmp_path: Path):
    """Although each reads the request by itself."""
    processes = [train(tmp_path, rank, 2) for rank in range(2)]
    ends = [process.communicate(timeout=120)[0].splitlines()[-1] for process in processes]
    assert ends[0].startswith("stopped ")
    assert ends[0] == ends[1]


def wait_for(condition: object) -> None:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.02)
    assert condition()  # type: ignore[operator]


def written(run: barograph.Run, *numbers: int) -> None:
    """Write changes as the doctor's process does."""
    changes = tuple(Change(number, "opened", 9, 1.0, FINDING) for number in numbers)
    findings.write_told(run.path, Told("sick", 9, 0, 1.0, changes))


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no doctor: the test writes its files."""
    from barograph.diagnosis.client import DoctorClient

    monkeypatch.setattr(DoctorClient, "_launch", lambda self: None)


@pytest.mark.usefixtures("no_process")
def test_a_function_that_fails_is_reported_and_the_training_goes_on(tmp_path: Path):
    """Like every exception of ours."""

    def fail(finding: Finding) -> None:
        raise RuntimeError("no network")

    run = barograph.init(dir=tmp_path, on_finding=fail)
    written(run, 1)
    wait_for(lambda: run._collectors.findings._waiting)
    with redirect_stderr(io.StringIO()) as err:
        run.commit(9)
    assert "on_finding failed: RuntimeError: no network" in err.getvalue()
    assert run.step == 9


@pytest.mark.usefixtures("no_process")
def test_a_later_start_hears_only_what_is_new(tmp_path: Path):
    """What an earlier one has told is not told again."""
    seen: list[int] = []

    def start() -> barograph.Run:
        return barograph.init(dir=tmp_path, project="p", id="r", on_finding=lambda finding: seen.append(finding.onset))

    with start() as run:
        written(run, 1)
        wait_for(lambda: run._collectors.findings._waiting)
        run.commit(9)
    assert seen == [7]
    with start() as run:
        written(run, 1, 2)
        wait_for(lambda: run._collectors.findings._waiting)
        run.commit(10)
    assert seen == [7, 7]
    texts = barograph.open(run.path).texts()
    assert [text.step for text in texts] == [9, 10]


@pytest.mark.usefixtures("no_process")
def test_a_loop_without_commits_hears_of_findings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From a thread, a little later."""
    monkeypatch.setattr("barograph.recording.collectors.findings.COMMIT_SECONDS", 0.1)
    seen: list[int] = []
    with barograph.init(dir=tmp_path, on_finding=lambda finding: seen.append(finding.onset)) as run:
        run.log({"a": 1.0}, step=9)
        written(run, 1)
        wait_for(lambda: seen == [7])


@pytest.mark.usefixtures("no_process")
def test_a_request_to_stop_is_for_this_start_alone(tmp_path: Path):
    """A run that is continued does not end at once."""
    with barograph.init(dir=tmp_path, project="p", id="r", stop_on="critical") as run:
        run.commit(3)
        assert not run.should_stop
        findings.request_stop(run.path, 5, "sick")
        wait_for(lambda: run._collectors.findings._stop)
        run.commit(4)
        assert not run.should_stop
        run.commit(5)
        assert run.should_stop
    with barograph.init(dir=tmp_path, project="p", id="r", stop_on="critical") as run:
        run.commit(6)
        time.sleep(0.5)
        assert not run.should_stop
    assert findings.read_stop(run.path) is None


def test_a_run_without_a_doctor_hears_a_request_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also one that was made before the loop first asks; one process ends at once, and says why."""
    with barograph.init(dir=tmp_path, project="p") as run:
        run.log({"a": 1.0}, step=3)
        asked = ask_to_stop(barograph.open(run.path), "the reward is hacked")
        assert (asked.step, asked.reason) == (3, "the reward is hacked")
        wait_for(lambda: run.should_stop)
        assert ask_to_stop(barograph.open(run.path), "again") == asked
    assert "asked to stop after step 3: the reward is hacked" in capsys.readouterr().err
    with pytest.raises(barograph.BarographError, match="has ended: it is finished"):
        ask_to_stop(barograph.open(run.path), "late")


@pytest.mark.parametrize(("is_remote", "seconds"), [(False, 0.2), (True, 5.0)])
def test_a_network_file_system_is_looked_at_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool, seconds: float
):
    """Every rank looks."""
    monkeypatch.setattr("barograph.recording.collectors.findings.is_remote", lambda folder: is_remote)
    with barograph.init(dir=tmp_path) as run:
        assert not run.should_stop
        assert run._collectors.findings._pause == seconds


def test_several_processes_are_asked_to_stop_later(tmp_path: Path):
    """At a step that none of them has done when it reads the request."""
    with barograph.init(dir=tmp_path, project="p") as run, barograph.join(run.ticket(), rank=1) as other:
        for step in range(4):
            run.log({"a": 1.0}, step=step)
            other.log({"a": 1.0}, step=step)
        assert ask_to_stop(barograph.open(run.path), "enough").step == 3 + 15  # three seconds at five steps per second


def test_the_doctor_comes_with_a_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Unless it is turned off; trackers in the training's own process have none."""
    started: list[str] = []
    monkeypatch.setattr("barograph.diagnosis.client.launch", lambda module, *_, **__: started.append(module))
    for settings in ({}, {"track_with": "jsonl"}, {"track_with": "tensorboard", "doctor": False}):
        barograph.init(dir=tmp_path, **settings).finish()  # type: ignore[arg-type]
    assert started == []
    barograph.init(dir=tmp_path, track_with="tensorboard").finish()
    assert started == ["barograph.diagnosis.watch"]
    with barograph.init(dir=tmp_path, doctor=True, rank=1, id="x") as other:
        assert not other.should_stop
    assert len(started) == 1


def test_a_disabled_run_never_stops(monkeypatch: pytest.MonkeyPatch):
    """And starts no process."""
    run = barograph.init(mode="disabled", stop_on="critical")
    run.commit(1)
    assert not run.should_stop
