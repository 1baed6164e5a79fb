"""Curves: series reduced to buckets with their true extremes, on any x axis, with cursors to follow them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from barograph.answers.open_run import OpenRun, SeriesRequest, Window
from barograph.answers.responses import BinaryBody, encode
from barograph.answers.views.following import MAX_FOLLOWED, Followed, Increment, SentBuckets, group_increments
from barograph.base.arrays import Array
from barograph.base.errors import MetricNotFoundError, RequestError
from barograph.catalogue.names import recognise
from barograph.journal.read.attempt import TableColumn
from barograph.journal.read.series import Buckets, Series, bucket_count
from barograph.journal.view import View


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
        yield from group_increments(group)


def sent_buckets(opened: OpenRun, place: tuple[object, ...], series: Series) -> SentBuckets:
    """Return what is known of the buckets of a series; ``place`` tells them from others of the run."""
    found = opened.cached(("sent", *place), SentBuckets, math.inf)
    found.update(series, opened.version)
    return found


AXES = ("step", "time", "relative", "tokens", "samples")

COUNTED_AXES = {"tokens": ("system/tokens_total", "system/tokens"), "samples": ("system/samples",)}

COUNTED_PER_STEP = ("system/tokens",)  # logged per step: the axis is their running total

MEDIA_TYPE = "application/vnd.barograph.series"

MAGIC = b"WSS1"

MAX_SERIES = 4000

MAX_POINTS = 4_000_000

EXACT_COLUMNS = ("x", "last")

TYPES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "u4": np.dtype("<u4")}

BUCKET_COLUMNS = ("x", "x_end", "min", "max", "last", "count", "nonfinite")


@dataclass(frozen=True, slots=True)
class Curve:
    """A reduced series: its facts and its columns."""

    head: dict[str, Any]
    columns: dict[str, Array] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the curve as a JSON record."""
        return {**self.head, **{name: _json_column(name, column) for name, column in self.columns.items()}}


def make_curves(opened: OpenRun, wanted: Iterable[SeriesRequest], window: Window) -> Iterator[Curve]:
    """Yield the curves of one run's series; an unknown name gives a curve that is not found.

    Superseded attempts follow a complete curve, never an increment: they do not grow, so a page already has them.
    """
    wanted = list(wanted)
    known = _increments(opened, wanted, window)
    for place, one in enumerate(wanted):
        curve = known.get(place) or make_curve(opened, one, window)
        yield curve
        if window.branches and one.attempt is None and not curve.head.get("keep"):
            yield from _branches(opened, one, window)


def make_curve(opened: OpenRun, wanted: SeriesRequest, window: Window) -> Curve:
    """Reduce one series to the window; with a valid cursor only the buckets after it."""
    try:
        series = opened.series_at(wanted.place)
    except MetricNotFoundError:
        return missing_curve(wanted)
    began = opened.view.span[0]
    start, stop = _index_range(opened, series, window, began)
    size = _bucket_size(stop - start, window.points)
    cursor = _Cursor.parse(wanted.since)
    # A window with an end does not grow, and one that begins elsewhere has other buckets.
    if cursor and cursor.start == start and cursor.size >= size and window.hi is None and window.points:
        size = cursor.size  # larger buckets than needed, so that the page can keep those it has
    else:
        cursor = None
    sent = sent_buckets(opened, (*wanted.place, start, size), series)
    keep = _kept(cursor, sent, series, stop) if cursor else 0
    buckets = _buckets(series, start, stop, size, keep)
    columns = _columns(opened, series, buckets, stop, window.x, began, wanted.factor)
    made = _Cursor(start, keep + len(buckets), size, sent.add(keep, buckets, max(len(buckets) - 1, 0), stop))
    if _is_followed(wanted, window) and (column := opened.view.table_columns([wanted.name]).get(wanted.name)):
        followed = Followed(column.rows, size, made.count, made.checksum, str(made))
        remember(opened, wanted.name, window.points, followed)
    return _found_curve(wanted, made, keep, stop - start, columns)


