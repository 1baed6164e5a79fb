"""Where a framework's number differs from the metric, the catalogue says so, with the sign and the factor.

The rules of the frameworks are those of their code: veRL 0.7.0 to 0.10.0.dev, ROLL, Trinity 0.6 and TRL's PPO trainer.
"""

import math

import numpy as np
import pytest

import barograph
from barograph.catalogue.describe import describe
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.translate import Translation, translate

BYPASS = "verl/bypass"


def note(name: str, source: str, lang: str = "en") -> str:
    """Return the notes that ``barograph explain`` prints for a name of a writer, on one line."""
    explanation = describe(name, lang, source)
    assert explanation is not None
    return " ".join(meaning.note for meaning in explanation.asked)


def differing(name: str, source: str) -> Translation:
    """Translate a framework's name to barograph's id, which must have a note in both languages."""
    translation = translate(name, to="barograph", source=source)
    assert not translation.same
    assert translation.note is not None
    assert any("一" <= char <= "鿿" for char in translation.note.zh)
    return translation


@pytest.mark.parametrize(
    ("name", "source"),
    [("rollout_corr/log_ppl_diff", "verl"), ("actor/rollout_corr/log_ppl_diff", BYPASS)],
)
def test_verls_log_perplexity_difference_has_the_other_sign(name: str, source: str):
    """The number of veRL is trainer minus rollout, barograph's rollout minus trainer: the factor is −1 both ways."""
    translation = differing(name, source)
    assert (translation.name, translation.factor) == ("policy/mismatch/log_perplexity/difference", -1.0)
    back = translate("policy/mismatch/log_perplexity/difference", to=source, source="barograph")
    assert (back.name, back.factor) == ("rollout_corr/log_ppl_diff", -1.0)
    assert "trainer minus rollout" in note(name, source)


def test_the_notes_on_perplexities_hold_for_measured_numbers():
    """On a batch with one aborted row, barograph's numbers relate to veRL's rules as the notes say."""
    generator = np.random.default_rng(17)
    old, roll = -generator.random((2, 4, 5))
    mask = np.ones((4, 5))
    mask[3] = 0.0
    measured = barograph.measure(barograph.Batch(old_log_probs=old, rollout_log_probs=roll, response_mask=mask))
    # As veRL: a row without a token has mean log-prob 0, and the mean is over all rows.
    old_means, roll_means = (old * mask).sum(1) / 5, (roll * mask).sum(1) / 5
    theirs = float(np.mean(roll_means - old_means))
    assert theirs * -1.0 == pytest.approx(measured["policy/mismatch/log_perplexity/difference"] * 3 / 4)
    perplexity = float(np.mean(np.exp(-old_means)))
    assert perplexity == pytest.approx((measured["policy/mismatch/perplexity/training"] * 3 + 1.0) / 4)


def test_verls_largest_log_perplexity_difference_is_minus_the_smallest():
    """With the sign inverted, the largest difference of one is minus the smallest of the other."""
    largest = differing("rollout_corr/log_ppl_diff_max", "verl")
    assert (largest.name, largest.factor) == ("policy/mismatch/log_perplexity/difference_min", -1.0)
    smallest = differing("rollout_corr/log_ppl_diff_min", "verl")
    assert (smallest.name, smallest.factor) == ("policy/mismatch/log_perplexity/difference_max", -1.0)


@pytest.mark.parametrize(
    ("key", "count"),
    [
        ("training_ppl", "count as 1"),
        ("rollout_ppl", "count as 1"),
        ("ppl_ratio", "count as 1"),
        ("training_log_ppl", "count as 0"),
        ("rollout_log_ppl", "count as 0"),
        ("log_ppl_abs_diff", "count as 0"),
    ],
)
def test_aborted_rows_are_in_verls_perplexities(key: str, count: str):
    """A row without a token has mean log-prob 0 in veRL and stays in the mean; barograph leaves it out."""
    for name, source in ((f"rollout_corr/{key}", "verl"), (f"actor/rollout_corr/{key}", BYPASS)):
        differing(name, source)
        assert "without a response token" in note(name, source)
        assert count in note(name, source)


@pytest.mark.parametrize("stat", ["mean", "max", "min"])
def test_verls_length_without_aborted_rows_is_of_the_attention_mask(stat: str):
    """Tool tokens are in veRL's lengths, so they are not barograph's."""
    translation = differing(f"response_length_non_aborted/{stat}", "verl")
    assert translation.factor is None
    assert "attention mask" in note(f"response_length_non_aborted/{stat}", "verl")


def test_trinitys_entropy_is_taken_before_the_update_and_reduced_like_a_loss():
    """Trinity's actor/entropy is neither of the update nor always a token mean."""
    assert differing("actor/entropy", "trinity").factor is None
    for source in ("trinity", "verl"):
        assert "before the update" in note("actor/entropy", source)
        assert "loss_agg_mode" in note("actor/entropy", source)
    assert translate("actor/entropy", to="barograph", source="barograph:trinity").same


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("group/all_incorrect_groups_ratio", "exactly 0"),
        ("group/mixed_groups_ratio", "neither"),
        ("group/all_correct_groups_ratio", "exactly 1"),
    ],
)
def test_roll_counts_groups_by_exact_scores(name: str, rule: str):
    """ROLL's groups have scores of exactly 0 or 1; barograph compares with the score of a right answer."""
    assert differing(name, "roll").factor is None
    assert rule in note(name, "roll")


