"""A small network with its gradient written by hand, on one flat vector of weights, and Adam."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


class Network:
    """A perceptron with tanh between its layers. The weights are the caller's: one vector, easily moved."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.shapes = list(pairwise(sizes))
        self.size = sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def initial(self, rng: np.random.Generator, last: float = 0.01) -> Floats:
        """Draw weights; those of the last layer are small, so that nothing is decided at the start."""
        layers = []
        for number, (inputs, outputs) in enumerate(self.shapes, 1):
            scale = last if number == len(self.shapes) else 1.0
            layers += [rng.normal(0, scale / np.sqrt(inputs), inputs * outputs), np.zeros(outputs)]
        return np.concatenate(layers).astype(np.float32)

    def layers(self, weights: Floats) -> list[tuple[Floats, Floats]]:
        """Return matrix and bias of each layer, as views of the vector."""
        found, start = [], 0
        for inputs, outputs in self.shapes:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            found.append((weights[start:middle].reshape(inputs, outputs), weights[middle:end]))
            start = end
        return found

    def forward(self, weights: Floats, inputs: Floats) -> list[Floats]:
        """Return what goes into each layer, and last what comes out."""
        passed = [inputs]
        for matrix, bias in self.layers(weights):
            passed.append(passed[-1] @ matrix + bias)
            if len(passed) <= len(self.shapes):
                np.tanh(passed[-1], out=passed[-1])
        return passed

    def gradient(self, weights: Floats, passed: Sequence[Floats], error: Floats) -> Floats:
        """Return the gradient of a loss, of which ``error`` is the derivative by the output."""
        gradient = np.empty_like(weights)
        of_layers = self.layers(gradient)
        for number in reversed(range(len(self.shapes))):
            of_matrix, of_bias = of_layers[number]
            np.matmul(passed[number].T, error, out=of_matrix)
            error.sum(axis=0, out=of_bias)
            if number:
                error = (error @ self.layers(weights)[number][0].T) * (1 - passed[number] ** 2)
        return gradient


def log_softmax(logits: Floats) -> Floats:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float64)


def adam(weights: Floats, moments: Floats, gradient: Floats, lr: float, number: int) -> None:
    """Move the weights in place; ``moments`` holds both averages, ``number`` counts updates from 1."""
    mean, square = moments
    mean += 0.1 * (gradient - mean)
    square += 0.001 * (gradient**2 - square)
    weights -= lr * (mean / (1 - 0.9**number)) / (np.sqrt(square / (1 - 0.999**number)) + 1e-8)


def clipped(gradient: Floats, largest: float) -> tuple[Floats, float]:
    """Return the gradient with its norm bounded, and the norm it had."""
    norm = float(np.sqrt(gradient @ gradient))
    return (gradient * (largest / norm) if norm > largest else gradient), norm