def _increments(opened: OpenRun, wanted: Sequence[SeriesRequest], window: Window) -> dict[int, Curve]:
    """Return the curves that can be computed together, by their place among those that are wanted."""
    followed = [(place, one) for place, one in enumerate(wanted) if one.since and _is_followed(one, window)]
    asked = [(one.name, one.since, one.factor) for _, one in followed]
    found = {}
    for number, increment in increments(opened, asked, window.points, _bucket_size):
        place, one = followed[number]
        made = _Cursor(0, increment.count, increment.size, increment.checksum)
        sent = Followed(increment.rows, made.size, made.count, made.checksum, str(made))
        remember(opened, one.name, window.points, sent)
        found[place] = _found_curve(one, made, increment.keep, increment.points, increment.columns)
    return found


def _is_followed(wanted: SeriesRequest, window: Window) -> bool:
    """Return whether a curve is of the whole series and grows by buckets."""
    is_whole = window.lo is None and window.hi is None and window.x == "step" and window.points > 0
    return is_whole and (wanted.role, wanted.rank, wanted.attempt) == (None, None, None)


def _found_curve(wanted: SeriesRequest, made: _Cursor, keep: int, points: int, columns: dict[str, Array]) -> Curve:
    facts = {"found": True, "points": points, "exact": made.size == 1, "cursor": str(made), "keep": keep}
    head = missing_curve(wanted).head | facts
    return Curve(head, {name: columns[name] for name in (EXACT_COLUMNS if made.size == 1 else BUCKET_COLUMNS)})


def _kept(cursor: _Cursor, sent: SentBuckets, series: Series, stop: int) -> int:
    """Return how many of the first buckets a page has as they are now: all but the last, or none."""
    count = cursor.count - 1
    if count >= bucket_count(cursor.start, stop, cursor.size):
        return 0
    checksum = sent.checksum(count)
    if checksum is None:  # of an earlier server, or long ago
        checksum = sent.add(0, _buckets(series, cursor.start, stop, cursor.size), count, stop)
    return count if checksum == cursor.checksum else 0


def missing_curve(wanted: SeriesRequest) -> Curve:
    """Return the curve of a series that the run does not have."""
    return Curve({"run": wanted.run, "name": wanted.name, "attempt": wanted.attempt, "branch": False, "found": False})


def _branches(opened: OpenRun, wanted: SeriesRequest, window: Window) -> Iterator[Curve]:
    """Yield the curves of the writer's superseded attempts, each to its end."""
    try:
        writer = opened.series_at(wanted.place).writer
    except MetricNotFoundError:
        return
    if writer is None:
        return
    same = [other for other in opened.view.writers() if (other.role, other.rank) == (writer.role, writer.rank)]
    for older in same[:-1]:
        branch = SeriesRequest(wanted.run, wanted.name, older.role, older.rank, older.attempt, None, wanted.factor)
        curve = make_curve(opened, branch, window)
        if curve.head["found"]:
            yield Curve({**curve.head, "branch": True}, curve.columns)


def _index_range(opened: OpenRun, series: Series, window: Window, began: float) -> tuple[int, int]:
    """Return the indices of the first point in a window and of the one after the last."""
    along: Array = series.steps
    lo, hi = window.lo, window.hi
    if window.x in COUNTED_AXES:
        lo, hi = _steps_between(_axis_series(opened, window.x), lo, hi)
    elif window.x != "step":
        along, shift = series.times, began if window.x == "relative" else 0.0
        lo, hi = (None if end is None else end + shift for end in (lo, hi))
    start = 0 if lo is None else int(np.searchsorted(along, lo, "left"))
    stop = len(series) if hi is None else int(np.searchsorted(along, hi, "right"))
    return start, max(start, stop)


