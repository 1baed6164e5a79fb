"""A small multilayer perceptron with an explicit gradient, and Adam."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from barograph.base.arrays import FloatsOfAnySize


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
