"""Series as pictures: buckets with their true extremes, on any x axis, and cursors so that nothing is sent twice."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.names import recognise
from windsock.errors import RunNotFoundError
from windsock.journal.series import Buckets, Series
from windsock.readable import Readable
from windsock.server.responses import Binary, RequestError, encode
from windsock.server.runs.open_runs import Opened

Array = NDArray[Any]
AXES = ("step", "time", "relative", "tokens", "samples")
COUNTED = {"tokens": ("system/tokens_total", "system/tokens"), "samples": ("system/samples",)}
PER_STEP = ("system/tokens",)  # what is logged for each step alone, and adds up to an axis
MEDIA_TYPE = "application/vnd.windsock.series"
MAGIC = b"WSS1"
MOST_SERIES = 4000
MOST_POINTS = 4_000_000
EXACT = ("x", "last")
BUCKETED = ("x", "x_end", "min", "max", "last", "count", "nonfinite")


@dataclass(frozen=True, slots=True)
class Window:
    """What part of the series is to be drawn, by its ends on an axis, in how many buckets; 0: every point."""

    points: int = 600
    lo: float | None = None
    hi: float | None = None
    x: str = "step"
    branches: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """One series that is asked for."""

    run: str
    name: str
    role: str | None = None
    rank: int | None = None
    attempt: int | None = None
    since: str | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A series drawn: what is to be said of it, and its columns."""

    head: dict[str, Any]
    columns: dict[str, Array] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.head, **{name: _listed(name, column) for name, column in self.columns.items()}}


def curves(opened: Opened, wanted: Iterable[Wanted], window: Window) -> Iterator[Curve]:
    """Draw series of one run; a name that it does not have does not cost the others.

    Older attempts come with a whole series, not with what is new of one: they do not grow.
    """
    for one in wanted:
        curve = draw(opened, one, window)
        yield curve
        if window.branches and one.attempt is None and not curve.head.get("keep"):
            yield from _branches(opened, one, window)


def draw(opened: Opened, wanted: Wanted, window: Window) -> Curve:
    """Draw one series."""
    try:
        series = series_of(opened, wanted)
    except RunNotFoundError:
        return unknown(wanted)
    began = opened.view.span[0]
    start, stop = _extent(opened, series, window, began)
    size = _bucket_size(stop - start, window.points)
    cursor = _Cursor.parse(wanted.since)
    if cursor and cursor.start == start and cursor.size >= size and window.hi is None and window.points:
        size = cursor.size
    else:
        cursor = None
    buckets = _grouped(series, start, stop, size)
    keep = max(cursor.count - 1, 0) if cursor and cursor.mark == _mark(buckets, cursor.count - 1) else 0
    columns = _columns(opened, series, buckets, start, window.x, began, wanted.factor)
    made = _Cursor(start, len(buckets), size, _mark(buckets, len(buckets) - 1))
    facts = {"found": True, "points": stop - start, "exact": size == 1, "cursor": str(made), "keep": keep}
    head = unknown(wanted).head | facts
    return Curve(head, {name: columns[name][keep:] for name in (EXACT if size == 1 else BUCKETED)})


def unknown(wanted: Wanted) -> Curve:
    """Return what is said of a series that cannot be drawn."""
    return Curve({"run": wanted.run, "name": wanted.name, "attempt": wanted.attempt, "branch": False, "found": False})


def series_of(opened: Opened, wanted: Wanted) -> Series:
    """Return a series of the run as it stands; what was asked for lately is kept, with its pyramid."""
    place = (wanted.name, wanted.role, wanted.rank, wanted.attempt)
    return opened.once(("series", *place), lambda: opened.view.series(*place))


