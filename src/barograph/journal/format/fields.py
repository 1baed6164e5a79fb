"""Decoding: typed fields of JSON, and the payloads of frames that consist of them.

It is the boundary behind which types, sizes and nesting can be trusted. A correct checksum says that bytes are as they
were written, not who wrote them: a reader of a field, and ``decode`` for a payload, returns the contents with the types
of ``docs/journal.md``, or raises DecodingError with the reason. Time and memory are linear in the size of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from barograph.base.files.compression import count_values
from barograph.base.former_name import present
from barograph.journal.format.frames import PACKET_HEAD, PHASE_HEAD, PHASE_TAIL, ROW_HEAD, SCHEMA_HEAD, Kind

OPEN_STEP = -(2**63)  # of a frame that gets its step from a commit, see journal.segments.steps

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


MAX_NAMES = 100_000  # of a schema


def decode(kind: int, payload: bytes) -> Any:
    """Return the contents of a record; None for a phase, and for a kind that this version does not know."""
    read = READERS.get(kind)
    return None if read is None else read(payload)


COUNTS: dict[str, Read] = dict.fromkeys(("dropped", "waiting", "failed_writes", "failed_syncs", "late"), read_count)

COVERAGE: dict[str, Read] = {
    **dict.fromkeys(("tasks_observed", "tasks_failed", "tasks_partial", "runs_observed", "runs_failed"), read_count),
    **dict.fromkeys(("tasks_expected", "runs_expected"), nullable(read_count)),
    **dict.fromkeys(("partial_tasks", "failed_tasks", "missing_tasks"), list_of(read_text)),
}

ENVIRONMENT = object_of(
    {
        "command": nullable(list_of(read_text)),
        "git": nullable(
            object_of({"commit": read_text, "branch": nullable(read_text), "clean": read_flag}, ("commit", "clean"))
        ),
    }
)

DEVICE = object_of({"index": read_any, "total": nullable(read_number)}, ("index",))

UNREAD = object_of({"where": read_text, "reason": read_text, "count": read_count}, ("where", "reason", "count"))

EVENTS: dict[str, Read] = {
    "start": object_of(
        {
            "idle_seconds": nullable(read_number),
            "pid": nullable(read_integer),
            "world_size": nullable(read_world_size),
        }
    ),
    "config": object_of({"config": read_mapping}, ("config",)),
    "environment": object_of({"environment": ENVIRONMENT}, ("environment",)),
    "heartbeat": object_of(COUNTS),
    "devices": object_of({"devices": list_of(DEVICE)}, ("devices",)),
    "skipped": object_of({"name": read_text, "reason": read_text, "count": read_count}, ("name",)),
    "problem": object_of({"call": read_text, "error": read_text, "count": read_count}),
    "missing": object_of({"metrics": mapping_of(read_text)}, ("metrics",)),
    "lacking": object_of(
        {"of": read_text, "step": read_step, "reasons": mapping_of(read_count), **COVERAGE},
        ("of", "step", "reasons", "tasks_expected", "tasks_observed", "tasks_failed", "tasks_partial", "runs_failed"),
    ),
    "counts": object_of({"names": list_of(read_text), "how": one_of("sum", "total")}, ("names", "how")),
    "alone": object_of({"kind": read_text, "taskset": read_text}, ("kind", "taskset")),
    "shared": object_of({"kind": read_text, "since": read_step, "dropped": read_count}, ("kind", "since", "dropped")),
    "open_report": object_of({"kind": read_text, "taskset": read_text, "step": read_step}, ("kind", "taskset", "step")),
    "gather_failed": object_of({"step": read_step}, ("step",)),
    "finding": object_of(
        {"number": read_count, "kind": read_text, "step": read_step, "found": read_time, "finding": read_mapping},
        ("kind", "step", "finding"),
    ),
    "annotation": object_of({"text": read_text, "step": read_step}, ("text", "step")),
    "finish": object_of({"status": one_of(*STATUS_WORDS), "reason": read_text, "lost": read_flag, **COUNTS}),
    "imported": object_of(
        {
            "path": read_text,
            "format": read_text,
            "title": read_text,
            "status": nullable(one_of(*STATUS_WORDS)),
            "reason": read_text,
            "grown": nullable(read_time),
            "notes": list_of(read_text),
            "unread": list_of(UNREAD),
        },
        ("path", "format"),
    ),
    "mark": object_of(
        {"run": read_text, "name": nullable(read_text), "pinned": read_flag, "hidden": read_flag, "note": read_text},
        ("run",),
    ),
    "view": object_of({"name": read_text, "state": nullable(read_text)}, ("name",)),
}

EVENT = object_of({"event": read_text, "time": read_time}, ("event",))

OF_STEP: dict[str, Read] = {"name": read_text, "step": nullable(read_step), "time": read_time}

TEXT = object_of({**OF_STEP, "text": read_text}, ("name", "text"))

HISTOGRAM_FIELDS: dict[str, Read] = {
    "edges": list_of(read_number),
    "counts": list_of(read_number),
    **dict.fromkeys(("min", "max", "sum"), read_number),
    **dict.fromkeys(("count", "nonfinite"), read_count),
}

HISTOGRAM = object_of({**OF_STEP, **HISTOGRAM_FIELDS}, ("name", *HISTOGRAM_FIELDS))

LAYOUT = object_of(
    {"layout": read_text, "entries": list_of(list_of(read_text)), "options": read_mapping},
    ("layout", "entries"),
)

GATHERED = object_of(
    {"time": read_time, "kind": read_text, "taskset": read_text, "step": read_step},
    ("time", "kind", "taskset", "step"),
)


def decode_schema(payload: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the id and the names of a schema."""
    if len(payload) < SCHEMA_HEAD.size:
        raise DecodingError("it is too short")
    _, id = SCHEMA_HEAD.unpack_from(payload)
    names = list_of(read_text)(parse_json(payload[SCHEMA_HEAD.size :]))
    if len(names) > MAX_NAMES:
        raise DecodingError(f"it has more than {MAX_NAMES:,} names")
    return id, tuple(map(present, names))


