"""Numbers from the sources of the frameworks: the right ones, and their known bugs, which barograph does not have."""

import numpy as np
import pytest

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import measure
from barograph.metrics.formulas.sequences import loss_sums, sums

PPO = {
    "response_mask": [[1, 1, 1, 0], [1, 1, 0, 0]],
    "log_probs": [[-1, -0.5, -2, 0], [-0.2, -1.5, 0, 0]],
    "old_log_probs": [[-1, -0.9, -1.5, 0], [-0.3, -1, 0, 0]],
    "ref_log_probs": [[-1.1, -0.7, -1.8, 0], [-0.2, -1.2, 0, 0]],
    "advantages": [[1, 1, 1, 0], [-1, -1, 0, 0]],
}


def test_ppo_numbers_of_roll_that_are_right():
    """Losses in ROLL's default reduction, and fractions over valid tokens."""
    measured = measure(Batch(**PPO), kl_loss_coef=0.01)
    expected = {
        "actor/ppo_ratio_high_clipfrac": 0.2, "actor/ppo_ratio_low_clipfrac": 0.4, "actor/ppo_ratio_clipfrac": 0.6,
        "actor/ratio_max": 1.4918247, "actor/ratio_min": 0.6065307, "actor/pg_loss": 0.0085376,
        "actor/kl_loss": 0.0199599, "actor/total_loss": 0.0087372, "actor/clipfrac": 0.4, "actor/ratio_mean": 0.9620114,
    }  # fmt: skip
    assert {name: measured[name] for name in expected} == pytest.approx(expected, abs=1e-7)
    assert measure(Batch(**PPO), loss="token-mean")["actor/pg_loss"] == pytest.approx(-0.1802720, abs=1e-7)


def test_bug_statistics_do_not_change_with_the_reduction_of_losses():
    """ROLL's clipfrac is a count per sequence under seq-mean-token-sum; ours is a share of tokens under all."""
    for loss in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        measured = measure(Batch(**PPO), loss=loss)
        assert (measured["actor/clipfrac"], measured["actor/approxkl"]) == pytest.approx((0.4, 0.067))


def test_bug_policykl_is_not_minus_k1():
    """Without logits the exact KL is missing; the k1 estimate is another metric, with the sign of a KL."""
    measured = measure(Batch(**PPO))
    assert "actor/policykl" not in measured
    assert measured["actor/policykl_k1"] == pytest.approx(0.1)


X = np.array([1.0, 2, 3, 4, 5])  # valid tokens of two sequences; a third has none
COUNTS = np.array([2, 3, 0])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("token-mean", 3.0),
        ("seq-mean-token-sum", 7.5),
        ("seq-mean-token-mean", 2.75),
        ("seq-mean-token-sum-norm", 1.875),
    ],
)
def test_reductions_respect_the_mask_and_count_valid_sequences(how: str, expected: float):
    """The numerator is masked (ROLL's token-mean gives 14 here) and sequences without a token do not count."""
    numerator, denominator = loss_sums(sums(X, COUNTS), COUNTS, how).reduced(how, norm=4.0)  # type: ignore[arg-type]
    assert numerator / denominator == pytest.approx(expected)


VALUE = {
    "response_mask": [[1, 1, 0], [1, 0, 0]],
    "values": [[0.5, 1.5, 9], [2, 9, 9]],
    "old_values": [[0.4, 0.9, 0], [1.2, 0, 0]],
    "returns": [[1, 1.6, 0], [1, 0, 0]],
}


def test_critic_numbers_and_the_masked_row_that_must_not_count():
    """Loss as ROLL computes it, error over tokens; a fully masked row changes nothing."""
    measured = measure(Batch(**VALUE), value_clip=0.2)
    assert measured["critic/loss"] == pytest.approx(0.3125)
    assert measured["critic/error"] == pytest.approx(0.42)
    assert measured["critic/clipfrac"] == pytest.approx(1 / 3)
    more = {name: [*rows, [0, 0, 0]] for name, rows in VALUE.items()}
    assert measure(Batch(**more), value_clip=0.2)["critic/error"] == pytest.approx(0.42)
    assert measure(Batch(**VALUE))["critic/loss"] == pytest.approx(0.2825)


def test_bug_ratio_extremes_of_no_token_are_no_sentinels():
    """ROLL logs 1e10 as the minimum and 0 as the maximum of no tokens."""
    nothing = {**PPO, "response_mask": [[0, 0, 0, 0], [0, 0, 0, 0]]}
    measured = measure(Batch(**nothing))
    assert "actor/ratio_min" in measured.missing
    assert "actor/ratio_max" in measured.missing


def test_group_shares_of_roll():
    """Two of four right, all right, none right: a third each; half of all samples are right."""
    data = {
        "response_mask": np.ones((12, 1)),
        "scores": [1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0],
        "groups": np.arange(12) // 4,
    }
    measured = measure(Batch(**data))
    assert measured["critic/score/mean"] == 0.5
    assert [measured[f"reward/groups/solved_{which}"] for which in ("none", "all", "some")] == pytest.approx(
        [1 / 3] * 3
    )
    assert measured["reward/zero_std_groups"] == pytest.approx(2 / 3)


