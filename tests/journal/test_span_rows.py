"""Spans as rows of an array: the same as frame by frame, whatever the frames say and however they are read."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import PhaseSpan
from barograph.journal.format import fields, frames
from barograph.journal.format.fields import MAX_NUMBER, MAX_SECONDS, OPEN_STEP, DecodingError
from barograph.journal.format.frames import DEVICE_CLOCK, FAILED, PHASE_HEAD, PHASE_TAIL, TIMER, Kind, phase_string
from barograph.journal.read import spans as span_rows
from barograph.journal.read.spans import SpanRows, Texts, decode_spans
from barograph.journal.segments import framing
from barograph.journal.segments.framing import SpanArray, undecodable
from barograph.journal.view import View

Frames = list[tuple[int, bytes]]
NUMBERS = st.sampled_from([0.0, 1.5, -2.0, 1e9, 1e12, 1e20, math.inf, -math.inf, math.nan])
TEXTS = st.sampled_from([b"", b"train", b"rollout/generate", "训练".encode(), b"\xff\xfe", b"cut \xe8\xae"])


class PhaseFrame(NamedTuple):
    """The contents of one frame."""

    span: int
    parent: int
    step: int
    start: float
    flags: int
    name: str
    lane: str
    elapsed: float = math.nan
    onload: float = math.nan
    execute: float = math.nan
    offload: float = math.nan
    tokens: float = math.nan
    peak: float = math.nan
    rss: float = math.nan
    token_kind: str = ""


def parse_phase(payload: bytes) -> PhaseFrame:
    """Decode one frame. A value that is out of range is absent, and a span that is its own parent has none."""
    kind, span, parent, *head, name_length, lane_length = PHASE_HEAD.unpack_from(payload)
    name_end = PHASE_HEAD.size + name_length
    end = name_end + lane_length
    texts = phase_string(payload[PHASE_HEAD.size : name_end]), phase_string(payload[name_end:end])
    first = (span, 0 if parent == span else parent, *head, *texts)
    if kind == Kind.PHASE_OPEN:
        return PhaseFrame(*first)
    limits = (*[MAX_SECONDS] * 4, *[MAX_NUMBER] * 3)
    tail = zip(PHASE_TAIL.unpack_from(payload, end), limits, strict=True)
    values = (math.nan if abs(value) > limit else value for value, limit in tail)
    return PhaseFrame(*first, *values, phase_string(payload[end + PHASE_TAIL.size :]))


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Return a frame of a phase, of few different spans; some frames are cut, or say what cannot be."""
    head = (
        draw(st.integers(1, 8)),
        draw(st.integers(0, 8)),
        draw(st.sampled_from([OPEN_STEP, 0, 3])),
        draw(NUMBERS),
        draw(st.integers(0, 7)),
        draw(TEXTS),
        draw(TEXTS),
    )
    if draw(st.booleans()):
        payload = frames.phase_open_payload(*head)
    else:
        payload = frames.phase_close_payload(*head, tuple(draw(NUMBERS) for _ in range(7)), draw(TEXTS))
    return payload[: draw(st.integers(1, len(payload)))] if draw(st.integers(0, 9)) == 0 else payload


def one_by_one(found: Frames) -> tuple[dict[int, tuple[int, int, int, PhaseFrame]], list[int]]:
    """Return the first and the last offset, the kind and the contents of each span, and the frames that are wrong."""
    spans: dict[int, tuple[int, int, int, PhaseFrame]] = {}
    bad = []
    for number, (offset, payload) in enumerate(found):
        try:
            fields.decode(payload[0], payload)
        except DecodingError:
            bad.append(number)
            continue
        frame = parse_phase(payload)
        first = spans[frame.span][0] if frame.span in spans else offset
        spans[frame.span] = first, offset, payload[0], frame
    return spans, bad


def as_tuple(row: Sequence[object], texts: Sequence[str]) -> tuple[object, ...]:
    """Return a row as ``one_by_one`` has it, with NaN as a text."""
    found = dict(zip(span_rows.SPAN.names or (), row, strict=True))
    for name in ("name", "lane", "token_kind"):
        found[name] = texts[found[name]]  # type: ignore[call-overload]
    kind = Kind.PHASE_CLOSE if found["closed"] else Kind.PHASE_OPEN
    contents = PhaseFrame(**{name: found[name] for name in PhaseFrame._fields})  # type: ignore[arg-type]
    return (found["first"], found["offset"], kind, *map(str, contents))


@settings(max_examples=300, deadline=None)
@given(st.lists(payloads(), max_size=30), st.integers(1, 8), st.integers(0, 3))
def test_rows_are_what_the_frames_say(found: list[bytes], batch: int, recent: int):
    """The last frame of a span counts, in the order of the first ones, in any batches."""
    offsets = [16 + 200 * number for number in range(len(found))]
    spans, bad = one_by_one([*zip(offsets, found, strict=True)])
    rows, texts, wrong = SpanRows(), Texts(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_rows, "MIN_RECENT", recent)
        for start in range(0, len(found), batch):
            of_batch = found[start : start + batch]
            rows.add(decode_spans(offsets[start : start + batch], of_batch, texts))
            wrong += [start + number for number in undecodable(of_batch)]
    expected = [(first, last, kind, *map(str, frame)) for first, last, kind, frame in spans.values()]
    assert [as_tuple(row, texts.texts) for row in rows.rows.tolist()] == expected
    assert wrong == bad


