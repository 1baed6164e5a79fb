"""Rules on made-up runs: each fires on its own trouble, at its step, and says so in both languages."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.diagnosis.__main__ import page
from barograph.diagnosis.diagnose import Diagnosis, diagnose
from barograph.diagnosis.rule import Case, LoggedAttempt, number, signal_words, spells
from barograph.diagnosis.rules import RULES
from barograph.metrics.tracks import Track

ROWS = 120
RANDOM = np.random.default_rng(5)


def learning(rows: int = ROWS) -> np.ndarray:
    """Return a reward that rises with noise."""
    return np.linspace(0.2, 0.8, rows) + RANDOM.normal(0, 0.05, rows)


def still(level: float, noise: float = 0.05, rows: int = ROWS) -> np.ndarray:
    """Return a signal that stays at its level."""
    return level * np.exp(RANDOM.normal(0, noise, rows))


def healthy() -> dict[str, Any]:
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
        "kl_coef": still(0.05),
        "ended": still(0.98, 0.005),
        "repetition": still(0.01),
        "runs_failed": still(2.0),
        "runs_expected": np.full(ROWS, 512.0),
        "weight": still(1.0, 0.01),
        "weight_std": still(0.05),
        "advantage_mean": RANDOM.normal(0, 0.02, ROWS),
        "advantage_std": still(1.0, 0.02),
        "component": {"answer": learning(), "format": learning()},
        "component_std": {"answer": still(1.0), "format": still(0.3)},
        "phase": {"generate": still(40.0), "train": still(12.0), "score": still(1.0)},
        "per_token": {"generate": still(0.01), "train": still(0.01)},
        "slowest_rank": {"train": still(13.0)},
        "mean_rank": {"train": still(12.0)},
        "device_memory": {"train": still(0.8)},
    }


FAMILIES = ("component", "component_std", "phase", "per_token", "slowest_rank", "mean_rank", "device_memory")


def case(changes: Mapping[str, Any] | None = None, **facts: Any) -> Case:
    """Return a healthy case with some signals changed; None takes one away."""
    values = {**healthy(), **(changes or {})}
    families = {key: values.pop(key) or {} for key in FAMILIES}
    tracks = {key: track(key, series) for key, series in values.items() if series is not None}
    lists = {key: [track(f"{key}/{name}", one) for name, one in many.items()] for key, many in families.items()}
    lists["validation"] = facts.pop("validation", [])
    places = {f"{key}/{name}": {"phase": name, "component": name} for key, many in families.items() for name in many}
    return Case(tracks, lists, places=places, **facts)


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
    "kl_coef_growing": (
        {"kl_coef": np.geomspace(0.05, 0.5, ROWS) * still(1.0), "kl": np.linspace(0, 0.4, ROWS) + still(0.01)},
        "warning",
        38,
    ),
    "eos_loss": ({"reward": still(0.3), "ended": since(50, still(0.98, 0.005), 0.5)}, "warning", 54),
    "repetition": ({"reward": still(0.3), "repetition": since(50, still(0.01), 0.6)}, "warning", 52),
    "is_weight_odd": ({"weight_std": since(50, still(0.05), 3.0)}, "warning", 52),
    "advantage_odd": ({"advantage_mean": since(50, still(0.01), 1.5)}, "warning", 52),
    "dropped_rollouts": ({"runs_failed": since(50, still(2.0), 80.0)}, "warning", 53),
    "lr_exhausted": ({"learning_rate": since(50, np.full(ROWS, 1e-6), 0.0)}, "warning", 50),
    "phase_imbalance": ({"phase": {**healthy()["phase"], "train": still(2.0), "score": still(17.0)}}, "warning", 1),
    "stragglers": ({"slowest_rank": {"train": since(50, still(13.0), 30.0)}}, "warning", 54),
    "near_oom": ({"device_memory": {"train": np.linspace(0.8, 0.99, ROWS) + still(0.001)}}, "warning", 95),
    "stall": ({"step_time": since(50, still(60.0), [2000.0, *still(60.0)])}, "warning", 50),
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


def test_the_lowest_level_of_a_value_loss_is_not_above_its_highest():
    """A loss that is absurd from the first row on and falls is told with a range that has both."""
    falling = np.linspace(2000.0, 1500.0, ROWS)
    text = found(diagnose(case({"value_loss": falling})), "value_loss_spike").text.en
    most, lowest = (float(number) for number in re.findall(r"(?:up to|level is) ([\d.e+]+\d)", text))
    assert lowest <= most


def test_trouble_with_the_validation():
    """A reward that rises while the validation falls is gamed; so is one whose component falls."""
    validation = np.concatenate([np.linspace(0.1, 0.5, 6), np.linspace(0.5, 0.1, 8)])
    gamed = diagnose(case(validation=[track("validation", validation)]))
    # Evaluations are rarer than rows: here at the steps 1 to 14, so that the reward is compared up to there.
    assert found(gamed, "proxy_gold_gap") is None
    gamed = diagnose(case(validation=[evaluated(validation)]))
    assert found(gamed, "proxy_gold_gap").severity == "critical"
    assert abs(found(gamed, "proxy_gold_gap").onset - 48) <= 8
    falling = np.linspace(1, 0.2, ROWS) + RANDOM.normal(0, 0.05, ROWS)
    parts = {"component": {"answer": learning() * 2, "format": falling}}
    assert found(diagnose(case(parts)), "component_tradeoff").severity == "warning"


def evaluated(values: np.ndarray) -> Track:
    """Return a validation at every eighth step."""
    return Track("validation", "val", "validation", np.arange(8, 8 * len(values) + 1, 8), values)


def test_a_validation_that_stays_behind():
    """If it does not rise, it is a warning; if it follows, it is none; other scales cannot be compared."""
    behind = evaluated(np.full(14, 0.2) + RANDOM.normal(0, 0.01, 14))
    assert found(diagnose(case(validation=[behind])), "val_train_gap").severity == "warning"
    following = evaluated(np.linspace(0.2, 0.75, 14) + RANDOM.normal(0, 0.01, 14))
    assert found(diagnose(case(validation=[following])), "val_train_gap") is None
    early = Track("validation", "val", "validation", np.r_[-1, following.steps], np.r_[0.2, following.finite])
    assert found(diagnose(case(validation=[early])), "val_train_gap") is None  # there is no training to compare it with
    early = Track("validation", "val", "validation", np.r_[-1, behind.steps], np.r_[0.2, behind.finite])
    assert "nan" not in found(diagnose(case(validation=[early])), "val_train_gap").text.en
    large = evaluated(np.linspace(20, 75, 14))
    assert "not both shares" in reasons(diagnose(case(validation=[large])))["val_train_gap"]
    assert "fewer than six" in reasons(diagnose(case()))["val_train_gap"]


def test_a_gain_of_the_format_alone():
    """After 200 steps in which the component with the largest deviation has no trend."""
    rows, flat = 120, still(0.3)
    parts = {"answer": flat, "format": np.linspace(0, 1, rows) + RANDOM.normal(0, 0.05, rows)}
    changes = {"component": parts, "reward": parts["answer"] + parts["format"]}
    assert found(diagnose(case(changes)), "format_only_gain") is None  # too early to say
    sparse = case(changes)
    longer = replace(
        sparse,
        tracks={key: replace(one, steps=3 * one.steps) for key, one in sparse.tracks.items()},
        families={key: [replace(one, steps=3 * one.steps) for one in many] for key, many in sparse.families.items()},
    )
    finding = found(diagnose(longer), "format_only_gain")
    assert finding.severity == "warning"
    assert "component/answer, which differs most" in finding.text.en
    assert "no components" in reasons(diagnose(case({"component": None})))["format_only_gain"]


def test_a_run_that_comes_to_a_halt():
    """By the time between its rows: a warning after ten minutes, critical after half an hour; a long step is none."""
    for silence, severity in ((60, None), (700, "warning"), (4000, "critical")):
        finding = found(diagnose(case(silence=silence, pace=60.0)), "stalled")
        assert (finding and finding.severity) == severity
    assert found(diagnose(case(silence=4000, pace=1000.0)), "stalled") is None
    assert "is over" in reasons(diagnose(case()))["stalled"]


def test_steps_that_are_missing():
    """A gap is an info; a log with a row every ten steps has none."""
    known = case()
    gap = {
        key: replace(one, steps=np.where(one.steps > 60, one.steps + 40, one.steps))
        for key, one in known.tracks.items()
    }
    assert found(diagnose(replace(known, tracks=gap)), "log_gap").text.en.startswith("41 steps before step 101")
    sparse = {key: replace(one, steps=10 * one.steps) for key, one in known.tracks.items()}
    assert found(diagnose(replace(known, tracks=sparse)), "log_gap") is None


def test_several_updates_that_clip_nothing():
    """Only where the config has several updates: else nothing can be clipped, or it is not known."""
    zeros = {"clipped": np.zeros(ROWS), "step_kl": np.zeros(ROWS)}
    several = {"num_ppo_epochs": 4, "num_mini_batches": 1}
    assert found(diagnose(case(zeros, config=several)), "clipfrac_zero").severity == "info"
    assert found(diagnose(case(config=several)), "clipfrac_zero") is None
    assert "one update per batch" in reasons(diagnose(case(zeros, config={"ppo_n_minibatches": 1})))["clipfrac_zero"]
    assert "does not say" in reasons(diagnose(case(zeros)))["clipfrac_zero"]


def test_restarts_and_crash_loops():
    """Many short attempts are a loop; one repeated run is a restart."""
    loop = diagnose(case(attempts=[LoggedAttempt(1, 1)] * 9))
    assert found(loop, "crash_loop").severity == "critical"
    again = diagnose(case(attempts=[LoggedAttempt(1, 50), LoggedAttempt(1, 120)]))
    assert found(again, "restart").severity == "warning"
    resumed = diagnose(case(attempts=[LoggedAttempt(1, 60), LoggedAttempt(58, 120)]))
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


def reasons(diagnosis: Diagnosis) -> dict[str, str]:
    """Return why rules could not judge."""
    return {note.rule: note.text.en for note in diagnosis.unmeasured}


CANNOT: dict[str, tuple[dict[str, Any], str]] = {
    "kl_drift": ({"kl": np.zeros(ROWS)}, "always 0: it is not computed, or cannot change"),
    "clipfrac_high": ({"clipped": np.zeros(ROWS)}, "one update per batch"),
    "kl_coef_growing": ({"kl_coef": np.full(ROWS, 0.05)}, "fixed at 0.05"),
    "eos_loss": ({"ended": np.zeros(ROWS)}, "0 from the start"),
    "repetition": ({"repetition": None}, "does not log"),
    "is_weight_odd": ({"weight": None, "weight_std": None}, "does not log"),
    "advantage_odd": ({"advantage_std": still(40.0)}, "not normalised: advantage_std starts at 4"),
    "dropped_rollouts": ({"runs_failed": None}, "does not log"),
    "lr_exhausted": ({}, "how many steps are planned"),
    "phase_imbalance": ({"per_token": None}, "no phase has a time per token"),
    "stragglers": ({"mean_rank": None}, "does not log"),
    "near_oom": ({"device_memory": None}, "does not log"),
    "stall": ({"step_time": None}, "does not log"),
    "memory_leak": ({"host_memory": None}, "does not log"),
    "slowdown": ({"step_time": still(60.0, rows=30)}, "it needs 43 logged steps; so far: 30"),
}


@pytest.mark.parametrize("rule", CANNOT)
def test_a_rule_says_why_it_cannot_judge(rule: str):
    """In its own words, and in Chinese too."""
    changes, words = CANNOT[rule]
    diagnosis = diagnose(case(changes))
    assert words in reasons(diagnosis)[rule]
    assert all("{" not in note.text.en + note.text.zh for note in diagnosis.unmeasured)


def test_a_phase_that_contains_others_is_not_judged():
    """Its own part of the step is not known."""
    nested = {**healthy()["phase"], "update": still(20.0)}
    assert found(diagnose(case({"phase": nested})), "phase_imbalance") is None


def test_memory_that_is_filled_once_is_no_leak():
    """Neither a jump nor a growth that ends."""
    jump = since(20, still(130.0, 0.002), still(157.0, 0.002))
    filled = 100 + 40 * (1 - np.exp(-np.arange(ROWS) / 12)) + RANDOM.normal(0, 0.2, ROWS)
    for memory in (jump, filled):
        assert found(diagnose(case({"host_memory": memory})), "memory_leak") is None


def test_what_cannot_be_judged_is_said():
    """With the reason; and a run without a reward, or with few rows, is not called healthy."""
    assert "beta = 0" in reasons(diagnose(case({"kl": np.zeros(ROWS)}, config={"beta": 0})))["kl_drift"]
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
    assert docs.read_text(encoding="utf-8") == page(), "run python -m barograph.diagnosis"


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


def test_spells_are_those_of_a_walk_over_the_rows():
    """For any levels, persistence and gap."""
    for seed in range(40):
        random = np.random.default_rng(seed)
        levels = np.repeat(random.choice([0, 0, 1, 2, 3], 30), random.integers(1, 9, 30)).astype(np.int8)
        persist, clean = int(random.integers(1, 7)), int(random.integers(1, 12))
        found = [(one.first, one.last, one.level, one.is_open) for one in spells(levels, persist, clean)]
        assert found == slow_spells(levels, persist, clean), seed


def test_a_busy_machine_is_no_slowdown_of_the_run():
    """If all phases are slower by about the same, it is an info."""
    slower = np.linspace(1, 2.5, ROWS)
    phases = {name: values * slower for name, values in healthy()["phase"].items()}
    changes = {"step_time": still(60.0, 0.02) * slower, "phase": phases}
    assert found(diagnose(case(changes)), "slowdown").severity == "info"
    one = {**healthy()["phase"], "train": still(12.0) * np.linspace(1, 8, ROWS)}
    changes = {"step_time": still(48.0, 0.02) + one["train"], "phase": one}
    finding = found(diagnose(case(changes)), "slowdown")
    assert finding.severity == "warning"
    assert "Most of it is train" in finding.text.en


def test_one_evaluation_is_enough_where_the_number_of_answers_is_known():
    """Five standard errors below the best; a smaller fall is noise."""
    for last, severity in ((0.08, "critical"), (0.27, None)):
        validation = evaluated(np.array([0.02, 0.12, 0.18, 0.31, last]))
        track = replace(validation, metric="validation/score/mean")
        finding = found(diagnose(case({"evaluated": np.full(ROWS, 256.0)}, validation=[track])), "proxy_gold_gap")
        assert (finding and finding.severity) == severity
    unknown = found(diagnose(case(validation=[evaluated(np.array([0.02, 0.12, 0.18, 0.31, 0.08]))])), "proxy_gold_gap")
    assert unknown is None
