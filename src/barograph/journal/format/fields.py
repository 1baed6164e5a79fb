"""Typed fields of JSON: the boundary behind which types, sizes and nesting can be trusted.

A reader of a field returns the value with its type, or raises DecodingError with the reason. Its time and memory
are linear in the size of the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from barograph.base.files.compression import count_values

OPEN_STEP = -(2**63)  # of a frame that gets its step from a commit, see journal.steps

MAX_STEP = 2**63 - 1

MAX_DEPTH = 1000  # of nested lists and objects; writers stop at 100

MAX_ITEMS = 1_000_000  # of a JSON value: an empty list takes 2 bytes in a file and 64 in memory

MAX_TIME = 1e11  # seconds since 1970, which is the year 5138: beyond it, functions of time raise

MAX_WORLD_SIZE = 1 << 17

MAX_SECONDS = 1e11

MAX_NUMBER = 2.0**63  # tokens and bytes of a phase

INT64 = range(-(2**63), 2**63)

STATUS_WORDS = ("finished", "crashed", "killed")

Read = Callable[[Any], Any]
"""Returns a JSON value with its type, or raises DecodingError."""


class DecodingError(ValueError):
    """A payload does not have the contents that its kind requires."""


def parse_json(body: bytes | str) -> Any:
    """Parse JSON that is neither too large nor nested too deeply."""
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    openings = data.count(b"[") + data.count(b"{")
    # Brackets and commas inside of texts are no entries; the exact count is slower.
    if openings + data.count(b",") > MAX_ITEMS and count_values(data) > MAX_ITEMS:
        raise DecodingError(f"it has more than {MAX_ITEMS:,} entries")
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise DecodingError("it is nested too deeply") from None
    except ValueError:
        raise DecodingError("it is not valid JSON") from None
    if openings > MAX_DEPTH and _is_deep(value):
        raise DecodingError("it is nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [inner for inner in level if isinstance(inner, dict | list)]
        if not containers:
            return False
        level = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]
    return True


def read_any(value: Any) -> Any:
    """Return any value."""
    return value


def read_text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise DecodingError("must be a text")
    return value


def read_flag(value: Any) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise DecodingError("must be true or false")
    return value


def read_integer(value: Any) -> int:
    """Return an integer of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in INT64:
        raise DecodingError("must be an integer of 64 bits")
    return value


def read_count(value: Any) -> int:
    """Return an integer that is not negative."""
    if read_integer(value) < 0:
        raise DecodingError("must not be negative")
    return int(value)


def read_step(value: Any) -> int:
    """Return the number of a step."""
    if read_integer(value) == OPEN_STEP:
        raise DecodingError("must be the number of a step")
    return int(value)


def read_number(value: Any) -> float:
    """Return a number, which may be NaN or infinite."""
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 1000:
        raise DecodingError("must be a number")
    return value


def read_time(value: Any) -> float:
    """Return a time in seconds since 1970."""
    if not 0 <= read_number(value) <= MAX_TIME:  # NaN is not in the range either
        raise DecodingError("must be a time in seconds since 1970")
    return float(value)


def read_mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise DecodingError("must be an object")
    return value


def read_world_size(value: Any) -> int:
    """Return a number of processes; readers make lists of them."""
    if read_count(value) > MAX_WORLD_SIZE:
        raise DecodingError(f"must be at most {MAX_WORLD_SIZE:,}")
    return int(value)


def one_of(*choices: str) -> Read:
    """Return a reader of one of some texts."""

    def read(value: Any) -> Any:
        if value not in choices or not isinstance(value, str):
            raise DecodingError(f"must be {' or '.join(choices)}")
        return value

    return read


def nullable(inner: Read) -> Read:
    """Return a reader that also takes null."""
    return lambda value: None if value is None else inner(value)


def list_of(inner: Read) -> Read:
    """Return a reader of a list."""

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise DecodingError("must be a list")
        return [inner(entry) for entry in value]

    return read


def mapping_of(inner: Read) -> Read:
    """Return a reader of an object whose values have one type."""
    return lambda value: {name: inner(entry) for name, entry in read_mapping(value).items()}


def tuple_of(inner: Read) -> Read:
    """Return a reader of a list as a tuple."""
    several = list_of(inner)
    return lambda value: tuple(several(value))


def record_of(kind: type, /, **own: Read) -> Read:
    """Return a reader of a dataclass from an object with its fields, by their types; others are left out.

    ``own`` has readers of fields that are stricter than their types. Fields without a default are required.
    """
    types = get_type_hints(kind)
    readers = {one.name: own.get(one.name) or _reader(types[one.name]) for one in fields(kind)}
    required = (one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    read = object_of(readers, tuple(required))

    def record(value: Any) -> Any:
        found = read(dict(read_mapping(value)))
        return kind(**{name: found[name] for name in readers if name in found})

    return record


def _reader(type: Any) -> Read:
    """Return the reader of a type: of plain values, dataclasses, tuples of one type, words, and what may be None."""
    inner = [one for one in get_args(type) if one not in (NoneType, Ellipsis)]
    if get_origin(type) is Literal:
        return one_of(*inner)
    if get_origin(type) is tuple:
        return tuple_of(_reader(inner[0]))
    if inner:
        return nullable(_reader(inner[0]))
    return PLAIN[type] if type in PLAIN else record_of(type)


PLAIN: dict[Any, Read] = {str: read_text, bool: read_flag, int: read_integer, float: read_number, Any: read_any}


def object_of(readers: Mapping[str, Read], required: tuple[str, ...] = ()) -> Read:
    """Return a reader of an object with some fields; others are left as they are."""

    def read(value: Any) -> dict[str, Any]:
        found = read_mapping(value)
        for name in required:
            if name not in found:
                raise DecodingError(f"{name!r} is missing")
        for name in found.keys() & readers.keys():
            try:
                found[name] = readers[name](found[name])
            except DecodingError as problem:
                raise DecodingError(f"{name!r} {problem}") from None
        return found

    return read
