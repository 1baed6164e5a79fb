"""The markers of a span, as they go into the journal."""

from __future__ import annotations

import math

from windsock.journal import frames
from windsock.journal.frames import FAILED, OPEN_STEP, TIMER
from windsock.probe.phases import Span


def open_mark(span: Span, start: float) -> bytes:
    """Encode that a span began; ``start`` is in Unix time."""
    flags = TIMER if span.phase.timer else 0
    lane = frames.phase_text(span.lane)
    return frames.phase_open_payload(span.id, span.parent_id, OPEN_STEP, start, flags, span.phase.text, lane)


def close_mark(span: Span, start: float, step: int | None, flags: int = 0) -> bytes:
    """Encode that a span ended; ``step`` None: the one it began in is not committed yet."""
    flags |= (TIMER if span.phase.timer else 0) | (FAILED if span.failed else 0)
    peaks = [peak for peak, _ in span.watch.peaks.values()] if span.watch is not None else ()
    durations = (
        span.left - span.entered,
        math.nan if span.onload is None else span.onload,
        span.execute or 0.0,
        math.nan if span.offload is None else span.offload,
        sum(span.kinds.values()) if span.kinds else math.nan,
        max(peaks, default=math.nan),
        span.host["end"].rss if "end" in span.host else math.nan,
    )
    return frames.phase_close_payload(
        span.id,
        span.parent_id,
        OPEN_STEP if step is None else step,
        start,
        flags,
        span.phase.text,
        frames.phase_text(span.lane),
        durations,
        frames.phase_text("+".join(span.kinds)),
    )
