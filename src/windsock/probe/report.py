"""Reports on recorded spans: a summary of each phase, and the timeline of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windsock.model import MAIN_ROLE, PhaseSpan, Writer
from windsock.probe.intervals import MAX_NESTING, Interval, clip, coverage, length

Windows = Mapping[Writer, Mapping[int, Interval]]
"""Start and end of each step, by writer."""

MAX_SEPARATE_LANES = 4  # lanes with the same phases; more of them share one group


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """Statistics of all spans of one phase. Times are seconds per span; memory is in bytes.

    ``share`` is the phase's share of the steps' time on the writers that entered it. It never exceeds 1: overlapping
    spans count once.
    """

    name: str
    timer: bool
    count: int
    failed: int
    mean: float
    p95: float
    max: float
    writers: int
    slowest: Writer
    share: float | None
    tokens_per_second: float | None
    token_kind: str
    peak: float | None
    rss: float | None


def summaries(spans: Iterable[PhaseSpan], windows: Windows) -> list[PhaseSummary]:
    """Summarise closed spans by name, in the order in which the names first appear."""
    by_name: dict[tuple[str, bool], list[PhaseSpan]] = {}
    for span in spans:
        if span.end is not None:
            by_name.setdefault((span.name, span.timer), []).append(span)
    return [_summary(same_name, windows) for same_name in by_name.values()]


def _summary(spans: list[PhaseSpan], windows: Windows) -> PhaseSummary:
    seconds = sorted(span.seconds or 0.0 for span in spans)
    slowest = max(spans, key=lambda span: span.seconds or 0.0)
    by_writer: dict[Writer, list[Interval]] = {}
    for span in spans:
        by_writer.setdefault(span.writer, []).append(_interval(span))
    counted = [span for span in spans if span.tokens is not None]
    # Over the union of the spans: two lanes that generate at the same time are twice as fast as one.
    lasted = length(_interval(span) for span in counted)
    return PhaseSummary(
        name=spans[0].name,
        timer=spans[0].timer,
        count=len(spans),
        failed=sum(span.failed for span in spans),
        mean=sum(seconds) / len(seconds),
        p95=_quantile(seconds, 0.95),
        max=seconds[-1],
        writers=len(by_writer),
        slowest=slowest.writer,
        share=_share(by_writer, windows),
        tokens_per_second=sum(span.tokens or 0.0 for span in counted) / lasted if lasted > 0 else None,
        token_kind=", ".join(sorted({span.token_kind for span in counted})),
        peak=max((span.peak for span in spans if span.peak is not None), default=None),
        rss=max((span.rss for span in spans if span.rss is not None), default=None),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that is not below the given share of all values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _interval(span: PhaseSpan, until: float = math.inf) -> Interval:
    return span.start, until if span.end is None else span.end


def _share(by_writer: Mapping[Writer, list[Interval]], windows: Windows) -> float | None:
    inside = total = 0.0
    for writer, intervals in by_writer.items():
        of_writer = windows.get(writer, {}).values()
        total += sum(end - start for start, end in of_writer)
        if of_writer:  # time after the last commit belongs to no complete step
            first, last = min(start for start, _ in of_writer), max(end for _, end in of_writer)
            inside += length(clip(intervals, first, last))
    return min(1.0, inside / total) if total > 0 else None


@dataclass(slots=True)
class TimelineRow:
    """One line of a timeline: the spans of one name at one place of the nesting."""

    name: str
    depth: int
    spans: list[PhaseSpan] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Sum of the spans' seconds."""
        return sum(span.seconds or 0.0 for span in self.spans)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of one step, as groups of rows by writer and lane."""

    step: int
    start: float
    end: float
    groups: tuple[tuple[str, tuple[TimelineRow, ...]], ...]
    unaccounted: float  # share of the main writer's step outside all phases
    overlap: float  # share of it in which phases of two or more lanes overlap, neither inside the other


def timeline(spans: Sequence[PhaseSpan], windows: Windows, step: int, now: float) -> Timeline | None:
    """Return the timeline of a step; open spans end at ``now``. None where the step has no spans."""
    of_step = [span for span in spans if span.step == step]
    if not of_step:
        return None
    bounds = [windows[writer][step] for writer in {s.writer for s in of_step} if step in windows.get(writer, {})]
    start = min([span.start for span in of_step] + [began for began, _ in bounds])
    end = max([ended for _, ended in bounds] + [now if span.end is None else span.end for span in of_step])
    # Shares are of one writer's step: the steps of different roles begin and end at different times.
    main = min((span.writer for span in of_step), key=lambda writer: (writer.role != MAIN_ROLE, writer))
    began, ended = windows.get(main, {}).get(step, (start, end))
    own = [(s.id, s.parent or 0, s.lane, *_interval(s, end)) for s in of_step if s.writer == main]
    covered, overlapped = coverage(own, began, ended)
    total = max(ended - began, 1e-12)
    groups = tuple((title, _rows(group)) for title, group in _groups(of_step))
    return Timeline(step, start, end, groups, max(0.0, 1 - covered / total), overlapped / total)


def _groups(spans: Sequence[PhaseSpan]) -> list[tuple[str, list[PhaseSpan]]]:
    """Group spans by writer and lane; more than MAX_SEPARATE_LANES lanes with the same phases are one group."""
    lanes: dict[tuple[Writer, int, str], list[PhaseSpan]] = {}
    for span in spans:
        lanes.setdefault((span.writer, span.part, span.lane), []).append(span)
    alike: dict[tuple[Writer, frozenset[str]], list[tuple[Writer, int, str]]] = {}
    for place, of_lane in lanes.items():
        alike.setdefault((place[0], frozenset(span.name for span in of_lane)), []).append(place)
    found = []
    for places in alike.values():
        if len(places) > MAX_SEPARATE_LANES:
            found.append((f"{places[0][0]} · {len(places)} lanes", [s for place in places for s in lanes[place]]))
        else:
            found += [(f"{place[0]} · {place[2]}", lanes[place]) for place in places]
    return sorted(found, key=lambda group: (group[1][0].writer, group[1][0].start))


def _rows(spans: Sequence[PhaseSpan]) -> tuple[TimelineRow, ...]:
    """Merge the spans of a group by their place in the nesting, outer before inner, earlier before later."""
    by_id = {span.id: span for span in spans}
    rows: dict[tuple[str, ...], TimelineRow] = {}
    for span in sorted(spans, key=lambda span: span.start):
        path = _path(span, by_id)
        rows.setdefault(path, TimelineRow(span.name, len(path) - 1)).spans.append(span)
    inner: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in rows:
        # The row above may be missing, if its spans are nested in others too.
        above = path[:-1]
        while above and above not in rows:
            above = above[:-1]
        inner.setdefault(above, []).append(path)
    return tuple(rows[path] for path in _descend((), inner))


def _path(span: PhaseSpan, by_id: Mapping[int, PhaseSpan]) -> tuple[str, ...]:
    """Return the names of the spans around a span and its own, outermost first."""
    names = [span.name]
    outer = by_id.get(span.parent or 0)  # a parent in another group is not found: the span is a root here
    # A file may say that spans are nested in each other, so the depth has an end.
    while outer is not None and len(names) < MAX_NESTING:
        names.append(outer.name)
        outer = by_id.get(outer.parent or 0)
    return tuple(reversed(names))


def _descend(
    above: tuple[str, ...], inner: Mapping[tuple[str, ...], list[tuple[str, ...]]]
) -> Iterator[tuple[str, ...]]:
    for path in inner.get(above, ()):
        yield path
        yield from _descend(path, inner)
