"""The signs of a run: each crucial value has a word, which comes from the findings of the doctor's rules."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from barograph.catalogue.headline import crucial_values
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import RunNames
from barograph.diagnosis.diagnose import Diagnosis, diagnose
from barograph.diagnosis.rules import RULES
from barograph.diagnosis.signals import RULES_OF, WORDS, Sign, collect

RANDOM = np.random.default_rng(3)
RISING = (np.linspace(0.1, 0.6, 60) + RANDOM.normal(0, 0.02, 60)).tolist()


def diagnosis(
    series: Mapping[str, Sequence[float]], source: str | None = "barograph:trl", config: Mapping[str, Any] | None = None
) -> Diagnosis:
    """Return the diagnosis of some series."""
    names = RunNames(series, source=source, config=config or {}, series=lambda name: series[name])

    def read(name: str) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(series[name])), np.array(series[name], float)

    return diagnose(collect(names, read, config=config or {}))


def signs(series: Mapping[str, Sequence[float]], *given: Any, **more: Any) -> dict[str, Sign]:
    """Return the signs of some series, by key."""
    return {sign.key: sign for sign in diagnosis(series, *given, **more).signs}


def around(level: float, rows: int = 60) -> list[float]:
    """Return values around a level."""
    return (level * np.exp(RANDOM.normal(0, 0.02, rows))).tolist()


def test_crucial_metrics_have_rules():
    """A metric is crucial exactly when it is listed, and each crucial value is judged by rules."""
    assert {metric.id for metric in REGISTRY.metrics() if metric.crucial} == {
        id for one in crucial_values() for id in one.metrics
    }
    assert RULES_OF.keys() == {crucial.key for crucial in crucial_values()}
    assert {rule for rules in RULES_OF.values() for rule in rules} <= RULES.keys()


def test_the_reward_should_rise():
    """Rising is good, falling is bad, and flat or few points are not clear."""
    assert signs({"objective/scores": RISING})["reward"].word == "good"
    assert signs({"objective/scores": RISING[::-1]})["reward"].word == "bad"
    assert signs({"objective/scores": around(0.5)})["reward"].word == "unknown"
    assert signs({"objective/scores": RISING[:10]})["reward"].text.en == "it needs 20 logged steps; so far: 10"
    jumped = [0.1] * 5 + around(0.9, 95)
    assert signs({"objective/scores": jumped})["reward"].text.en.startswith("has risen, 0.1")


def test_a_trend_of_the_reward_has_to_be_clear():
    """It rises where chance would do it in less than 1 %; it has risen where it is three deviations above its start."""
    noise, line = np.random.default_rng(1).normal(size=60), np.linspace(0, 1, 60)
    for rise, words in ((1.285, "no clear trend, 0.244 → 0.926"), (1.287, "rising, 0.245 → 0.928")):
        assert signs({"objective/scores": (noise + rise * line).tolist()})["reward"].text.en == words
    for level, words in ((0.299, "no clear trend, 0.259 → 0.299"), (0.301, "has risen, 0 → 0.301, and is flat now")):
        flat = [0.0] * 3 + (level + np.resize([0.1, -0.1], 57)).tolist()
        assert signs({"objective/scores": flat})["reward"].text.en == words


def test_reward_and_score_are_two_signs_where_both_are_logged():
    """Where the score is the only reward, it is listed once."""
    both = signs({"objective/rlhf_reward": RISING, "objective/scores": RISING})
    assert (both["reward"].name, both["score"].name) == ("objective/rlhf_reward", "objective/scores")
    assert list(signs({"objective/scores": RISING})) == ["reward"]


@pytest.mark.parametrize(
    ("level", "word"), [(4.0, "good"), (30.0, "good"), (500.0, "bad"), (-0.2, "good"), (-1.5, "watch")]
)
def test_the_kl_stays_positive_and_bounded(level: float, word: str):
    """By nats per token: answers of 100 tokens may be 30 nats away; a clearly negative estimate is wrong."""
    series = {"objective/kl": around(level), "completions/mean_length": around(100.0), "objective/scores": around(0.5)}
    assert signs(series)["kl"].word == word


def test_the_value_loss_must_not_explode():
    """Ten times its lowest level is worth a look, and a hundred times is bad."""
    for now, word in ((1.0, "good"), (15.0, "watch"), (500.0, "bad")):
        assert signs({"loss/value_avg": around(1.0) + around(now, 20)})["value_loss"].word == word


@pytest.mark.parametrize(("level", "word"), [(1.01, "good"), (1.4, "watch"), (2.5, "bad"), (0.05, "bad")])
def test_the_ratio_stays_near_one(level: float, word: str):
    """Inside the clip range is good; 2 or 0.1 is bad."""
    assert signs({"val/ratio": around(level)})["ratio"].word == word


def test_the_clip_fraction_is_judged_where_it_moves():
    """High without a reward that rises is worth a look; a constant 0 says nothing."""
    assert signs({"policy/clipfrac_avg": around(0.02)})["clip"].word == "good"
    assert signs({"policy/clipfrac_avg": around(0.45)})["clip"].word == "watch"
    assert signs({"policy/clipfrac_avg": [0.0] * 60})["clip"].word == "unknown"
    both = signs({"policy/clipfrac_avg": around(0.45), "policy/approxkl_avg": around(0.3)})
    assert both["kl_now"].word == "bad"


def test_a_growing_kl_coefficient_is_worth_a_look():
    """If the KL grows in spite of it; a constant one adapts nothing."""
    growing = [0.05 * 1.05**step for step in range(60)]
    rising = (np.linspace(1, 20, 60) + RANDOM.normal(0, 0.3, 60)).tolist()
    assert signs({"objective/kl_coef": growing, "objective/kl": rising})["kl_coef"].word == "watch"
    assert signs({"objective/kl_coef": growing, "objective/kl": around(5.0)})["kl_coef"].word == "good"
    fixed = signs({"objective/kl_coef": [0.05] * 60, "objective/kl": rising})["kl_coef"]
    assert (fixed.word, "fixed at 0.05" in fixed.text.en) == ("unknown", True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_bad(bad: float):
    """It is never good, and is counted; other values are judged by themselves."""
    found = signs({"val/ratio": [1.0, bad, *around(1.0, 8)], "objective/scores": RISING[:10]})
    assert (found["ratio"].word, "1 of 9 rows" in found["ratio"].text.en) == ("bad", True)
    assert found["reward"].word == "unknown"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            "barograph:roll",
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
            "barograph:trinity",
            ["critic/score/mean", "actor/kl_loss", "critic/vf_loss", "actor/pg_clipfrac", "actor/ppo_kl"],
        ),
        ("verl", ["critic/score/mean", "actor/kl_loss", "critic/vf_loss", "actor/pg_clipfrac", "actor/ppo_kl"]),
        ("trl/grpo", ["reward", "kl", "clip_ratio/region_mean"]),
        ("slime", ["rollout/raw_reward", "train/kl_loss", "train/ois", "train/pg_clipfrac", "train/ppo_kl"]),
    ],
)
def test_every_vocabulary_has_its_crucial_values(source: str, names: list[str]):
    """Each of these names has a word in every framework."""
    found = signs({name: around(1.0, 30) for name in names}, source)
    assert {each.name for each in found.values()} == set(names)


def test_a_sign_is_inverted_before_judging():
    """ROLL's negative policykl is judged as a positive estimate, with a note on the difference."""
    assert signs({"actor/policykl": around(-0.01)}, "roll")["kl_now"].word == "good"
    found = signs({"actor/policykl": around(-0.5)}, "roll")["kl_now"]
    assert (found.word, found.note is not None) == ("bad", True)


