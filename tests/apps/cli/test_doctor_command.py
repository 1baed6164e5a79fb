"""The command ``barograph doctor``: verdicts, exit codes, JSON, and explanations of rules."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from barograph.diagnosis.rules import RULES


def write_log(path: Path, dead: bool, rows: int = 60, changes: Mapping[str, Any] | None = None) -> Path:
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
        row |= {name: value(step) if callable(value) else value for name, value in (changes or {}).items()}
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
    assert "could not be looked for" in said
    assert "the run does not log the entropy" in said
    assert all(line == line.rstrip() for line in said.splitlines())
    assert main(["doctor", str(log), "--lang", "zh"]) == 1
    assert "回答被截断" in capsys.readouterr().out


def test_a_healthy_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It has no finding, and says what was looked for, by how many rules; the exit code is 0."""
    log = write_log(tmp_path / "good.jsonl", dead=False)
    assert main(["doctor", str(log)]) == 0
    said = capsys.readouterr().out
    assert "healthy" in said
    assert "looked for, and not found" in said
    assert re.search(r"\d+ of \d+ rules could look", said)


def test_rules_that_miss_related_things_share_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It says what they need; ``--all`` says what each of them misses, and a reason of one rule is said in full."""
    log = write_log(tmp_path / "good.jsonl", dead=False)
    reports = {}
    for options in ((), ("--all",), ("--lang", "zh")):
        main(["doctor", str(log), *options])
        reports[options] = " ".join(capsys.readouterr().out.split())
    slow = "Steps get slower, One step took very long, A slow phase, One rank is slow – they need the times of steps"
    assert slow in reports[()]
    assert "the run does not log the time of a step" not in reports[()]
    assert "The KL coefficient keeps growing – the run does not log the KL coefficient" in reports[()]
    assert "Steps get slower, One step took very long – the run does not log the time of a step" in reports["--all",]
    assert "they need" not in reports["--all",]
    assert "某个 rank 较慢 – 需要每步、各阶段和各 rank 的时间" in reports["--lang", "zh"]


def test_exit_codes(tmp_path: Path):
    """``--fail-on`` chooses the severity; a run that cannot be judged gives 2, unless another is judged."""
    short = write_log(tmp_path / "short.jsonl", dead=False, rows=5)
    assert main(["doctor", str(short)]) == 2
    good = write_log(tmp_path / "good.jsonl", dead=False)
    assert main(["doctor", str(good), "--fail-on", "critical"]) == 0
    apart = write_log(tmp_path / "apart.jsonl", dead=False, changes={"kl": 0.3})  # policy and reference from the start
    assert main(["doctor", str(apart)]) == 1
    assert main(["doctor", str(apart), "--fail-on", "critical"]) == 0
    assert main(["doctor", str(apart), "--fail-on", "info"]) == 1
    assert main(["doctor", str(short), str(good)]) == 0


def test_a_finding_has_a_curve_with_a_mark_at_its_onset(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """And its range; a value that never moves is written as such."""
    early = {"completions/clipped_ratio": lambda step: float(step > 30)}
    main(["doctor", str(write_log(tmp_path / "cut.jsonl", dead=False, changes=early))])
    said = capsys.readouterr().out
    assert re.search(r"▁│\S*█+  completions/clipped_ratio  0 to 1", said)
    assert "confidence: medium; against it: the reward still rises" in said
    main(["doctor", str(write_log(tmp_path / "dead.jsonl", dead=True))])
    assert "completions/clipped_ratio  always 1" in capsys.readouterr().out


def test_stretches_of_a_finding_that_is_over_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With the worst severity."""
    twice = {"completions/clipped_ratio": lambda step: 0.95 if 10 < step <= 22 or 50 < step <= 62 else 0.0}
    main(["doctor", str(write_log(tmp_path / "cut.jsonl", dead=False, rows=120, changes=twice))])
    said = capsys.readouterr().out
    assert len(re.findall(r"Answers are cut off, steps \d+ to \d+, steps \d+ to \d+\n", said)) == 1


def test_a_directory_gives_a_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of recorded runs and logs."""
    write_log(tmp_path / "a" / "dead.jsonl", dead=True)
    write_log(tmp_path / "b" / "good.jsonl", dead=False)
    assert main(["doctor", str(tmp_path)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(lines) == 2
    assert any("dead" in line and "Answers are cut off, since step 1" in line for line in lines)


def test_a_log_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """And the others are judged; with none to read, the exit code is that of runs that cannot be judged."""
    write_log(tmp_path / "logs" / "dead.jsonl", dead=True)
    broken = tmp_path / "logs" / "project" / "broken"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    assert main(["doctor", str(tmp_path / "logs")]) == 1
    said = capsys.readouterr()
    assert "broken" in said.err
    assert "Answers are cut off" in said.out
    (tmp_path / "empty").mkdir()
    assert main(["doctor", str(tmp_path / "empty")]) == 2
    assert "no runs and no logs" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "missing")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As ``barograph.doctor`` returns it."""
    log = write_log(tmp_path / "dead.jsonl", dead=True)
    main(["doctor", str(log), "--json"])
    record = json.loads(capsys.readouterr().out)
    diagnosis = barograph.doctor(barograph.open(log))
    assert record["verdict"] == diagnosis.verdict == "sick"
    assert record["findings"][0]["rule"] == diagnosis.findings[0].rule == "truncation"
    assert {one["rule"] for one in record["findings"][0]["explains"]} >= {"reward_constant", "no_signal"}
    assert all(one["reason"]["en"] for one in record["unmeasured"])
    assert record["steps"] == [1, 60]
    assert record["path"] == str(log)
    said = {finding["rule"] for top in record["findings"] for finding in (top, *top["explains"])}
    rest = {*record["fine"], *(note["rule"] for note in record["unmeasured"]), *(one["rule"] for one in record["past"])}
    assert said | rest == set(RULES)


def test_rules_are_explained(capsys: pytest.CaptureFixture[str]):
    """One with its advice, all as a list, and an unknown one with similar names."""
    assert main(["doctor", "--explain", "no_signal"]) == 0
    said = capsys.readouterr().out
    assert "equal rewards" in said
    assert "needs one of: the share of groups with equal rewards" in said
    assert main(["doctor", "--explain", "no_signal", "--lang", "zh"]) == 0
    assert "来源" in capsys.readouterr().out
    assert main(["doctor", "--explain", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 60
    assert main(["doctor", "--explain", "no_sigal"]) == 1
    assert "did you mean no_signal" in capsys.readouterr().err


def test_a_cause_that_is_over_has_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A spike that left a frozen policy was at a step: it does not last since then."""
    frozen = {"kl": lambda step: 30.0 if step == 30 else 0.01, "reward_std": lambda step: 0.3 if step < 31 else 0.0}
    frozen |= {"frac_reward_zero_std": lambda step: float(step > 30), "reward": lambda step: 0.3 + 0.01 * (step % 3)}
    main(["doctor", str(write_log(tmp_path / "frozen.jsonl", dead=False, rows=90, changes=frozen))])
    assert "KL spike, step 30\n" in capsys.readouterr().out