def record(id: str, steps: int, seed: int = 0) -> barograph.Run:
    """Record steps with nested phases, timers, tokens and failures; the last phase stays open."""
    draw = random.Random(seed)
    run = barograph.init(id=id)
    for step in range(steps):
        with run.timer("rollout"), run.phase("generate", tokens={"generated": draw.randrange(9)}):
            pass
        with pytest.raises(ValueError, match="bad"), run.phase(f"part{draw.randrange(3)}"):
            raise ValueError("bad")
        run.commit(step)
    run.phase("open").__enter__()
    return run


def reference(view: View) -> list[PhaseSpan]:
    """Return the spans of a run with one segment, read frame by frame."""
    [attempt] = view._attempts.values()
    [reader] = attempt.readers
    found = [(r.offset, r.payload) for r in reader.records if r.kind in framing.PHASE_KINDS]
    spans = []
    for _, offset, kind, frame in one_by_one(found)[0].values():
        step = attempt.steps.step_of(0, offset, frame.start) if frame.step == OPEN_STEP else frame.step
        closed = kind == Kind.PHASE_CLOSE
        more = {
            name: _known(getattr(frame, name)) for name in ("onload", "execute", "offload", "tokens", "peak", "rss")
        }
        spans.append(
            PhaseSpan(
                frame.name, attempt.writer, step, frame.start, frame.start + frame.elapsed if closed else None,
                frame.span, frame.parent or None, frame.lane, 0, bool(frame.flags & TIMER),
                clock="device" if frame.flags & DEVICE_CLOCK else "host", failed=bool(frame.flags & FAILED),
                token_kind=frame.token_kind, **more,
            )
        )  # fmt: skip
    return sorted(spans, key=lambda span: span.start)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def test_spans_are_the_same_as_frame_by_frame():
    """All of them, and those of a step."""
    view = barograph.open(record("spans", 40).path)
    expected = reference(view)
    assert view.phases() == expected
    assert len(expected) == 121
    for step in (0, 17, 39, 40, 99):
        assert view.phases(step) == [span for span in expected if span.step == step]


def test_following_a_run_gives_the_spans_of_opening_it(tmp_path: Path):
    """Piece by piece, also in the middle of a frame."""
    source = record("whole", 30)
    [segment] = source.path.glob("*.seg")
    data = segment.read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / segment.name).touch()
    view = barograph.open(copy)
    for end in (*range(0, len(data), 997), len(data)):
        (copy / segment.name).write_bytes(data[:end])
        view.refresh()
        view.phases()
    whole = barograph.open(copy)
    assert view.phases() == whole.phases()
    assert view.step_windows() == whole.step_windows()
    assert len(view.phases()) == 91


def test_only_the_spans_of_a_step_become_objects(monkeypatch: pytest.MonkeyPatch):
    """However many the run has."""
    view = barograph.open(record("many", 50).path)
    made: list[object] = []
    monkeypatch.setattr("barograph.journal.read.spans.PhaseSpan", lambda **fields: made.append(fields))
    view.phases(7)
    assert len(made) == 3
    view.step_windows()
    assert len(made) == 3


def test_frames_are_decoded_once(monkeypatch: pytest.MonkeyPatch):
    """A refresh decodes what is new."""
    run = record("grows", 10)
    view = barograph.open(run.path)
    view.phases()
    decoded: list[int] = []

    def counted(offsets: Sequence[int], *arguments: object) -> SpanArray:
        decoded.append(len(offsets))
        return decode_spans(offsets, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("barograph.journal.read.spans.decode_spans", counted)
    with run.phase("new"):
        pass
    view.refresh()
    assert [span.name for span in view.phases()][-1] == "new"
    assert decoded == [2]


def test_a_span_that_ends_in_another_segment_is_one_span(tmp_path: Path):
    """The later frame counts, and the place in the order is that of the earlier."""
    head = 5, 0, 3, 10.0, 0, b"train", b"main"
    opened, closed = frames.phase_open_payload(*head), frames.phase_close_payload(*head, (2.0, *[math.nan] * 6))
    other = frames.phase_open_payload(6, 0, 3, 10.0, 0, b"next", b"main")
    for index, payloads in enumerate(([opened, other], [closed])):
        data = frames.segment_head() + b"".join(map(frames.frame, payloads))
        (tmp_path / f"trainer.0.1.{index}.seg").write_bytes(data)
    first, second = barograph.open(tmp_path).phases()
    assert (first.name, first.end, first.part) == ("train", 12.0, 1)
    assert (second.name, second.end, second.part) == ("next", None, 0)
    assert dataclasses.replace(first, name="") != first
