"""What pages have of growing series: checksums of the buckets that were sent, and the new buckets of many series at
once.

Every step gives each chart one more point; curves that share their rows are computed together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from barograph.base.arrays import Array
from barograph.journal.read.attempt import TableColumn
from barograph.journal.read.series import Buckets, Series, bucket_edges
from barograph.journal.segments.steps import ResolvedRows

MAX_COUNTS = 16  # numbers of buckets whose checksums are kept: pages may be behind each other


class SentBuckets:
    """Checksums of the first buckets of a series, by their number, as long as their points are the same."""

    def __init__(self) -> None:
        self._version = -1
        self._known: Series | None = None  # as it was
        self._points = 0  # of it that are in a checksum
        self._checksums = {0: 0}

    def update(self, series: Series, version: int) -> None:
        """Forget the checksums if older points have changed, after a restart for example."""
        if version != self._version:
            self._version = version
            if self._known is None or not _begin_alike(self._known, series, self._points):
                self._checksums, self._points = {0: 0}, 0
            self._known = series

    def checksum(self, count: int) -> int | None:
        """Return the checksum of the first buckets; None if it is not known."""
        return self._checksums.get(count)

    def add(self, first: int, buckets: Buckets, count: int, stop: int) -> int:
        """Return the checksum of the ``first`` buckets, which is known, and ``count`` behind them.

        ``stop`` is the point after the last one of the buckets.
        """
        if not count:
            return self._checksums[first]
        checksum = self._checksums[first + count] = _checksum(buckets, count, self._checksums[first])
        if len(self._checksums) > MAX_COUNTS:
            self._checksums = {0: 0, **dict(list(self._checksums.items())[-MAX_COUNTS // 2 :])}
        self._points = max(self._points, stop - int(buckets.count[count:].sum()))
        return checksum


def _checksum(buckets: Buckets, count: int, before: int) -> int:
    """Return the checksum of some buckets behind others, bucket by bucket, so that further ones can be added."""
    parts = (buckets.first_step, buckets.min, buckets.max, buckets.last)
    return crc32(np.array([part[:count] for part in parts], np.float64).T.tobytes(), before)


def _begin_alike(one: Series, other: Series, count: int) -> bool:
    """Return whether two series have the same first points, NaN being the same as NaN."""
    if min(len(one), len(other)) < count or not (one.steps[:count] == other.steps[:count]).all():
        return False
    return bool((one.values[:count].view(np.int64) == other.values[:count].view(np.int64)).all())


MAX_FOLLOWED = 5000  # series of a run


@dataclass(frozen=True, slots=True)
class Followed:
    """What was sent of a series to the last page that asked for it."""

    rows: ResolvedRows
    size: int  # points of a bucket
    count: int  # buckets
    checksum: int  # of all but the last
    cursor: str


@dataclass(frozen=True, slots=True)
class Increment:
    """The last bucket of a series that a page has, and those behind it."""

    rows: ResolvedRows
    size: int  # points of a bucket
    keep: int  # buckets before it
    count: int  # buckets with those
    points: int
    checksum: int  # of all but the last
    columns: dict[str, Array]


def group_increments(group: list[tuple[int, Followed, TableColumn, float]]) -> Iterator[tuple[int, Increment]]:
    """Yield the increments of series that have the same rows and buckets."""
    _, first, column, _ = group[0]
    keep, stop = first.count - 1, len(column.rows)
    edges = bucket_edges(0, stop, first.size, keep)
    steps = column.rows.steps[edges[0] : stop]
    values = column.table.pick(np.arange(edges[0], stop), np.array([one.number for _, _, one, _ in group]))
    bounds = [edge - edges[0] for edge in edges]
    # Where each point has a bucket, that is its value, finite or not.
    exact = values, values, values, np.zeros(values.shape, np.uint32)
    low, high, last, nonfinite = exact if first.size == 1 else _buckets(values, bounds)
    shared = {
        "x": steps[bounds[:-1]].astype(np.float64),
        "x_end": steps[np.array(bounds[1:]) - 1].astype(np.float64),
        "count": np.diff(bounds).astype(np.uint32),
    }
    checksums = _checksums(shared["x"], low, high, last, [followed.checksum for _, followed, _, _ in group])
    factors = np.array([factor for *_, factor in group])
    if (factors != 1).any():
        low, high, last = low * factors, high * factors, last * factors
        low, high = np.fmin(low, high), np.fmax(low, high)
    own = {"min": low, "max": high, "last": last, "nonfinite": nonfinite}
    count = keep + len(edges) - 1
    for number, (place, _, _, _) in enumerate(group):
        columns = shared | {name: part[:, number] for name, part in own.items()}
        yield place, Increment(first.rows, first.size, keep, count, stop, checksums[number], columns)


def _buckets(values: Array, bounds: list[int]) -> tuple[Array, Array, Array, Array]:
    """Return minimum, maximum, last value and number of values that are not finite: buckets × columns."""
    finite = np.isfinite(values)
    low, high = values, values
    if not finite.all():
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    pairs = list(itertools.pairwise(bounds))
    low = np.array([low[start:stop].min(0) for start, stop in pairs])
    high = np.array([high[start:stop].max(0) for start, stop in pairs])
    nonfinite = np.array([(~finite[start:stop]).sum(0) for start, stop in pairs])
    empty = low > high
    if empty.any():
        low, high = np.where(empty, np.nan, low), np.where(empty, np.nan, high)
    return low, high, values[[stop - 1 for _, stop in pairs]], nonfinite.astype(np.uint32)


def _checksums(x: Array, low: Array, high: Array, last: Array, before: list[int]) -> list[int]:
    """Return the checksum of each column with the buckets behind it but the last, as ``SentBuckets`` has them."""
    count = len(x) - 1
    if not count:
        return before
    first = np.broadcast_to(x[:-1, None], (count, low.shape[1]))
    data = np.stack([first, low[:-1], high[:-1], last[:-1]], axis=-1).swapaxes(0, 1).tobytes()
    size = 32 * count
    return [crc32(data[number * size : (number + 1) * size], known) for number, known in enumerate(before)]
