"""Runs whose frames are intact and whose contents are nonsense: made by hand, and mutations of a recorded run.

A run is a dict from file name to bytes. Every frame of a segment has the right length and checksum, so that only the
decoding of its payload stands between it and the code behind.
"""

import json
import math
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barograph.journal.format import frames
from barograph.journal.format.fields import OPEN_STEP, decode
from barograph.journal.format.frames import FRAME_HEAD, FRAME_MAGIC, SEGMENT_HEAD, Kind, frame, segment_head

Files = dict[str, bytes]
OLD_RUN = Path(__file__).parents[1] / "data" / "run-0.1"
SEGMENT = "trainer.0.1.0.seg"
NOW = 1.7e9
NAMES = ("critic/score/mean", "time/step", "x")
DEEP = 100_000

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**400, -(10**400), 0.5, -0.0, 1e-320,
    1e300, -1e300, math.nan, math.inf, -math.inf, "", "x",
    "\ud800", "\x1b[2J", "名" * 50, "1", "nan", "9" * 30, [], [0],
    [None] * 3, [[]], ["x"], [math.nan], {}, {"x": 1}, {"": None}, {"\udfff": []}, [{}], {"event": "finish"},
)  # fmt: skip
FEW_NASTY = dict(list(enumerate(NASTY))[::3])  # where each is a run of its own


def segment(*payloads: bytes) -> bytes:
    """Return a segment of intact frames."""
    return segment_head() + b"".join(map(frame, payloads))


def row(
    step: int = 0, time: float = NOW, values: tuple[float, ...] = (1.0, 2.0, 3.0), schema: int | None = None
) -> bytes:
    """Return a row of ``NAMES``, or of another schema."""
    schema = frames.schema_id(NAMES) if schema is None else schema
    return frames.row_struct(len(values)).pack(Kind.ROW, schema, step, time, *values)


def schema(names: Any = NAMES, id: int | None = None) -> bytes:
    """Return a schema frame's payload with any names."""
    id = frames.schema_id(NAMES) if id is None else id
    return frames.SCHEMA_HEAD.pack(Kind.SCHEMA, id) + text(names)


def text(value: Any) -> bytes:
    """Return a value as JSON."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def record(kind: Kind, value: Any) -> bytes:
    """Return a record with any JSON as its body."""
    return bytes((kind,)) + text(value)


def event(what: Any, /, time: Any = NOW, **fields: Any) -> bytes:
    """Return an event with any fields."""
    return record(Kind.EVENT, {"event": what, "time": time, **fields})


def phase(
    span: int,
    parent: int = 0,
    step: int = 0,
    start: float = NOW,
    name: bytes = b"phase",
    closed: bool = True,
    durations: tuple[float, ...] = (1.0, math.nan, 1.0, math.nan, 10.0, math.nan, math.nan),
    flags: int = 0,
) -> bytes:
    """Return a phase frame's payload."""
    head = (span, parent, step, start, flags, name, b"main")
    return frames.phase_close_payload(*head, durations) if closed else frames.phase_open_payload(*head)


def start_event() -> bytes:
    """Return the start of a process of another machine."""
    return event("start", machine="elsewhere", pid=1, born=1.0, world_size=1)


def usual(*payloads: bytes) -> Files:
    """Return a run with some payloads between those of a good run."""
    return {SEGMENT: segment(start_event(), schema(), row(0), *payloads, row(1), frames.commit_payload(1, NOW + 1))}


def packed(body: bytes, **head: Any) -> bytes:
    """Return a gathered frame's payload with any stream."""
    return frames.packet_payload(
        Kind.GATHERED, {"time": NOW, "kind": "rollouts", "taskset": "", "step": 1, **head}, body
    )


def two_ranks(*payloads: bytes) -> Files:
    """Return a run of two ranks that both have some payloads."""
    return {f"trainer.{rank}.1.0.seg": segment(start_event(), schema(), row(1), *payloads) for rank in (0, 1)}


def layout(entries: Any, options: Any = None, id: Any = "7") -> bytes:
    """Return a layout record."""
    options = {"clip": [0.2, 0.2]} if options is None else options
    return record(Kind.LAYOUT, {"layout": id, "entries": entries, "options": options})


def state(layout: int, values: tuple[float, ...], step: int = 1) -> bytes:
    """Return a state of a layout."""
    return frames.state_payload(layout, step, NOW, values)


