"""Parsing of submitted samples: usable fields are taken, the others are named with a reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from windsock.model import Sample
from windsock.scalars import Rejection, to_float

# The integers of SQLite, in which the index stores them.
INTEGERS = range(-(2**63), 2**63)
TEXTS = ("prompt", "completion")
FIELDS = tuple(field.name for field in fields(Sample))
OTHER_NAMES = {"response": "completion"}  # as Trinity, slime and others have it

Rejections = dict[str, str]  # name of a field to the reason why its value is not taken


def to_sample(given: Mapping[str, Any] | Sample) -> tuple[Sample, Rejections]:
    """Return a sample of the usable fields except its step, and the rejected fields."""
    if isinstance(given, Sample):
        given = {name: getattr(given, name) for name in FIELDS}
    taken: dict[str, Any] = {}
    rejected: Rejections = {}
    for name, value in _with_chat_as_messages(_with_own_names(given)).items():
        if value is None or name == "step":
            continue
        if name not in READERS:
            rejected[str(name)] = _unknown(name)
            continue
        read = READERS[name](value, rejected)
        if isinstance(read, Rejection):
            rejected[name] = str(read)
        else:
            taken[name] = read
    return Sample(**taken), rejected


def rows_of(columns: Mapping[str, Any]) -> tuple[Iterator[dict[str, Any]], Rejections]:
    """Return the rows of a mapping of columns, with single values repeated, and the columns of another length."""
    listed = {name: _listed_safely(name, column) for name, column in _with_own_names(columns).items()}
    odd = {name: str(column) for name, column in listed.items() if isinstance(column, Rejection)}
    lengths = {name: len(column) for name, column in listed.items() if isinstance(column, list)}
    # The texts say how many samples there are; a column that differs from them is the wrong one.
    count = next((lengths[name] for name in (*TEXTS, "messages") if name in lengths), max(lengths.values(), default=1))
    odd |= {name: f"column has {size} entries, expected {count}" for name, size in lengths.items() if size != count}
    usable = {name: column for name, column in listed.items() if name not in odd}
    return ({name: _entry(column, row) for name, column in usable.items()} for row in range(count)), odd


def _listed_safely(name: str, column: Any) -> Any:
    try:
        return _listed(name, column)
    except Exception as error:  # noqa: BLE001 - the column's own methods may raise anything
        return Rejection(f"value is of type {type(column).__name__}, not a column ({error})")


def _listed(name: str, column: Any) -> Any:
    """Return a column as a list, or a single value as it is; each component of the reward is a column."""
    if name == "rewards" and isinstance(column, Mapping):
        return _transposed({key: _listed(key, inner) for key, inner in column.items()})
    if isinstance(column, str | bytes | Mapping) or column is None:
        return column
    if hasattr(column, "tolist"):  # an array or a tensor; one without dimensions becomes a number
        return column.tolist()
    return list(column) if isinstance(column, Iterable) else column


def _transposed(columns: Mapping[str, Any]) -> Any:
    count = max((len(column) for column in columns.values() if isinstance(column, list)), default=None)
    if count is None:
        return columns
    return [
        {
            name: _entry(column, row)
            for name, column in columns.items()
            if not isinstance(column, list) or row < len(column)
        }
        for row in range(count)
    ]


def _entry(column: Any, row: int) -> Any:
    return column[row] if isinstance(column, list) else column


def _with_own_names(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields under our names; one that is there under both stays as it is."""
    renamed = {other: own for other, own in OTHER_NAMES.items() if other in given and given.get(own) is None}
    if not renamed:
        return given
    kept = {name: value for name, value in given.items() if name not in renamed}
    return kept | {own: given[other] for other, own in renamed.items()}


def _with_chat_as_messages(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with a prompt or completion that is a list of messages moved to ``messages``."""
    chats = {name: given[name] for name in TEXTS if _is_chat(given.get(name))}
    if not chats or given.get("messages") is not None:
        return given
    messages: list[Any] = []
    for name in TEXTS:
        text = given.get(name)
        role = "user" if name == "prompt" else "assistant"
        messages += chats.get(name, [{"role": role, "content": text}] if isinstance(text, str) and text else [])
    return {**{name: value for name, value in given.items() if name not in TEXTS}, "messages": messages}


def _is_chat(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _unknown(name: Any) -> str:
    near = difflib.get_close_matches(str(name), FIELDS, 1, 0.5)
    return "not a field of a sample" + (f" (did you mean {near[0]!r}?)" if near else f"; expected {', '.join(FIELDS)}")


def _text(value: Any, _: Rejections) -> str | Rejection:
    # ``str`` makes a plain string of a subclass, such as NumPy's.
    return str(value) if isinstance(value, str) else Rejection(f"value is of type {type(value).__name__}, not a string")


def _number(value: Any, _: Rejections) -> float | Rejection:
    return to_float(value)


def _integer(value: Any, _: Rejections) -> int | Rejection:
    # An int is not converted: a float has no room for more than 53 bits.
    number = value if type(value) is int else to_float(value)
    if isinstance(number, Rejection):
        return number
    if isinstance(number, float) and not number.is_integer():
        return Rejection(f"value is {number}, not a whole number")
    return int(number) if int(number) in INTEGERS else Rejection("value is an integer of more than 64 bits")


def _label(value: Any, rejected: Rejections) -> str | Rejection:
    """Return a name as a string; whole numbers are names too."""
    if isinstance(value, str):
        return str(value)
    number = _integer(value, rejected)
    return (
        Rejection(f"value is of type {type(value).__name__}, not a name")
        if isinstance(number, Rejection)
        else str(number)
    )


def _numbers(value: Any, rejected: Rejections) -> dict[str, float] | Rejection:
    if not isinstance(value, Mapping):
        return Rejection(f"value is of type {type(value).__name__}, not a mapping of names to numbers")
    read = {str(name): to_float(entry) for name, entry in value.items() if entry is not None}
    rejected |= {f"rewards/{name}": str(entry) for name, entry in read.items() if isinstance(entry, Rejection)}
    return {name: entry for name, entry in read.items() if not isinstance(entry, Rejection)}


def _messages(value: Any, rejected: Rejections) -> tuple[Mapping[str, Any], ...] | Rejection:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return Rejection(f"value is of type {type(value).__name__}, not a list of messages")
    good = tuple(entry for entry in value if isinstance(entry, Mapping))
    if len(good) < len(value):
        rejected["messages"] = "some entries are not mappings with role and content"
    return good


READERS: dict[str, Callable[[Any, Rejections], Any]] = {
    **dict.fromkeys(TEXTS, _text),
    "messages": _messages,
    "rewards": _numbers,
    **dict.fromkeys(("reward", "advantage", "time"), _number),
    **dict.fromkeys(("length", "weight_version"), _integer),
    **dict.fromkeys(("finish_reason", "task", "run", "group"), _label),
}
