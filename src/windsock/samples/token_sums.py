"""Values of tokens that follow from those that were given, and sums of them over the samples of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.model import Sample

Values = NDArray[np.float32]
LOG_PROB = ("log_prob", "log_probs", "logprob", "logprobs")
OLD = ("old", "old_log_prob", "old_log_probs")
ROLLOUT = ("rollout", "rollout_log_prob", "rollout_log_probs")
REFERENCE = ("reference", "ref", "ref_log_prob", "ref_log_probs", "reference_log_prob")


def all_values(given: Mapping[str, Sequence[float]]) -> dict[str, Values]:
    """Return the values that were given and those that follow from several of them, which come first."""
    arrays = {name: np.asarray(given[name], np.float32) for name in given}
    log_prob, old, rollout, reference = (
        next((arrays[name] for name in names if name in arrays), None) for names in (LOG_PROB, OLD, ROLLOUT, REFERENCE)
    )
    with np.errstate(all="ignore"):
        ratio = arrays.get("ratio", None if log_prob is None or old is None else np.exp(log_prob - old))
        advantage = arrays.get("advantage")
        found: dict[str, Any] = {
            "push": None if advantage is None or ratio is None else advantage * ratio,
            "mismatch": None if log_prob is None or rollout is None else log_prob - rollout,
            "kl": None if log_prob is None or reference is None else log_prob - reference,
            "surprise": None if log_prob is None else -log_prob,
            "ratio": ratio,
        }
    return {name: values for name, values in (found | arrays).items() if values is not None}


@dataclass(slots=True)
class TokenSum:
    """A token by its text: how often it came, the sum of a value, and where that was largest by its absolute value."""

    text: str
    count: int = 0
    sum: float = 0.0
    largest: float = 0.0
    place: str = ""  # of that sample
    token: int = 0  # its number there

    @property
    def mean(self) -> float:
        """The mean of the value."""
        return self.sum / self.count


def token_sums(samples: Iterable[tuple[Sample, str]], value: str) -> list[TokenSum]:
    """Return the tokens of some samples with their places, the largest sum first; masked tokens do not count."""
    found: dict[str, TokenSum] = {}
    for sample, place in samples:
        for token, text, number in _counted(sample, value):
            entry = found.setdefault(text, TokenSum(text))
            entry.count += 1
            entry.sum += number
            if not entry.place or abs(number) > abs(entry.largest):
                entry.largest, entry.place, entry.token = number, place, token
    return sorted(found.values(), key=lambda entry: -abs(entry.sum))


def _counted(sample: Sample, value: str) -> Iterator[tuple[int, str, float]]:
    values = all_values(sample.token_values)
    if value not in values:
        return
    counts = np.isfinite(values[value]) & (values.get("mask", np.ones(len(sample.tokens))) != 0)
    numbers = values[value].tolist()
    for token in np.flatnonzero(counts).tolist():
        yield token, sample.tokens[token], numbers[token]
