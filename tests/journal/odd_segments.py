"""Segments with frames of all kinds, intact, malformed and damaged, in any order."""

import math

from hypothesis import strategies as st

from barograph.journal.format import frames
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.frames import Kind

NAMES = (("a", "b"), ("c", "d"), ("e", "f", "g"))
SCHEMAS = {frames.schema_id(names): names for names in NAMES}

steps = st.one_of(st.just(OPEN_STEP), st.integers(-2, 40))
times = st.one_of(st.floats(0, 2e9), st.sampled_from([math.nan, -1.0, 1e12]))
values = st.floats(width=64)


def row(kind: int, schema: int, step: int, time: float, numbers: list[float]) -> bytes:
    """Encode a row or a state."""
    return frames.row_struct(len(numbers)).pack(kind, schema, step, time, *numbers)


rows = st.builds(
    lambda kind, schema, step, time, number, more: row(
        kind, schema, step, time, [number + place for place in range(len(SCHEMAS[schema]) + more)]
    ),
    st.sampled_from([Kind.ROW, Kind.STATE]),
    st.sampled_from(sorted(SCHEMAS)),
    steps,
    times,
    values,
    st.sampled_from([0] * 12 + [1]),  # now and then a row of another width
)
schemas = st.sampled_from([frames.schema_payload(id, names) for id, names in SCHEMAS.items()])
commits = st.builds(frames.commit_payload, steps, times)
events = st.builds(
    lambda event, time: frames.record_payload(Kind.EVENT, {"event": event, "time": time}),
    st.sampled_from(["start", "heartbeat", "finish", "other"]),
    times,
)
samples = st.builds(lambda step, time: frames.sample_payload(step, time, 3, [b'{"reward":1}']), steps, times)
malformed = st.sampled_from(
    [
        bytes([Kind.ROW]) + bytes(5),
        bytes([Kind.ROW]) + bytes(27),
        bytes([Kind.COMMIT]) + bytes(3),
        bytes([Kind.SCHEMA]),
        bytes([Kind.SAMPLE]),
        bytes([Kind.EVENT]) + b"{",
        bytes([Kind.TEXT]) + b"{}",
        bytes([99]) + b"of a newer version",
    ]
)
texts = st.builds(
    lambda step, text: frames.record_payload(Kind.TEXT, {"name": "t", "step": step, "time": 1.0, "text": text}),
    st.one_of(st.none(), st.integers(0, 40)),
    st.text(max_size=5),
)
sparse_states = st.builds(
    lambda layout, step, time, body: frames.sparse_state_payload(layout, step, time, body),
    st.sampled_from([1, 2]),
    steps,
    times,
    st.binary(max_size=9),
)
intact = st.one_of(rows, rows, rows, sparse_states, commits, schemas, events, samples, texts, malformed).map(
    frames.frame
)
damaged = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.builds(lambda frame, place: frame[: place % len(frame)], intact, st.integers(0, 1000)),
    st.builds(lambda frame: frame[:-1] + bytes([frame[-1] ^ 1]), intact),
    st.just(frames.FRAME_MAGIC),
)
pieces = st.one_of(*[intact] * 9, damaged)
segments = st.lists(pieces, max_size=60).map(lambda found: frames.segment_head() + b"".join(found))
