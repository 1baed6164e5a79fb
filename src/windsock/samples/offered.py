"""What a user hands over as samples, checked: whatever is usable is taken, and what is not is named with a reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from windsock.model import Sample
from windsock.scalars import Refused, to_float

INTEGERS = range(-(2**63), 2**63)
TEXTS = ("prompt", "completion")
FIELDS = tuple(field.name for field in fields(Sample))

Refusals = dict[str, str]  # name of a field to why its value is not taken


def to_sample(given: Mapping[str, Any] | Sample) -> tuple[Sample, Refusals]:
    """Return a sample of what is usable, but for its step, and what was refused."""
    if isinstance(given, Sample):
        given = {name: getattr(given, name) for name in FIELDS}
    taken: dict[str, Any] = {}
    refused: Refusals = {}
    for name, value in _with_chat_as_messages(given).items():
        if value is None or name == "step":
            continue
        if name not in READERS:
            refused[str(name)] = _unknown(name)
            continue
        read = READERS[name](value, refused)
        if isinstance(read, Refused):
            refused[name] = str(read)
        else:
            taken[name] = read
    return Sample(**taken), refused


def rows_of(columns: Mapping[str, Any]) -> tuple[Iterator[dict[str, Any]], Refusals]:
    """Return the rows of a mapping of columns, single values repeated, and the columns that have another length."""
    listed = {name: _listed_safely(name, column) for name, column in columns.items()}
    odd = {name: str(column) for name, column in listed.items() if isinstance(column, Refused)}
    lengths = {name: len(column) for name, column in listed.items() if isinstance(column, list)}
    count = next((lengths[name] for name in (*TEXTS, "messages") if name in lengths), max(lengths.values(), default=1))
    odd |= {name: f"a column of {size}, where there are {count}" for name, size in lengths.items() if size != count}
    whole = {name: column for name, column in listed.items() if name not in odd}
    return ({name: _entry(column, row) for name, column in whole.items()} for row in range(count)), odd


def _listed_safely(name: str, column: Any) -> Any:
    try:
        return _listed(name, column)
    except Exception as problem:  # noqa: BLE001 - a column may do anything when asked
        return Refused(f"of type {type(column).__name__}, not a column ({problem})")


def _listed(name: str, column: Any) -> Any:
    """Return a column as a list, or a single value as it is; components of the reward are columns each."""
    if name == "rewards" and isinstance(column, Mapping):
        return _transposed({key: _listed(key, inner) for key, inner in column.items()})
    if isinstance(column, str | bytes | Mapping) or column is None:
        return column
    if hasattr(column, "tolist"):  # an array or a tensor; a single number stays one
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


def _with_chat_as_messages(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was given with a prompt or completion that is a list of messages where messages belong."""
    chats = {name: given[name] for name in TEXTS if _is_chat(given.get(name))}
    if not chats or given.get("messages") is not None:
        return given
    said: list[Any] = []
    for name in TEXTS:
        text = given.get(name)
        role = "user" if name == "prompt" else "assistant"
        said += chats.get(name, [{"role": role, "content": text}] if isinstance(text, str) and text else [])
    return {**{name: value for name, value in given.items() if name not in TEXTS}, "messages": said}


def _is_chat(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _unknown(name: Any) -> str:
    near = difflib.get_close_matches(str(name), FIELDS, 1, 0.5)
    return "no field of a sample" + (f" (did you mean {near[0]!r}?)" if near else f": those are {', '.join(FIELDS)}")


def _text(value: Any, _: Refusals) -> str | Refused:
    return str(value) if isinstance(value, str) else Refused(f"of type {type(value).__name__}, not a text")


def _number(value: Any, _: Refusals) -> float | Refused:
    return to_float(value)


def _integer(value: Any, _: Refusals) -> int | Refused:
    number = value if type(value) is int else to_float(value)
    if isinstance(number, Refused):
        return number
    if isinstance(number, float) and not number.is_integer():
        return Refused(f"{number}, not a whole number")
    return int(number) if int(number) in INTEGERS else Refused("an integer of more than 64 bits")


def _label(value: Any, refused: Refusals) -> str | Refused:
    """Return a name; numbers that name things are taken too."""
    if isinstance(value, str):
        return str(value)
    number = _integer(value, refused)
    return Refused(f"of type {type(value).__name__}, no name") if isinstance(number, Refused) else str(number)


def _numbers(value: Any, refused: Refusals) -> dict[str, float] | Refused:
    if not isinstance(value, Mapping):
        return Refused(f"of type {type(value).__name__}, not a mapping of names to numbers")
    read = {str(name): to_float(entry) for name, entry in value.items() if entry is not None}
    refused |= {f"rewards/{name}": str(entry) for name, entry in read.items() if isinstance(entry, Refused)}
    return {name: entry for name, entry in read.items() if not isinstance(entry, Refused)}


def _messages(value: Any, refused: Refusals) -> tuple[Mapping[str, Any], ...] | Refused:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return Refused(f"of type {type(value).__name__}, not a list of messages")
    good = tuple(entry for entry in value if isinstance(entry, Mapping))
    if len(good) < len(value):
        refused["messages"] = "a list in which not all are mappings with role and content"
    return good


READERS: dict[str, Callable[[Any, Refusals], Any]] = {
    **dict.fromkeys(TEXTS, _text),
    "messages": _messages,
    "rewards": _numbers,
    **dict.fromkeys(("reward", "advantage", "time"), _number),
    **dict.fromkeys(("length", "weight_version"), _integer),
    **dict.fromkeys(("finish_reason", "task", "run", "group"), _label),
}
