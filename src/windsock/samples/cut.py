"""Cutting long texts in the middle, with a mark that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windsock.journal.samples import to_json

SHORTEST = 64  # characters; where even that is too much, the texts go
SHRINK = 0.7


def shortened(text: str, limit: int) -> str:
    """Return a text of at most about so many characters: its beginning, how much was left out, its end."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - 40)  # the mark takes about as much
    head = kept - kept // 2
    return f"{text[:head]}\n{_mark(len(text) - kept)}\n{text[len(text) - kept // 2 :]}"


def cut(text: bytes, size: int) -> bytes:
    """Return a sample, as JSON, with its longest texts shortened until it has at most ``size`` bytes.

    Where that cannot be done, what is left is its numbers and a mark, which may still be larger.
    """
    record = json.loads(text)
    limit = size
    while len(text) > size and limit >= SHORTEST:
        text = to_json(_limited(record, limit))
        limit = int(limit * SHRINK)
    return text if len(text) <= size else _without_words(record, len(text))


def _limited(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, list):
        return [_limited(inner, limit) for inner in value]
    if isinstance(value, Mapping):
        return {name: _limited(inner, limit) for name, inner in value.items()}
    return value


def _without_words(record: Mapping[str, Any], size: int) -> bytes:
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    return to_json({"completion": _mark(size), **numbers})


def _mark(left_out: int) -> str:
    return f"… {left_out:,} characters left out …"
