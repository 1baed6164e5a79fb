"""Responses of the API: strict JSON, binary bodies, and errors with an HTTP status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from barograph.base.formatting import json_number
from barograph.catalogue.spec import Text
from barograph.metrics.comparison import Interval


def interval_record(interval: Interval) -> list[float | int | None]:
    """Return mean, low, high and count; None for an end that is not known."""
    ends = (interval.low, interval.high) if interval.is_known else (None, None)
    return [interval.mean, *ends, interval.count]


MAX_DEPTH = 100

CUT = "…"  # instead of what is nested more deeply


@dataclass(frozen=True, slots=True)
class BinaryBody:
    """An encoded response body with its media type."""

    body: bytes
    media_type: str


def bilingual(text: Text | None) -> dict[str, str] | None:
    """Return a text as ``{"en": …, "zh": …}``."""
    return None if text is None else {"en": text.en, "zh": text.zh}


def encode(value: Any) -> bytes:
    """Encode a value as strict JSON: NaN and infinities become strings, texts both languages."""
    try:
        text = _dump(value)
    except (ValueError, RecursionError):  # not finite, or nested too deeply: only then pay for a copy
        text = _dump(to_strict_json(value))
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate becomes its escape in JSON


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=_to_json_type, ensure_ascii=False, separators=(",", ":"))


def to_strict_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a copy of a value that strict JSON can encode; containers nested more than ``depth`` deep become ``…``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else json_number(value)
    if isinstance(value, str | int | bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_strict_json(inner, depth - 1) for key, inner in value.items()} if depth else CUT
    if isinstance(value, list | tuple | set | frozenset):
        return [to_strict_json(inner, depth - 1) for inner in value] if depth else CUT
    return to_strict_json(_to_json_type(value), depth)


def field_values(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass; unlike ``asdict`` without copying what they contain, however deeply nested."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _to_json_type(value: Any) -> Any:
    if isinstance(value, Text):
        return bilingual(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if is_dataclass(value) and not isinstance(value, type):
        return field_values(value)
    return str(value) if isinstance(value, Path) else repr(value)