def sparse_state(body: bytes, step: int = 1) -> bytes:
    """Return a sparse state with any bytes."""
    return frames.sparse_state_payload(7, step, NOW, body)


SPARSE_BODIES = (
    b"d" + b"\xff" * 106 + struct.pack("<847d", *([math.inf, -math.inf, math.nan, -1e308, 5e-324] * 170)[:847]),
    b"d" + b"\xff" * 106 + struct.pack("<848d", *[1e308] * 848),
    b"I" + b"\xff" * 106 + b"\xff" * 4 * 848,
    b"B" + bytes(106),
    b"x" + bytes(106),
    b"d" + b"\xff" * 106,
    b"d",
    b"\0" * 3_000_000,
)


def _odd_tokens(value: object) -> dict[str, object]:
    """Return a sample whose columns, tokens and their values are anything."""
    tokens = {"count": value, "lengths": value, "text": value}
    message = {"role": value, "content": [value, {"type": "image", "image": value}], "tool_calls": value}
    return {"columns": {"x": value}, "tokens": tokens, "token_values": {"x": value}, "messages": [message], "id": value}


def samples(body: bytes, kept: int = 1, seen: int = 1, step: int = 1) -> bytes:
    """Return a sample frame's payload with any stream."""
    return frames.SAMPLE_HEAD.pack(Kind.SAMPLE, step, NOW, kept, seen) + body


