"""Rules on made-up runs: each fires on its own trouble, at its step, and says so in both languages."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windsock.diagnosis.case import Attempt, Case
from windsock.diagnosis.diagnose import Diagnosis, diagnose
from windsock.diagnosis.reference_page import page
from windsock.diagnosis.rule import number, signal_words, spells
from windsock.diagnosis.rules import RULES
from windsock.diagnosis.tracks import Track

ROWS = 120
RANDOM = np.random.default_rng(5)


def learning(rows: int = ROWS) -> np.ndarray:
    """Return a reward that rises with noise."""
    return np.linspace(0.2, 0.8, rows) + RANDOM.normal(0, 0.05, rows)


def still(level: float, noise: float = 0.05, rows: int = ROWS) -> np.ndarray:
    """Return a signal that stays at its level."""
    return level * np.exp(RANDOM.normal(0, noise, rows))


def healthy() -> dict[str, np.ndarray]:
    """Return the signals of a run in which nothing is wrong."""
    return {
        "reward": learning(),
        "reward_std": still(0.3),
        "gradient": still(0.5, 0.2),
        "entropy": np.linspace(0.6, 0.4, ROWS) + RANDOM.normal(0, 0.01, ROWS),
        "kl": np.linspace(0.0, 0.08, ROWS),
        "step_kl": still(0.002),
        "ratio": still(1.0, 0.01),
        "clipped": still(0.02),
        "length": still(300.0),
        "truncated": still(0.01),
        "learning_rate": np.full(ROWS, 1e-6),
        "value_loss": still(0.1),
        "explained_variance": np.linspace(0.1, 0.6, ROWS),
        "mismatch": still(0.003),
        "sample_size": still(0.9, 0.01),
        "staleness": still(1.0),
        "step_time": still(60.0),
        "host_memory": still(100.0, 0.001),
    }


def case(changes: Mapping[str, Any] | None = None, **facts: Any) -> Case:
    """Return a healthy case with some signals changed; None takes one away."""
    values = {**healthy(), **(changes or {})}
    families = {key: values.pop(key) for key in ("validation", "component") if key in values}
    tracks = {key: track(key, series) for key, series in values.items() if series is not None}
    lists = {key: [track(f"{key}-{n}", one) for n, one in enumerate(many)] for key, many in families.items()}
    return Case(tracks, lists, **facts)


def track(key: str, values: np.ndarray) -> Track:
    """Return a track at the steps 1, 2, …"""
    return Track(key, key, key, np.arange(1, len(values) + 1), np.asarray(values, float))


def since(step: int, before: np.ndarray, after: Any) -> np.ndarray:
    """Return a series that changes at a step."""
    found = before.copy()
    found[step - 1 :] = after if np.isscalar(after) else np.asarray(after)[: len(found) - step + 1]
    return found


def found(diagnosis: Diagnosis, rule: str) -> Any:
    """Return the finding of a rule, now or before; None if it has none."""
    every = [*diagnosis.findings, *diagnosis.past, *(one for top in diagnosis.findings for one in top.explains)]
    return next((finding for finding in every if finding.rule == rule), None)


def test_a_healthy_run_is_healthy():
    """Nothing is above info, and what was looked at is said."""
    diagnosis = diagnose(case())
    assert diagnosis.verdict == "healthy", [finding.rule for finding in diagnosis.findings]
    assert {"no_signal", "nonfinite", "kl_drift"} <= {note.rule for note in diagnosis.fine}


TROUBLE: dict[str, tuple[dict[str, Any], str, int]] = {
    "nonfinite": ({"loss": since(60, still(0.1), math.nan)}, "critical", 60),
    "reward_constant": ({"reward": np.zeros(ROWS), "gradient": np.zeros(ROWS)}, "critical", 1),
    "no_signal": ({"reward": still(0.1), "reward_std": since(50, still(0.3), 0.0)}, "critical", 50),
    "weak_signal": ({"reward": still(0.1), "dead_groups": since(50, still(0.1), 0.75)}, "warning", 50),
    "zero_grad": ({"gradient": since(50, still(0.5), 0.0)}, "critical", 50),
    "truncation": ({"reward": still(0.3), "truncated": since(50, still(0.01), 0.6)}, "warning", 50),
    "entropy_spent": ({"entropy": since(50, still(0.6), 0.1)}, "info", 55),
    "entropy_collapse": ({"reward": still(0.3), "entropy": since(50, still(0.6), 0.001)}, "critical", 58),
    "entropy_low_start": ({"entropy": still(0.005)}, "warning", 1),
    "entropy_explosion": ({"entropy": since(50, still(0.6), 3.0)}, "critical", 52),
    "kl_drift": ({"reward": still(0.3), "kl": since(50, np.linspace(0, 0.05, ROWS), 1.5)}, "critical", 52),
    "kl_spike": ({"kl": since(50, np.linspace(0, 0.05, ROWS), [30.0, *[0.05] * ROWS])}, "warning", 50),
    "kl_offset_start": ({"kl": still(0.3)}, "warning", 1),
    "kl_negative": ({"kl": since(50, still(0.01), -0.2)}, "warning", 51),
    "ppo_kl_high": ({"reward": still(0.3), "step_kl": since(50, still(0.002), 0.5)}, "critical", 51),
    "ratio_drift": ({"ratio": since(50, still(1.0, 0.01), 3.0)}, "critical", 52),
    "clipfrac_high": ({"reward": still(0.3), "clipped": since(50, still(0.02), 0.5)}, "warning", 55),
    "grad_rising": ({"reward": still(0.3), "gradient": np.geomspace(0.1, 10, ROWS) * still(1.0, 0.1)}, "warning", 67),
    "length_explosion": ({"reward": still(0.3), "length": since(50, still(100.0), 900.0)}, "warning", 52),
    "length_collapse": ({"reward": still(0.3), "length": since(50, still(300.0), 20.0)}, "warning", 57),
    "reward_falling": ({"reward": np.linspace(0.8, 0.2, ROWS) + RANDOM.normal(0, 0.05, ROWS)}, "critical", 10),
    "value_loss_spike": ({"value_loss": since(60, still(0.1), 5.0)}, "warning", 62),
    "ev_bad": ({"explained_variance": since(60, still(0.5), -2.0)}, "critical", 62),
    "lr_implausible": ({"learning_rate": np.full(ROWS, 0.01)}, "critical", 1),
    "lr_zero": ({"learning_rate": np.zeros(ROWS)}, "warning", 1),
    "mismatch": ({"mismatch": np.geomspace(0.003, 0.2, ROWS)}, "critical", 48),
    "ess_low": ({"sample_size": since(50, still(0.9, 0.01), 0.1)}, "warning", 52),
    "stale": ({"staleness": since(50, still(1.0), 20.0)}, "warning", 54),
    "slowdown": ({"step_time": np.linspace(30, 90, ROWS) * still(1.0, 0.02)}, "warning", 58),
    "memory_leak": ({"host_memory": np.linspace(100.0, 180.0, ROWS)}, "warning", 11),
    "dead_sensor": ({"entropy": np.zeros(ROWS)}, "info", 1),
}


@pytest.mark.parametrize("rule", TROUBLE)
def test_a_rule_finds_its_trouble(rule: str):
    """With its severity, near the step where it begins, in both languages."""
    changes, severity, step = TROUBLE[rule]
    finding = found(diagnose(case(changes)), rule)
    assert finding is not None
    assert finding.severity == severity
    assert abs(finding.onset - step) <= 12, finding.onset
    assert "{" not in finding.text.en + finding.text.zh
    assert finding.text.en != finding.text.zh


@pytest.mark.parametrize("rule", TROUBLE)
def test_nothing_is_found_before_it_begins(rule: str):
    """The first part of the run is judged as if nothing else had followed."""
    changes, _, step = TROUBLE[rule]
    if step > 40:
        assert found(diagnose(case(changes).upto(35)), rule) is None


def test_trouble_with_the_validation():
    """A reward that rises while the validation falls is gamed; so is one whose component falls."""
    validation = np.concatenate([np.linspace(0.1, 0.5, 6), np.linspace(0.5, 0.1, 8)])
    gamed = diagnose(case({"validation": [validation]}))
    # Evaluations are rarer than rows: here at the steps 1 to 14, so that the reward is compared up to there.
    assert found(gamed, "proxy_gold_gap") is None
    spread = Track("validation", "val", "validation", np.arange(8, 113, 8)[:14], validation)
    known = case()
    gamed = diagnose(Case(known.tracks, {"validation": [spread]}))
    assert found(gamed, "proxy_gold_gap").severity == "critical"
    assert abs(found(gamed, "proxy_gold_gap").onset - 48) <= 8
    parts = {"component": [learning() * 2, np.linspace(1, 0.2, ROWS) + RANDOM.normal(0, 0.05, ROWS)]}
    assert found(diagnose(case(parts)), "component_tradeoff").severity == "warning"


def test_restarts_and_crash_loops():
    """Many short attempts are a loop; one repeated run is a restart."""
    loop = diagnose(case(attempts=[Attempt(1, 1)] * 9))
    assert found(loop, "crash_loop").severity == "critical"
    again = diagnose(case(attempts=[Attempt(1, 50), Attempt(1, 120)]))
    assert found(again, "restart").severity == "warning"
    resumed = diagnose(case(attempts=[Attempt(1, 60), Attempt(58, 120)]))
    assert found(resumed, "restart").severity == "info"


def test_a_cause_has_its_symptoms_under_it():
    """Cut answers, equal rewards and no gradient are one finding."""
    changes = {
        "reward": np.zeros(ROWS),
        "reward_std": np.zeros(ROWS),
        "gradient": np.zeros(ROWS),
        "truncated": np.ones(ROWS),
    }
    diagnosis = diagnose(case(changes))
    assert [finding.rule for finding in diagnosis.findings if finding.severity == "critical"] == ["truncation"]
    assert {"reward_constant", "no_signal", "zero_grad"} <= {one.rule for one in diagnosis.findings[0].explains}


def test_what_cannot_be_judged_is_said():
    """With the reason; and a run without a reward, or with few rows, is not called healthy."""
    reasons = {
        note.rule: note.text.en for note in diagnose(case({"kl": np.zeros(ROWS)}, config={"beta": 0})).unmeasured
    }
    assert "beta is 0" in reasons["kl_drift"]
    reasons = {note.rule: note.text.en for note in diagnose(case({"clipped": np.zeros(ROWS)})).unmeasured}
    assert "one update per batch" in reasons["clipfrac_high"]
    assert diagnose(case({"reward": None})).verdict == "cannot tell"
    assert diagnose(case().upto(10)).verdict == "cannot tell"
    assert diagnose(Case({"reward": track("reward", learning())})).verdict == "cannot tell"
    assert diagnose(Case({})).verdict == "cannot tell"


def test_a_finding_that_is_over_is_closed():
    """After ten rows without it; and it does not count for the verdict."""
    truncated = since(40, still(0.01), [0.6] * 15 + [0.01] * ROWS)
    diagnosis = diagnose(case({"truncated": truncated, "reward": still(0.3)}))
    assert [finding.rule for finding in diagnosis.past] == ["truncation"]
    assert diagnosis.verdict == "healthy"


def test_spells_need_persistence_and_end_after_clean_rows():
    """A single row is none, and a short gap does not end one."""
    levels = np.array([1, 0, 2, 2, 2, 0, 0, 2, *[0] * 12, 1, 1, 1], np.int8)
    first, second = spells(levels, persist=3)
    assert (first.first, first.last, first.level, first.is_open) == (2, 7, 2, False)
    assert (second.first, second.is_open) == (20, True)


def test_every_rule_has_words_and_is_on_the_page():
    """In both languages, with a source; docs/doctor.md is as the rules are."""
    for rule in RULES.values():
        assert rule.words.title.zh
        assert rule.words.sees.zh
        assert rule.words.sources
        assert set(rule.explains) <= RULES.keys()
    docs = Path(__file__).parents[2] / "docs" / "doctor.md"
    assert docs.read_text(encoding="utf-8") == page(), "run python -m windsock.diagnosis"


def test_a_rule_says_what_it_lacks():
    """The missing signals by their names, in both languages, and how many rows it needs."""
    reasons = {note.rule: note.text for note in diagnose(case({"entropy": None})).unmeasured}
    assert reasons["entropy_collapse"].en == "the run does not log the entropy"
    assert reasons["entropy_collapse"].zh == "实验没有记录熵"
    bare = {note.rule: note.text.en for note in diagnose(Case({"loss": track("loss", still(0.1))})).unmeasured}
    assert bare["truncation"] == "the run does not log the share of answers that are cut off or the longest answer"
    early = diagnose(case().upto(8))
    reasons = {note.rule: note.text for note in early.unmeasured}
    assert reasons["entropy_collapse"].en == "it needs 20 logged steps; so far: 8"
    assert "entropy_collapse" not in {note.rule for note in early.fine}


def test_every_signal_has_words():
    """Those that rules need, so that a report can name what is missing."""
    for rule in RULES.values():
        for words in (signal_words([key]) for key in rule.needs):
            assert words.en
            assert words.zh


def test_minus_zero_is_written_as_zero():
    """A KL that is always -0.0 is always 0."""
    assert number(-0.0) == "0"


def slow_spells(levels: np.ndarray, persist: int, clean: int) -> list[tuple[int, int, int, bool]]:
    """Return stretches row by row, as they are defined."""
    found, first, last, run, level = [], -1, -1, 0, 0
    for row, one in enumerate(levels.tolist()):
        run = run + 1 if one else 0
        if first < 0 and run >= persist:
            first, level = row - persist + 1, int(levels[row - persist + 1 : row + 1].max())
        if first >= 0 and one:
            last, level = row, max(level, one)
        elif first >= 0 and row - last >= clean:
            found.append((first, last, level, False))
            first = -1
    if first >= 0:
        found.append((first, last, int(levels[max(first, last - clean + 1) :].max()), True))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_spells_are_those_of_a_walk_over_the_rows(seed: int):
    """For any levels, persistence and gap."""
    random = np.random.default_rng(seed)
    levels = np.repeat(random.choice([0, 0, 1, 2, 3], 30), random.integers(1, 9, 30)).astype(np.int8)
    persist, clean = int(random.integers(1, 7)), int(random.integers(1, 12))
    found = [(one.first, one.last, one.level, one.is_open) for one in spells(levels, persist, clean)]
    assert found == slow_spells(levels, persist, clean)
