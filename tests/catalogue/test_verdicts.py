"""The crucial values are judged from summaries of their series."""

import math

import pytest

from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.verdicts import CRUCIAL, WORDS, judge_crucial_values, summarise


def verdict(
    name: str, values: list[float], source: str = "windsock:trl", key: str | None = None, **others: list[float]
):
    """Return the verdict on one series, with other series by name."""
    found = judge_crucial_values({name: values} | others, source)
    return next(each for each in found if each.name == name and key in (None, each.key))


RISING = [0.1 + 0.01 * step + 0.02 * (step % 3) for step in range(40)]
FLAT = [0.5 + 0.05 * (step % 2) for step in range(40)]


def test_crucial_metrics_are_those_with_conditions():
    """A metric is crucial exactly when a condition is declared on it."""
    declared = {id for crucial in CRUCIAL for id, _ in crucial.conditions}
    assert {metric.id for metric in REGISTRY.metrics() if metric.crucial} == declared


@pytest.mark.parametrize("name", ["objective/rlhf_reward", "objective/scores"])
def test_the_reward_should_rise(name: str):
    """Rising is good, falling is bad, flat is watch, and few points give no verdict."""
    assert verdict(name, RISING).word == "good"
    assert verdict(name, RISING[::-1]).word == "bad"
    assert verdict(name, FLAT).word == "watch"
    assert verdict(name, RISING[:10]).word == "unknown"


@pytest.mark.parametrize(
    ("level", "word"), [(4.0, "good"), (-0.2, "good"), (-1.5, "bad"), (30.0, "watch"), (500.0, "bad")]
)
def test_the_kl_stays_positive_and_bounded(level: float, word: str):
    """A small negative estimate is noise; a clear one, or a large one, is not."""
    assert verdict("objective/kl", [level] * 30).word == word


def test_the_value_loss_must_not_spike():
    """Ten times the median is a spike, past or present; a fall to 0 is bad."""
    calm = [1.0 + 0.1 * (step % 2) for step in range(40)]
    assert verdict("loss/value_avg", calm).word == "good"
    assert verdict("loss/value_avg", [*calm, 50.0, *calm]).word == "watch"
    assert verdict("loss/value_avg", [*calm, *([40.0] * 5)]).word == "bad"
    assert verdict("loss/value_avg", [*calm, *([0.0] * 6)]).word == "bad"


@pytest.mark.parametrize(
    ("level", "word"), [(1.01, "good"), (1.15, "good"), (1.4, "watch"), (2.5, "bad"), (0.05, "bad")]
)
def test_the_ratio_stays_near_one(level: float, word: str):
    """Inside the clip range is good; 2 or 0.1 is bad. Exactly 1 throughout says nothing, see test_config_facts."""
    assert verdict("val/ratio", [level] * 30).word == word


@pytest.mark.parametrize("parts", [2, 4])
def test_a_diluted_ratio_of_trl_is_no_alarm(parts: int):
    """A healthy run with several mini-batches logs 1/m; the verdict reports that and does not judge."""
    found = verdict("val/ratio", [1.0 / parts + 0.001 * (step % 2) for step in range(30)], "trl/ppo")
    assert found.word == "unknown"
    assert f"1/{parts}" in found.text.en
    assert found.note is not None


def test_clip_fraction_and_kl_are_judged_together():
    """High alone is watch, high with a high KL is bad, and a constant 0 is unknown."""
    high, low = [0.45] * 30, [0.02] * 30
    assert verdict("policy/clipfrac_avg", low).word == "good"
    assert verdict("policy/clipfrac_avg", high).word == "watch"
    assert verdict("policy/clipfrac_avg", high, **{"policy/approxkl_avg": [0.3] * 30}).word == "bad"
    assert verdict("policy/clipfrac_avg", high, **{"policy/approxkl_avg": [0.001] * 30}).word == "watch"
    assert verdict("policy/clipfrac_avg", [0.0] * 30).word == "unknown"


