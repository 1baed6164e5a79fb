"""PPO on a small multilayer perceptron with an explicit gradient: the network, Adam, advantages, and the derivatives of
the policy and value losses over valid tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from barograph.base.arrays import Bools, FloatsOfAnySize, Ints


class Network:
    """A multilayer perceptron with tanh activations. Its weights are one flat vector, kept by the caller."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.shapes = list(pairwise(sizes))
        self.size = sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def initial(self, rng: np.random.Generator, last: float = 0.01) -> FloatsOfAnySize:
        """Sample initial weights; the last layer's are small, so that the first policy is nearly uniform."""
        layers = []
        for number, (inputs, outputs) in enumerate(self.shapes, 1):
            scale = last if number == len(self.shapes) else 1.0
            layers += [rng.normal(0, scale / np.sqrt(inputs), inputs * outputs), np.zeros(outputs)]
        return np.concatenate(layers).astype(np.float32)

    def layers(self, weights: FloatsOfAnySize) -> list[tuple[FloatsOfAnySize, FloatsOfAnySize]]:
        """Return the matrix and bias of each layer, as views of the vector."""
        found, start = [], 0
        for inputs, outputs in self.shapes:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            found.append((weights[start:middle].reshape(inputs, outputs), weights[middle:end]))
            start = end
        return found

    def forward(self, weights: FloatsOfAnySize, inputs: FloatsOfAnySize) -> list[FloatsOfAnySize]:
        """Return the inputs of all layers, followed by the output."""
        activations = [inputs]
        for matrix, bias in self.layers(weights):
            activations.append(activations[-1] @ matrix + bias)
            if len(activations) <= len(self.shapes):
                np.tanh(activations[-1], out=activations[-1])
        return activations

    def gradient(
        self, weights: FloatsOfAnySize, activations: Sequence[FloatsOfAnySize], error: FloatsOfAnySize
    ) -> FloatsOfAnySize:
        """Return the gradient of a loss by the weights; ``error`` is its derivative by the output."""
        gradient = np.empty_like(weights)
        layer_gradients = self.layers(gradient)
        for number in reversed(range(len(self.shapes))):
            matrix_gradient, bias_gradient = layer_gradients[number]
            np.matmul(activations[number].T, error, out=matrix_gradient)
            error.sum(axis=0, out=bias_gradient)
            if number:  # the derivative of tanh is 1 - tanh²
                error = (error @ self.layers(weights)[number][0].T) * (1 - activations[number] ** 2)
        return gradient


def log_softmax(logits: FloatsOfAnySize) -> FloatsOfAnySize:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)  # so that exp does not overflow
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float64)


def adam(weights: FloatsOfAnySize, moments: FloatsOfAnySize, gradient: FloatsOfAnySize, lr: float, step: int) -> None:
    """Update the weights and both moments in place; ``step`` counts updates from 1."""
    # beta1 is 0.9 and beta2 0.999. The divisions correct for moments that begin at 0.
    mean, square = moments
    mean += 0.1 * (gradient - mean)
    square += 0.001 * (gradient**2 - square)
    weights -= lr * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)


def clip_by_norm(gradient: FloatsOfAnySize, max_norm: float) -> tuple[FloatsOfAnySize, float]:
    """Return the gradient scaled to at most ``max_norm``, and its original norm."""
    norm = float(np.sqrt(gradient @ gradient))
    return (gradient * (max_norm / norm) if norm > max_norm else gradient), norm


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
