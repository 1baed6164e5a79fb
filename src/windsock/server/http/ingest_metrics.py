"""Numbers of the ingest endpoints, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from windsock.transfer.receiver import Added

OPEN_SECONDS = 300.0  # a segment counts as open for so long after a piece of it
MAX_SEGMENTS = 100_000
CONTENT_TYPE = "text/plain; version=0.0.4"

Segment = tuple[str, str, str]
"""Project, run and file name."""


class OpenSegment(NamedTuple):
    """A segment that grows: the time of its last piece, and how old the last row was when it arrived."""

    seen: float
    lag: float


class IngestMetrics:
    """What the server has received since it started."""

    def __init__(self) -> None:
        self.pieces = 0
        self.repeated = 0  # pieces of which nothing was new
        self.bytes = 0
        self.refused: Counter[str] = Counter()  # pieces by reason
        self.refused_tokens = 0
        self.waiting_bytes = 0
        self._open: dict[Segment, OpenSegment] = {}  # the one that has waited longest first

    def received(self, segment: Segment, added: Added) -> None:
        """Count a piece."""
        self.pieces += 1
        self.bytes += added.new_bytes
        self.repeated += not added.new_bytes
        now = time.time()
        before = self._open.pop(segment, None)
        if added.is_last:
            return
        lag = before.lag if before is not None else 0.0
        self._open[segment] = OpenSegment(now, lag if added.newest_time is None else max(now - added.newest_time, 0.0))
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Forget segments without a piece for long, and the oldest where there are too many."""
        while self._open:
            first = next(iter(self._open))
            if len(self._open) <= MAX_SEGMENTS and self._open[first].seen >= now - OPEN_SECONDS:
                return
            del self._open[first]

    def text(self) -> str:
        """Return all metrics."""
        now = time.time()
        self._forget(now)
        lag = max((segment.lag for segment in self._open.values()), default=0.0)
        silent = max((now - segment.seen for segment in self._open.values()), default=0.0)
        lines = [
            *_counter("pieces", "Pieces of segments that were taken.", {"": self.pieces}),
            *_counter("repeated_pieces", "Pieces of which every byte was held already.", {"": self.repeated}),
            *_counter("bytes", "Bytes that were written.", {"": self.bytes}),
            *_counter("refused", "Pieces that were not taken.", dict(self.refused)),
            *_counter("refused_tokens", "Requests without a valid token.", {"": self.refused_tokens}),
            *_gauge("lag_seconds", "Age of the last row of a piece when it arrived, of the slowest open segment.", lag),
            *_gauge("silent_seconds", "Time since the last piece of the open segment that is silent longest.", silent),
            *_gauge("open_segments", "Segments with a piece in the last five minutes that go on.", len(self._open)),
            *_gauge("open_runs", "Runs with such a segment.", len({key[:2] for key in self._open})),
            *_gauge("waiting_bytes", "Bytes of pieces that are being received or written.", self.waiting_bytes),
        ]
        return "\n".join(lines) + "\n"


def _counter(name: str, help: str, values: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a counter; ``values`` are by reason, which is empty where there is none."""
    full = f"windsock_ingest_{name}_total"
    yield from (f"# HELP {full} {help}", f"# TYPE {full} counter")
    for reason, value in sorted(values.items()):
        yield f'{full}{{reason="{reason}"}} {value}' if reason else f"{full} {value}"


def _gauge(name: str, help: str, value: float) -> Iterator[str]:
    full = f"windsock_ingest_{name}"
    yield from (f"# HELP {full} {help}", f"# TYPE {full} gauge", f"{full} {value:.15g}")
