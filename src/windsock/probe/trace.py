"""Export of spans in Chrome's trace event format, for Perfetto and chrome://tracing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from windsock.model import PhaseSpan, Writer
from windsock.probe.report import Windows

NANO = 1e9
FIRST_THREAD = 100_001  # Perfetto treats thread 0, and a thread with its process's number, specially
STEPS = "steps"  # name of the lane that shows the steps


def trace(spans: Sequence[PhaseSpan], windows: Windows, name: str, id: str) -> dict[str, Any]:
    """Return the trace: a process per writer, a thread per lane, a slice per span and stage."""
    starts = [span.start for span in spans] + [began for w in windows.values() for began, _ in w.values()]
    # Times are relative: as a double in microseconds, Unix time has no room for nanoseconds.
    origin = min(starts, default=0.0)
    return {
        "traceEvents": list(_events(spans, windows, origin)),
        "displayTimeUnit": "ms",
        "otherData": {"run": name, "id": id, "origin": f"{origin:.6f}", "producer": "windsock"},
    }


def _events(spans: Sequence[PhaseSpan], windows: Windows, origin: float) -> Iterator[dict[str, Any]]:
    writers = sorted({span.writer for span in spans} | set(windows))
    threads = itertools.count(FIRST_THREAD)
    for process, writer in enumerate(writers, 1):
        thread = next(threads)
        yield _meta("process_name", process, thread, str(writer) + _attempt(writer))
        yield _meta("thread_name", process, thread, STEPS)
        for step, (began, ended) in sorted(windows.get(writer, {}).items()):
            yield _slice(f"step {step}", process, thread, began - origin, ended - origin, {"step": step})
        for lane, of_lane in _lanes([span for span in spans if span.writer == writer]):
            thread = next(threads)
            yield _meta("thread_name", process, thread, lane)
            for span in of_lane:
                yield from _span(span, process, thread, origin)


def _attempt(writer: Writer) -> str:
    return f" (attempt {writer.attempt})" if writer.attempt > 1 else ""


def _lanes(spans: Sequence[PhaseSpan]) -> list[tuple[str, list[PhaseSpan]]]:
    """Split spans into lanes in which they nest; a span that overlaps without nesting gets another lane."""
    lanes: dict[tuple[str, int], list[PhaseSpan]] = {}
    open_ends: dict[tuple[str, int], list[float]] = {}
    # Of spans that start together the longest is first, so that the others nest in it.
    for span in sorted(spans, key=lambda span: (span.start, -_end(span))):
        for number in itertools.count(1):
            ends = open_ends.setdefault((span.lane, number), [])
            while ends and ends[-1] <= span.start:
                ends.pop()
            if not ends or _end(span) <= ends[-1]:
                break
        ends.append(_end(span))
        lanes.setdefault((span.lane, number), []).append(span)
    return [(lane if n == 1 else f"{lane} ({n})", of_lane) for (lane, n), of_lane in lanes.items()]


def _end(span: PhaseSpan) -> float:
    return math.inf if span.end is None else span.end


def _span(span: PhaseSpan, process: int, thread: int, origin: float) -> Iterator[dict[str, Any]]:
    facts = {
        "step": span.step,
        "clock": span.clock,
        "tokens": span.tokens,
        "token kind": span.token_kind or None,
        "failed": span.failed or None,
        "seconds": span.seconds,
        "peak bytes": span.peak,
        "rss bytes": span.rss,
    }
    given = {key: value for key, value in facts.items() if value is not None}
    start = span.start - origin
    if span.end is None:
        begin = _slice(span.name, process, thread, start, start, {**given, "open": True})
        del begin["dur"]
        yield {**begin, "ph": "B"}  # a begin event without an end: viewers draw it to the end of the trace
        return
    yield _slice(span.name, process, thread, start, span.end - origin, given)
    if span.onload is not None or span.offload is not None:
        for stage, (begin_at, end_at) in stages(span).items():
            yield _slice(stage, process, thread, begin_at - origin, end_at - origin, {})


def stages(span: PhaseSpan) -> dict[str, tuple[float, float]]:
    """Return start and end of a closed span's onload, execute and offload stages.

    They are scaled to fill the time between entry and exit: stage times may be from the device's clock.
    """
    assert span.end is not None
    total = span.seconds
    scale = (span.end - span.start) / total if total else 0.0
    loaded = span.start + (span.onload or 0.0) * scale
    worked = span.end - (span.offload or 0.0) * scale
    bounds = {"onload": (span.start, loaded), "execute": (loaded, max(loaded, worked)), "offload": (worked, span.end)}
    return {name: both for name, both in bounds.items() if getattr(span, name) is not None}


def _slice(name: str, process: int, thread: int, start: float, end: float, facts: dict[str, Any]) -> dict[str, Any]:
    first, last = round(start * NANO), round(end * NANO)  # rounded to nanoseconds, so that nesting is preserved
    times = {"ts": first / 1000, "dur": (last - first) / 1000}
    return {"ph": "X", "name": name, "cat": "phase", "pid": process, "tid": thread, **times, "args": facts}


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
