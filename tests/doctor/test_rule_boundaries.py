"""Every rule of the doctor, on both sides of each of its limits; and that no limit can be shifted unseen."""

from collections import Counter
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from rule_cases import LADDERS, levels_of
from rule_mutants import Change, changes

from barograph.diagnosis.rule import Case, Rule, RuleReading
from barograph.diagnosis.rules import RULES

UNHELD = {
    # No run is on the limit: the number is computed, and no value of it is exactly that.
    "truncation: share >= ALMOST_ALL": 1,
    "mismatch: now > low": 1,
    "mismatch: now > high": 1,
    "mismatch: now > 3 * abs(track.first(10))": 1,
    "ratio_drift: np.abs(now - 1) > 0.2": 1,
    "ratio_drift: abs(ratio.first(20) * parts - 1) < 0.03": 1,
    "grad_spike: gradient.outlying() > 6": 1,
    "reward_saturated: np.abs(now - before) < 0.02 * gained": 1,
    "_fell_for_sure: values[best] - values[-1] > 5 * np.sqrt(errors[best] + errors[-1])": 1,
    "_wider: wider <= 0.1": 1,
    "_wider: wider > 0.2": 1,
    "_rounded: np.abs(values * 1000 - np.round(values * 1000)) < 1e-06": 1,
    "_all_phases_slow: start > 0.05 * times.first(FIRST_STEPS + 20)": 1,
    "_all_phases_slow: least > 1.3": 1,
    "_leak: low > 1.05 * start": 1,
    "_grows_evenly: total > 0.33 * start": 1,
    "_has_grown: low - start > MIN_LEAK": 1,
    "_gap: 2": 1,
    # What is divided by 0 is no finite number, and counts as none.
    "dropped_rollouts: total > 0": 1,
    "_summed_per_token: lengths > 0": 1,
    "slowdown: lengths > 0": 1,
    "_own_share: step.finite > 0": 1,
    "stragglers: usual > 0": 1,
    # Another condition is the stricter one, in every run.
    "is_weight_odd: 1.0": 1,
    "_summed_kl_drift: 1.0": 1,
    "kl_drift: 1.0": 1,
    "grad_rising: 0.001": 1,
    "_gap_after: 0.0": 1,
    "_gap_after: 0.01": 1,
    "_gap_after: 1.0": 1,
    "_wider: 0.01": 1,
    "slowdown: 1.0": 1,
    "slowdown: 20": 1,
    "_grows_evenly: len(memory) > 12": 1,
    "_has_grown: 30": 1,
    "_has_grown: 1e-06": 1,
    # Only the sentence needs it, or it is the first of equal values, or a default that no run gets.
    "advantage_odd: 5": 1,
    "_kl: 0": 1,
    "_kl: 0.0": 1,
    "kl_coef_growing: 0": 1,
    "clipfrac_zero: 0.0": 1,
    "_with_gradient: 20": 1,
    "reward_flat: 1": 1,
    "reward_flat: 3": 1,
    "reward_falling: 1": 1,
    "reward_falling: 1e-12": 1,
    "_streak: 0": 1,
    "_gap: 0": 3,
    "_gap: 1": 3,
    "_gap_after: 1e-12": 1,
    "_holds: 0": 1,
    "_smoothed: 1": 1,
    "component_tradeoff: 0": 1,
    "format_only_gain: name != main": 1,
    "format_only_gain: 1": 1,
    "format_only_gain: 10": 2,
    "val_train_gap: 0": 1,
    "_wider: 0": 1,
    "_wider: 0.0": 1,
    "_rounded: 0": 1,
    "living: 0": 1,
    "check_moves: 0": 1,
    "noise: 0.0": 1,
    "restart: 1": 1,
    "_worst: 0": 1,
    "_worst: 10": 1,
    "_leak: 1": 1,
    "log_gap: 0": 1,
    "log_gap: 1": 2,
    "log_gap: 1.0": 2,
    "log_gap: len(gaps) > 1": 1,
    "dead_sensor: 0": 1,
    "dead_sensor: 0.0": 1,
}
"""How many changes of a function or constant no ladder notices, and why."""


def wrong(rule: Rule) -> list[str]:
    """Return where a rule does not say what its ladders have."""
    found = []
    for number, (build, said) in enumerate(LADDERS[rule.id]):
        found += [
            f"{rule.id}, ladder {number}, at {value!r}: {now}, not {levels}"
            for value, levels in said.items()
            if (now := levels_of(rule, build(value))) != levels
        ]
    return found


def is_noticed(change: Change) -> bool:
    """Return whether a change makes a rule say something else, or fail."""
    with change.made():
        for rule in change.rules:
            for build, said in LADDERS[rule]:
                for value, levels in said.items():
                    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                        if levels_of(RULES[rule], build(value)) == levels:
                            continue
                    return True
    return False


def test_every_rule_says_what_it_should_on_both_sides_of_its_limits():
    """At each row, with the row where the finding begins."""
    assert LADDERS.keys() == RULES.keys()
    assert [line for rule in RULES.values() for line in wrong(rule)] == []


def test_no_rule_can_be_switched_off():
    """Every rule has a ladder on which it finds something, and one step of it on which it finds less."""
    for rule in RULES.values():
        silent = Rule(rule.id, rule.needs, partial(_nothing, rule), rule.explains, rule.persist, rule.words)
        assert wrong(silent), rule.id
        assert len({levels for _, said in LADDERS[rule.id] for levels in said.values()}) > 1, rule.id


def _nothing(rule: Rule, case: Case) -> RuleReading:
    reading = rule.judge(case)
    return RuleReading(reading.track, np.zeros_like(reading.levels))


def test_no_limit_can_be_shifted():
    """Each number a little larger, and each comparison strict or not: some ladder says otherwise."""
    assert dict(Counter(change.place for change in changes() if not is_noticed(change)) - Counter(UNHELD)) == {}


def test_a_change_of_a_rule_is_undone():
    """The ladders hold after it, also after one that fails."""
    with pytest.raises(ZeroDivisionError), next(changes()).made():
        raise ZeroDivisionError
    assert not any(wrong(rule) for rule in RULES.values())