def test_partial_scores_are_counted_as_the_notes_say():
    """A group of 0 and 0.5 has no right answer in barograph; by ROLL's rule it is mixed."""
    scores, groups = np.array([0.0, 0.5, 1.0, 1.0]), np.array([0, 0, 1, 1])
    measured = barograph.measure(barograph.Batch(scores=scores, groups=groups, response_mask=np.ones((4, 2))))
    assert measured["reward/groups/solved_none"] == 0.5
    assert measured["reward/groups/solved_some"] == 0.0
    assert not np.all(scores[:2] == 0.0)  # so that ROLL counts no group as all incorrect


def test_the_formulas_of_groups_name_the_right_score():
    """The metric itself states its bound."""
    for which in ("none", "all", "some"):
        assert "right_score" in REGISTRY.metric(f"reward/groups/solved_{which}").formula.en


def test_trls_non_score_reward_may_be_of_k3():
    """With kl_estimator = "k3" TRL's number is another estimate."""
    assert differing("objective/non_score_reward", "trl/ppo").factor is None
    assert "k3" in note("objective/non_score_reward", "trl/ppo")
    assert "k3" in note("objective/rlhf_reward", "trl/ppo")


def test_rolls_weighted_loss_is_not_always_the_metric():
    """With seq-mean-token-sum-norm ROLL does not divide by sequences."""
    assert differing("actor/weighted_pg_loss", "roll").factor is None
    assert "seq-mean-token-sum-norm" in note("actor/weighted_pg_loss", "roll")


@pytest.mark.parametrize("to", ["verl", "trinity", "slime", "barograph:roll"])
def test_rolls_policykl_is_not_converted_by_its_sign_alone(to: str):
    """ROLL reduces policykl with loss_agg_mode, so no factor turns it into a token mean."""
    assert translate("actor/policykl", to=to, source="roll").factor is None
    assert "loss_agg_mode" in note("actor/policykl", "roll")


@pytest.mark.parametrize("variance", [1e-7, 1e-5, 1e-3, 1.0])
def test_verls_explained_variance_hides_a_small_variance(variance: float):
    """The 1e-5 in the denominator makes a useless critic look good: the numbers of the note follow its formula."""
    assert differing("critic/vf_explained_var", "verl").factor is None
    text = note("critic/vf_explained_var", "verl")
    residual = variance  # a critic that explains nothing
    theirs = 1.0 - residual / (variance + 1e-5)
    stated = {1e-7: "0.99 at 1e-7", 1e-5: "0.5 at 1e-5", 1e-3: "0.01 at 1e-3"}.get(variance)
    if stated is None:
        assert math.isclose(theirs, 0.0, abs_tol=1e-4)
    else:
        assert stated in text
        assert math.isclose(theirs, float(stated.split()[0]), abs_tol=5e-3)


def resampled_errors(runs: int, k: int) -> np.ndarray:
    """Return the error of 1000 resamples with seed 42 for every combination of 0 and 1 in the runs of a task."""
    generator = np.random.RandomState(42)
    draws = [int(np.bitwise_or.reduce(1 << generator.choice(runs, size=k, replace=True))) for _ in range(1000)]
    tasks = np.arange(2**runs)
    best = sum((tasks & draw) != 0 for draw in draws) / 1000
    right = np.array([int(task).bit_count() for task in tasks])
    return np.asarray(best - (1.0 - (1.0 - right / runs) ** k))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("eval/gsm8k/accuracy/best@2", "trinity"),
        ("eval/gsm8k/accuracy/worst@2", "trinity"),
        ("bench/gsm8k/accuracy/best@2", "trinity"),
        ("val-core/gsm8k/acc/best@2/mean", "verl"),
    ],
)
def test_the_error_of_resampling_is_stated_for_sets_and_for_tasks(name: str, source: str):
    """A set is off by up to 0.01; one task by more, as much as the note says."""
    assert "0.01 for a set" in note(name, source)
    assert "0.032 for one task of 8 runs" in note(name, source)
    assert "0.054" in note(name, source)


def test_the_stated_error_of_resampling_is_the_true_one():
    """Over all tasks of 8 and 16 runs of 0 and 1, the largest error is the one in the note."""
    assert round(max(float(np.abs(resampled_errors(8, k)).max()) for k in (2, 4, 8)), 3) == 0.032
    assert round(float(np.abs(resampled_errors(16, 2)).max()), 3) == 0.054


@pytest.mark.parametrize("id", ["policy/loss/pg", "policy/loss/weighted_pg", "policy/loss/total", "policy/kl_loss"])
def test_the_two_rules_of_sum_norm_are_stated(id: str):
    """Every loss says who divides by the number of sequences and who does not."""
    text = " ".join(trap.note.en for trap in REGISTRY.metric(id).traps)
    assert "seq-mean-token-sum-norm" in text
    assert "barograph and veRL since 0.7.1 divide by the norm and by the number of sequences" in text
    assert "ROLL, Trinity and veRL up to 0.7.0 divide by the norm alone" in text


def test_a_summed_rollout_metric_is_a_sum_at_every_level():
    """The text of rollout/{key}/sum does not mention means of tasks or runs; likewise for the last value."""
    for statistic in ("sum", "last"):
        metric = REGISTRY.metric(f"rollout/{{key}}/{statistic}")
        texts = [metric.about.en, metric.formula.en, *(trap.note.en for trap in metric.traps)]
        assert not any("mean" in text for text in texts), texts
        assert "at every level" in metric.about.en
        assert "每一层" in metric.about.zh
        assert "均值" not in metric.about.zh + metric.formula.zh


@pytest.mark.parametrize("statistic", ["max", "min"])
def test_a_declared_extreme_of_rollouts_is_one_at_every_level(statistic: str):
    """The text distinguishes the extreme of task means from a metric that is declared to be an extreme."""
    about = REGISTRY.metric(f"rollout/{{key}}/{statistic}").about
    assert f"Declared with ':{statistic}' it is a {statistic}imum at every level" in about.en
    assert "每一层" in about.zh
