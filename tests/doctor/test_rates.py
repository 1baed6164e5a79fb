"""How often rules are right: the measured figures, the page docs/doctor.md and the rules agree."""

from pathlib import Path

import pytest

from barograph.diagnosis import rates
from barograph.diagnosis.__main__ import page
from barograph.diagnosis.rates import measured, rate_of
from barograph.diagnosis.rules import RULES

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"


def test_only_rules_that_exist_have_figures():
    """And a figure is a number of runs of its kind."""
    assert measured()["rules"].keys() <= RULES.keys(), "run scripts/bench doctor judge FOLDER --demos DIR --write"
    for origin in rates.ORIGINS:
        total = sum(measured()["runs"][origin].values())
        assert total > 0
        for counts in measured()["rules"].values():
            assert sum(counts[origin].values()) <= total


def test_every_rule_has_its_rate_on_the_page():
    """In its own part, and the page has the number of runs."""
    text = DOCS.read_text(encoding="utf-8")
    for rule in RULES:
        part = text.split(f"#### `{rule}`")[1].split("####")[0]
        assert f"Measured: {rate_of(rule).en}." in part
    for origin in rates.ORIGINS:
        assert f"{sum(measured()['runs'][origin].values())} " in text.split("## How often it is right")[1]


def test_a_rule_without_figures_is_not_measured_yet(monkeypatch: pytest.MonkeyPatch):
    """It is not given the rate of others."""
    known = {**measured(), "rules": {}}
    monkeypatch.setattr(rates, "measured", lambda: known)
    assert rate_of("no_signal").en == "not measured yet"
    assert page().count("Measured: not measured yet.") == len(RULES)


def test_a_rate_says_what_it_is_out_of(monkeypatch: pytest.MonkeyPatch):
    """Also where no run has the trouble, or no healthy run can be judged."""
    none = {"hits": 0, "misses": 0, "false_alarms": 0, "silent": 0, "cannot_judge": 8}
    some = {"hits": 5, "misses": 1, "false_alarms": 1, "silent": 7, "cannot_judge": 0}
    known = {"rules": {"no_signal": {"real": some, "demo": none}}}
    monkeypatch.setattr(rates, "measured", lambda: known)
    assert rate_of("no_signal").en == (
        "real runs: found in 5 of 6 that have it, a false alarm on 1 of 8; "
        "the demo: no run has it, no run without it logs what it needs"
    )
    assert rate_of("no_signal").zh.startswith("真实实验：6 个有此问题的实验中发现 5 个，")
