"""Responses of the API: strict JSON, binary bodies, and errors with an HTTP status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windsock.catalogue.spec import Text
from windsock.formatting import json_number


class RequestError(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
    compact = (",", ":")
    try:
        text = json.dumps(value, allow_nan=False, default=_to_json_type, ensure_ascii=False, separators=compact)
    except ValueError:  # a value is not finite: only then pay for a copy
        text = json.dumps(to_strict_json(value), allow_nan=False, default=str, ensure_ascii=False, separators=compact)
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates: UTF-8 cannot encode them, \u escapes can
        return json.dumps(json.loads(text), separators=compact).encode()


def to_strict_json(value: Any) -> Any:
    """Return a copy of a value that strict JSON can encode."""
    if isinstance(value, float):
        return value if math.isfinite(value) else json_number(value)
    if isinstance(value, Mapping):
        return {str(key): to_strict_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_strict_json(inner) for inner in value]
    return value if isinstance(value, str | int | bool | None) else to_strict_json(_to_json_type(value))


def _to_json_type(value: Any) -> Any:
    if isinstance(value, Text):
        return bilingual(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value) if isinstance(value, Path) else repr(value)
