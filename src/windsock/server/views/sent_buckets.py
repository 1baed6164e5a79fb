"""What pages have of a growing series: checksums of its first buckets, by which they are not computed again."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np

from windsock.journal.series import Buckets, Series
from windsock.server.runs.open_runs import OpenRun

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


def sent_buckets(opened: OpenRun, place: tuple[object, ...], series: Series) -> SentBuckets:
    """Return what is known of the buckets of a series; ``place`` tells them from others of the run."""
    found = opened.cached(("sent", *place), SentBuckets, math.inf)
    found.update(series, opened.version)
    return found


def _checksum(buckets: Buckets, count: int, before: int) -> int:
    """Return the checksum of some buckets behind others, bucket by bucket, so that further ones can be added."""
    parts = (buckets.first_step, buckets.min, buckets.max, buckets.last)
    return crc32(np.array([part[:count] for part in parts], np.float64).T.tobytes(), before)


def _begin_alike(one: Series, other: Series, count: int) -> bool:
    """Return whether two series have the same first points, NaN being the same as NaN."""
    if min(len(one), len(other)) < count or not (one.steps[:count] == other.steps[:count]).all():
        return False
    return bool((one.values[:count].view(np.int64) == other.values[:count].view(np.int64)).all())