def _event(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = EVENT(parse_json(payload[1:]))
    if isinstance(found.get("source"), str):  # of the names of a run, as a person has chosen it
        found["source"] = present(found["source"])
    read = EVENTS.get(found["event"])
    if read is not None:
        read(found)
    return found


def _text(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = TEXT(parse_json(payload[1:]))
    return {**found, "name": present(found["name"])}


def _histogram(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = HISTOGRAM(parse_json(payload[1:]))
    if len(found["edges"]) != len(found["counts"]) + 1:
        raise DecodingError("it must have one more edge than counts")
    return found


def _gathered(payload: bytes) -> tuple[dict[str, Any], bytes]:
    if len(payload) < PACKET_HEAD.size:
        raise DecodingError("it is too short")
    _, length = PACKET_HEAD.unpack_from(payload)
    end = PACKET_HEAD.size + length
    return GATHERED(parse_json(payload[PACKET_HEAD.size : end])), payload[end:]


def sparse_state_head(payload: bytes) -> tuple[int, int, float]:
    """Return layout, step and time of a sparse state; its body, behind them, is decoded where its layout is known."""
    if len(payload) <= ROW_HEAD.size:
        raise DecodingError("it is too short")
    _, layout, step, time = ROW_HEAD.unpack_from(payload)
    if step == OPEN_STEP or not 0 <= time <= MAX_TIME:
        raise DecodingError("its step or time is out of range")
    return layout, step, time


def _check_phase(payload: bytes) -> None:
    """Raise DecodingError for a frame that ``framing.parse_phases``, by which phases are read, leaves out."""
    if len(payload) < PHASE_HEAD.size:
        raise DecodingError("it is too short")
    kind, _, _, _, start, _, name, lane = PHASE_HEAD.unpack_from(payload)
    tail = PHASE_HEAD.size + name + lane
    closed = kind == Kind.PHASE_CLOSE
    if closed and len(payload) < tail + PHASE_TAIL.size:
        raise DecodingError("it is too short")
    if not 0 <= start <= MAX_TIME:
        raise DecodingError("its start is out of range")
    if closed and not 0 <= PHASE_TAIL.unpack_from(payload, tail)[0] <= MAX_SECONDS:
        raise DecodingError("its length is out of range")


READERS: dict[int, Callable[[bytes], Any]] = {
    Kind.EVENT: _event,
    Kind.TEXT: _text,
    Kind.HISTOGRAM: _histogram,
    Kind.LAYOUT: lambda payload: LAYOUT(parse_json(payload[1:])),
    Kind.GATHERED: _gathered,
    Kind.SPARSE_STATE: sparse_state_head,
    Kind.PHASE_OPEN: _check_phase,
    Kind.PHASE_CLOSE: _check_phase,
}

HEARTBEAT = bytes((Kind.EVENT,)) + b'{"event":"heartbeat"'

_COUNT = rb"(?:0|[1-9][0-9]{0,17})"

USUAL_HEARTBEAT = re.compile(
    HEARTBEAT.replace(b"{", rb"\{") + rb',"time":(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,30})?,"dropped":' + _COUNT
    + rb',"waiting":(' + _COUNT + rb'),"failed_writes":' + _COUNT + rb',"failed_syncs":' + _COUNT + rb"\}"
)  # fmt: skip
"""A heartbeat as barograph writes it, which needs no decoding."""


def waiting_frames(payload: bytes) -> int | None:
    """Return the number of frames that waited; None if the event is no heartbeat."""
    usual = USUAL_HEARTBEAT.fullmatch(payload)
    if usual is not None:
        return int(usual[1])
    event = decode(Kind.EVENT, payload)
    return event.get("waiting", 0) if event["event"] == "heartbeat" else None  # a key may occur twice
