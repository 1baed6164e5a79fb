"""New buckets of many series at once, for a page that follows them: columns of a table whose rows are only appended.

Every step of a run gives each of its charts one more point. Computing the curves one by one takes most of a server's
time, although they share their steps and buckets. Curves that are no such columns are computed by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.journal.columns import TableColumn
from windsock.journal.resolved_rows import ResolvedRows
from windsock.journal.series import bucket_edges
from windsock.server.runs.open_runs import OpenRun

MAX_FOLLOWED = 5000  # series of a run

Array = NDArray[Any]


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


def remember(opened: OpenRun, name: str, points: int, followed: Followed) -> None:
    """Note what is sent of a series."""
    if len(opened.followed) >= MAX_FOLLOWED:
        opened.followed.clear()
    opened.followed[name, points] = followed


def increments(
    opened: OpenRun, asked: Sequence[tuple[str, str | None, float]], points: int, size_of: Callable[[int, int], int]
) -> Iterator[tuple[int, Increment]]:
    """Yield the increments of series that can be computed together, each with its place among those asked for.

    They are asked for by name, cursor and factor. ``size_of(count, points)`` is the size of buckets.
    """
    known = [opened.followed.get((name, points)) for name, _, _ in asked]
    columns = opened.view.table_columns(name for (name, _, _), one in zip(asked, known, strict=True) if one is not None)
    groups: dict[tuple[int, int, int], list[tuple[int, Followed, TableColumn, float]]] = {}
    for place, ((name, since, factor), followed) in enumerate(zip(asked, known, strict=True)):
        column = columns.get(name)
        if followed is None or column is None or since != followed.cursor or followed.count < 2:
            continue
        if column.rows is followed.rows and size_of(len(column.rows), points) <= followed.size:
            key = id(followed.rows), followed.size, followed.count
            groups.setdefault(key, []).append((place, followed, column, factor))
    for group in groups.values():
        yield from _of_group(group)


def _of_group(group: list[tuple[int, Followed, TableColumn, float]]) -> Iterator[tuple[int, Increment]]:
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
