"""Tokens of measured sequences, joined with the samples that have the same ids."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.model import MeasuredTokens, Sample
from barograph.journal.format.tokens import NUMBERS, TokenValues, pack_array, pack_measured
from barograph.recording.samples.tokens import TokenDecoder, id_text

NAMES = {
    "log_probs": "log_prob", "old_log_probs": "old", "ref_log_probs": "reference", "rollout_log_probs": "rollout",
    "entropy": "entropy", "advantages": "advantage",
}  # fmt: skip
"""The arrays of a batch, and the names of their values in a sample."""
LOG_PROBS = ("old", "log_prob", "rollout", "reference")
UNKNOWN = "▯"  # a token whose text is not known


def joined(row: MeasuredTokens, sample: Sample | None, decoder: TokenDecoder | None) -> tuple[Sample, str]:
    """Return the sample of a measured sequence with the values of its tokens, and what is wrong if they do not fit.

    The tokens are the sample's own, else those of the batch's ``actions``, else unknown ones. Without a sample the text
    is that of the decoded actions. The column ``chosen`` says why the sequence was chosen, and ``text`` where its
    text is from if no sample was logged.
    """
    places, tokens, wrong = _placed(row, sample, decoder)
    if sample is None:
        known = row.actions is not None and decoder is not None
        columns: dict[str, Any] = {"text": "from actions" if known else "not logged"}
        text = "".join(tokens) if known else ""
        sample = Sample(id=row.id, completion=text, length=len(places), time=round(time.time(), 3), columns=columns)
    columns = {**sample.columns, "chosen": row.reason}
    if wrong:
        return replace(sample, columns=columns), wrong
    measured = {name: array[places] for name, array in values_of(row).items()}
    packed = pack_measured(measured, LOG_PROBS, ("entropy",))
    packed |= {name: pack_array(array, NUMBERS) for name, array in sample.token_values.items()}  # the user's own count
    return replace(sample, columns=columns, tokens=tokens, token_values=TokenValues(packed, len(tokens))), ""


def values_of(row: MeasuredTokens) -> dict[str, NDArray[Any]]:
    """Return the values of a sequence's tokens by name; the ratio follows from them, and readers compute it."""
    found: dict[str, NDArray[Any]] = {}
    for name, own in NAMES.items():
        array = row.arrays.get(name)
        if array is not None:
            found[own] = np.where(row.response, array, 0.0)
    if "log_prob" in found and "old" in found and row.clip is not None:
        low, high = row.clip
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.exp(found["log_prob"].astype(np.float64) - found["old"])
        above, below = ratio > 1 + high, ratio < 1 - low
        if "advantage" in found:
            above, below = above & (found["advantage"] > 0), below & (found["advantage"] < 0)
        found["clipped"] = (above | below).astype(np.float32)
    found["mask"] = row.valid.astype(np.float32)
    return found


def _placed(
    row: MeasuredTokens, sample: Sample | None, decoder: TokenDecoder | None
) -> tuple[NDArray[np.int64], Sequence[str], str]:
    """Return the places of a sequence's tokens in its row, their texts, and why a sample's own do not fit."""
    response = np.flatnonzero(row.response)
    first, last = (int(response[0]), int(response[-1])) if len(response) else (0, -1)
    span = np.arange(first, last + 1)
    own = () if sample is None else sample.tokens
    if len(own):
        fitting = [places for places in (span, response, np.arange(last + 1)) if len(places) == len(own)]
        if fitting:
            return fitting[0], own, ""
        wrong = f"{len(own):,} tokens were given, the batch has {len(response):,} of the response"
        return span, own, f"{wrong} (from the first to the last {len(span):,})"
    if row.actions is None:
        return span, (UNKNOWN,) * len(span), ""
    ids = row.actions[span].tolist()
    return span, tuple(map(id_text, ids)) if decoder is None else decoder.texts(ids), ""
