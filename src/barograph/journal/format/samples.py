"""Samples as JSON objects in the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from barograph.base.files.compression import MAX_DIRECT, MAX_VALUES, count_values, load_json
from barograph.base.model import Sample
from barograph.journal.format.frames import MAX_SAMPLE_BODY
from barograph.journal.format.tokens import decode_alternatives, decode_tokens, encode_alternatives, encode_tokens

MAX_SAMPLE_BYTES = MAX_SAMPLE_BODY - 2  # of one sample's JSON; the brackets of the array are around it

MAX_REPR = 1000  # characters of the text of an object in a message that JSON does not support
INTEGERS = range(-(2**63), 2**63)  # the index of samples is an SQLite file, whose integers have 64 bits


def encode(sample: Sample) -> bytes:
    """Return a sample as JSON in UTF-8, without its empty fields."""
    record = {name: value for name in NAMES if (value := getattr(sample, name)) not in EMPTY}
    if len(sample.tokens):
        record |= encode_tokens(sample) | encode_alternatives(sample.top_logprobs, len(sample.tokens))
    try:
        return to_json(record)
    except Exception:  # noqa: BLE001 - a message may contain itself, or objects that raise
        return to_json({**record, "messages": [{"content": repr(m)[:MAX_REPR]} for m in sample.messages]})


def to_json(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON in UTF-8; with a lone surrogate, in ASCII with escapes."""
    try:
        return _dump(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _dump(record, ensure_ascii=True).encode()


def is_readable(text: bytes) -> bool:
    """Return whether a sample's JSON is within the limits of readers."""
    if len(text) <= MAX_DIRECT:
        return True
    return len(text) <= MAX_SAMPLE_BYTES and count_values(text) < MAX_VALUES


def decode(record: Any, step: int, time: float = 0.0) -> Sample:
    """Return the sample of a record, parsed or as JSON; entries of a wrong type are left out."""
    if isinstance(record, bytes):
        record = load_json(record)
    if not isinstance(record, Mapping):
        raise ValueError("a sample must be a JSON object")
    # Another program may have written the record: a wrong entry costs itself, not the sample.
    found = {name: value for name, read in READERS.items() if (value := read(record.get(name))) is not None}
    tokens = decode_tokens(record)
    tokens |= decode_alternatives(record, len(tokens.get("tokens", ())))
    return Sample(**{"time": time, **found, **tokens}, step=step)


def _dump(record: Mapping[str, Any], ensure_ascii: bool) -> str:
    # Messages come from users and may contain anything: what JSON does not support is left out or becomes its text.
    return json.dumps(record, separators=(",", ":"), ensure_ascii=ensure_ascii, skipkeys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return plain data for an object that JSON does not support: a mapping, a scalar array, or its text."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return repr(value)[:MAX_REPR]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    return float(number) if (number := _integer(value)) is not None else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in INTEGERS else None


def _numbers(value: Any) -> dict[str, float] | None:
    if not isinstance(value, Mapping):
        return None
    return {name: number for name, entry in value.items() if (number := _number(entry)) is not None}


def _columns(value: Any) -> dict[str, float | int | bool | str] | None:
    if not isinstance(value, Mapping):
        return None
    return {name: entry for name, entry in value.items() if _is_scalar(entry)}


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | float | bool) or _integer(value) is not None


def _messages(value: Any) -> tuple[Mapping[str, Any], ...] | None:
    return tuple(entry for entry in value if isinstance(entry, Mapping)) if isinstance(value, list) else None


READERS: dict[str, Callable[[Any], Any]] = {
    "prompt": _text,
    "completion": _text,
    "messages": _messages,
    "reward": _number,
    "rewards": _numbers,
    "advantage": _number,
    "length": _integer,
    "finish_reason": _text,
    "task": _text,
    "run": _text,
    "group": _text,
    "weight_version": _integer,
    "time": _number,
    "id": _text,
    "answer": _text,
    "reference": _text,
    "discarded": _text,
    "columns": _columns,
}
NAMES = tuple(field.name for field in fields(Sample) if field.name in READERS)
EMPTY: tuple[Any, ...] = (None, "", (), {})
