"""The column of the doctor's verdicts in ``barograph ls``: those that are known, and on demand the others."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from barograph.diagnosis.client import WatchOptions
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.watch import Watch


def record(id: str, steps: int = 30) -> barograph.Run:
    """Record a run whose gradient norm is NaN from step 10 on."""
    run = barograph.init(id=id, project="p", name=id)
    for step in range(steps):
        run.log({"reward/score/mean": step / 30, "actor/grad_norm": math.nan if step > 9 else 0.5}, step=step)
    run.finish()
    return run


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ls", "--json", *arguments]) == 0
    return {run["id"]: run["health"] for run in json.loads(capsys.readouterr().out)}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the runs that are judged."""
    found: list[str] = []
    diagnose = Visit.diagnose
    monkeypatch.setattr(
        Visit, "diagnose", lambda visit, view, *names: (found.append(view.id), diagnose(visit, view, *names))[1]
    )
    return found


def test_verdicts_are_shown_where_they_are_known(capsys: pytest.CaptureFixture[str], judged: list[str]):
    """Nothing is judged unless it is asked for, and then once."""
    record("sick")
    assert listed(capsys) == {"sick": None}
    assert main(["ls"]) == 0
    assert "HEALTH" not in capsys.readouterr().out
    assert judged == []
    found = listed(capsys, "--health")["sick"]
    assert (found["verdict"], found["step"], found["first"]["rule"], found["first"]["onset"]) == (
        "sick", 29, "nonfinite", 10,
    )  # fmt: skip
    assert listed(capsys) == {"sick": found}
    assert listed(capsys, "--health") == {"sick": found}
    assert judged == ["sick"]
    assert main(["ls"]) == 0
    assert re.search(r"finished +sick +29", capsys.readouterr().out)
    record("other")
    assert main(["ls"]) == 0
    assert re.search(r"finished +– +29", capsys.readouterr().out)


def test_a_run_that_has_changed_is_not_known(capsys: pytest.CaptureFixture[str]):
    """Another attempt may be another verdict."""
    record("sick")
    assert listed(capsys, "--health")["sick"]
    again = barograph.init(id="sick", project="p")
    again.log({"reward/score/mean": 1.0}, step=30)
    again.finish()
    assert listed(capsys) == {"sick": None}


def test_a_run_that_goes_on_is_judged_and_not_kept(capsys: pytest.CaptureFixture[str]):
    """Its verdict changes with time too: that it logs nothing any more may be a finding."""
    run = barograph.init(id="live", project="p")
    for step in range(30):
        run.log({"reward/score/mean": step / 30, "actor/grad_norm": math.nan}, step=step)
    assert listed(capsys, "--health")["live"]["verdict"] == "sick"
    assert listed(capsys) == {"live": None}
    run.finish()


def test_what_a_doctor_beside_the_training_has_said_is_known(capsys: pytest.CaptureFixture[str], judged: list[str]):
    """While it is of the last step; nothing is judged again for it."""
    run = barograph.init(id="live", project="p")
    watch = Watch(run.path, WatchOptions())
    for step in range(30):
        run.log({"reward/score/mean": step / 30, "actor/grad_norm": math.nan if step > 9 else 0.5}, step=step)
    watch.look()
    judged.clear()
    found = listed(capsys)["live"]
    assert (found["verdict"], found["step"], found["first"]["rule"]) == ("sick", 29, "nonfinite")
    run.log({"reward/score/mean": 1.0}, step=30)
    assert listed(capsys) == {"live": None}
    assert judged == []
    run.finish()


def test_another_meaning_of_the_names_is_not_known(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """By the file that describes names."""
    record("sick")
    assert listed(capsys, "--health")["sick"]
    (tmp_path / "runs" / "names.yaml").write_text("actor/grad_norm: {about: mine}\n")
    assert listed(capsys) == {"sick": None}


def test_logs_of_other_programs_are_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """The verdicts are kept in the cache: nothing is written beside logs."""
    rows = [{"step": step, "reward": step / 40, "grad_norm": 0.5 if step < 10 else "NaN"} for step in range(40)]
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "train.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(log, (1.7e9, 1.7e9))  # a log that is not written any more
    [found] = listed(capsys, str(folder), "--health").values()
    assert found["verdict"] == "sick"
    assert list(listed(capsys, str(folder)).values()) == [found]
    assert list(folder.iterdir()) == [log]


def test_known_verdicts_need_no_numpy(capsys: pytest.CaptureFixture[str]):
    """A list of thousands of runs is printed at once."""
    for number in range(60):
        record(f"r{number:02d}", steps=2)
    listed(capsys, "--health")
    code = "import sys; from barograph.apps.cli import main; main(['ls', '--json']); print('numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "False"
    assert out.count('"cannot tell"') == 60