def test_a_number_that_cannot_be_compared_is_not_judged_and_the_reason_is_said():
    """Where the framework's number is not comparable, or its name is ambiguous, the rules say so."""
    found = diagnosis({"objective/kl": around(3.0)}, "trl/online-dpo")
    assert "kl" not in {sign.key for sign in found.signs}
    assert "padding" in next(note.text.en for note in found.unmeasured if note.rule == "kl_negative")
    undecided = diagnosis({"kl": around(0.1), "reward": RISING}, None)
    assert "--source decides" in next(note.text.en for note in undecided.unmeasured if note.rule == "kl_drift")


def test_signs_are_in_both_languages():
    """Every word and sentence is in English and in Chinese."""
    series = {
        "objective/scores": RISING,
        "objective/kl": around(3.0),
        "val/ratio": [1.0] * 60,
        "policy/clipfrac_avg": around(0.5),
    }
    for each in signs(series).values():
        assert each.text.en
        assert each.word in WORDS
        assert any("一" <= char <= "鿿" for char in each.title.zh)
        assert each.record()["verdict"]["zh"]


def test_what_is_over_is_mentioned():
    """A KL that returned after a spike is good again, and the spike is named with its step."""
    found = signs({"actor/kl_loss": [*around(0.01, 40), 29.3, *around(0.01, 60)]}, "barograph:roll")["kl"]
    assert (found.word, "earlier: KL spike (step 40)" in found.text.en) == ("good", True)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