def test_a_growing_kl_coefficient_gives_a_watch():
    """Twice the first value means that the coefficient fails to limit the KL."""
    assert verdict("objective/kl_coef", [0.05] * 30).word == "good"
    assert verdict("objective/kl_coef", [0.05 * 1.1**step for step in range(30)]).word == "watch"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_bad(bad: float):
    """NaN and infinity are never good, and are counted."""
    found = verdict("val/ratio", [1.0, bad, 1.0])
    assert found.word == "bad"
    assert "1 of 3" in found.text.en
    assert verdict("val/ratio", [bad]).word == "bad"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            "windsock:roll",
            [
                "critic/score/mean",
                "actor/kl_loss",
                "critic/loss",
                "actor/ratio_mean",
                "actor/clipfrac",
                "actor/approxkl",
            ],
        ),
        (
            "windsock:trinity",
            ["critic/score/mean", "actor/kl_loss", "critic/vf_loss", "actor/pg_clipfrac", "actor/ppo_kl"],
        ),
        ("verl", ["critic/score/mean", "actor/kl_loss", "critic/vf_loss", "actor/pg_clipfrac", "actor/ppo_kl"]),
        ("trl/grpo", ["reward", "kl", "clip_ratio/region_mean"]),
        ("slime", ["rollout/raw_reward", "train/kl_loss", "train/ois", "train/pg_clipfrac", "train/ppo_kl"]),
    ],
)
def test_every_vocabulary_has_its_crucial_values(source: str, names: list[str]):
    """Each of these names is judged in every framework."""
    found = judge_crucial_values({name: [1.0] * 30 for name in names}, source)
    assert {each.name for each in found} == set(names)


def test_one_metric_is_judged_once():
    """Where the score is the only reward, it appears once."""
    found = judge_crucial_values({"critic/score/mean": RISING}, "windsock:roll")
    assert [each.key for each in found] == ["reward"]


def test_a_sign_is_inverted_before_judging():
    """ROLL's negative policykl is judged as a positive estimate."""
    assert verdict("actor/policykl", [-0.01] * 30, "roll").word == "good"
    assert verdict("actor/policykl", [-0.5] * 30, "roll").word == "bad"


def test_a_number_that_cannot_be_compared_is_not_judged():
    """Where the framework's number is not comparable, the verdict is unknown, with the reason."""
    found = verdict("critic/loss", [1.0] * 30, "roll")
    assert found.note is not None
    diluted = judge_crucial_values({"objective/kl": [3.0] * 30}, "trl/online-dpo")[0]
    assert diluted.word == "unknown"
    assert "padding" in diluted.text.en


def test_verdicts_are_in_both_languages():
    """Every word and sentence of a verdict is in English and in Chinese."""
    series = {
        "objective/scores": RISING,
        "objective/kl": [3.0] * 30,
        "val/ratio": [1.0] * 30,
        "policy/clipfrac_avg": [0.5] * 30,
    }
    for each in judge_crucial_values(series, "windsock:trl"):
        assert each.text.en
        assert each.text.zh
        assert each.word in WORDS
        assert any("一" <= char <= "鿿" for char in each.title.zh + each.text.zh)


def test_a_series_is_summarised_over_its_finite_values():
    """Statistics are over finite values; an empty series has no summary."""
    taken = summarise([1.0, math.nan, 3.0, 5.0])
    assert taken is not None
    assert (taken.count, taken.nonfinite, taken.first, taken.last, taken.low, taken.high) == (4, 1, 1.0, 5.0, 1.0, 5.0)
    assert (taken.median, taken.early, taken.late) == (3.0, 1.0, 5.0)
    assert taken.noise == pytest.approx(0.0, abs=1e-12)
    assert summarise([]) is None


def test_a_series_that_rose_and_is_flat_has_risen():
    """A reward that reached its maximum counts as risen."""
    curve = [min(0.98, 0.25 + step * 0.1) + (step % 3) * 0.05 for step in range(100)]
    [reward, *_] = judge_crucial_values({"critic/score/mean": curve}, "windsock:roll")
    assert (reward.word, reward.text.en.partition(",")[0]) == ("good", "has risen")


def test_a_past_spike_is_reported():
    """A KL that returned to its band after a spike gives a watch."""
    curve = [0.6] * 40 + [29.3] + [0.6] * 60
    [kl] = judge_crucial_values({"actor/kl_loss": curve}, "windsock:roll")
    assert kl.word == "watch"
    assert "after a spike to 29.3" in kl.text.en


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
def test_values_at_the_ends_of_floats_are_judged_without_a_warning(value: float):
    """Their squares overflow; a warning would be an error here."""
    series = {"critic/value_loss": [0.0, value, -value, value], "critic/score/mean": [value, 1.0]}
    assert judge_crucial_values(series, "windsock:roll")
