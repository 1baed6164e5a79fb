"""Numbers of the ingest endpoints, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

OPEN_SECONDS = 300.0  # a segment counts as open for so long after a piece of it
MAX_SEGMENTS = 100_000
CONTENT_TYPE = "text/plain; version=0.0.4"


class IngestMetrics:
    """What the server has received since it started."""

    def __init__(self) -> None:
        self.pieces = 0
        self.repeated = 0  # pieces of which nothing was new
        self.bytes = 0
        self.refused: Counter[str] = Counter()  # pieces by reason
        self.refused_tokens = 0
        self.waiting_bytes = 0
        self._open: dict[tuple[str, str, str], tuple[float, float]] = {}  # segment: time of its piece, of its last row

    def received(self, segment: tuple[str, str, str], new_bytes: int, newest_row: float | None) -> None:
        """Count a piece; a segment is project, run and file name."""
        self.pieces += 1
        self.bytes += new_bytes
        self.repeated += not new_bytes
        now = time.time()
        self._open.pop(segment, None)  # to be the last one
        self._open[segment] = now, newest_row if newest_row is not None else now
        while len(self._open) > MAX_SEGMENTS or self._first_is_closed(now):
            del self._open[next(iter(self._open))]

    def _first_is_closed(self, now: float) -> bool:
        return bool(self._open) and next(iter(self._open.values()))[0] < now - OPEN_SECONDS

    def text(self) -> str:
        """Return all metrics."""
        now = time.time()
        while self._first_is_closed(now):
            del self._open[next(iter(self._open))]
        lag = max((now - newest for _, newest in self._open.values()), default=0.0)
        lines = [
            *_counter("pieces", "Pieces of segments that were taken.", {"": self.pieces}),
            *_counter("repeated_pieces", "Pieces of which every byte was held already.", {"": self.repeated}),
            *_counter("bytes", "Bytes that were written.", {"": self.bytes}),
            *_counter("refused", "Pieces that were not taken.", dict(self.refused)),
            *_counter("refused_tokens", "Requests without a valid token.", {"": self.refused_tokens}),
            *_gauge("lag_seconds", "Time since the last row of the open segment that is the furthest behind.", lag),
            *_gauge("open_segments", "Segments with a piece in the last five minutes.", len(self._open)),
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
