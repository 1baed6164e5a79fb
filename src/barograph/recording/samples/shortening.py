"""Shortening of long texts: their middle is replaced by a note of how much was left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barograph.base.files.compression import MAX_DIRECT, MAX_VALUES, count_values
from barograph.journal.format.samples import to_json

MIN_CHARACTERS = 64  # of a shortened text; if that is still too long, all texts are left out
SHRINK = 0.7
TOKENS = ("tokens", "token_values", "top_logprobs")


def shortened(text: str, limit: int) -> str:
    """Return the beginning and the end of a text, about ``limit`` characters together, with a note between them."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - 40)  # the note takes about as much
    head = kept - kept // 2
    return f"{text[:head]}\n{_note(len(text) - kept)}\n{text[len(text) - kept // 2 :]}"


def shortened_sample(text: bytes, size: int) -> bytes:
    """Return a sample's JSON with its longest texts shortened until it has at most ``size`` bytes.

    Its tokens are left out: a part of them would not be of the text that is left. Messages and components of the reward
    are left out if they have more values than readers accept. If all that is not enough, only its numbers and a note
    are left, which may still be larger.
    """
    record = {name: value for name, value in json.loads(text).items() if name not in TOKENS}
    text = to_json(record)
    if len(text) > MAX_DIRECT and count_values(text) >= MAX_VALUES:
        flat = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
        record = {"completion": _note(len(text)), **flat}
        text = to_json(record)
    limit = size
    # By trial: escapes and characters of several bytes make the JSON longer than the texts by an unknown factor.
    while len(text) > size and limit >= MIN_CHARACTERS:
        text = to_json(_limited(record, limit))
        limit = int(limit * SHRINK)
    return text if len(text) <= size else _without_texts(record, len(text))


def _limited(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, list):
        return [_limited(inner, limit) for inner in value]
    if isinstance(value, Mapping):
        return {name: _limited(inner, limit) for name, inner in value.items()}
    return value


def _without_texts(record: Mapping[str, Any], size: int) -> bytes:
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    return to_json({"completion": _note(size), **numbers})


def _note(left_out: int) -> str:
    return f"… {left_out:,} characters left out …"
