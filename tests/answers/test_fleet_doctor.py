"""``barograph doctor DIR --fleet``: findings summed up over runs, by rule and by what the runs differ in."""

import json
import math
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from jsonschema import Draft202012Validator

import barograph
from barograph.answers.schemas import SCHEMAS
from barograph.apps.cli import main
from barograph.diagnosis.diagnose import Visit
from barograph.journal.directory import DirectoryIndex
from barograph.journal.format.frames import SEGMENT_HEAD
from barograph.journal.view import View

RATES = (1e-6, 1e-6, 1e-5, 1e-5, 1e-5)


def record(dir: Path, id: str, rate: float | None, broken_from: int | None, project: str = "p") -> None:
    """Record a run that learns, or one whose gradient norm is NaN from a step on."""
    config = {"seed": 1} if rate is None else {"actor": {"lr": rate}, "seed": 1}
    run = barograph.init(dir=dir, id=id, project=project, name=id, config=config)
    for step in range(30):
        norm = math.nan if broken_from is not None and step >= broken_from else 0.5 + 0.01 * (step % 3)
        reward = {"critic/score/mean": step / 30, "actor/grad_norm": norm, "actor/entropy_loss": 1 - step / 90}
        run.log({**reward, "response_length/mean": 100.0 + step % 5}, step=step)
    run.finish()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with six runs: the high rates break at steps 4, 10 and 20, one of the others is fine."""
    dir = tmp_path_factory.mktemp("fleet")
    for number, (rate, broken) in enumerate(zip(RATES, (None, None, 4, 10, 20), strict=True)):
        record(dir, f"run{number}", rate, broken)
    record(dir, "other", None, None, project="q")
    return dir


@pytest.fixture
def runs(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of the directory, without indexes."""
    return Path(shutil.copytree(recorded, tmp_path / "fleet", ignore=shutil.ignore_patterns(".page")))


def fleet(capsys: pytest.CaptureFixture[str], dir: Path, *options: str, code: int = 1) -> Any:
    """Return what ``--json`` prints, which must be as its schema says."""
    capsys.readouterr()
    assert main(["doctor", str(dir), "--fleet", "--json", *options]) == code
    found = json.loads(capsys.readouterr().out)
    if found["schema"] != "barograph/error/1":
        Draft202012Validator(SCHEMAS["fleet"][1]).validate(found)
    return found


def test_findings_are_summed_up_by_rule(runs: Path, capsys: pytest.CaptureFixture[str]):
    """A rule has the runs in which it found something, their share, and the median, first and last onset."""
    [group] = fleet(capsys, runs)["groups"]
    assert (group["value"], group["runs"], group["verdicts"]["sick"], group["verdicts"]["healthy"]) == (None, 6, 3, 3)
    rule = next(one for one in group["rules"] if one["rule"] == "nonfinite")
    assert (rule["runs"], rule["share"], rule["critical"], rule["causes"], rule["past"]) == (3, 0.5, 3, 3, 0)
    assert [rule["onset"][name] for name in ("median", "first", "last")] == [10, 4, 20]
    assert Path(rule["onset"]["first_run"]) == runs / "p" / "run2"
    assert Path(rule["onset"]["last_run"]) == runs / "p" / "run4"


def test_runs_are_grouped_by_a_key_of_the_config_or_a_fact(runs: Path, capsys: pytest.CaptureFixture[str]):
    """Values are in order, runs without the key last; an unknown key is refused with the nearest ones."""
    by_rate = fleet(capsys, runs, "--by", "actor.lr")["groups"]
    assert [(group["value"], group["runs"], group["verdicts"]["sick"]) for group in by_rate] == [
        (1e-6, 2, 0), (1e-5, 3, 3), (None, 1, 0),
    ]  # fmt: skip
    by_project = fleet(capsys, runs, "--by", "project")["groups"]
    assert [(group["value"], group["runs"]) for group in by_project] == [("p", 5), ("q", 1)]
    error = fleet(capsys, runs, "--by", "actor.lt")["error"]
    assert error == "no run has a config with 'actor.lt'; did you mean actor.lr?"


