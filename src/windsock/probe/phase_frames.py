"""Journal frames for the open and the close of a span."""

from __future__ import annotations

import math

from windsock.journal import frames
from windsock.journal.frames import FAILED, OPEN_STEP, TIMER
from windsock.probe.phases import Span


def encode_open(span: Span, start: float) -> bytes:
    """Encode the start of a span; ``start`` is in Unix time."""
    flags = TIMER if span.phase.timer else 0
    lane = frames.phase_text(span.lane)
    return frames.phase_open_payload(span.id, span.parent_id, OPEN_STEP, start, flags, span.phase.text, lane)


def encode_close(span: Span, start: float, step: int | None, flags: int = 0) -> bytes:
    """Encode the end of a span; ``step`` is None while its step is not committed."""
    flags |= (TIMER if span.phase.timer else 0) | (FAILED if span.failed else 0)
    # The frame has the highest peak of all devices; the peak of each device is a metric.
    peaks = [peak for peak, _ in span.peaks.by_device.values()] if span.peaks is not None else ()
    # NaN means that there is no value: a stage that did not happen did not take 0 s.
    durations = (
        span.left - span.entered,
        math.nan if span.onload is None else span.onload,
        span.execute or 0.0,
        math.nan if span.offload is None else span.offload,
        sum(span.tokens_by_kind.values()) if span.tokens_by_kind else math.nan,
        max(peaks, default=math.nan),
        span.host["end"].rss if "end" in span.host else math.nan,
    )
    # The close frame repeats the fields of the open frame, so that a reader can do without either.
    return frames.phase_close_payload(
        span.id,
        span.parent_id,
        OPEN_STEP if step is None else step,
        start,
        flags,
        span.phase.text,
        frames.phase_text(span.lane),
        durations,
        frames.phase_text("+".join(span.tokens_by_kind)),
    )
