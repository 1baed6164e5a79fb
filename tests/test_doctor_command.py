"""The command ``windsock doctor``: verdicts, exit codes, JSON, and explanations of rules."""

import json
from pathlib import Path

import pytest

import windsock
from windsock.cli import main


def write_log(path: Path, dead: bool, rows: int = 60) -> Path:
    """Write a log of a run that learns, or of one whose answers are all cut and never right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for step in range(1, rows + 1):
        reward = 0.0 if dead else 0.2 + 0.01 * step + 0.02 * (step % 3)
        row = {"step": step, "reward": reward, "reward_std": 0.0 if dead else 0.3, "grad_norm": 0.0 if dead else 0.4}
        row |= {"kl": 0.001 * step, "completions/clipped_ratio": float(dead), "completions/mean_length": 100.0}
        row |= {
            "completions/min_length": 50.0,
            "loss": 0.01,
            "learning_rate": 1e-6,
            "frac_reward_zero_std": float(dead),
        }
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_sick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The cause comes first, with its step, its symptoms and what to do; the exit code is 1."""
    log = write_log(tmp_path / "dead.jsonl", dead=True)
    assert main(["doctor", str(log)]) == 1
    said = capsys.readouterr().out
    assert "sick" in said
    assert "Answers are cut off, since step 1" in said
    assert "explains: The reward never changes" in " ".join(said.split())
    assert "next:" in said
    assert "could not be judged" in said
    assert main(["doctor", str(log), "--lang", "zh"]) == 1
    assert "回答被截断" in capsys.readouterr().out


def test_a_healthy_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It has no finding, and says what was looked at; the exit code is 0."""
    log = write_log(tmp_path / "good.jsonl", dead=False)
    assert main(["doctor", str(log)]) == 0
    said = capsys.readouterr().out
    assert "healthy" in said
    assert "looked at, and fine" in said


def test_exit_codes(tmp_path: Path):
    """``--fail-on`` chooses the severity; a run that cannot be judged gives 2."""
    short = write_log(tmp_path / "short.jsonl", dead=False, rows=5)
    assert main(["doctor", str(short)]) == 2
    good = write_log(tmp_path / "good.jsonl", dead=False)
    assert main(["doctor", str(good), "--fail-on", "critical"]) == 0


def test_a_directory_gives_a_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of recorded runs and logs."""
    write_log(tmp_path / "a" / "dead.jsonl", dead=True)
    write_log(tmp_path / "b" / "good.jsonl", dead=False)
    assert main(["doctor", str(tmp_path)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(lines) == 2
    assert any("dead" in line and "Answers are cut off (since step 1)" in line for line in lines)


def test_a_log_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """And the others are judged; a directory without any run is an error."""
    write_log(tmp_path / "logs" / "dead.jsonl", dead=True)
    broken = tmp_path / "logs" / "project" / "broken"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    assert main(["doctor", str(tmp_path / "logs")]) == 1
    said = capsys.readouterr()
    assert "broken" in said.err
    assert "Answers are cut off" in said.out
    (tmp_path / "empty").mkdir()
    assert main(["doctor", str(tmp_path / "empty")]) == 1
    assert "no runs and no logs" in capsys.readouterr().err


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As ``windsock.doctor`` returns it."""
    log = write_log(tmp_path / "dead.jsonl", dead=True)
    main(["doctor", str(log), "--json"])
    record = json.loads(capsys.readouterr().out)
    diagnosis = windsock.doctor(windsock.open(log))
    assert record["verdict"] == diagnosis.verdict == "sick"
    assert record["findings"][0]["rule"] == diagnosis.findings[0].rule == "truncation"
    assert {one["rule"] for one in record["findings"][0]["explains"]} >= {"reward_constant", "no_signal"}
    assert all(one["reason"]["en"] for one in record["unmeasured"])


def test_rules_are_explained(capsys: pytest.CaptureFixture[str]):
    """One with its advice, all as a list, and an unknown one with similar names."""
    assert main(["doctor", "--explain", "no_signal"]) == 0
    assert "equal rewards" in capsys.readouterr().out
    assert main(["doctor", "--explain", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 60
    assert main(["doctor", "--explain", "no_sigal"]) == 1
    assert "did you mean no_signal" in capsys.readouterr().err
