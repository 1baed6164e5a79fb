"""The probe of a run: writes spans to the journal as they open and close, and returns the totals of each step."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from barograph.base.scalars import Deferred, classify
from barograph.journal.format.frames import DEVICE_CLOCK
from barograph.journal.write.writer import JournalWriter
from barograph.metrics import probe_values
from barograph.metrics.probe_values import GIB, Names, NestedSpan, PhaseNames, Value, outer_spans
from barograph.recording.probe.devices import (
    Accelerators,
    Device,
    HostReading,
    MemoryMeter,
    MemoryPeaks,
    host_memory,
    host_used,
    peak_flops,
)
from barograph.recording.probe.engine_metrics import EngineAverages
from barograph.recording.probe.phases import (
    CLOCKS,
    Amount,
    DeviceClock,
    HostClock,
    Phase,
    Span,
    SpanRecorder,
    amounts,
    current_lane,
    current_span,
    encode_close,
    encode_open,
)
from barograph.recording.probe.sampler import SampleAverages
from barograph.recording.probe.step_totals import PhaseKey, StepTotals, shard_values, window_values

Rows = list[tuple["int | None", dict[str, float]]]
"""Rows to write: a committed step, or None for the step being committed, with values by name."""


class Probe(SpanRecorder):
    """Records the phases of one run. Its own exceptions go to ``guard`` and never to the training.

    Clock, accelerators and memory readers are parameters, so that tests can supply known readings.
    """

    def __init__(
        self,
        journal: JournalWriter,
        guard: Callable[[Exception], None],
        vocabulary: str = "roll",
        *,
        clock: HostClock | None = None,
        accelerators: Accelerators | None = None,
        memory: str = "all",
        read_host: Callable[[], HostReading] = host_memory,
        read_host_used: Callable[[], int] = host_used,
        device_count: int | None = None,
        peak: float | None = None,
        processes: Callable[[], int | None] = lambda: 1,
        created: float | None = None,
    ) -> None:
        self._journal = journal
        self._guard = guard
        self._names = Names(vocabulary)
        self._phase_names = PhaseNames(guard)
        self._clock = clock or HostClock()
        self._now = self._clock.now
        self._accelerators = accelerators or Accelerators()
        self._read_host = read_host if memory != "none" else None
        self._read_host_used = read_host_used
        self._meter = MemoryMeter(self._accelerators.devices) if memory == "all" else None
        self._device_count = device_count
        self._peak = peak
        self._processes = processes
        self._created = self._now() if created is None else created  # start of the run, by the clock
        self._began: float | None = None  # start of the current step; the first step starts with its first phase
        self._begin_recording()

    def _begin_recording(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a SIGTERM handler may finish the run at any point
        self._process = object()  # identity of this process: after a fork, spans of the parent are not closed here
        # Random per process, and below 2^53 so that ids survive JSON and JavaScript.
        self._ids = itertools.count((int.from_bytes(os.urandom(4), "little") >> 11 << 32) + 1)
        self._step = StepTotals()
        self._late: list[StepTotals] = []
        self._pending: list[Span] = []  # closed spans that wait for device times or token counts
        self._open: dict[int, Span] = {}
        self._closed: list[NestedSpan] = []  # since the last commit, and earlier ones around open spans
        self._step_peaks: MemoryPeaks | None = None
        self._written_devices: list[int] = []
        self._commit_cost = 0.0
        self.samples = SampleAverages()
        self.engines = EngineAverages()

    def after_fork_in_child(self) -> None:
        """Drop the parent's locks, open phases and devices."""
        self._begin_recording()
        self._accelerators.after_fork_in_child()
        if self._meter is not None:
            self._meter = MemoryMeter(self._accelerators.devices)

    def phase(
        self,
        name: str,
        onload: Callable[[], Any] | None = None,
        offload: Callable[[], Any] | None = None,
        tokens: Amount = None,
        flops: Amount = None,
        clock: str = "host",
        timer: bool = False,
    ) -> Phase:
        """Return a phase that this probe records."""
        if clock not in CLOCKS:
            self._guard(ValueError(f"phase {name!r}: clock must be host or device; got {clock!r}, using host"))
            clock = "host"
        return Phase(self, name, timer, onload, offload, tokens, flops, clock)

    def shards(self, before: Sequence[float], after: Sequence[float] | None) -> dict[str, float]:
        """Return statistics of tokens per shard, by name."""
        return self._names.named(shard_values(before, after))

    def open_names(self) -> set[str]:
        """Return the names of the innermost open phases that have metrics."""
        # A copy: the sampler's thread calls this while other threads open and close spans.
        spans = list(self._open.values())
        outer = {span.parent.id for span in spans if span.parent is not None}
        names = {span.phase.name for span in spans if span.id not in outer}
        return {name for name in names if self._phase_names.admit(name)}

    def devices_in_use(self) -> set[int]:
        """Return the indices of the devices that this process uses."""
        return {device.index for device in self._accelerators.devices()}

    @property
    def device_count(self) -> int | None:
        """Number of devices of the run: the setting, or else this process's devices times the number of processes.

        None if the number of processes is not known.
        """
        return self._device_count or len(self._accelerators.devices()) * (self._processes() or 0) or None

    @property
    def counts(self) -> Mapping[str, str]:
        """The names so far whose values add up over processes, and how."""
        return self._names.counts

    def open(self, phase: Phase) -> Span:
        """Begin a span."""
        span = Span(phase, self._process, self._now())
        self._guarded(self._enter, span)
        # The stage starts after the readings, so that their cost is in no time of the phase.
        span.stage_start = self._now()
        span.own_overhead = span.stage_start - span.entered
        return span

    def switch_stage(self, span: Span, stage: str) -> None:
        """End the current stage and begin the next."""
        moment = self._now()
        if span.owner is not self._process:
            return
        self._guarded(self._end_stage, span, moment)
        span.stage, span.stage_overhead = stage, 0.0
        span.stage_start = self._now()
        span.own_overhead += span.stage_start - moment

    def close(self, span: Span, failed: bool) -> None:
        """End the current stage and the span."""
        moment = self._now()
        span.open, span.left, span.failed = False, moment, failed
        # A span that is left out of order is not the current one. It stays in the chain and is skipped there as closed.
        if current_span.get() is span:
            current_span.set(span.outer)
        if span.owner is not self._process:
            return
        self._guarded(self._leave, span, moment)
        span.own_overhead += self._now() - moment
        span.step.probe_seconds += span.own_overhead
        # The cost of this span lies inside its parent's current stage, if both are on one thread: subtract it there.
        parent, cost = span.parent, span.own_overhead + span.nested_overhead
        if parent is not None and parent.open and parent.thread == span.thread:
            parent.stage_overhead += cost
            parent.nested_overhead += cost
        span.outer = span.parent = None  # a task may keep a reference to this span; do not keep the chain alive

    def _guarded(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Exception as problem:  # noqa: BLE001 - probing must not stop the training
            self._guard(problem)

    def _enter(self, span: Span) -> None:
        phase = span.phase
        outer = span.outer = current_span.get()
        # Skip spans that are closed already, or that a fork copied from the parent process.
        while outer is not None and not (outer.open and outer.owner is self._process):
            outer = outer.outer
        span.parent, span.step = outer, self._step
        span.lane, span.thread, span.id = current_lane(), threading.get_ident(), next(self._ids)
        current_span.set(span)
        if self._began is None:  # loading a model before the first phase is not part of the first step
            self._began = span.entered
        if not phase.timer:
            self._guarded(self._read_entry, span)
        self._open[span.id] = span
        span.parent_id = 0 if outer is None else outer.id
        # Written at entry, so that the journal shows the open phase of a process that hangs or is killed.
        self._journal.payload(encode_open(span, self._clock.unix(span.entered)))
        if phase.clock == "device":
            span.clock = DeviceClock(self._accelerators.record_event)
            span.clock.record()

    def _read_entry(self, span: Span) -> None:
        if self._read_host is not None:
            span.host["start"] = self._read_host()
        if self._meter is not None and self._accelerators.devices():
            if self._step_peaks is None:
                self._step_peaks = MemoryPeaks()
                self._meter.enter(self._step_peaks)
                self._write_devices()
            span.peaks = MemoryPeaks()
            moment = "start/offload" if span.phase.onload is not None else "start/onload"
            span.device_memory[moment] = self._meter.enter(span.peaks)

    def _end_stage(self, span: Span, moment: float) -> None:
        if span.clock is not None:
            span.clock.record(span.stage)
        setattr(span, span.stage, max(0.0, moment - span.stage_start - span.stage_overhead))
        if self._meter is not None and span.peaks is not None:
            self._guarded(self._read_devices, self._meter, span, span.peaks)

    @staticmethod
    def _read_devices(meter: MemoryMeter, span: Span, watch: MemoryPeaks) -> None:
        """Read the devices at the end of a stage."""
        if span.stage == "onload":
            span.device_memory["start/onload"] = meter.begin_work(watch)
        elif span.stage == "execute":
            span.device_memory["end/onload"] = meter.end_work(watch)
        else:
            span.device_memory["end/offload"] = meter.read(watch)

    def _leave(self, span: Span, moment: float) -> None:
        self._open.pop(span.id, None)
        self._end_stage(span, moment)
        if span.execute is None:
            span.execute = 0.0  # onload failed
        if self._meter is not None and span.peaks is not None:
            self._meter.leave(span.peaks)
        if not span.phase.timer:
            self._guarded(self._read_exit, span)
        # After an exception in the body, the function that counts tokens may read results that do not exist.
        if not span.failed:
            self._guarded(self._count, span)
        # A close frame with the host's times is written now, and a second one when the device's are known.
        waits = span.deferred is not None or (span.clock is not None and span.clock.usable)
        self._write_close(span)
        with self._lock:
            named = self._phase_names.admit(span.phase.name)
            if named:
                span.step.add_memory(span)
            self._closed.append((span.id, span.parent_id, span.lane, span.entered, span.left))
            if waits:
                if named:
                    span.step.phase_totals((span.phase.name, span.phase.timer)).pending += 1
                self._pending.append(span)
            else:
                self._add(span)

    def _read_exit(self, span: Span) -> None:
        if self._read_host is not None:
            span.host["end"] = self._read_host()

    def _count(self, span: Span) -> None:
        """Read the tokens and FLOPs of a span; values on a device are fetched without waiting."""
        found = classify(amounts(span.tokens)) if span.tokens is not None else None
        if found is not None:
            span.tokens_by_kind = dict(found.numbers)
            if found.deferred:
                span.deferred = tuple(found.deferred), Deferred(found.deferred.values())
        if span.phase.flops is not None:
            span.flops = dict(classify(amounts(span.phase.flops)).numbers)

    def _write_close(self, span: Span, flags: int = 0) -> None:
        self._journal.payload(encode_close(span, self._clock.unix(span.entered), span.step.number, flags))

    def _add(self, span: Span) -> None:
        span.step.add(span, self._phase_names.admit(span.phase.name))
        if span.step.late and span.step not in self._late:
            self._late.append(span.step)

    def settle(self, wait: bool = False) -> None:
        """Add the pending spans whose device times and counts are ready; with ``wait``, all of them."""
        with self._lock:
            waiting, self._pending = self._pending, []
            for span in waiting:
                if not wait and not _ready(span):
                    self._pending.append(span)
                    continue
                self._guarded(self._settle, span)  # on failure, the host's times are used
                if self._phase_names.admit(span.phase.name):
                    span.step.phase_totals((span.phase.name, span.phase.timer)).pending -= 1
                self._add(span)

    def _settle(self, span: Span) -> None:
        flags = 0
        if span.deferred is not None:
            names, deferred = span.deferred
            span.tokens_by_kind |= dict(zip(names, deferred.values(), strict=True))
        if span.clock is not None and span.clock.usable:
            for stage, seconds in span.clock.seconds().items():
                setattr(span, stage, seconds)
            flags = DEVICE_CLOCK
        self._write_close(span, flags)

    def commit(self, number: int, counted: Mapping[str, float], totals: Mapping[str, float]) -> Rows:
        """End a step; return its values, and late values of earlier steps.

        ``counted`` are the counts of this step, ``totals`` those since the run began.
        """
        try:
            return self._commit(number, counted, totals)
        except Exception as problem:  # noqa: BLE001 - see _guarded
            self._guard(problem)
            return []

    def _commit(self, number: int, counted: Mapping[str, float], totals: Mapping[str, float]) -> Rows:
        now = self._now()
        # First, so that device times which are ready by now are in this step's row and not in a late one.
        self.settle()
        with self._lock:
            step, self._step = self._step, StepTotals()
            step.number = number
            spans = list(self._open.values())
            closed, self._closed = self._closed, outer_spans(self._closed, {span.parent_id for span in spans})
            # Under the lock: other threads may still close spans of this step.
            is_empty = not (step.phases or step.tokens or step.flops)  # phases without metrics may have tokens
            values = [] if is_empty else list(self._step_values(step, step.phases))
        # Without any phase, the first step starts with the run.
        start = self._created if self._began is None else self._began
        self._began = now
        values += self.samples.take()
        values += self.engines.take()
        if closed or spans:
            values += self._step_memory()
            values.append(("barograph/probe_seconds", (), step.probe_seconds + self._commit_cost))
        if values or counted:
            # A phase that is open over a commit covers this step up to now, and from there on the next one.
            still_open = [(span.id, span.parent_id, span.lane, span.entered, now) for span in spans]
            values += window_values([*closed, *still_open], start, now)
        values += probe_values.rates(counted, totals, now - start, self.device_count)
        rows = self._late_rows()
        if values:
            rows.append((None, self._names.named(values)))
        # Reported with the next step: this step's values are already complete.
        self._commit_cost = self._now() - now
        return rows

    def finish(self) -> Rows:
        """Return the values that are not written yet; wait for devices."""
        try:
            self.settle(wait=True)
            rows = self._late_rows()
            with self._lock:
                values = self._names.named(self._step_values(self._step, self._step.phases))
            return [*rows, (None, values)] if values else rows
        except Exception as problem:  # noqa: BLE001 - see _guarded
            self._guard(problem)
            return []

    def _late_rows(self) -> Rows:
        with self._lock:
            steps, self._late = self._late, []
            rows: Rows = []
            for step in steps:
                # Complete totals and not differences: of several values of a step the last one counts.
                late, step.late = step.late, set()
                values = self._names.named(self._step_values(step, late))
                if values:
                    rows.append((step.number, values))
        return rows

    def _step_values(self, step: StepTotals, keys: Iterable[PhaseKey]) -> Iterator[Value]:
        keys = list(keys)
        yield from step.times(keys)
        yield from step.rates()
        yield from step.utilisation(self._peak_flops(), self.device_count)
        capacities = {device.index: device.total for device in self._accelerators.devices()}
        yield from step.memory({name for name, timer in keys if not timer}, capacities)

    def _step_memory(self) -> Iterator[Value]:
        """Yield the step's highest device peaks and the host's memory in use."""
        if self._read_host is not None:
            yield "memory/host/used", (), self._read_host_used() / GIB
        if self._meter is None or self._step_peaks is None:
            return
        # Once per step is enough to find a device that the training started to use.
        self._accelerators.refresh()
        self._write_devices()
        memory = self._meter.restart(self._step_peaks).values()
        for what in ("max_allocated", "max_reserved"):
            peaks = [peak for one in memory if (peak := getattr(one, what)) is not None]
            if peaks:
                yield f"memory/step/{what}", (), max(peaks) / GIB

    def _peak_flops(self) -> float | None:
        devices = self._accelerators.devices()
        # The first stands for all: a process is assumed to use devices of one type.
        return self._peak or (peak_flops(devices[0].name) if devices else None)

    def _write_devices(self) -> None:
        """Write an event that describes the devices whose indices are in the metric names."""
        devices = self._accelerators.devices()
        if [device.index for device in devices] != self._written_devices:
            self._written_devices = [device.index for device in devices]
            self._journal.event("devices", devices=[_described(device) for device in devices])


def _ready(span: Span) -> bool:
    """Return whether a span's device times and counts are ready; also where the query fails, as waiting is no help."""
    try:
        if span.deferred is not None and not span.deferred[1].ready():
            return False
        return span.clock is None or not span.clock.usable or span.clock.ready()
    except Exception:  # noqa: BLE001 - settling reports the device's error
        return True


def _described(device: Device) -> dict[str, Any]:
    return {"index": device.index, "name": device.name, "uuid": device.uuid, "total": device.total}