def _branches(opened: Opened, wanted: Wanted, window: Window) -> Iterator[Curve]:
    """Draw the older attempts of the writer whose series it is."""
    try:
        writer = series_of(opened, wanted).writer
    except RunNotFoundError:
        return
    if writer is None:
        return
    same = [other for other in opened.view.writers() if (other.role, other.rank) == (writer.role, writer.rank)]
    for older in same[:-1]:
        branch = Wanted(wanted.run, wanted.name, older.role, older.rank, older.attempt, None, wanted.factor)
        curve = draw(opened, branch, window)
        if curve.head["found"]:
            yield Curve({**curve.head, "branch": True}, curve.columns)


def _extent(opened: Opened, series: Series, window: Window, began: float) -> tuple[int, int]:
    """Return the places of the first point in a window and of that behind the last."""
    along: Array = series.steps
    lo, hi = window.lo, window.hi
    if window.x in COUNTED:
        lo, hi = _steps_between(_counted(opened, window.x), lo, hi)
    elif window.x != "step":
        along, shift = series.times, began if window.x == "relative" else 0.0
        lo, hi = (None if end is None else end + shift for end in (lo, hi))
    start = 0 if lo is None else int(np.searchsorted(along, lo, "left"))
    stop = len(series) if hi is None else int(np.searchsorted(along, hi, "right"))
    return start, max(start, stop)


def _steps_between(counted: Series, lo: float | None, hi: float | None) -> tuple[float | None, float | None]:
    """Return the ends in steps of a part of a running total: a step lies where the total stood last."""
    if lo is not None:
        first = int(np.searchsorted(counted.values, lo, "left"))
        later = float(counted.steps[first]) if first < len(counted) else np.inf
        lo = later if lo > 0 else None  # nothing is counted before the first count
    if hi is not None:
        behind = int(np.searchsorted(counted.values, hi, "right"))
        hi = counted.steps[behind] - 0.5 if behind < len(counted) else None
    return lo, hi