def test_what_is_known_is_neither_judged_nor_read(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Verdicts come from the index that lists of runs use, configs from one of their own; a changed run is judged."""
    assert main(["ls", str(runs), "--health"]) == 0
    judged: list[str] = []
    diagnose = Visit.diagnose
    monkeypatch.setattr(
        Visit, "diagnose", lambda visit, view, *names: (judged.append(view.id), diagnose(visit, view, *names))[1]
    )
    before = fleet(capsys, runs, "--by", "actor.lr")
    assert judged == []
    reads: list[Path] = []
    refresh = View.refresh
    monkeypatch.setattr(View, "refresh", lambda view: (reads.append(view.path), refresh(view))[1])
    assert fleet(capsys, runs, "--by", "actor.lr") == before
    assert reads == []
    record(runs, "run0", 1e-6, 12)
    after = fleet(capsys, runs, "--by", "actor.lr")
    assert judged == ["run0"]
    assert [group["verdicts"]["sick"] for group in after["groups"]] == [1, 3, 0]


def test_a_verdict_without_its_findings_is_judged_again(runs: Path, capsys: pytest.CaptureFixture[str]):
    """An index that another build of the same version wrote has no list of findings."""
    before = fleet(capsys, runs)
    index = DirectoryIndex(runs, "health")
    entries = index.load()
    for _, health in entries.values():
        del health["found"]
    assert index.save(entries)
    assert fleet(capsys, runs) == before


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_summed_up(
    runs: Path, capsys: pytest.CaptureFixture[str]
):
    """The exit code is that of the runs that can be judged."""
    head = SEGMENT_HEAD.pack(b"BAROGRPH", 9, crc32(b"BAROGRPH" + bytes([9, 0, 0, 0])))
    (runs / "p" / "run1" / "trainer.0.1.0.seg").write_bytes(head)
    found = fleet(capsys, runs)
    [problem] = found["unreadable"]
    assert (found["runs"], Path(problem["path"])) == (5, runs / "p" / "run1")
    assert "format 9" in problem["error"]
    assert main(["doctor", str(runs), "--fleet"]) == 1
    assert f"not judged: {problem['path']}: {problem['error']}" in capsys.readouterr().err


def test_a_judgement_that_is_interrupted_goes_on_where_it_was(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C leaves the verdicts that there are in the index."""
    judged: list[str] = []
    diagnose = Visit.diagnose

    def interrupted(visit: Visit, view: barograph.View, *names: Any) -> Any:
        judged.append(view.id)
        if len(judged) == 4:
            raise KeyboardInterrupt
        return diagnose(visit, view, *names)

    monkeypatch.setattr(Visit, "diagnose", interrupted)
    assert main(["doctor", str(runs), "--fleet"]) == 130
    fleet(capsys, runs)
    assert len(judged) == 4 + 3


def test_the_table_is_in_both_languages(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Each group has a line with its verdicts and a table of its rules; a narrow terminal lacks columns."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["doctor", str(runs), "--fleet", "--by", "actor.lr"]) == 1
    said = capsys.readouterr().out
    assert "actor.lr = 1e-06  2 runs: 2 healthy\n  no findings\n" in said
    assert "actor.lr = 1e-05  3 runs: 3 sick\n" in said
    assert "without actor.lr  1 run: 1 healthy" in said
    [line] = [line.split() for line in said.splitlines() if "nonfinite" in line]
    assert line == ["nonfinite", "NaN", "or", "infinity", "3", "100.0%", "3", "3", "0", "10", "4", "20"]
    assert main(["doctor", str(runs), "--fleet", "--lang", "zh"]) == 1
    assert "6 个实验: 3 正常, 3 异常" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fleet", "--source", "trl"), "--source is about single runs: it cannot be given with --fleet"),
        (("other", "--fleet"), "--fleet sums up the runs of one directory; got 2"),
        (("--by", "actor.lr"), "--by groups the runs of a fleet: give --fleet too"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The message says what cannot be given with what."""
    assert main(["doctor", str(tmp_path), *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_directory_without_runs_has_nothing_to_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code is that of a run that cannot be judged."""
    assert fleet(capsys, tmp_path, code=2)["error"] == f"{tmp_path} has no runs and no logs"
