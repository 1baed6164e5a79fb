"""The benchmark of the doctor: outcomes of rules, thresholds that are scaled, and frameworks that are left out."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from barograph.diagnosis.rule import Case
from barograph.diagnosis.rules import RULES
from barograph.metrics.tracks import Track

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ROWS = 100


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the modules of the benchmark."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from judged_runs import outcomes, runs, thresholds

    return SimpleNamespace(outcomes=outcomes, runs=runs, thresholds=thresholds)


def case(**values: Any) -> Case:
    """Return a case of signals at the steps 1, 2, …"""
    steps = np.arange(1, ROWS + 1)
    return Case({key: Track(key, key, key, steps, np.full(ROWS, value)) for key, value in values.items()})


def judged(bench: SimpleNamespace, share: float, verdict: str, framework: str = "one", id: str = "run") -> Any:
    """Return a run whose answers are cut by a share; an unhealthy one is expected to say so."""
    reward = 0.5 + 0.1 * np.random.default_rng(0).normal(size=ROWS)
    expected = {"truncation": 2} if verdict == "unhealthy" else {}
    known = case(truncated=share, reward=reward)
    return bench.runs.JudgedRun(id, framework, verdict, expected, frozenset(), known)


def test_a_rule_hits_misses_alarms_or_is_silent(bench: SimpleNamespace):
    """By what is known about the run."""
    for share, verdict, outcome in (
        (0.6, "unhealthy", "hit"),
        (0.01, "unhealthy", "miss"),
        (0.6, "healthy", "false alarm"),
        (0.01, "healthy", "silent"),
    ):
        run = judged(bench, share, verdict)
        found = bench.outcomes.answers(run, RULES)
        assert bench.outcomes.rule_outcome("truncation", run, found) == outcome
        assert bench.outcomes.run_outcome(run, found) == outcome
        assert bench.outcomes.rule_outcome("stale", run, found) in ("cannot judge", "not known")


def test_scaled_rules_fire_later_or_earlier(bench: SimpleNamespace):
    """With a factor of 1 they are as they are, and the rules of the package never change."""
    before = dict(RULES)
    run = judged(bench, 0.3, "unhealthy")  # a warning from 25 % on
    for factor, level in ((0.5, 2), (1.0, 2), (2.0, 1)):
        said = bench.outcomes.answers(run, bench.thresholds.scaled_rules(factor))[1.0]
        assert said["truncation"].ever == level
    same, scaled = (bench.outcomes.answers(run, rules) for rules in (RULES, bench.thresholds.scaled_rules(1.0)))
    assert same == scaled
    assert before == RULES


def test_rules_with_other_thresholds_leave_nothing_behind(bench: SimpleNamespace):
    """What a rule says about a run does not depend on the rules that were asked before."""
    scores = np.array([0, 2, 6, 10, 10, 12, 17, 17, 11, 16, 18, 16, 24, 20, 21, 23, 22, 17, 17, 17]) / 100
    validation = Track("validation", "val", "validation/accuracy", np.arange(5, ROWS + 1, 5), scores)
    reward = np.linspace(0, 0.6, ROWS) + 0.02 * np.random.default_rng(0).normal(size=ROWS)
    known = replace(case(reward=reward), families={"validation": [validation]})
    run = bench.runs.JudgedRun("run", "one", "healthy", {}, frozenset(), known)
    loose, usual = (bench.outcomes.answers(run, bench.thresholds.scaled_rules(one))[1.0] for one in (0.5, 1.0))
    assert loose["proxy_gold_gap"].ever == 2
    assert usual["proxy_gold_gap"].ever == 0


def test_thresholds_are_chosen_without_the_framework_that_is_judged(bench: SimpleNamespace):
    """A healthy run of another framework with many cut answers makes the rule too strict for the one left out."""
    runs = [
        judged(bench, 0.45, "unhealthy", "one", "sick"),
        judged(bench, 0.45, "healthy", "two", "well"),
        judged(bench, 0.01, "healthy", "two", "better"),
    ]
    factors = (1.0, 2.0)
    said = {
        factor: {run.id: bench.outcomes.answers(run, bench.thresholds.scaled_rules(factor)) for run in runs}
        for factor in factors
    }
    assert bench.thresholds.best_factors("truncation", runs[1:], said) == [2.0]
    one, two = bench.thresholds.left_out(runs, said)
    assert (one.framework, one.unhealthy, one.found) == ("one", 1, 0)
    assert (two.framework, two.healthy, two.alarms, two.alarms_at_worst) == ("two", 2, 1, 1)


def test_real_runs_are_read_from_a_folder(bench: SimpleNamespace, tmp_path: Path):
    """With what is known about them; a framework is named without what is in parentheses."""
    (tmp_path / "cut").mkdir()
    rows = [{"step": step, "reward": 0.1 * step, "completions/clipped_ratio": 1.0} for step in range(1, 41)]
    (tmp_path / "cut" / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "cut" / "series.csv").write_text("step\n1\n")
    known = {"id": "cut", "framework": "TRL (fork)", "verdict": "unhealthy", "must_not_fire": ["kl_drift"]}
    (tmp_path / "truth.json").write_text(json.dumps([{**known, "expected_findings": ["truncation", "reward_flat~"]}]))
    (run,) = bench.runs.real_runs(tmp_path)
    assert (run.framework, run.origin, run.causes) == ("TRL", "real", ["truncation"])
    assert run.expected == {"truncation": 2, "reward_flat": 1}
    assert len(run.case.tracks["truncated"]) == 40


def test_every_fault_of_the_demo_is_named_by_a_rule(bench: SimpleNamespace):
    """So that no sick run is left out of the figures."""
    assert bench.runs.NAMED_BY.keys() == bench.runs.SICK_RUNS.keys()
    assert {rule for rules in bench.runs.NAMED_BY.values() for rule in rules} <= RULES.keys()
