"""Totals of a step's spans: times are summed, peaks take the maximum, other readings the last value; and the balance
of its tokens over the data-parallel shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from barograph.catalogue.registry import Filled
from barograph.metrics.probe_values import GIB, Interval, NestedSpan, Value, coverage, length
from barograph.recording.probe.devices import DeviceMemory, HostReading
from barograph.recording.probe.phases import Span


def shard_values(before: Sequence[float], after: Sequence[float] | None = None) -> Iterator[Value]:
    """Yield statistics of tokens per shard before balancing and, where ``after`` is given, after it."""
    if len(before):
        low, high = float(min(before)), float(max(before))
        yield "system/shard_tokens/min", (), low
        yield "system/shard_tokens/max", (), high
        yield "system/shard_tokens/spread", (), high - low
    if after is not None and len(after):
        yield "system/shard_tokens/balanced_min", (), float(min(after))
        yield "system/shard_tokens/balanced_max", (), float(max(after))
    either = before if len(before) else after
    if either is not None and len(either):
        yield "system/shard_tokens/mean", (), float(sum(either)) / len(either)


PhaseKey = tuple[str, bool]  # name, and whether it is a plain timer

RATE_OF_KIND = {"generated": "system/generated_tokens_per_second", "trained": "system/train_tokens_per_second"}


@dataclass(slots=True, eq=False)
class PhaseTotals:
    """Totals of the spans of one name."""

    count: int = 0
    onload: float | None = None
    execute: float = 0.0
    offload: float | None = None
    tokens: float = 0.0
    token_seconds: float = 0.0
    pending: int = 0  # spans whose device times or token counts are not known yet

    def add(self, span: Span) -> None:
        """Add a span."""
        self.count += 1
        self.execute += span.execute or 0.0
        if span.onload is not None:
            self.onload = (self.onload or 0.0) + span.onload
        if span.offload is not None:
            self.offload = (self.offload or 0.0) + span.offload
        if span.tokens_by_kind:
            self.tokens += sum(span.tokens_by_kind.values())
            # Only the time of spans with a count: other spans would make a token look slower.
            self.token_seconds += span.seconds


@dataclass(slots=True, eq=False)
class StepTotals:
    """Totals of one step, from commit to commit. ``number`` is set by the commit; spans may end after it."""

    number: int | None = None
    phases: dict[PhaseKey, PhaseTotals] = field(default_factory=dict)
    device_memory: dict[tuple[str, str, int], DeviceMemory] = field(default_factory=dict)  # phase, moment, device
    work: dict[tuple[str, int], int] = field(default_factory=dict)  # phase, device
    host: dict[tuple[str, str], HostReading] = field(default_factory=dict)  # phase, when
    tokens: dict[str, tuple[float, list[Interval]]] = field(default_factory=dict)  # tokens and intervals by kind
    flops: dict[str, tuple[float, float]] = field(default_factory=dict)  # FLOPs and seconds by model
    probe_seconds: float = 0.0
    late: set[PhaseKey] = field(default_factory=set)  # changed after they were written

    def add(self, span: Span, named: bool = True) -> None:
        """Add a complete span; one that is not ``named`` counts for the step only, and not for its phase."""
        key = span.phase.name, span.phase.timer
        if named:
            self.phase_totals(key).add(span)
        for kind, tokens in span.tokens_by_kind.items():
            known, intervals = self.tokens.get(kind, (0.0, []))
            intervals.append((span.entered, span.left))  # parallel spans count their common time once
            self.tokens[kind] = known + tokens, intervals
        for model, flops in span.flops.items():
            known, seconds = self.flops.get(model, (0.0, 0.0))
            self.flops[model] = known + flops, seconds + (span.execute or 0.0)
        if self.number is not None:  # committed already: the totals are written again with a later commit
            self.late.add(key)

    def add_memory(self, span: Span) -> None:
        """Add a span's memory readings."""
        name = span.phase.name
        for moment, by_device in span.device_memory.items():
            for device, memory in by_device.items():
                key = name, moment, device
                self.device_memory[key] = _with_higher_peaks(self.device_memory.get(key), memory)
        if span.peaks is not None:
            for device, work in span.peaks.work.items():
                self.work[name, device] = max(work, self.work.get((name, device), 0))
        for when, reading in span.host.items():
            self.host[name, when] = reading

    def phase_totals(self, key: PhaseKey) -> PhaseTotals:
        """Return the totals of one name."""
        return self.phases.setdefault(key, PhaseTotals())

    def times(self, keys: Iterable[PhaseKey]) -> Iterator[Value]:
        """Yield the times of some names, except those that wait for a device."""
        for key in keys:
            totals = self.phase_totals(key)
            if totals.count and not totals.pending:  # an incomplete sum would be wrong until the next commit
                yield from _times(*key, totals)

    def rates(self) -> Iterator[Value]:
        """Yield generated and trained tokens per second, over the time of the phases that counted them."""
        for kind, id in RATE_OF_KIND.items():
            tokens, intervals = self.tokens.get(kind, (0.0, []))
            if (seconds := length(intervals)) > 0:
                yield id, (), tokens / seconds

    def utilisation(self, peak: float | None, devices: int | None) -> Iterator[Value]:
        """Yield each model's FLOPs utilisation (MFU), where FLOPs, peak and number of devices are known."""
        for model, (flops, seconds) in self.flops.items():
            if peak and devices and seconds > 0:
                yield "system/mfu/{model}", (("model", model),), flops / (seconds * peak * devices)

    def memory(self, names: Set[str], capacities: Mapping[int, int | None]) -> Iterator[Value]:
        """Yield the memory of some phases. ``capacities`` are the devices' total bytes by index."""
        for (phase, moment, device), memory in self.device_memory.items():
            if phase in names:
                yield from _device_values(phase, moment, device, memory, capacities.get(device))
        for (phase, device), work in self.work.items():
            if phase in names:
                filled = ("phase", phase), ("device", str(device))
                yield "memory/{phase}/end/onload/work_peak/{device}", filled, work / GIB
        for (phase, when), reading in self.host.items():
            for what, size in zip(HostReading._fields, reading, strict=True) if phase in names else ():
                yield f"memory/cpu/{{phase}}/{{when}}/{what}", (("phase", phase), ("when", when)), size / GIB