def _bucket_size(points: int, most: int) -> int:
    """Return how many points a bucket takes: a power of two."""
    return 1 if not most or points <= most else 1 << (-(-points // most) - 1).bit_length()


def _grouped(series: Series, start: int, stop: int, size: int) -> Buckets:
    if stop == start:
        return series.zoom(1, 0)
    if size > 1:
        return series.grouped(start, stop, size)
    values, steps = series.values[start:stop], series.steps[start:stop]
    ones = np.ones(len(values), np.int64)
    return Buckets(steps, steps, values, values, values, ones, (~np.isfinite(values)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Up to where somebody has a series: the first point, how many buckets of which size, and a mark of all but one."""

    start: int
    count: int
    size: int
    mark: int

    def __str__(self) -> str:
        return f"{self.start}.{self.count}.{self.size}.{self.mark:x}"

    @classmethod
    def parse(cls, text: str | None) -> _Cursor | None:
        try:
            start, count, size, mark = (text or "").split(".")
            found = cls(int(start), int(count), int(size), int(mark, 16))
        except ValueError:
            return None
        return found if 0 < found.count < 1 << 31 and 0 < found.size < 1 << 40 else None


def _mark(buckets: Buckets, count: int) -> int:
    """Return a checksum of the first buckets: it tells whether what was sent still holds."""
    if not 0 <= count <= len(buckets):
        return -1
    parts = (buckets.first, buckets.min, buckets.max, buckets.last)
    mark = 0
    for part in parts:
        mark = crc32(np.ascontiguousarray(part[:count]).tobytes(), mark)
    return mark


def _columns(
    opened: Opened, series: Series, buckets: Buckets, start: int, x: str, began: float, factor: float
) -> dict[str, Array]:
    ends = start + np.cumsum(buckets.count)
    firsts = ends - buckets.count
    low, high = buckets.min * factor, buckets.max * factor
    return {
        "x": _axis(opened, series, firsts, buckets.first, x, began),
        "x_end": _axis(opened, series, ends - 1, buckets.last_step, x, began),
        "min": np.fmin(low, high),
        "max": np.fmax(low, high),
        "last": buckets.last * factor,
        "count": buckets.count.astype(np.uint32),
        "nonfinite": buckets.nonfinite.astype(np.uint32),
    }


def _axis(opened: Opened, series: Series, places: Array, steps: Array, x: str, began: float) -> Array:
    """Return where points lie on an axis."""
    if x == "step":
        return steps.astype(np.float64)
    if x in ("time", "relative"):
        return np.asarray(series.times[places] - (began if x == "relative" else 0.0), np.float64)
    counted = _counted(opened, x)
    at = np.searchsorted(counted.steps, steps, "right") - 1
    return np.where(at >= 0, counted.values[np.maximum(at, 0)], 0.0)


def _counted(opened: Opened, x: str) -> Series:
    counted = _total(opened, x)
    if counted is None:
        raise RequestError(400, f"x={x}: the run does not count {x}; /names lists its axes")
    return counted


def _total(opened: Opened, x: str) -> Series | None:
    return opened.once(("axis", x), lambda: counted_axis(opened.view, x))


def has_axis(opened: Opened, x: str) -> bool:
    """Tell whether a run can be drawn on an axis."""
    return x not in COUNTED or _total(opened, x) is not None


def counted_axis(view: Readable, x: str) -> Series | None:
    """Return the running total that an axis is made of; None where the run has none."""
    names = view.names()
    for id in (x, *COUNTED[x]):
        for name in names:
            if name == id or any(match.metric.id == id for match in recognise(name).matches):
                series = view.series(name)
                total = np.nancumsum(series.values) if id in PER_STEP else series.values
                return Series(x, series.steps, total, series.times, series.writer) if len(series) else None
    return None


def axes(view: Readable) -> list[str]:
    """Return the axes that a run can be drawn on."""
    return [x for x in AXES if x not in COUNTED or counted_axis(view, x) is not None]


def _listed(name: str, column: Array) -> list[Any]:
    """Return a column as JSON; a bucket without a finite value has no extremes."""
    if column.dtype.kind != "f":
        return list(column.tolist())
    finite = np.isfinite(column)
    if finite.all():
        whole = name.startswith("x") and bool((column == np.floor(column)).all()) and abs(column).max(initial=0) < 2**53
        return list((column.astype(np.int64) if whole else column).tolist())
    if name in ("last",):
        return list(column.tolist())  # the encoder has words for what is not finite
    return [value if fine else None for value, fine in zip(column.tolist(), finite.tolist(), strict=True)]


def as_json(curves: Sequence[Curve], facts: dict[str, Any]) -> dict[str, Any]:
    """Return curves as one JSON answer."""
    return {**facts, "series": [curve.record() for curve in curves]}


def as_binary(curves: Sequence[Curve], facts: dict[str, Any]) -> Binary:
    """Return curves as one binary answer: a header and arrays, each of which is there once."""
    known: dict[tuple[str, bytes], int] = {}
    described: list[tuple[str, int]] = []
    series = []
    for curve in curves:
        head = dict(curve.head)
        for name, column in curve.columns.items():
            kind = "f8" if column.dtype.kind == "f" else "u4"
            data = np.ascontiguousarray(column, f"<{kind}").tobytes()
            if (kind, data) not in known:
                known[kind, data] = len(described)
                described.append((kind, len(column)))
            head[name] = known[kind, data]
        series.append(head)
    header = encode({**facts, "arrays": described, "series": series})
    header += b" " * (-len(header) % 8)
    arrays = [data + b"\0" * (-len(data) % 8) for _, data in known]
    return Binary(b"".join((MAGIC, struct.pack("<I", len(header)), header, *arrays)), MEDIA_TYPE)


def check_amount(wanted: int, points: int) -> None:
    """Refuse an answer that would be too large for a page and for the server."""
    if wanted > MOST_SERIES:
        raise RequestError(413, f"{wanted} series at once; at most {MOST_SERIES}")
    if points > MOST_POINTS:
        raise RequestError(413, f"{points:,} points at once; at most {MOST_POINTS:,}: ask for fewer points or series")
