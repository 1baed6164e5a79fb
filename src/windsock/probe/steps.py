"""What the spans of one step add up to: times sum, peaks take the maximum, readings are the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from windsock.catalogue.patterns import Filled
from windsock.probe.intervals import Interval, clipped, length, overlap
from windsock.probe.memory import Held, HostReading
from windsock.probe.names import GIB, Value
from windsock.probe.phases import Span

Root = tuple[str, float, float]  # lane, start and end of a span that lies in no other
Key = tuple[str, bool]  # name, and whether it is a plain timer
RATE_OF_KIND = {"generated": "system/generated_tokens_per_second", "trained": "system/train_tokens_per_second"}


@dataclass(slots=True, eq=False)
class Sums:
    """The spans of one name."""

    count: int = 0
    onload: float | None = None
    execute: float = 0.0
    offload: float | None = None
    tokens: float = 0.0
    token_seconds: float = 0.0
    pending: int = 0  # spans that a device has not finished timing or counting

    def add(self, span: Span) -> None:
        """Take in one more."""
        self.count += 1
        self.execute += span.execute or 0.0
        if span.onload is not None:
            self.onload = (self.onload or 0.0) + span.onload
        if span.offload is not None:
            self.offload = (self.offload or 0.0) + span.offload
        if span.kinds:
            self.tokens += sum(span.kinds.values())
            self.token_seconds += span.seconds


@dataclass(slots=True, eq=False)
class Step:
    """One step, from commit to commit. ``number`` is known when it is committed; spans may end later than that."""

    number: int | None = None
    phases: dict[Key, Sums] = field(default_factory=dict)
    held: dict[tuple[str, str, int], Held] = field(default_factory=dict)  # phase, moment, device
    work: dict[tuple[str, int], int] = field(default_factory=dict)  # phase, device
    host: dict[tuple[str, str], HostReading] = field(default_factory=dict)  # phase, when
    kinds: dict[str, tuple[float, list[Interval]]] = field(default_factory=dict)  # tokens of a kind, when
    flops: dict[str, tuple[float, float]] = field(default_factory=dict)  # model FLOPs and seconds
    probe_seconds: float = 0.0
    late: set[Key] = field(default_factory=set)  # written already, and changed since

    def add(self, span: Span) -> None:
        """Take in a span that is complete."""
        key = span.phase.name, span.phase.timer
        self.sums(key).add(span)
        for kind, tokens in span.kinds.items():
            known, intervals = self.kinds.get(kind, (0.0, []))
            intervals.append((span.entered, span.left))
            self.kinds[kind] = known + tokens, intervals
        for model, flops in span.flops.items():
            known, seconds = self.flops.get(model, (0.0, 0.0))
            self.flops[model] = known + flops, seconds + (span.execute or 0.0)
        if self.number is not None:
            self.late.add(key)

    def add_memory(self, span: Span) -> None:
        """Take in what was read in a span."""
        name = span.phase.name
        for moment, by_device in span.held.items():
            for device, held in by_device.items():
                place = name, moment, device
                self.held[place] = _peaks_joined(self.held.get(place), held)
        if span.watch is not None:
            for device, work in span.watch.work.items():
                self.work[name, device] = max(work, self.work.get((name, device), 0))
        for when, reading in span.host.items():
            self.host[name, when] = reading

    def sums(self, key: Key) -> Sums:
        """Return the sums of a name."""
        return self.phases.setdefault(key, Sums())

    def times(self, keys: Iterable[Key]) -> Iterator[Value]:
        """Yield the times of some names, less those that a device has yet to tell."""
        for key in keys:
            sums = self.sums(key)
            if sums.count and not sums.pending:
                yield from _times(*key, sums)

    def rates(self) -> Iterator[Value]:
        """Yield tokens per second of those that were generated and trained on, over the time in which they were."""
        for kind, id in RATE_OF_KIND.items():
            tokens, intervals = self.kinds.get(kind, (0.0, []))
            if (seconds := length(intervals)) > 0:
                yield id, (), tokens / seconds

    def utilisation(self, peak: float | None, devices: int | None) -> Iterator[Value]:
        """Yield the share of the devices' arithmetic that each model used, where all that it takes is known."""
        for model, (flops, seconds) in self.flops.items():
            if peak and devices and seconds > 0:
                yield "system/mfu/{model}", (("model", model),), flops / (seconds * peak * devices)

    def memory(self, names: Set[str], totals: Mapping[int, int | None]) -> Iterator[Value]:
        """Yield what some phases held. ``totals`` are the devices' sizes."""
        for (phase, moment, device), held in self.held.items():
            if phase in names:
                yield from _held(phase, moment, device, held, totals.get(device))
        for (phase, device), work in self.work.items():
            if phase in names:
                filled = ("phase", phase), ("device", str(device))
                yield "memory/{phase}/end/onload/work_peak/{device}", filled, work / GIB
        for (phase, when), reading in self.host.items():
            for what, size in zip(HostReading._fields, reading, strict=True) if phase in names else ():
                yield f"memory/cpu/{{phase}}/{{when}}/{what}", (("phase", phase), ("when", when)), size / GIB


def window_values(roots: Iterable[Root], start: float, end: float) -> Iterator[Value]:
    """Yield how long a step took, what of it lay in no phase, and for how long phases ran side by side."""
    seconds = end - start
    yield "time/step", (), seconds
    lanes: dict[str, list[Interval]] = {}
    for lane, began, ended in roots:
        lanes.setdefault(lane, []).extend(clipped([(began, ended)], start, end))
    if lanes and seconds > 0:
        unaccounted = max(0.0, seconds - length(one for lane in lanes.values() for one in lane))
        yield "time/unaccounted", (), unaccounted
        yield "time/unaccounted_share", (), unaccounted / seconds
        yield "time/overlap", (), overlap(lanes.values())


def _peaks_joined(known: Held | None, new: Held) -> Held:
    """Return the newer reading with the higher peaks."""
    if known is None or known.max_allocated is None or new.max_allocated is None:
        return new
    assert known.max_reserved is not None
    assert new.max_reserved is not None
    return Held(
        new.allocated,
        new.reserved,
        max(known.max_allocated, new.max_allocated),
        max(known.max_reserved, new.max_reserved),
    )


def _times(name: str, timer: bool, sums: Sums) -> Iterator[Value]:
    filled: Filled = (("phase", name),)
    total = (sums.onload or 0.0) + sums.execute + (sums.offload or 0.0)
    if timer:
        yield "time/{operation}", (("operation", name),), total
    else:
        yield "time/{phase}/total", filled, total
        if sums.onload is not None:
            yield "time/{phase}/onload", filled, sums.onload
        yield "time/{phase}/execute", filled, sums.execute
        if sums.offload is not None:
            yield "time/{phase}/offload", filled, sums.offload
    if sums.count > 1:
        yield "time/{phase}/count", filled, float(sums.count)
    if sums.tokens:
        yield "time/per_token/{phase}", filled, sums.token_seconds / sums.tokens


def _held(phase: str, moment: str, device: int, held: Held, total: int | None) -> Iterator[Value]:
    place = ("phase", phase), ("device", str(device))
    filled: Filled = (*place, ("moment", moment))
    for what, size in zip(Held._fields, held, strict=True):
        if size is not None:
            yield f"memory/{{phase}}/{{moment}}/{what}/{{device}}", filled, size / GIB
    if moment == "end/onload" and total:
        for what, size in (("max_allocated", held.max_allocated), ("max_reserved", held.max_reserved)):
            if size is not None:
                yield f"memory/{{phase}}/end/onload/{what}_frac/{{device}}", place, size / total
