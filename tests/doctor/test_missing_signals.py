"""Runs that lack signals: the doctor says what it could not look for, and does not call them healthy for it.

A verdict of healthy needs the reward, with enough rows, two more signals that move, and either a reward that rises or a
signal that shows whether something is learnt from. A rule whose signals are missing is never listed as looked for.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.diagnosis.diagnose import HELPFUL, LEARNT_FROM, Diagnosis, diagnose
from barograph.diagnosis.rule import Case, LoggedAttempt, signal_words
from barograph.diagnosis.rules import RULES
from barograph.metrics.tracks import Track

ROWS = 120
RANDOM = np.random.default_rng(11)


def near(level: float, noise: float = 0.05) -> np.ndarray:
    """Return values around a level."""
    return level * np.exp(RANDOM.normal(0, noise, ROWS))


def late(before: np.ndarray, after: float) -> np.ndarray:
    """Return a series that changes in the middle and stays so."""
    return np.where(np.arange(ROWS) < 60, before, after * np.exp(RANDOM.normal(0, 0.001, ROWS)))


FLAT = 0.3 + RANDOM.normal(0, 0.05, ROWS)
HEALTHY = {
    "reward": np.linspace(0.2, 0.8, ROWS) + RANDOM.normal(0, 0.05, ROWS),
    "reward_std": near(0.3),
    "gradient": near(0.5, 0.2),
    "entropy": np.linspace(0.6, 0.4, ROWS) + RANDOM.normal(0, 0.01, ROWS),
    "kl": np.linspace(0.0, 0.08, ROWS),
    "ratio": near(1.0, 0.01),
    "length": near(300.0),
    "truncated": near(0.01),
    "loss": near(0.1),
    "learning_rate": np.full(ROWS, 1e-6),
    "value_loss": near(0.1),
    "staleness": near(1.0),
}
SICK = {
    "no_signal": {"reward": FLAT, "reward_std": late(near(0.3), 0.0)},
    "zero_grad": {"reward": FLAT, "gradient": late(near(0.5), 0.0)},
    "truncation": {"reward": FLAT, "truncated": late(near(0.01), 0.6)},
    "entropy_collapse": {"reward": FLAT, "entropy": late(near(0.6), 0.001)},
    "entropy_explosion": {"reward": FLAT, "entropy": late(near(0.6), 3.0)},
    "kl_drift": {"reward": FLAT, "kl": late(near(0.02), 1.5)},
    "ratio_drift": {"reward": FLAT, "ratio": late(near(1.0, 0.01), 3.0)},
    "length_explosion": {"reward": FLAT, "length": late(near(100.0), 900.0)},
    "value_loss_spike": {"reward": FLAT, "value_loss": late(near(0.1), 5.0)},
    "stale": {"reward": FLAT, "staleness": late(near(1.0), 20.0)},
}


def case(values: dict[str, np.ndarray]) -> Case:
    """Return a case of signals at the steps 1, 2, …"""
    steps = np.arange(1, ROWS + 1)
    tracks = {key: Track(key, key, key, steps, np.asarray(series, float)) for key, series in values.items()}
    return Case(tracks, attempts=[LoggedAttempt(1, ROWS)])


def rules_with_findings(diagnosis: Diagnosis) -> set[str]:
    """Return the rules that found something."""
    tops = (*diagnosis.findings, *diagnosis.past)
    return {finding.rule for top in tops for finding in (top, *top.explains)}


def may_be_healthy(values: dict[str, np.ndarray]) -> bool:
    """Return whether enough is logged for that verdict."""
    besides = [key for key in HELPFUL if key in values]
    rises = values.get("reward") is HEALTHY["reward"]
    return "reward" in values and len(besides) >= 2 and (rises or any(key in values for key in LEARNT_FROM))


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(sorted(HEALTHY))))
def test_a_healthy_run_stays_healthy_or_cannot_be_told(dropped: set[str]):
    """Whatever is missing: never a warning, and healthy only where enough was looked at."""
    values = {key: series for key, series in HEALTHY.items() if key not in dropped}
    diagnosis = diagnose(case(values))
    assert diagnosis.verdict == ("healthy" if may_be_healthy(values) else "cannot tell"), diagnosis.findings
    assert bool(diagnosis.reasons) == (diagnosis.verdict == "cannot tell")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SICK)), st.sets(st.sampled_from(sorted(HEALTHY))))
def test_a_sick_run_is_not_healthy_for_lack_of_a_signal(rule: str, dropped: set[str]):
    """Its rule still finds it, or says what is missing; it is not called healthy where the rest cannot judge."""
    values = {key: series for key, series in {**HEALTHY, **SICK[rule]}.items() if key not in dropped}
    diagnosis = diagnose(case(values))
    if any(key in values for key in RULES[rule].needs):
        assert rule in rules_with_findings(diagnosis)
        assert diagnosis.verdict in ("watch", "sick")
    else:
        assert rule not in {note.rule for note in diagnosis.fine}
        assert rule in {note.rule for note in diagnosis.unmeasured}
    if not may_be_healthy(values):
        assert diagnosis.verdict != "healthy"


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(sorted(HEALTHY))))
def test_every_rule_is_accounted_for(dropped: set[str]):
    """It found something, found nothing, or says why it could not look, naming what the run does not log."""
    values = {key: series for key, series in HEALTHY.items() if key not in dropped}
    diagnosis = diagnose(case(values))
    fine, unmeasured = ({note.rule: note.text.en for note in notes} for notes in (diagnosis.fine, diagnosis.unmeasured))
    assert not fine.keys() & unmeasured.keys()
    assert values.keys() == set() or rules_with_findings(diagnosis) | fine.keys() | unmeasured.keys() == RULES.keys()
    for key in dropped & {"entropy", "gradient", "ratio"}:
        alone = [rule for rule in RULES.values() if rule.needs == (key,)]
        assert alone
        for rule in alone:
            assert unmeasured[rule.id] == f"the run does not log {signal_words([key]).en}"


@pytest.mark.parametrize("rows", [1, 5, 19])
def test_few_rows_are_not_healthy(rows: int):
    """Not even where all signals are logged."""
    diagnosis = diagnose(case(HEALTHY).upto(rows))
    assert diagnosis.verdict == "cannot tell"
    assert str(rows) in diagnosis.reasons[0].en


def test_sensors_that_never_move_do_not_count():
    """A reward beside columns that are not computed is a reward alone."""
    still = {**dict.fromkeys(("entropy", "kl", "loss"), np.zeros(ROWS)), "ratio": np.ones(ROWS)}
    diagnosis = diagnose(case({"reward": HEALTHY["reward"], **still}))
    assert diagnosis.verdict == "cannot tell"
    assert "little besides the reward" in diagnosis.reasons[0].en


def test_a_flat_reward_alone_does_not_show_that_something_is_learnt():
    """Without the gradient and the spread of rewards a dead run looks the same."""
    beside = {key: HEALTHY[key] for key in ("entropy", "kl", "length", "truncated")}
    diagnosis = diagnose(case({"reward": FLAT, **beside}))
    assert diagnosis.verdict == "cannot tell"
    assert "learns nothing" in diagnosis.reasons[0].en
    assert diagnose(case({"reward": FLAT, **beside, "gradient": HEALTHY["gradient"]})).verdict == "healthy"
    assert diagnose(case({"reward": HEALTHY["reward"], **beside})).verdict == "healthy"
