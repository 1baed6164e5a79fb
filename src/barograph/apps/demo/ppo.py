"""PPO: advantages, and the derivatives of the policy and value losses, over valid tokens."""

from __future__ import annotations

import numpy as np

from barograph.apps.demo.network import log_softmax
from barograph.base.arrays import Bools, FloatsOfAnySize, Ints


def gae(
    rewards: FloatsOfAnySize, values: FloatsOfAnySize, mask: Bools, discount: float, trace: float
) -> tuple[FloatsOfAnySize, FloatsOfAnySize]:
    """Return advantages (generalised advantage estimation) and returns; 0 after the last valid token."""
    advantages = np.zeros_like(rewards)
    later = np.zeros(len(rewards))
    # The value after the last token is 0: an episode that was cut off counts as ended.
    value_after = np.zeros(len(rewards))
    for turn in reversed(range(rewards.shape[1])):
        delta = rewards[:, turn] + discount * value_after - values[:, turn]
        later = np.where(mask[:, turn], delta + discount * trace * later, 0.0)
        value_after = np.where(mask[:, turn], values[:, turn], 0.0)
        advantages[:, turn] = later
    return advantages, advantages + np.where(mask, values, 0.0)


def whitened(advantages: FloatsOfAnySize, mask: Bools) -> FloatsOfAnySize:
    """Return advantages with mean 0 and standard deviation 1 over valid tokens."""
    valid = advantages[mask]
    return np.where(mask, (advantages - valid.mean()) / (valid.std() + 1e-8), 0.0)


def policy_gradient(
    logits: FloatsOfAnySize,
    choices: Ints,
    old: FloatsOfAnySize,
    advantages: FloatsOfAnySize,
    weights: FloatsOfAnySize,
    clip: float,
    entropy_coef: float,
    lengths: Ints | None = None,
) -> tuple[FloatsOfAnySize, FloatsOfAnySize]:
    """Return the derivative of the policy loss by the logits, and the current log-probs of all choices.

    The loss is the token mean of ``-weight · min(r·A, clip(r)·A)`` minus ``entropy_coef`` times the entropy. With the
    ``lengths`` of the episodes, r is the exponential of the mean log-ratio of a token's episode.
    """
    all_log_probs = log_softmax(logits)
    probs = np.exp(all_log_probs)
    rows = np.arange(len(choices))
    entropy = entropy_of(all_log_probs)
    log_ratio = all_log_probs[rows, choices] - old
    ratio = np.exp(log_ratio if lengths is None else episode_means(log_ratio, lengths))
    # Where the clipped term is the smaller one, it is constant in the policy and has no gradient.
    is_clipped = np.clip(ratio, 1 - clip, 1 + clip) * advantages < ratio * advantages
    by_log_prob = np.where(is_clipped, 0.0, -weights * ratio * advantages)
    if lengths is not None:  # a token's log-prob is in the ratios of all tokens of its episode
        by_log_prob = episode_means(by_log_prob, lengths)
    # The derivative of log p(choice) by the logits is one-hot(choice) - p.
    error = -probs * by_log_prob[:, None]
    error[rows, choices] += by_log_prob
    error += entropy_coef * probs * (all_log_probs + entropy[:, None])
    return error / len(choices), all_log_probs


def episode_means(values: FloatsOfAnySize, lengths: Ints) -> FloatsOfAnySize:
    """Return the mean of an episode's tokens at each of them, for episodes of at least one token."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    return np.asarray((np.bincount(episode, values) / lengths)[episode])


def entropy_of(log_probs: FloatsOfAnySize) -> FloatsOfAnySize:
    """Return the entropy of each distribution."""
    return np.asarray(-(np.exp(log_probs) * log_probs).sum(axis=-1))


def exact_kl(p: FloatsOfAnySize, q: FloatsOfAnySize) -> FloatsOfAnySize:
    """Return KL(p‖q) of each pair of distributions, given as log-probs."""
    return np.asarray((np.exp(p) * (p - q)).sum(axis=-1))


def value_gradient(
    values: FloatsOfAnySize, old: FloatsOfAnySize, returns: FloatsOfAnySize, clip: float | None
) -> FloatsOfAnySize:
    """Return the derivative of ``½ · mean(max((V-R)², (clip(V, V0±c)-R)²))`` by the values."""
    error = values - returns
    if clip is not None:
        limited = np.clip(values, old - clip, old + clip)
        inside = limited == values
        error = np.where((limited - returns) ** 2 > error**2, np.where(inside, error, 0.0), error)
    return error / len(values)
