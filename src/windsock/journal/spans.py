"""Spans of phases from their markers: an open one, and a close one that says everything again and more."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from windsock.journal import frames
from windsock.journal.frames import DEVICE_CLOCK, FAILED, OPEN_STEP, TIMER, Kind, PhaseMark
from windsock.journal.reader import Record, SegmentReader
from windsock.model import PhaseSpan, Writer

PHASE_KINDS = (Kind.PHASE_OPEN, Kind.PHASE_CLOSE)


def read_spans(
    parts: Mapping[int, SegmentReader], writer: Writer, step_at: Callable[[float], int]
) -> Iterator[PhaseSpan]:
    """Yield the spans of one attempt, part by part, in the order in which they began.

    Of several close markers of a span the last counts; it may stand in a later part than the open one. A marker whose
    step is open belongs to the first commit after it in its segment, else to what ``step_at`` says of its time.
    """
    offsets = {number: [offset for offset, _, _ in reader.commits] for number, reader in parts.items()}
    for number, record, mark in _last_marks(parts):
        step = mark.step
        if step == OPEN_STEP:
            place = bisect_right(offsets[number], record.offset)
            commits = parts[number].commits
            step = commits[place][1] if place < len(commits) else step_at(mark.start)
        yield _span(mark, record.kind == Kind.PHASE_CLOSE, writer, number, step)


def _last_marks(parts: Mapping[int, SegmentReader]) -> list[tuple[int, Record, PhaseMark]]:
    found: dict[int, tuple[int, Record, PhaseMark]] = {}
    for number, reader in sorted(parts.items()):
        for record in reader.records:
            if record.kind in PHASE_KINDS:
                with suppress(ValueError):  # an intact frame that makes no sense
                    mark = frames.parse_phase(record.payload)
                    found[mark.span] = (number, record, mark)
    return list(found.values())


def _span(mark: PhaseMark, closed: bool, writer: Writer, part: int, step: int) -> PhaseSpan:
    return PhaseSpan(
        name=mark.name,
        writer=writer,
        step=step,
        start=mark.start,
        end=mark.start + mark.elapsed if closed else None,
        id=mark.span,
        parent=mark.parent or None,
        lane=mark.lane,
        part=part,
        timer=bool(mark.flags & TIMER),
        onload=_given(mark.onload),
        execute=_given(mark.execute),
        offload=_given(mark.offload),
        clock="device" if mark.flags & DEVICE_CLOCK else "host",
        failed=bool(mark.flags & FAILED),
        tokens=_given(mark.tokens),
        token_kind=mark.token_kind,
        peak=_given(mark.peak),
        rss=_given(mark.rss),
    )


def _given(value: float) -> float | None:
    return None if math.isnan(value) else value