def _steps_between(counted: Series, lo: float | None, hi: float | None) -> tuple[float | None, float | None]:
    """Return the range in steps of a range of a running total: a step is at the total of its last count."""
    if lo is not None:
        first = int(np.searchsorted(counted.values, lo, "left"))
        later = float(counted.steps[first]) if first < len(counted) else np.inf
        lo = later if lo > 0 else None  # steps before the first count are at 0
    if hi is not None:
        behind = int(np.searchsorted(counted.values, hi, "right"))
        hi = counted.steps[behind] - 0.5 if behind < len(counted) else None  # before the first step beyond the range
    return lo, hi


def _bucket_size(points: int, most: int) -> int:
    """Return the points per bucket: a power of two, so that buckets stay aligned while a series grows."""
    return 1 if not most or points <= most else 1 << (-(-points // most) - 1).bit_length()


def _buckets(series: Series, start: int, stop: int, size: int, skip: int = 0) -> Buckets:
    if stop == start:
        return series.zoom(1, 0)  # an empty range: buckets of the right types
    if size > 1:
        return series.grouped(start, stop, size, skip)
    values, steps = series.values[start + skip : stop], series.steps[start + skip : stop]
    ones = np.ones(len(values), np.int64)
    return Buckets(steps, steps, values, values, values, ones, (~np.isfinite(values)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class _Cursor:
    """How much of a series a page has: first point, number and size of buckets, checksum of all but the last."""

    start: int
    count: int
    size: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.start}.{self.count}.{self.size}.{self.checksum:x}"

    @classmethod
    def parse(cls, text: str | None) -> _Cursor | None:
        try:
            start, count, size, checksum = (text or "").split(".")
            found = cls(int(start), int(count), int(size), int(checksum, 16))
        except ValueError:
            return None
        return found if 0 < found.count < 1 << 31 and 0 < found.size < 1 << 40 else None  # from a URL


def _columns(
    opened: OpenRun, series: Series, buckets: Buckets, stop: int, x: str, began: float, factor: float
) -> dict[str, Array]:
    x_first, x_last = _axis_ends(opened, series, buckets, stop, x, began)
    low, high, last = buckets.min, buckets.max, buckets.last
    if factor != 1:
        low, high, last = low * factor, high * factor, last * factor
        low, high = np.fmin(low, high), np.fmax(low, high)  # a negative factor swaps them
    return {
        "x": x_first,
        "x_end": x_last,
        "min": low,
        "max": high,
        "last": last,
        "count": buckets.count.astype(np.uint32),
        "nonfinite": buckets.nonfinite.astype(np.uint32),
    }


def _axis_ends(
    opened: OpenRun, series: Series, buckets: Buckets, stop: int, x: str, began: float
) -> tuple[Array, Array]:
    """Return the positions of the first and the last point of each bucket, of which the last ends before ``stop``."""
    if x == "step":
        return buckets.first_step.astype(np.float64), buckets.last_step.astype(np.float64)
    ends = stop - int(buckets.count.sum()) + np.cumsum(buckets.count)
    firsts = _axis(opened, series, ends - buckets.count, buckets.first_step, x, began)
    return firsts, _axis(opened, series, ends - 1, buckets.last_step, x, began)


def _axis(opened: OpenRun, series: Series, places: Array, steps: Array, x: str, began: float) -> Array:
    """Return the positions of points on an axis."""
    if x == "step":
        return steps.astype(np.float64)
    if x in ("time", "relative"):
        return np.asarray(series.times[places] - (began if x == "relative" else 0.0), np.float64)
    counted = _axis_series(opened, x)
    at = np.searchsorted(counted.steps, steps, "right") - 1
    return np.where(at >= 0, counted.values[np.maximum(at, 0)], 0.0)


def position(opened: OpenRun, series: Series, place: int, x: str) -> float:
    """Return where a point of a series is on an axis; beyond its end, where the last one is."""
    places = np.array([min(place, len(series) - 1)])
    return float(_axis(opened, series, places, series.steps[places], x, opened.view.span[0])[0])


def _axis_series(opened: OpenRun, x: str) -> Series:
    counted = _cached_total(opened, x)
    if counted is None:
        raise RequestError(400, f"x={x}: the run does not count {x}; /names lists its axes")
    return counted


def _cached_total(opened: OpenRun, x: str) -> Series | None:
    return opened.cached(("axis", x), lambda: axis_total(opened.view, x))


def has_axis(opened: OpenRun, x: str) -> bool:
    """Return whether a run has an axis."""
    return x not in COUNTED_AXES or _cached_total(opened, x) is not None


def axis_total(view: View, x: str) -> Series | None:
    """Return the running total of a counted axis, or None where the run does not count it."""
    names = view.names()
    for id in (x, *COUNTED_AXES[x]):
        for name in names:
            if name == id or any(match.metric.id == id for match in recognise(name).matches):
                series = view.series(name)
                # A NaN in one step must not make the axis NaN from there on.
                total = np.nancumsum(series.values) if id in COUNTED_PER_STEP else series.values
                return Series(x, series.steps, total, series.times, series.writer) if len(series) else None
    return None


def available_axes(view: View) -> list[str]:
    """Return the x axes of a run."""
    return [x for x in AXES if x not in COUNTED_AXES or axis_total(view, x) is not None]


def _json_column(name: str, column: Array) -> list[Any]:
    """Return a column for JSON; the extremes of a bucket without a finite value are null."""
    if column.dtype.kind != "f":
        return list(column.tolist())
    finite = np.isfinite(column)
    if finite.all():
        # As integers the axis is shorter in JSON; up to 2**53 JavaScript reads them exactly.
        integral = (
            name.startswith("x") and bool((column == np.floor(column)).all()) and abs(column).max(initial=0) < 2**53
        )
        return list((column.astype(np.int64) if integral else column).tolist())
    if name in ("last",):
        return list(column.tolist())  # the encoder writes NaN and infinities as strings
    return [value if fine else None for value, fine in zip(column.tolist(), finite.tolist(), strict=True)]


def as_json(curves: Sequence[Curve], header: dict[str, Any]) -> dict[str, Any]:
    """Return curves as one JSON record."""
    return {**header, "series": [curve.record() for curve in curves]}


def as_binary(curves: Sequence[Curve], header: dict[str, Any]) -> BinaryBody:
    """Encode curves as one binary body: a header and arrays; equal arrays, such as a shared x axis, once."""
    known: dict[tuple[str, bytes], int] = {}
    described: list[tuple[str, int]] = []
    places: dict[int, int] = {}  # by the identity of an array, which the curves hold: many share their x axis
    series = []
    for curve in curves:
        head = dict(curve.head)
        for name, column in curve.columns.items():
            place = places.get(id(column))
            if place is None:
                kind = "f8" if column.dtype.kind == "f" else "u4"
                data = kind, column.astype(TYPES[kind], copy=False).tobytes()
                if data not in known:
                    known[data] = len(described)
                    described.append((kind, len(column)))
                place = places[id(column)] = known[data]
            head[name] = place
        series.append(head)
    encoded = encode({**header, "arrays": described, "series": series})
    encoded += b" " * (-len(encoded) % 8)  # typed arrays need an aligned offset
    arrays = [data + b"\0" * (-len(data) % 8) for _, data in known]
    return BinaryBody(b"".join((MAGIC, struct.pack("<I", len(encoded)), encoded, *arrays)), MEDIA_TYPE)


def check_size(wanted: int, points: int) -> None:
    """Reject a response that is too large for the page and the server."""
    if wanted > MAX_SERIES:
        raise RequestError(413, f"{wanted} series requested; at most {MAX_SERIES}")
    if points > MAX_POINTS:
        raise RequestError(413, f"{points:,} points requested; at most {MAX_POINTS:,}: request fewer points or series")