def test_trl_signs_and_sums():
    """non_score_reward is minus beta times the KL, rlhf_reward the sum; both per sequence."""
    data = {**PPO, "scores": [1.0, 0.0]}
    measured = measure(Batch(**data), kl_coef=0.05, vocabulary="trl")
    kl = ((0.1 - 0.2 + 0.3) + (-0.1 + 0.2)) / 2
    assert measured["objective/kl"] == pytest.approx(kl)
    assert measured["objective/non_score_reward"] == pytest.approx(-0.05 * kl)
    assert measured["objective/rlhf_reward"] == pytest.approx(0.5 - 0.05 * kl)
    assert measured["objective/entropy"] == pytest.approx((3.4 + 1.3) / 2)
    assert measured["val/ratio"] == pytest.approx(0.9620114)


@pytest.mark.parametrize("how", ["no response", "not kept"])
def test_trl_sums_count_sequences_without_tokens_as_zero(how: str):
    """TRL means its sums over all sequences, padding as 0: scores and KL are of the same ones and add up."""
    data = {name: [*rows, [-9.0] * 4] for name, rows in PPO.items()} | {"scores": [1.0, 0.0, 0.5]}
    data["response_mask"][2] = [0, 0, 0, 0] if how == "no response" else [1, 1, 1, 1]
    measured = measure(Batch(**data, keep=[1, 1, 0]), kl_coef=0.05, vocabulary="trl")
    kl = ((0.1 - 0.2 + 0.3) + (-0.1 + 0.2)) / 3
    assert measured["objective/kl"] == pytest.approx(kl)
    assert measured["objective/entropy"] == pytest.approx((3.4 + 1.3) / 3)
    parts = measured["objective/scores"], measured["objective/non_score_reward"]
    assert parts == pytest.approx((0.5, -0.05 * kl))
    assert measured["objective/rlhf_reward"] == pytest.approx(sum(parts), rel=1e-12)


MISMATCH = {
    "response_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    "old_log_probs": [[-0.5, -1.0, -2.0, -0.1], [-0.3, -0.7, 0, 0], [-1.5, 0, 0, 0]],
    "rollout_log_probs": [[-0.6, -1.4, -1.2, -0.1], [-0.9, -0.4, 0, 0], [-1.2, 0, 0, 0]],
}


@pytest.mark.parametrize(
    ("level", "tokens", "sequences"), [("token", 5 / 7, 1.0), ("sequence", 1.0, 1.0), ("geometric", 1 / 7, 1 / 3)]
)
def test_the_off_policy_correction_has_the_numbers_of_verl(level: str, tokens: float, sequences: float):
    """Results of veRL's rollout_corr_helper (1dda039b) with 1.3 and 0.75_1.25, which bounds rollout over trainer."""
    measured = measure(Batch(**MISMATCH), truncate=1.3, reject=(level, 1 / 1.25, 1 / 0.75))
    expected = {
        "truncated_weight/mean": 0.9480194734394441, "truncated_weight/clip_fraction": 2 / 7,
        "truncated_weight/effective_sample_size": 0.9116442840477392, "rejected/tokens": tokens,
        "rejected/sequences": sequences, "perplexity/ratio": 1.0961503104265147, "chi2_token": 0.29522576951709056,
        "chi2_sequence": -0.026752642473812482, "log_perplexity/difference_min": -0.3,
        "log_perplexity/difference_max": 0.15,
    }  # fmt: skip
    assert {name: measured[f"policy/mismatch/{name}"] for name in expected} == pytest.approx(expected, abs=3e-8)


GSPO = {
    "response_mask": [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]],
    "log_probs": [[-1, -0.5, -2, 0], [-0.2, -1.5, 0, 0], [-0.3, -0.9, -1.1, -0.4]],
    "old_log_probs": [[-1, -0.9, -1.5, 0], [-0.3, -1, 0, 0], [-0.5, -1, -1.2, -0.5]],
    "advantages": [[1, 1, 1, 0], [-1, -1, 0, 0], [0.5, 0.5, -0.25, 0.5]],
}


def test_the_loss_of_sequence_ratios_is_that_of_verl():
    """Results of veRL's compute_policy_loss_gspo (1dda039b), with advantages of both signs in one sequence."""
    measured = measure(Batch(**GSPO), level="sequence", clip=(0.03, 0.05))
    assert measured["actor/pg_loss"] == pytest.approx(-0.10671477405510978, abs=1e-8)
    assert measured["actor/clipfrac"] == pytest.approx(5 / 9, abs=1e-8)


def test_the_ratios_of_sequences_are_missing_for_token_ratios():
    """The reason names the option; the loss of token ratios is another number."""
    measured = measure(Batch(**GSPO), clip=(0.03, 0.05))
    assert measured.missing["policy/sequence_ratio/mean"] == "level is not 'sequence'"
    assert measured["actor/pg_loss"] != pytest.approx(-0.10671477405510978, abs=1e-3)
    assert "actor/pg_loss" not in measured.missing
