"""Arrays that are computed from the logits of a batch."""

import numpy as np
import pytest
import torch

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import measure

RANDOM = np.random.default_rng(0)
OLD = RANDOM.normal(0, 2, (3, 4, 11))
NEW = OLD + RANDOM.normal(0, 0.3, OLD.shape)
ACTIONS = RANDOM.integers(0, 11, (3, 4))
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_exact_kl_entropy_and_log_probs_follow_from_logits(convert):
    """A trainer that passes logits need not compute them."""
    batch = Batch(response_mask=convert(MASK), logits=convert(NEW), old_logits=convert(OLD), actions=convert(ACTIONS))
    measured = measure(batch, temperature=1.3)
    p, q, valid = softmax(OLD / 1.3), softmax(NEW / 1.3), MASK.astype(bool)
    taken = [np.log(np.take_along_axis(x, ACTIONS[..., None], -1)[..., 0])[valid] for x in (p, q)]
    assert measured["actor/policykl"] == pytest.approx((p * np.log(p / q)).sum(-1)[valid].mean(), rel=1e-5)
    assert measured["critic/entropy/mean"] == pytest.approx(-(p * np.log(p)).sum(-1)[valid].mean(), rel=1e-5)
    assert measured["policy/entropy/mean"] == pytest.approx(-(q * np.log(q)).sum(-1)[valid].mean(), rel=1e-5)
    assert measured["critic/old_log_prob/mean"] == pytest.approx(taken[0].mean(), rel=1e-5)
    assert measured["actor/ratio_mean"] == pytest.approx(np.exp(taken[1] - taken[0]).mean(), rel=1e-5)


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_the_kl_to_the_reference_follows_from_its_logits(convert):
    """KL(current || reference), over the whole vocabulary; not the other way round, and not to the old policy."""
    batch = Batch(response_mask=convert(MASK), logits=convert(NEW), ref_logits=convert(OLD))
    p, q, valid = softmax(NEW / 1.3), softmax(OLD / 1.3), MASK.astype(bool)
    measured = measure(batch, temperature=1.3)
    assert measured["policy/ref_kl_exact"] == pytest.approx((p * np.log(p / q)).sum(-1)[valid].mean(), rel=1e-5)
    assert "actor/policykl" not in measured
    reason = measure(Batch(response_mask=MASK, logits=NEW)).missing["policy/ref_kl_exact"]
    assert reason == "the batch has no exact_ref_kl, and no logits and ref_logits to compute it from"


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_the_extreme_logits_are_those_of_valid_tokens(convert):
    """They are finite, not divided by the temperature, and need neither actions nor missing log-probs."""
    logits = NEW.copy()
    logits[MASK == 0] = 1e9
    logits[0, 0, 3] = -np.inf
    measured = measure(Batch(response_mask=convert(MASK), logits=convert(logits)), temperature=2.0)
    finite = logits[MASK == 1][np.isfinite(logits[MASK == 1])]
    assert measured["policy/logits/max"] == pytest.approx(finite.max(), rel=1e-6)
    assert measured["policy/logits/min"] == pytest.approx(finite.min(), rel=1e-6)
    zeros = convert(np.zeros(MASK.shape))
    given = measure(Batch(response_mask=convert(MASK), logits=convert(logits), log_probs=zeros, entropy=zeros))
    assert given["policy/logits/max"] == measured["policy/logits/max"]
    logits[2, 3, 5] = np.nan
    assert np.isnan(measure(Batch(response_mask=convert(MASK), logits=convert(logits)))["policy/logits/max"])


def test_given_arrays_are_used_before_logits():
    """A trainer's own entropy is not replaced."""
    given = measure(Batch(response_mask=MASK, logits=NEW, entropy=np.full(MASK.shape, 7.0)))
    assert given["policy/entropy/mean"] == 7.0


def test_without_logits_the_exact_kl_is_missing_with_the_reason():
    """An estimate is never reported as the exact KL."""
    measured = measure(Batch(response_mask=MASK, log_probs=np.zeros(MASK.shape), old_log_probs=np.zeros(MASK.shape)))
    reason = measured.missing["actor/policykl"]
    assert reason == "the batch has no exact_kl, and no logits and old_logits to compute it from"
