"""Options and labels that trainers give and that are easy to refuse: no clip, labels of None, a coefficient of 0."""

from pathlib import Path

import numpy as np
import pytest
import torch
from reference import reference
from test_device import assert_same, place, tensors  # noqa: F401 - a fixture
from test_harness import OPTIONS, by_id, make, plain

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import measure

CLIPPED = (
    "policy/clip_fraction", "policy/clip_fraction/high", "policy/clip_fraction/low",
    "policy/ratio/above", "policy/ratio/below", "policy/ratio/outside",
)  # fmt: skip
UNCLIPPED = {**OPTIONS, "clip": None}


@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_without_a_clip_the_loss_is_not_clipped_and_clip_fractions_are_missing(dual_clip: float | None):
    """``clip=None`` is a policy gradient without a clip: its loss is that of a band that no ratio leaves."""
    data, options = make(12, 8, 20), {**OPTIONS, "clip": None, "dual_clip": dual_clip}
    measured = measure(Batch(**data), **options)
    expected = reference(plain(data), {**options, "clip": (1e9, 1e9)})
    got = by_id(measured)
    for id in ("policy/loss/pg", "policy/loss/weighted_pg", "policy/loss/total", "policy/clip_fraction/dual"):
        assert got.get(id) == (None if expected.get(id) is None else pytest.approx(expected[id], rel=1e-9)), id
    assert not set(CLIPPED) & set(got)
    assert measured.missing["actor/clipfrac"] == "clip is not set"


def test_without_a_clip_device_and_host_agree(place: str):  # noqa: F811
    """The device computes the same losses and leaves out the same metrics."""
    there, here = tensors(make(12, 9, 21), place)
    assert_same(measure(there, **UNCLIPPED), measure(here, **UNCLIPPED))


def test_a_sequence_whose_group_is_none_is_in_no_group():
    """The metrics of groups are those of the other sequences; the scores have all."""
    scores, mask = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0], np.ones((6, 2), bool)
    labels = ["a", "a", None, "b", "b", None]
    got = measure(Batch(response_mask=mask, scores=scores, groups=labels))
    rest = [0, 1, 3, 4]
    expected = measure(Batch(response_mask=mask[rest], scores=[scores[n] for n in rest], groups=["a", "a", "b", "b"]))
    for name, value in expected.items():
        if "group" in name or "solve" in name or "zero_std" in name:
            assert got[name] == value, name
    assert by_id(got)["reward/groups/effective_samples"] == 4
    assert by_id(got)["reward/groups/solved_some"] == 1.0
    assert by_id(got)["reward/score/mean"] == 0.5


def test_groups_that_are_all_none_are_missing():
    """Without a group there is nothing to compare."""
    measured = measure(Batch(response_mask=[[1], [1]], scores=[1.0, 0.0], groups=[None, None]))
    assert "no group" in measured.missing.values()


def test_a_sequence_whose_episode_is_none_is_an_episode_of_its_own():
    """Its score counts once, like that of each named episode."""
    batch = Batch(response_mask=np.ones((5, 1)), scores=[1.0, 1.0, 0.0, 0.5, 0.0], episodes=["a", "a", None, "b", None])
    assert by_id(measure(batch))["reward/score/mean"] == pytest.approx((1.0 + 0.0 + 0.5 + 0.0) / 4)


def test_the_documentation_says_what_none_means_among_labels():
    """A reader of docs/measuring.md finds that sequences may have no group and no episode."""
    text = " ".join((Path(__file__).parents[3] / "docs/measuring.md").read_text().split())
    assert "a sequence whose group is None is in no group" in text
    assert "one whose episode is None is an episode of its own" in text


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_a_kl_coefficient_of_zero_is_a_coefficient(library):
    """It is written, the KL's part of the reward is 0, and the reward is the score."""
    batch = Batch(
        response_mask=library([[1, 1], [1, 0]]), scores=library([1.0, 0.0]),
        old_log_probs=library([[-1.0, -2.0], [-1.0, 0.0]]), ref_log_probs=library([[-1.5, -1.0], [-1.0, 0.0]]),
    )  # fmt: skip
    got = by_id(measure(batch, kl_coef=0.0))
    assert got["reward/kl_coef"] == 0.0
    assert str(got["reward/non_score/mean"]) == "0.0"
    assert got["reward/rlhf/mean"] == 0.5
    assert "reward/kl_coef" not in by_id(measure(batch))
