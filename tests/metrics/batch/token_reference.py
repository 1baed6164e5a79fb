"""The choice of sequences whose tokens are kept, computed by plain loops in double precision."""

import math

import numpy as np

from barograph.base.model import MeasuredTokens
from barograph.metrics.batch.step import Measurement


def tokens_of(batch: dict, place: int, name: str) -> list[float]:
    """Return the values of a sequence's valid tokens."""
    rows = rows_of(batch, place)
    valid = np.asarray(batch["response_mask"])[rows] != 0
    if "keep" in batch:
        valid = valid & (np.asarray(batch["keep"])[place] != 0)
    return [float(value) for value in np.asarray(batch[name], np.float64)[rows][valid]]


def rows_of(batch: dict, place: int):
    """Return the index of a sequence's row in the arrays of tokens."""
    bounds = batch.get("cu_seqlens")
    return place if bounds is None else slice(int(bounds[place]), int(bounds[place + 1]))


def scores(batch: dict, place: int) -> dict[str, float]:
    """Return the value of each criterion that needs no seed, for one sequence with valid tokens."""
    old, ref, rollout, entropy, advantages = (
        tokens_of(batch, place, name)
        for name in ("old_log_probs", "ref_log_probs", "rollout_log_probs", "old_entropy", "advantages")
    )
    difference = [r - o for r, o in zip(ref, old, strict=True)]
    found = {
        "mismatch": max(abs(o - r) for o, r in zip(old, rollout, strict=True)),
        "kl": sum(math.expm1(d) - d for d in difference),
        "highest entropy": sum(entropy) / len(entropy),
        "lowest entropy": -sum(entropy) / len(entropy),
        "advantage": max(abs(a) for a in advantages),
    }
    return {name: value if math.isfinite(value) else math.inf for name, value in found.items()}


def chosen(batch: dict, sequences: int, count: int) -> dict[int, str]:
    """Return the first chosen sequences, of up to one for each criterion of ``scores``, and their criteria."""
    left = {place: scores(batch, place) for place in range(sequences) if tokens_of(batch, place, "response_mask")}
    found: dict[int, str] = {}
    for name in ("mismatch", "kl", "highest entropy", "lowest entropy", "advantage")[:count]:
        if left:
            best = max(left, key=lambda place: left[place][name])  # of equal ones the first
            found[best] = name
            del left[best]
    return found


def kept_tokens(measurement: Measurement) -> list[MeasuredTokens]:
    """Return the tokens that a measurement keeps."""
    taken = measurement.take_tokens()
    ids, found = taken.ids(), taken.fetch()
    assert [tokens.id for tokens in found] == ids
    return found