def test_values_at_the_ends_of_floats_are_judged_without_a_warning(value: float):
    """Their squares overflow; a warning would be an error here."""
    series = {"critic/value_loss": [0.0, value, -value, value] * 8, "critic/score/mean": [value, 1.0] * 16}
    assert signs(series, "barograph:roll")


def test_one_update_per_batch_gives_no_word_on_ratio_clipping_and_kl():
    """All three are constant by construction; with several updates the same values are a hint."""
    series = {"importance_weight/avg": [1.0] * 60, "clip_ratio/avg": [0.0] * 60, "approx_kl/avg": [0.0] * 60}
    series = {f"ppo_actor/{name}": values for name, values in series.items()}
    for parts, words in ((None, "with one update"), (1, "as it must be"), (4, "hardly")):
        found = signs(series, "areal", {} if parts is None else {"ppo_n_minibatches": parts})
        assert {found[key].word for key in ("ratio", "kl_now")} == {"unknown"}
        assert all(words in found[key].text.en for key in ("ratio", "kl_now"))
    moving = {name: [*values[:-1], values[-1] + 0.01] for name, values in series.items()}
    assert signs(moving, "areal", {"ppo_n_minibatches": 1})["ratio"].word == "good"


def test_the_ratio_of_trl_is_compared_with_the_configured_mini_batches():
    """1/5 is the artefact of five mini-batches; with another number it is a ratio that is far too low."""
    series = {"val/ratio": [0.2 + 0.0001 * (step % 2) for step in range(30)]}
    found = signs(series, "trl/ppo", {"num_mini_batches": 5})["ratio"]
    assert (found.word, "1/5" in found.text.en, found.note is not None) == ("unknown", True, True)
    assert signs(series, "trl/ppo", {"num_mini_batches": 4})["ratio"].word == "bad"
    assert signs({"val/ratio": [0.25] * 29 + [0.2501]}, "trl/ppo")["ratio"].word == "unknown"


def test_the_kl_is_judged_by_the_configured_estimator():
    """A signed estimate may be slightly negative; k3 may not."""
    signed = {"actor/kl_loss": [0.01 * (-1) ** step for step in range(30)]}
    assert signs(signed, "verl", {"kl_loss_type": "kl"})["kl"].word == "good"
    negative = {"actor/kl_loss": [-0.01 + 0.001 * (step % 2) for step in range(30)]}
    assert signs(negative, "verl", {"kl_loss_type": "low_var_kl"})["kl"].word == "watch"
    assert signs(negative, "verl", {"kl_loss_type": "kl"})["kl"].word == "good"


def test_a_kl_that_is_not_computed_is_not_judged():
    """With use_kl_loss off veRL's forks log 0."""
    found = diagnosis({"actor/kl_loss": [0.0] * 30}, "verl", {"use_kl_loss": False, "use_kl_in_reward": False})
    reasons = {note.rule: note.text.en for note in found.unmeasured}
    assert "use_kl_loss = False" in reasons["kl_drift"]
    assert next(sign.word for sign in found.signs) == "unknown"
