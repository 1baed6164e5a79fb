"""NaN among the inputs shows in every metric that is computed from them, also in shares and conditions."""

import math

import numpy as np
import pytest
from test_device import assert_same, place, tensors  # noqa: F401 - a fixture
from test_harness import OPTIONS, by_id, make

from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import Measurement, measure

RATIO = ("policy/ratio/above", "policy/ratio/below", "policy/ratio/outside")
CLIP = ("policy/clip_fraction", "policy/clip_fraction/high", "policy/clip_fraction/low", "policy/clip_fraction/dual")
CORRECTION = ("policy/mismatch/truncated_weight/clip_fraction", "policy/mismatch/rejected/tokens")
OF_WEIGHTS = (
    "truncated_weight/mean", "truncated_weight/deviation", "truncated_weight/clip_fraction",
    "truncated_weight/effective_sample_size", "rejected/tokens", "rejected/sequences", "kl_k3/kept", "kl_k3/rejected",
)  # fmt: skip
OF_SEQUENCES = (
    "policy/loss/pg",
    "policy/sequence_ratio/clip_fraction",
    "policy/sequence_ratio_summed/clip_fraction/low",
)
GROUPS = (
    "reward/groups/solved_none", "reward/groups/solved_all", "reward/groups/solved_some", "reward/zero_std_groups",
    "reward/groups/effective_samples", "reward/groups/std", "reward/groups/solve_rate/0",
    "reward/groups/solve_rate/25_50", "reward/groups/solve_rate/100",
)  # fmt: skip


def count_of(measured: dict, id: str) -> float | None:
    """Return the number of inputs of a metric that were not finite."""
    return measured.get(f"barograph/nonfinite/{vocabulary_name(REGISTRY.metric(id), 'roll').pattern}")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("log_probs", (*RATIO, *CLIP)),
        ("old_log_probs", (*RATIO, *CLIP)),
        ("advantages", (*CLIP, "reward/advantages/zero")),
        ("rollout_log_probs", CORRECTION),
        ("values", ("value/clip_fraction",)),
        ("returns", ("value/clip_fraction",)),
        ("old_values", ("value/clip_fraction",)),
    ],
)
@pytest.mark.parametrize("tokens", [1, 3, None])
def test_shares_of_tokens_with_nan_are_nan(place: str, name: str, ids: tuple[str, ...], tokens: int | None):  # noqa: F811
    """A comparison with NaN is neither true nor false; the NaN tokens are counted, on the device as on the host."""
    data = make(6, 8, 30)
    valid = np.argwhere(data["response_mask"] & data["keep"][:, None])[:tokens]
    data[name][tuple(valid.T)] = math.nan
    there, here = tensors(data, place)
    got, expected = measure(there, **OPTIONS), measure(here, **OPTIONS)
    for measured in (got, expected):
        for id in ids:
            assert math.isnan(by_id(measured)[id]), id
            assert count_of(measured, id) == len(valid), id
    assert_same(got, expected)
    if name == "advantages":
        assert not any(math.isnan(by_id(expected)[id]) for id in RATIO)


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_a_sequence_with_nan_is_neither_kept_nor_rejected(place: str, level: str):  # noqa: F811
    """Everything that is computed from its weight is NaN, on the device as on the host."""
    data, options = make(6, 8, 30), {"truncate": ("sequence", 1.1), "reject": (level, 0.9, 1.1)}
    valid = np.argwhere(data["response_mask"] & data["keep"][:, None])[:3]
    data["rollout_log_probs"][tuple(valid.T)] = math.nan
    there, here = tensors(data, place)
    measured = by_id(measure(here, **options))
    for id in OF_WEIGHTS:
        assert math.isnan(measured[f"policy/mismatch/{id}"]), id
    assert_same(measure(there, **options), measure(here, **options))


@pytest.mark.parametrize("name", ["log_probs", "advantages"])
def test_a_nan_makes_the_loss_of_its_sequence_nan(place: str, name: str):  # noqa: F811
    """With the ratio of the sequence at each token, a NaN token shows in losses and clip fractions."""
    data, options = make(6, 8, 30), {"level": "sequence", "clip": 0.05, "dual_clip": 1.1}
    row, column = np.argwhere(data["response_mask"] & data["keep"][:, None])[0]
    data[name][row, column] = math.nan
    there, here = tensors(data, place)
    measured = by_id(measure(here, **options))
    for id in (*CLIP, *OF_SEQUENCES):
        assert math.isnan(measured[id]), id
    assert math.isnan(measured["policy/sequence_ratio/outside"]) == (name == "log_probs")
    assert_same(measure(there, **options), measure(here, **options))


def test_nan_advantages_of_one_micro_batch_show_in_the_step():
    """The NaN stays when states are merged, and others do not get one."""
    step = Measurement()
    for old, advantage in ((-1.0, math.nan), (-3.0, 1.0)):
        step.add(Batch(response_mask=[[1]], log_probs=[[-1.0]], old_log_probs=[[old]], advantages=[[advantage]]))
    measured = step.finish("roll")
    assert math.isnan(measured["actor/clipfrac"])
    assert by_id(measured)["policy/ratio/above"] == 0.5


@pytest.mark.parametrize("which", [slice(None), slice(0, 1)])
def test_metrics_of_groups_with_nan_scores_are_nan(which: slice):
    """A group whose scores are not known is not solved, not unsolved, and not solved in part."""
    scores = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    scores[which] = math.nan
    measured = measure(Batch(response_mask=np.ones((6, 2)), scores=scores, groups=[0, 0, 1, 1, 2, 2]))
    for id in GROUPS:
        assert math.isnan(by_id(measured)[id]), id
        assert count_of(measured, id) == (1 if which.stop else 3), id


def test_an_answer_with_a_nan_score_is_neither_right_nor_wrong():
    """Lengths by outcome, their correlation with the score and the share of truncated right ones are NaN."""
    mask = np.tril(np.ones((4, 4)))
    measured = by_id(measure(Batch(response_mask=mask, scores=[1.0, 0.0, 1.0, math.nan]), max_response_length=3))
    for id in ("tokens/response_length_right/mean", "tokens/response_length_wrong/mean", "reward/length_correlation",
               "reward/truncated_right"):  # fmt: skip
        assert math.isnan(measured[id]), id
    short = by_id(measure(Batch(response_mask=mask, scores=[math.nan, 0.0, 1.0, 0.0]), max_response_length=3))
    assert short["reward/truncated_right"] == 0.5


def test_a_nan_reward_is_neither_clipped_nor_not():
    """The share of clipped rewards is NaN."""
    measured = measure(Batch(response_mask=[[1], [1]], unclipped_rewards=[math.nan, 2.0]), reward_clip=1.0)
    assert math.isnan(by_id(measured)["evaluation/reward_clip_fraction"])


def test_the_losses_by_score_are_nan_where_a_score_is():
    """A sequence with an unknown score belongs to neither loss."""
    measured = measure(Batch(response_mask=[[1], [1]], log_probs=[[-1.0], [-2.0]], scores=[math.nan, 1.0]))
    assert math.isnan(by_id(measured)["sft/positive_loss"])
    assert math.isnan(by_id(measured)["sft/negative_loss"])
    assert by_id(measured)["sft/loss"] == 1.5