def fake_heads(length: int, size: int) -> bytes:
    """Return heads of frames without their payloads."""
    head = FRAME_HEAD.pack(FRAME_MAGIC, length, 0)
    return head * (size // len(head))


def _info(**changes: Any) -> bytes:
    return text({"format": 1, "id": "bad", "project": "p", "name": "bad", "created": NOW, **changes})


def _nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"0" + closing * depth


def handmade() -> dict[str, Callable[[], Files]]:
    """Return the cases that were made by hand, by id. They are functions: some are large."""
    cases: dict[str, Callable[[], Files]] = {}
    for maker in (
        _json_cases,
        _schema_cases,
        _row_cases,
        _event_cases,
        _phase_cases,
        _state_cases,
        _file_cases,
        _bombs,
    ):
        cases |= maker()
    return cases


def _json_cases() -> dict[str, Callable[[], Files]]:
    bodies: dict[str, bytes] = {
        "list": b"[]",
        "null": b"null",
        "number": b"7",
        "string": b'"event"',
        "empty": b"",
        "cut": b'{"event": "fin',
        "not utf-8": b"\xff\xfe\xfd",
        "utf-16": '{"event": "finish"}'.encode("utf-16"),
        "deep list": _nested(DEEP),
        "deep dict": b'{"a":' * DEEP + b"0" + b"}" * DEEP,
        "deep inside": b'{"event": "config", "time": 1, "config": {"a": ' + _nested(900) + b"}}",
        "very deep inside": b'{"event": "config", "time": 1, "config": {"a": ' + _nested(5000) + b"}}",
        "long number": b'{"event": "config", "time": ' + b"9" * 100_000 + b"}",
        "many empty lists": b"[" + b"[]," * 3_000_000 + b"[]]",
    }
    kinds = (Kind.EVENT, Kind.HISTOGRAM, Kind.TEXT, Kind.LAYOUT)
    return {
        f"{name} as {kind.name.lower()}": lambda kind=kind, body=body: usual(record(kind, body))
        for name, body in bodies.items()
        for kind in (kinds if len(body) < 1000 else kinds[:1])
    }


def _schema_cases() -> dict[str, Callable[[], Files]]:
    million = [f"n{number}" for number in range(1_000_000)]
    bodies: dict[str, Any] = {
        "dict": {"a": 1},
        "numbers": [1, 2, 3],
        "nested": [["a"], ["b"], ["c"]],
        "nulls": [None, None, None],
        "duplicates": ["a", "a", "a"],
        "surrogates": ["\ud800", "\x1b]0;title\x07", "a\nb"],
        "deep": _nested(DEEP),
        "empty names": ["", "/", "//"],
        "long name": ["a" * 100_000, "b", "c"],
    }
    cases: dict[str, Callable[[], Files]] = {
        f"schema of {name}": lambda body=body: {SEGMENT: segment(schema(body), row(0), row(1))}
        for name, body in bodies.items()
    }
    wide = struct.pack("<BQqd", Kind.ROW, 5, 0, NOW) + bytes(8_000_000)
    return cases | {
        "schema without names": lambda: {SEGMENT: segment(schema([], 5), row(values=(), schema=5), row(1))},
        "schema of a million names": lambda: {SEGMENT: segment(schema(million, 5), wide)},
        "schema that is missing": lambda: {SEGMENT: segment(row(0, schema=77), row(1, schema=78))},
        "schema with two meanings": lambda: {SEGMENT: segment(schema(), row(), schema(["a"]), row(values=(1.0,)))},
        "many schemas": lambda: {SEGMENT: segment(*(row(n, schema=n) for n in range(5000)))},
    }


def _row_cases() -> dict[str, Callable[[], Files]]:
    steps = (2**63 - 1, -(2**63) + 1, -1, 2**62, 0)
    times = (math.nan, math.inf, -math.inf, -1.0, 1e300, 5e-324, 1e18)
    cases: dict[str, Callable[[], Files]] = {}
    cases |= {f"row of step {step}": lambda step=step: usual(row(step), row(OPEN_STEP)) for step in steps}
    cases |= {f"row at {time}": lambda time=time: usual(row(3, time)) for time in times}
    cases |= {f"rows at {time}": lambda time=time: usual(*(row(n, time) for n in range(50))) for time in times}
    cases |= {
        f"commit of {step}": lambda step=step: usual(frames.commit_payload(step, NOW)) for step in (*steps, OPEN_STEP)
    }
    cases |= {f"commit at {time}": lambda time=time: usual(frames.commit_payload(5, time)) for time in times}
    return cases | {
        "rows of other lengths": lambda: usual(*(row(n, values=(1.0,) * n) for n in range(9))),
        "rows with excess bytes": lambda: usual(*(row(n) + b"x" * n for n in range(9))),
        "many rows with excess bytes": lambda: usual(*(row(n) + b"xyz" for n in range(50))),
        "row that is too short": lambda: usual(bytes((Kind.ROW,)), bytes((Kind.STATE,)) + b"abc", row(1)[:24]),
        "commits that go backwards": lambda: usual(*(frames.commit_payload(9 - n, NOW - n) for n in range(9))),
        "commits of odd lengths": lambda: usual(bytes((Kind.COMMIT,)), frames.commit_payload(1, NOW) + b"x"),
        "infinite values": lambda: usual(*(row(n, values=(math.inf, -math.inf, math.nan)) for n in range(20))),
        "huge values": lambda: usual(*(row(n, values=(1.8e308, -1.8e308, 5e-324)) for n in range(20))),
        "unknown kinds": lambda: usual(*(bytes((kind,)) + b"x" * 30 for kind in (0, 11, 15, 200, 255))),
        "every kind without a body": lambda: usual(*(bytes((kind,)) for kind in range(256))),
    }


def _event_cases() -> dict[str, Callable[[], Files]]:
    fields: dict[str, tuple[str, ...]] = {
        "start": ("time", "machine", "pid", "born", "idle_seconds", "world_size", "event"),
        "finish": ("status", "reason", "late", "dropped"),
        "config": ("config",),
        "environment": ("environment",),
        "skipped": ("name", "reason", "count"),
        "problem": ("call", "error", "count"),
        "missing": ("metrics",),
        "lacking": ("of", "step", "reasons", "tasks_expected", "tasks_observed", "missing_tasks"),
        "devices": ("devices",),
        "heartbeat": ("dropped", "waiting", "failed_writes"),
        "counts": ("names", "how"),
        "alone": ("kind", "taskset"),
        "shared": ("kind", "since", "dropped"),
        "open_report": ("kind", "taskset", "step"),
        "gather_failed": ("step",),
    }

    def case(name: str, field: str) -> Files:
        return usual(*(event(name, **{**_full(name), field: value}) for value in NASTY if field != "event")) | (
            {"explorer.0.1.0.seg": segment(*(record(Kind.EVENT, {"event": v}) for v in NASTY))}
            if field == "event"
            else {}
        )

    cases: dict[str, Callable[[], Files]] = {
        f"{name} with any {field}": lambda name=name, field=field: case(name, field)
        for name, of_event in fields.items()
        for field in of_event
    }
    for field in ("command", "git"):
        cases[f"environment with any {field}"] = lambda field=field: usual(
            *(event("environment", environment={field: value}) for value in NASTY)
        )
    for number, value in enumerate((*NASTY, 10**9)):
        start = {"machine": "elsewhere", "pid": 1, "born": 1.0, "world_size": value}
        cases[f"world of any size {number}"] = lambda start=start: {
            SEGMENT: segment(event("start", **start), schema(), row(0))
        }
    for number, value in FEW_NASTY.items():
        # One at a time: in the cases above the last event of a kind hides the others.
        cases[f"finish with status {number}"] = lambda value=value: usual(event("finish", status=value, reason=value))
        cases[f"environment {number}"] = lambda value=value: usual(
            event("environment", environment={"command": value, "git": value, "host": value})
        )
        cases[f"lacking {number}"] = lambda value=value: usual(
            event("lacking", **{**_full("lacking"), "reasons": value, "of": value})
        )
        cases[f"devices {number}"] = lambda value=value: usual(
            event("devices", devices=[value, {"index": value, "total": value}])
        )
    return cases | {
        "events without fields": lambda: usual(*(record(Kind.EVENT, {"event": name}) for name in fields)),
        "events at odd times": lambda: usual(*(event("heartbeat", time=value) for value in NASTY)),
        "texts with any field": lambda: usual(
            *(
                record(Kind.TEXT, {"name": "t", "step": None, "time": NOW, "text": "x", field: value})
                for field in ("name", "step", "time", "text")
                for value in NASTY
            )
        ),
        "histograms with any field": lambda: usual(
            *(
                record(Kind.HISTOGRAM, {**_full("histogram"), field: value})
                for field in _full("histogram")
                for value in NASTY
            )
        ),
    }


def _full(name: str) -> dict[str, Any]:
    """Return the fields of a good event or histogram."""
    if name == "histogram":
        numbers = {"edges": [0, 1, 2], "counts": [1, 2], "min": 0, "max": 2, "sum": 3, "count": 3, "nonfinite": 0}
        return {"name": "h", "step": 1, "time": NOW, **numbers}
    if name == "lacking":
        counts = ("tasks_expected", "tasks_observed", "tasks_failed", "tasks_partial", "runs_expected", "runs_failed")
        return {"of": "rollouts", "step": 1, "reasons": {"timeout": 1}, **dict.fromkeys(counts, 1)}
    shared = {"kind": "rollouts", "taskset": "", "step": 1, "since": 1, "dropped": 1, "names": ["a"], "how": "total"}
    return {"name": "x", "reason": "r", "call": "run.log", "error": "e", **shared}


def _phase_cases() -> dict[str, Callable[[], Files]]:
    numbers = (math.nan, math.inf, -math.inf, -1.0, 1e300, 1e15)
    places = ("elapsed", "onload", "execute", "offload", "tokens", "peak", "rss")
    cases: dict[str, Callable[[], Files]] = {}
    for place, what in enumerate(places):
        for number in numbers:
            durations = tuple(number if n == place else 1.0 for n in range(7))
            cases[f"phase with {what} {number}"] = lambda d=durations: usual(
                phase(1, durations=d), phase(2, start=NOW + 5)
            )
    for number in numbers:
        cases[f"phase from {number}"] = lambda number=number: usual(phase(1, start=number), phase(2, start=NOW + 5))
        cases[f"open phase from {number}"] = lambda number=number: usual(phase(1, start=number, closed=False))
    chain = [phase(n, n - 1, start=NOW + n, name=b"%d" % n) for n in range(1, 5000)]
    return cases | {
        "phase in itself": lambda: usual(phase(1, 1), phase(2, 2, closed=False)),
        "phases in each other": lambda: usual(phase(1, 2), phase(2, 3), phase(3, 1), phase(4, 2)),
        "phase with a missing parent": lambda: usual(phase(1, 99), phase(2, 2**64 - 1)),
        "phase that is closed twice": lambda: usual(phase(1), phase(1, 1, name=b"other"), phase(1, 2, 5)),
        "phases of odd steps": lambda: usual(*(phase(n, step=s) for n, s in enumerate((2**63 - 1, -(2**63), -1, 7)))),
        "deep chain of phases": lambda: usual(*chain),
        "phases of many names": lambda: usual(*(phase(n, name=b"n%d" % n) for n in range(1, 5000))),
        "phases with lengths that lie": lambda: usual(
            *(
                frames.PHASE_HEAD.pack(kind, 1, 0, 0, NOW, 0, 65535, size) + b"abc"
                for kind in (Kind.PHASE_OPEN, Kind.PHASE_CLOSE)
                for size in (0, 1, 65535)
            )
        ),
        "phase with odd texts": lambda: usual(
            phase(1, name=b"\xff\xfe"), phase(2, name=b""), phase(3, name=b"\x1b[2J")
        ),
        "phase with all flags": lambda: usual(phase(1, flags=255), phase(2, flags=255, closed=False)),
    }


def _state_cases() -> dict[str, Callable[[], Files]]:
    moments, mean = ["reward/returns:moments", "moments"], ["policy/entropy:mean", "mean"]
    entries: dict[str, Any] = {
        "dict": {},
        "numbers": [1, 2],
        "triples": [["a", "b", "c"]],
        "unknown": [["a", "moments"]],
        "other kind": [["reward/returns:moments", "mean"]],
        "duplicates": [moments, moments],
        "deep": [[[[[]]]]],
        "null": None,
        "text": "ab",
        "none": [],
    }
    cases: dict[str, Callable[[], Files]] = {
        f"layout of {name}": lambda body=body: two_ranks(layout(body), state(7, (1.0, 2.0, 3.0, 4.0)))
        for name, body in entries.items()
    }
    for value in (math.nan, math.inf, -math.inf, -1.0, 1e308, 0.0):
        vector = (value,) * 4
        cases[f"state of {value}"] = lambda v=vector: two_ranks(layout([moments]), state(7, v), state(7, v, 2))
    for number, value in FEW_NASTY.items():
        cases[f"layout options {number}"] = lambda v=value: two_ranks(
            layout([moments], {"clip": v, "kl_coef": v}), state(7, (2.0, 1.0, 1.0, 0.0))
        )
        cases[f"layout id {number}"] = lambda v=value: two_ranks(
            layout([moments], id=v), state(7, (2.0, 1.0, 1.0, 0.0))
        )
        cases[f"gathered head {number}"] = lambda v=value: two_ranks(packed(b"", step=v, kind=v, taskset=v, time=v))
        cases[f"gathered with {number}"] = lambda v=value: two_ranks(
            packed(_gathered({"plan": v, "tasks": v, "columns": v}))
        )
    return cases | {
        "states without a layout": lambda: two_ranks(state(1, (1.0,)), state(2, ())),
        "sparse states of any bytes": lambda: two_ranks(
            layout([["reward/advantages:quantiles", "quantiles"]]), *map(sparse_state, SPARSE_BODIES)
        ),
        "sparse states of domains": lambda: two_ranks(
            layout([[f"reward/score:{kind}/by/a", kind] for kind in ("moments", "extrema")]),
            *(sparse_state(b"d" + b"\xff\x01" + struct.pack("<9d", *[value] * 9)) for value in (math.nan, 1e308, -1.0)),
        ),
        "layouts of domains": lambda: two_ranks(
            *(
                layout([[f"reward/score:moments/by/{label}", "moments"]], id=str(7 + n))
                for n, label in enumerate(("", "\n", "a/b", "{k}", "\ud800", "x" * 100_000, "\x1b[31m", "/by/"))
            ),
            layout([[f"reward/score:moments/by/{n}", "moments"] for n in range(20_000)]),
        ),
        "sparse states that are too short": lambda: two_ranks(
            *(bytes((Kind.SPARSE_STATE,)) + b"\0" * n for n in range(26))
        ),
        "sparse states of odd steps": lambda: two_ranks(
            *(sparse_state(SPARSE_BODIES[0], step=s) for s in (OPEN_STEP, 2**63 - 1))
        ),
        "sparse states of a dense layout": lambda: two_ranks(layout([moments]), sparse_state(b"d" + b"\xff" * 60)),
        "dense states of a sparse layout": lambda: two_ranks(
            layout([["reward/advantages:quantiles", "quantiles"]]), state(7, (math.inf,) * 848), state(7, (1.0,), 2)
        ),
        "states of other lengths": lambda: two_ranks(layout([moments]), *(state(7, (1.0,) * n) for n in range(9))),
        "layout with options that lie": lambda: two_ranks(
            layout([moments, mean], {"clip": [], "x": 1}), state(7, (1.0,) * 7)
        ),
        "gathered that is not packed": lambda: two_ranks(packed(b"abc"), packed(zlib.compress(b"abc"))),
        "gathered with a length that lies": lambda: two_ranks(
            frames.PACKET_HEAD.pack(Kind.GATHERED, 2**32 - 1) + b"{}", frames.PACKET_HEAD.pack(Kind.GATHERED, 0)
        ),
        "samples that are not packed": lambda: usual(
            samples(b"abc"), samples(b"", 0), samples(zlib.compress(b"["), 2**31)
        ),
        "samples of any JSON": lambda: usual(
            *(samples(zlib.compress(text([v, {"reward": v, "messages": v}]))) for v in NASTY),
            *(samples(zlib.compress(text([_odd_tokens(v)]))) for v in NASTY),
        ),
        "samples that are no list": lambda: usual(*(samples(zlib.compress(text(v))) for v in NASTY)),
        "samples of odd steps": lambda: usual(
            *(samples(zlib.compress(b"[{}]"), 1, 1, s) for s in (OPEN_STEP, 2**63 - 1))
        ),
    }


def _gathered(head: Any) -> bytes:
    body = text(head)
    return zlib.compress(struct.pack("<I", len(body)) + body)


def _file_cases() -> dict[str, Callable[[], Files]]:
    infos: dict[str, bytes] = {
        "a list": b"[]",
        "null": b"null",
        "empty": b"",
        "deep": _nested(DEEP),
        "not text": b"\xff\x00",
        "large": b" " * 5_000_000 + _info(),
        "large inside": _info(notes="x" * 2_000_000),
        "empty object": b"{}",
        "many tags": _info(tags=["t"] * 300_000),
        "duplicate keys": b'{"id": "a", "id": ["b"]}',
    }
    infos |= {
        f"with any {name} {n}": _info(**{name: v}) for name in ("id", "name", "created") for n, v in FEW_NASTY.items()
    }
    for number, value in FEW_NASTY.items():
        others = dict.fromkeys(("project", "vocabulary", "producer", "group", "tags", "notes"), value)
        infos[f"with all other fields {number}"] = _info(**others)
    good = usual()[SEGMENT]
    cases: dict[str, Callable[[], Files]] = {
        f"run.json {name}": lambda body=body: {"run.json": body, SEGMENT: good} for name, body in infos.items()
    }
    cases |= {
        f"run.json alone {number}": lambda body=body: {"run.json": body}
        for number, body in enumerate((b"[]", b"", _info(), _info(created=math.nan)))
    }
    forged = (
        "trainer.99999999999999999999.1.0.seg", "trainer.0.0.0.seg", "trainer.00.01.00.seg", "%FF%00.0.1.0.seg",
        "trainer.٣.1.0.seg", f"{'r' * 200}.0.1.0.seg", "trainer.0.1.999999999999999999999999.seg", "..0.1.0.seg",
        "%2E%2E%2Fetc.0.1.0.seg", "trainer.-1.1.0.seg", " .0.1.0.seg",
    )  # fmt: skip
    cases |= {f"segment {name!r}": lambda name=name: {name: good, SEGMENT: good} for name in forged}
    versions = {"newer": (2, None), "newest": (2**32 - 1, None), "zero": (0, None), "wrong sum": (1, 7)}
    for name, (version, crc) in versions.items():
        head = struct.pack("<8sI", b"BAROGRPH", version)
        head += struct.pack("<I", zlib.crc32(head) if crc is None else crc)
        cases[f"segment of version {name}"] = lambda head=head: {SEGMENT: head + good[SEGMENT_HEAD.size :]}
    states = {n: text({"tracker": v, "state": v, "delivered": v, "time": v, "places": v}) for n, v in FEW_NASTY.items()}
    cases |= {
        f"delivery state {n}": lambda body=body: {SEGMENT: good, "relay/wandb.json": body} for n, body in states.items()
    }
    cases["delivery state that is deep"] = lambda: {SEGMENT: good, "relay/wandb.json": _nested(DEEP)}
    cases["delivery state with odd cursors"] = lambda: {
        SEGMENT: good,
        "relay/a.json": text({"tracker": "a", "time": 1, "delivered": "x", "lag": [], "places": {SEGMENT: ["a"] * 5}}),
        "relay/b.json": text({"tracker": 7, "time": "x", "error": {}, "url": 5, "places": {SEGMENT: {}}}),
    }
    cases["segment that is empty"] = lambda: {SEGMENT: b""}
    cases["segment without a head"] = lambda: {SEGMENT: b"".join(map(frame, (schema(), row())))}
    cases["index that is nonsense"] = lambda: {**usual(), "index/samples.sqlite": b"SQLite format 3\0" + bytes(500)}
    return cases


def _bombs() -> dict[str, Callable[[], Files]]:
    zeros = zlib.compress(bytes(64 << 20), 9)
    twice = zlib.compress(b"[" + b'"' + b"a" * (64 << 20) + b'"]', 9)
    good = usual()[SEGMENT]
    size = 4 << 20
    mixed = b"".join(FRAME_HEAD.pack(FRAME_MAGIC, size - 12 * n, n) for n in range(size // 12))
    alternating = b"".join(fake_heads(size, 12) + frame(frames.commit_payload(n, NOW)) for n in range(20_000))
    return {
        "heads of frames that reach the end": lambda: {SEGMENT: good + mixed},
        "heads of frames with one length": lambda: {SEGMENT: good + fake_heads(size // 2, size)},
        "heads of small frames": lambda: {SEGMENT: good + fake_heads(1000, size) + good[SEGMENT_HEAD.size :]},
        "heads of tiny frames": lambda: {SEGMENT: good + fake_heads(13, size)},
        "heads between frames": lambda: {SEGMENT: good + alternating},
        "magics": lambda: {SEGMENT: good + FRAME_MAGIC * (size // 4)},
        "samples that unpack to zeros": lambda: usual(*(samples(zeros) for _ in range(4))),
        "samples that unpack to a text": lambda: usual(samples(twice)),
        "samples that count 4 billion": lambda: usual(
            *(samples(zlib.compress(b"[]"), 2**32 - 1, 2**32 - 1) for _ in range(50))
        ),
        "samples of many lists": lambda: usual(samples(zlib.compress(b"[" + b"[]," * 3_000_000 + b"[]]"))),
        "gathered that unpacks to zeros": lambda: two_ranks(packed(zeros)),
        "gathered that unpacks to a text": lambda: two_ranks(packed(twice)),
        "many sparse states": lambda: two_ranks(
            layout([["reward/advantages:quantiles", "quantiles"]]), *(sparse_state(SPARSE_BODIES[0]),) * 2_000
        ),
        "many small events": lambda: usual(*(event("x") for _ in range(20_000))),
        "many unreadable events": lambda: usual(*(record(Kind.EVENT, str(n)) for n in range(20_000))),
    }


def recorded() -> dict[str, list[bytes]]:
    """Return the payloads of the first frames of a recorded run's segments, with every kind of frame."""
    return {path.name: list(_payloads(path.read_bytes()))[:45] for path in sorted(OLD_RUN.glob("*.seg"))}


def _payloads(data: bytes) -> Iterator[bytes]:
    place = SEGMENT_HEAD.size
    while place < len(data):
        _, length, _ = FRAME_HEAD.unpack_from(data, place)
        place += FRAME_HEAD.size + length
        yield data[place - length : place]


def mutated(run: dict[str, list[bytes]], rng: random.Random) -> Files:
    """Return a recorded run with one to six mutations."""
    segments = {name: list(payloads) for name, payloads in run.items()}
    info = (OLD_RUN / "run.json").read_bytes()
    for _ in range(rng.randint(1, 6)):
        payloads = segments[rng.choice(sorted(segments))]
        where = rng.randrange(len(payloads) + 1)
        if where == len(payloads):
            info = _mutated_json((OLD_RUN / "run.json").read_bytes(), rng)
            payloads.insert(rng.randrange(len(payloads) + 1), _mutated(rng.choice(payloads), rng))
        else:
            payloads[where] = _mutated(payloads[where], rng)
        if rng.random() < 0.1:
            rng.shuffle(payloads)
    found = {name: segment(*payloads) for name, payloads in segments.items()}
    if rng.random() < 0.05:
        found[rng.choice(("trainer.7.1.0.seg", "x.0.1.0.seg", "trainer.0.3.0.seg"))] = found[SEGMENT]
    return {"run.json": info, **found}


def _mutated(payload: bytes, rng: random.Random) -> bytes:
    try:
        return _mutated_contents(payload, rng) if rng.random() < 0.9 else _mutated_bytes(payload, rng)
    except (ValueError, struct.error, zlib.error):  # it is nonsense already
        return _mutated_bytes(payload, rng)


def _mutated_contents(payload: bytes, rng: random.Random) -> bytes:
    kind = payload[0]
    if kind in (Kind.EVENT, Kind.HISTOGRAM, Kind.TEXT, Kind.LAYOUT):
        return payload[:1] + _mutated_json(payload[1:], rng)
    if kind == Kind.SCHEMA:
        return payload[: frames.SCHEMA_HEAD.size] + _mutated_json(payload[frames.SCHEMA_HEAD.size :], rng)
    if kind == Kind.SAMPLE:
        body = zlib.decompress(payload[frames.SAMPLE_HEAD.size :])
        changed = zlib.compress(_mutated_json(body, rng)) if rng.random() < 0.7 else payload[frames.SAMPLE_HEAD.size :]
        return _mutated_struct(payload, frames.SAMPLE_HEAD, rng)[: frames.SAMPLE_HEAD.size] + changed
    if kind == Kind.GATHERED:
        return _mutated_gathered(payload, rng)
    heads = {Kind.COMMIT: frames.COMMIT_BODY, Kind.PHASE_OPEN: frames.PHASE_HEAD, Kind.PHASE_CLOSE: frames.PHASE_HEAD}
    if kind == Kind.PHASE_CLOSE and rng.random() < 0.5 and len(payload) > 120:
        place = len(payload) - 56 - 8 * rng.randrange(2)
        return payload[:place] + struct.pack("<d", _float(rng)) + payload[place + 8 :]
    if kind == Kind.SPARSE_STATE and rng.random() < 0.5:
        return payload[: frames.ROW_HEAD.size] + _mutated_bytes(payload[frames.ROW_HEAD.size :], rng)
    if kind in (Kind.ROW, Kind.STATE) and rng.random() < 0.5 and len(payload) > frames.ROW_HEAD.size:
        place = frames.ROW_HEAD.size + 8 * rng.randrange((len(payload) - frames.ROW_HEAD.size) // 8)
        return payload[:place] + struct.pack("<d", _float(rng)) + payload[place + 8 :]
    return _mutated_struct(payload, heads.get(Kind(kind), frames.ROW_HEAD), rng)


def _mutated_gathered(payload: bytes, rng: random.Random) -> bytes:
    head, body = decode(Kind.GATHERED, payload)
    if rng.random() < 0.4:
        return frames.packet_payload(Kind.GATHERED, json.loads(_mutated_json(text(head), rng, keep=dict)), body)
    inside = zlib.decompress(body)
    (length,) = struct.unpack_from("<I", inside)
    changed, arrays = _mutated_json(inside[4 : 4 + length], rng), inside[4 + length :]
    if rng.random() < 0.3:
        changed, arrays = inside[4 : 4 + length], _mutated_bytes(arrays or b"\0", rng)
    stream = zlib.compress(struct.pack("<I", len(changed)) + changed + arrays)
    return frames.packet_payload(Kind.GATHERED, head, stream)


def _mutated_bytes(payload: bytes, rng: random.Random) -> bytes:
    changed = bytearray(payload)
    choice = rng.randrange(5)
    if choice == 0:
        del changed[rng.randrange(1, len(changed) + 1) :]
    elif choice == 1:
        changed += rng.randbytes(rng.randrange(1, 40))
    elif choice == 2:
        changed[0] = rng.randrange(256)
    else:
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _mutated_struct(payload: bytes, head: struct.Struct, rng: random.Random) -> bytes:
    """Replace one number of a payload's head by an extreme one."""
    values = list(head.unpack_from(payload))
    place = rng.randrange(1, len(values))
    if isinstance(values[place], float):
        values[place] = _float(rng)
    else:
        values[place] = rng.choice((0, 1, 2, 255, 65535, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, -1, -(2**63)))
    try:
        return head.pack(*values) + payload[head.size :]
    except struct.error:
        return _mutated_struct(payload, head, rng)


def _float(rng: random.Random) -> float:
    return rng.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, -1e300, 5e-324, 1e12, rng.uniform(-1e3, 1e3)))


def _mutated_json(body: bytes, rng: random.Random, keep: type | None = None) -> bytes:
    """Replace, remove or add something at a random place of a JSON value."""
    value = json.loads(body)
    places = list(_places(value))
    if keep is None and (not places or rng.random() < 0.05):
        return text(rng.choice(NASTY))
    inside, key = rng.choice(places)
    choice = rng.randrange(4)
    if choice == 0:
        del inside[key]
    elif choice == 1 and isinstance(inside, dict):
        inside[rng.choice(("", "time", "\ud800", "step", "x"))] = rng.choice(NASTY)
    else:
        inside[key] = rng.choice(NASTY)
    return text(value)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key of a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from _places(inner)
