"""How sure findings are, and what speaks against them."""

import json

import numpy as np

from barograph.diagnosis.diagnose import diagnose
from barograph.diagnosis.rule import Case, LoggedAttempt
from barograph.journal.findings import Finding
from barograph.metrics.tracks import Track

ROWS = 120
RANDOM = np.random.default_rng(3)
RISING = np.linspace(0.2, 0.8, ROWS) + RANDOM.normal(0, 0.03, ROWS)
FLAT = 0.3 + RANDOM.normal(0, 0.05, ROWS)


def finding(rule: str, reward: np.ndarray, **values: np.ndarray) -> Finding:
    """Return the finding of a rule about a run with a reward and some more signals."""
    steps = np.arange(1, ROWS + 1)
    known = {"reward": reward, **values}
    tracks = {key: Track(key, key, key, steps, np.asarray(series, float)) for key, series in known.items()}
    diagnosis = diagnose(Case(tracks, attempts=[LoggedAttempt(1, ROWS)]))
    return next(one for one in diagnosis.findings if one.rule == rule)


def cut(first: int, last: int = ROWS) -> np.ndarray:
    """Return a share of answers that are cut between two steps."""
    steps = np.arange(1, ROWS + 1)
    return np.where((steps >= first) & (steps <= last), 0.95, 0.0)


def test_what_has_held_for_long_is_sure():
    """And what has just begun is not."""
    assert finding("truncation", FLAT, truncated=cut(40)).confidence == "high"
    assert finding("truncation", FLAT, truncated=cut(40)).against == ()
    assert finding("truncation", FLAT, truncated=cut(112)).confidence == "low"


def test_a_reward_that_rises_speaks_against_it():
    """Unless the rule doubts the reward."""
    disputed = finding("ratio_drift", RISING, ratio=1 + 0.4 * cut(30))
    assert disputed.confidence == "medium"
    assert [text.en for text in disputed.against] == ["the reward still rises"]
    assert [text.zh for text in disputed.against] == ["奖励仍在上升"]
    stopped = np.where(np.arange(ROWS) < 50, RISING, RISING[49] + RANDOM.normal(0, 0.03, ROWS))
    assert finding("ratio_drift", stopped, ratio=1 + 0.4 * cut(30)).against == ()


def test_rows_without_it_speak_against_it():
    """While it is not yet closed."""
    ended = finding("truncation", FLAT, truncated=cut(30, 110))
    assert ended.is_open
    assert "does not show in the last logged steps" in ended.against[0].en
    assert ended.confidence == "medium"


def test_a_fact_is_sure_at_once():
    """One value that is not finite is one."""
    assert finding("nonfinite", FLAT, loss=np.where(np.arange(ROWS) == 118, np.nan, 0.1)).confidence == "high"


def test_both_survive_a_round_trip_and_may_be_missing():
    """A record of an earlier version has neither."""
    disputed = finding("ratio_drift", RISING, ratio=1 + 0.4 * cut(30))
    record = json.loads(json.dumps(disputed.record()))
    assert Finding.of_record(record) == disputed
    del record["confidence"], record["against"]
    assert Finding.of_record(record).against == ()
