"""What goes out: strict JSON, binary columns, and errors that say what was expected."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windsock.catalogue.spec import Text
from windsock.formatting import nonfinite_name


class RequestError(Exception):
    """A request that cannot be answered, with the status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Binary:
    """An answer that is bytes already."""

    body: bytes
    media_type: str


def said(text: Text | None) -> dict[str, str] | None:
    """Return a text in both languages."""
    return None if text is None else {"en": text.en, "zh": text.zh}


def encode(value: Any) -> bytes:
    """Write strict JSON: NaN and infinities as strings, texts in both languages."""
    try:
        text = json.dumps(value, allow_nan=False, default=_plain, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(strict(value), allow_nan=False, default=str, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates, which only escapes can carry
        return json.dumps(json.loads(text), separators=(",", ":")).encode()


def strict(value: Any) -> Any:
    """Return a value as strict JSON can carry it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else nonfinite_name(value)
    if isinstance(value, Mapping):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(inner) for inner in value]
    return value if isinstance(value, str | int | bool | None) else strict(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Text):
        return said(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value) if isinstance(value, Path) else repr(value)
