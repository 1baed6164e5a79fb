"""A finding that is over stays with what it has left behind."""

import numpy as np
import pytest
from rule_cases import run

from barograph.diagnosis.diagnose import Diagnosis, diagnose

ROWS = 400


def few_samples_after_old_rollouts(old: range, few: int) -> Diagnosis:
    """Diagnose a run whose rollouts are old in some rows, and whose updates have few samples from a step on."""
    staleness, size = np.zeros(ROWS), np.full(ROWS, 0.9)
    staleness[old] = 20
    size[few - 3 :] = 0.1  # a median of five rows is low from the third on
    return diagnose(run(ROWS, staleness=staleness, sample_size=size, reward="rise"))


@pytest.mark.parametrize(("old", "last_left"), [(range(10, 40), 45 + 50), (range(10, 240), 245 + (245 - 13) // 2)])
def test_a_cause_leaves_what_begins_within_fifty_steps_or_half_its_length(old: range, last_left: int):
    """What begins later is a trouble of its own, and the cause is past."""
    left = few_samples_after_old_rollouts(old, last_left)
    assert [finding.rule for finding in left.findings] == ["stale"]
    assert [finding.rule for finding in left.findings[0].explains] == ["ess_low"]
    assert left.past == ()
    own = few_samples_after_old_rollouts(old, last_left + 1)
    assert [finding.rule for finding in own.findings] == ["ess_low"]
    assert [finding.rule for finding in own.past] == ["stale"]


def test_what_began_before_a_cause_is_not_left_by_it():
    """The cause is over, and explains nothing that is there now."""
    before = few_samples_after_old_rollouts(range(100, 140), 50)
    assert [finding.rule for finding in before.findings] == ["ess_low"]
    assert [finding.rule for finding in before.past] == ["stale"]


def test_a_cause_that_is_over_and_comes_again_is_told_once():
    """As it is now: what it was before is not a finding of its own."""
    staleness = np.zeros(ROWS)
    staleness[50:100] = staleness[300:] = 20
    diagnosis = diagnose(run(ROWS, staleness=staleness, reward="rise"))
    assert [(finding.rule, finding.onset > 290) for finding in diagnosis.findings] == [("stale", True)]
