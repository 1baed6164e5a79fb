"""Spans of phases, read from their frames: one at the entry, and one at the exit that repeats it and adds the times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from windsock.journal.frames import DEVICE_CLOCK, FAILED, OPEN_STEP, TIMER, Kind, PhaseFrame
from windsock.journal.reader import SegmentReader, decoded
from windsock.journal.records import Record
from windsock.journal.steps import AttemptSteps
from windsock.model import PhaseSpan, Writer

PHASE_KINDS = (Kind.PHASE_OPEN, Kind.PHASE_CLOSE)


def read_spans(segments: Mapping[int, SegmentReader], writer: Writer, steps: AttemptSteps) -> Iterator[PhaseSpan]:
    """Yield the spans of one attempt, segment by segment, in the order in which they began.

    The last close frame of a span counts; it may be in a later segment than the open frame.
    """
    for index, record, frame in _last_frames(segments):
        step = frame.step
        if step == OPEN_STEP:
            step = steps.step_of(index, record.offset, frame.start)
        yield _span(frame, record.kind == Kind.PHASE_CLOSE, writer, index, step)


def _last_frames(segments: Mapping[int, SegmentReader]) -> list[tuple[int, Record, PhaseFrame]]:
    found: dict[int, tuple[int, Record, PhaseFrame]] = {}
    for index, reader in sorted(segments.items()):
        for record, frame in decoded(reader.records, *PHASE_KINDS):
            # A dict keeps the place of the first frame of a span, so the order is that in which spans began.
            found[frame.span] = (index, record, frame)
    return list(found.values())


def _span(frame: PhaseFrame, closed: bool, writer: Writer, index: int, step: int) -> PhaseSpan:
    return PhaseSpan(
        name=frame.name,
        writer=writer,
        step=step,
        start=frame.start,
        end=frame.start + frame.elapsed if closed else None,
        id=frame.span,
        parent=frame.parent or None,
        lane=frame.lane,
        part=index,
        timer=bool(frame.flags & TIMER),
        onload=_or_none(frame.onload),
        execute=_or_none(frame.execute),
        offload=_or_none(frame.offload),
        clock="device" if frame.flags & DEVICE_CLOCK else "host",
        failed=bool(frame.flags & FAILED),
        tokens=_or_none(frame.tokens),
        token_kind=frame.token_kind,
        peak=_or_none(frame.peak),
        rss=_or_none(frame.rss),
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