def window_values(spans: Sequence[NestedSpan], start: float, end: float) -> Iterator[Value]:
    """Yield a step's duration, its time outside all phases, and the time in which phases overlapped."""
    seconds = end - start
    yield "time/step", (), seconds
    # Without any phase nothing is accounted for, and a share of 100 % would say nothing.
    if spans and seconds > 0:
        covered, overlapped = coverage(spans, start, end)
        unaccounted = max(0.0, seconds - covered)
        yield "time/unaccounted", (), unaccounted
        yield "time/unaccounted_share", (), unaccounted / seconds
        yield "time/overlap", (), overlapped


def _with_higher_peaks(known: DeviceMemory | None, new: DeviceMemory) -> DeviceMemory:
    """Return the new reading with the higher of both peaks."""
    if known is None or known.max_allocated is None or new.max_allocated is None:
        return new
    assert known.max_reserved is not None
    assert new.max_reserved is not None
    return DeviceMemory(
        new.allocated,
        new.reserved,
        max(known.max_allocated, new.max_allocated),
        max(known.max_reserved, new.max_reserved),
    )


def _times(name: str, timer: bool, totals: PhaseTotals) -> Iterator[Value]:
    filled: Filled = (("phase", name),)
    total = (totals.onload or 0.0) + totals.execute + (totals.offload or 0.0)
    if timer:
        yield "time/{operation}", (("operation", name),), total
    else:
        yield "time/{phase}/total", filled, total
        if totals.onload is not None:
            yield "time/{phase}/onload", filled, totals.onload
        yield "time/{phase}/execute", filled, totals.execute
        if totals.offload is not None:
            yield "time/{phase}/offload", filled, totals.offload
    if totals.count > 1:
        yield "time/{phase}/count", filled, float(totals.count)
    if totals.tokens:
        yield "time/per_token/{phase}", filled, totals.token_seconds / totals.tokens


def _device_values(phase: str, moment: str, device: int, memory: DeviceMemory, capacity: int | None) -> Iterator[Value]:
    place = ("phase", phase), ("device", str(device))
    filled: Filled = (*place, ("moment", moment))
    for what, size in zip(DeviceMemory._fields, memory, strict=True):
        if size is not None:
            yield f"memory/{{phase}}/{{moment}}/{what}/{{device}}", filled, size / GIB
    if moment == "end/onload" and capacity:
        for what, size in (("max_allocated", memory.max_allocated), ("max_reserved", memory.max_reserved)):
            if size is not None:
                yield f"memory/{{phase}}/end/onload/{what}_frac/{{device}}", place, size / capacity
