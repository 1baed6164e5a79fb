"""The probe of a run: writes spans into the journal as they begin and end, and tells what a step's add up to."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from windsock.journal.frames import DEVICE_CLOCK
from windsock.journal.writer import JournalWriter
from windsock.probe import throughput
from windsock.probe.clocks import CLOCKS, DeviceClock, HostClock
from windsock.probe.devices import Accelerators, Device, peak_flops
from windsock.probe.marks import close_mark, open_mark
from windsock.probe.memory import HostReading, Ledger, Watch, host_memory, host_memory_with_children, host_used
from windsock.probe.names import GIB, Names, Value
from windsock.probe.phases import Amount, Phase, Span, amounts, current_span, lane
from windsock.probe.sampler import Gathered
from windsock.probe.shards import shard_values
from windsock.probe.steps import Key, Root, Step, window_values
from windsock.scalars import Deferred, classify
from windsock.settings import Settings

Rows = list[tuple["int | None", dict[str, float]]]
"""Rows to write: a step that is committed already, or None for the one that is about to be, and values by name."""


class Probe:
    """Records the phases of one run. Its own trouble is handed to ``guard`` and stops nobody.

    Clock, accelerators and memory readers can be given, so that what comes out of known readings can be checked.
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
        processes: int = 1,
        created: float | None = None,
    ) -> None:
        self._journal = journal
        self._guard = guard
        self._names = Names(vocabulary)
        self._clock = clock or HostClock()
        self._now = self._clock.now
        self._accelerators = accelerators or Accelerators()
        self._read_host = read_host if memory != "none" else None
        self._read_host_used = read_host_used
        self._ledger = Ledger(self._accelerators.devices) if memory == "all" else None
        self._device_count = device_count
        self._peak = peak
        self._processes = processes
        self._created = self._now() if created is None else created  # when the run began, by the clock
        self._began: float | None = None  # the present step; the first one begins with its first phase
        self._begin_recording()

    @classmethod
    def of(
        cls, settings: Settings, journal: JournalWriter, guard: Callable[[Exception], None], created: float
    ) -> Probe:
        """Return the probe that a run's settings ask for; ``created`` is when the run began, by ``perf_counter``."""
        return cls(
            journal,
            guard,
            settings.vocabulary,
            memory=settings.memory,
            read_host=host_memory_with_children if settings.memory_children else host_memory,
            device_count=settings.devices,
            peak=settings.peak_flops,
            processes=settings.world_size,
            created=created,
        )

    def _begin_recording(self) -> None:
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._process = object()  # spans of another process than this are not ours to end
        self._ids = itertools.count((int.from_bytes(os.urandom(4), "little") >> 11 << 32) + 1)  # below 2^53
        self._step = Step()
        self._late: list[Step] = []
        self._pending: list[Span] = []  # closed, but a device has yet to tell their times or tokens
        self._open: dict[int, Span] = {}
        self._roots: list[Root] = []  # spans that lie in no other
        self._watch: Watch | None = None  # the peaks of the step
        self._told: list[int] = []
        self._commit_cost = 0.0
        self.samples = Gathered()

    def after_fork_in_child(self) -> None:
        """Forget what is the parent's: its locks, its open phases, its devices."""
        self._begin_recording()
        self._accelerators.after_fork_in_child()
        if self._ledger is not None:
            self._ledger = Ledger(self._accelerators.devices)

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
        """Return a phase that is recorded here."""
        if clock not in CLOCKS:
            self._guard(ValueError(f"phase {name!r}: expected a clock of {', '.join(CLOCKS)}, got {clock!r}"))
            clock = "host"
        return Phase(self, name, timer, onload, offload, tokens, flops, clock)

    def shards(self, before: Sequence[float], after: Sequence[float] | None) -> dict[str, float]:
        """Return the statistics of tokens per shard, by name."""
        return self._names.named(shard_values(before, after))

    def open_names(self) -> set[str]:
        """Return the innermost phases that are open at this moment."""
        spans = list(self._open.values())
        outer = {span.parent.id for span in spans if span.parent is not None}
        return {span.phase.name for span in spans if span.id not in outer}

    def devices_in_use(self) -> set[int]:
        """Return the numbers of the devices that this process uses."""
        return {device.index for device in self._accelerators.devices()}

    @property
    def device_count(self) -> int | None:
        """How many devices the run uses: as was said, or as the launcher's processes and the devices in use tell."""
        return self._device_count or len(self._accelerators.devices()) * self._processes or None

    def open(self, phase: Phase) -> Span:
        """Begin a span."""
        span = Span(phase, self._process, self._now())
        self._guarded(self._enter, span)
        span.mark = self._now()
        span.own = span.mark - span.entered
        return span

    def turn(self, span: Span, stretch: str) -> None:
        """End the present stretch and begin the next."""
        moment = self._now()
        if span.owner is not self._process:
            return
        self._guarded(self._end_stretch, span, moment)
        span.stretch, span.spent = stretch, 0.0
        span.mark = self._now()
        span.own += span.mark - moment

    def close(self, span: Span, failed: bool) -> None:
        """End the present stretch and the span."""
        moment = self._now()
        span.open, span.left, span.failed = False, moment, failed
        if current_span.get() is span:
            current_span.set(span.outer)
        if span.owner is not self._process:
            return
        self._guarded(self._leave, span, moment)
        span.own += self._now() - moment
        span.step.probe_seconds += span.own
        parent, cost = span.parent, span.own + span.nested
        if parent is not None and parent.open and parent.thread == span.thread:
            parent.spent += cost
            parent.nested += cost
        span.outer = span.parent = None  # a task may keep this span for ever, but not a chain of them

    def _guarded(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Exception as problem:  # noqa: BLE001 - the probe's trouble is not the training's
            self._guard(problem)

    def _enter(self, span: Span) -> None:
        phase = span.phase
        outer = span.outer = current_span.get()
        while outer is not None and not (outer.open and outer.owner is self._process):
            outer = outer.outer
        span.parent, span.step = outer, self._step
        span.lane, span.thread, span.id = lane(), threading.get_ident(), next(self._ids)
        current_span.set(span)
        if self._began is None:
            self._began = span.entered
        if not phase.timer:
            self._guarded(self._read_entry, span)
        self._open[span.id] = span
        span.parent_id = 0 if outer is None else outer.id
        self._journal.mark(open_mark(span, self._clock.unix(span.entered)))
        if phase.clock == "device":
            span.clock = DeviceClock(self._accelerators.mark)
            span.clock.mark()

    def _read_entry(self, span: Span) -> None:
        if self._read_host is not None:
            span.host["start"] = self._read_host()
        if self._ledger is not None and self._accelerators.devices():
            if self._watch is None:
                self._watch = Watch()
                self._ledger.enter(self._watch)
                self._tell_devices()
            span.watch = Watch()
            moment = "start/offload" if span.phase.onload is not None else "start/onload"
            span.held[moment] = self._ledger.enter(span.watch)

    def _end_stretch(self, span: Span, moment: float) -> None:
        if span.clock is not None:
            span.clock.mark(span.stretch)
        setattr(span, span.stretch, max(0.0, moment - span.mark - span.spent))
        if self._ledger is not None and span.watch is not None:
            self._guarded(self._read_devices, self._ledger, span, span.watch)

    @staticmethod
    def _read_devices(ledger: Ledger, span: Span, watch: Watch) -> None:
        """Read the devices where a stretch ended."""
        if span.stretch == "onload":
            span.held["start/onload"] = ledger.begin_work(watch)
        elif span.stretch == "execute":
            span.held["end/onload"] = ledger.end_work(watch)
        else:
            span.held["end/offload"] = ledger.read(watch)

    def _leave(self, span: Span, moment: float) -> None:
        self._open.pop(span.id, None)
        self._end_stretch(span, moment)
        if span.execute is None:
            span.execute = 0.0  # loading failed
        if self._ledger is not None and span.watch is not None:
            self._ledger.leave(span.watch)
        if not span.phase.timer:
            self._guarded(self._read_exit, span)
        if not span.failed:
            self._guarded(self._count, span)
        waits = span.deferred is not None or (span.clock is not None and span.clock.usable)
        self._mark_close(span)
        with self._lock:
            span.step.add_memory(span)
            if not span.parent_id:
                self._roots.append((span.lane, span.entered, span.left))
            if waits:
                span.step.sums((span.phase.name, span.phase.timer)).pending += 1
                self._pending.append(span)
            else:
                self._add(span)

    def _read_exit(self, span: Span) -> None:
        if self._read_host is not None:
            span.host["end"] = self._read_host()

    def _count(self, span: Span) -> None:
        """Ask for the tokens and FLOPs of a span; what lies on a device is fetched without waiting."""
        found = classify(amounts(span.tokens)) if span.tokens is not None else None
        if found is not None:
            span.kinds = dict(found.numbers)
            if found.deferred:
                span.deferred = tuple(found.deferred), Deferred(found.deferred.values())
        if span.phase.flops is not None:
            span.flops = dict(classify(amounts(span.phase.flops)).numbers)

    def _mark_close(self, span: Span, flags: int = 0) -> None:
        self._journal.mark(close_mark(span, self._clock.unix(span.entered), span.step.number, flags))

    def _add(self, span: Span) -> None:
        span.step.add(span)
        if span.step.late and span.step not in self._late:
            self._late.append(span.step)

    def settle(self, wait: bool = False) -> None:
        """Take in what devices have told by now of spans that are closed; with ``wait``, of all."""
        with self._lock:
            waiting, self._pending = self._pending, []
            for span in waiting:
                if not wait and not _ready(span):
                    self._pending.append(span)
                    continue
                self._guarded(self._settle, span)  # where that fails, the host's times stand
                span.step.sums((span.phase.name, span.phase.timer)).pending -= 1
                self._add(span)

    def _settle(self, span: Span) -> None:
        flags = 0
        if span.deferred is not None:
            names, deferred = span.deferred
            span.kinds |= dict(zip(names, deferred.values(), strict=True))
        if span.clock is not None and span.clock.usable:
            for stretch, seconds in span.clock.seconds().items():
                setattr(span, stretch, seconds)
            flags = DEVICE_CLOCK
        self._mark_close(span, flags)

    def commit(self, number: int, counted: Mapping[str, float], totals: Mapping[str, float]) -> Rows:
        """End a step: return its values, and those of earlier steps that are only known now.

        ``counted`` is what the loop counted in this step, ``totals`` since the run began.
        """
        try:
            return self._commit(number, counted, totals)
        except Exception as problem:  # noqa: BLE001 - see _guarded
            self._guard(problem)
            return []

    def _commit(self, number: int, counted: Mapping[str, float], totals: Mapping[str, float]) -> Rows:
        now = self._now()
        self.settle()
        with self._lock:
            step, self._step = self._step, Step()
            step.number = number
            roots, self._roots = self._roots, []
            values = (
                list(self._of_step(step, step.phases)) if step.phases else []
            )  # its spans may still close elsewhere
        start = self._created if self._began is None else self._began
        self._began = now
        values += self.samples.take()
        if roots or self._open:
            values += self._step_memory()
            values.append(("windsock/probe_seconds", (), step.probe_seconds + self._commit_cost))
        if values or counted:
            still_open = [(span.lane, span.entered, now) for span in list(self._open.values()) if not span.parent_id]
            values += window_values((*roots, *still_open), start, now)
        values += throughput.rates(counted, totals, now - start, self.device_count)
        rows = self._late_rows()
        if values:
            rows.append((None, self._names.named(values)))
        self._commit_cost = self._now() - now
        return rows

    def finish(self) -> Rows:
        """Return what is not written yet, waiting for devices."""
        try:
            self.settle(wait=True)
            rows = self._late_rows()
            with self._lock:
                values = self._names.named(self._of_step(self._step, self._step.phases))
            return [*rows, (None, values)] if values else rows
        except Exception as problem:  # noqa: BLE001 - see _guarded
            self._guard(problem)
            return []

    def _late_rows(self) -> Rows:
        with self._lock:
            steps, self._late = self._late, []
            rows: Rows = []
            for step in steps:
                late, step.late = step.late, set()
                values = self._names.named(self._of_step(step, late))
                if values:
                    rows.append((step.number, values))
        return rows

    def _of_step(self, step: Step, keys: Iterable[Key]) -> Iterator[Value]:
        keys = list(keys)
        yield from step.times(keys)
        yield from step.rates()
        yield from step.utilisation(self._peak_flops(), self.device_count)
        devices = {device.index: device.total for device in self._accelerators.devices()}
        yield from step.memory({name for name, timer in keys if not timer}, devices)

    def _step_memory(self) -> Iterator[Value]:
        """Yield the peaks of the step on the device that held most, and what is in use on the host."""
        if self._read_host is not None:
            yield "memory/host/used", (), self._read_host_used() / GIB
        if self._ledger is None or self._watch is None:
            return
        self._accelerators.look()
        self._tell_devices()
        held = self._ledger.renew(self._watch).values()
        for what in ("max_allocated", "max_reserved"):
            peaks = [peak for one in held if (peak := getattr(one, what)) is not None]
            if peaks:
                yield f"memory/step/{what}", (), max(peaks) / GIB

    def _peak_flops(self) -> float | None:
        devices = self._accelerators.devices()
        return self._peak or (peak_flops(devices[0].name) if devices else None)

    def _tell_devices(self) -> None:
        """Write down which devices the numbers in the names are."""
        devices = self._accelerators.devices()
        if [device.index for device in devices] != self._told:
            self._told = [device.index for device in devices]
            self._journal.event("devices", devices=[_described(device) for device in devices])


def _ready(span: Span) -> bool:
    """Tell whether a device has told all of a span; where asking fails, waiting would not help."""
    try:
        if span.deferred is not None and not span.deferred[1].ready():
            return False
        return span.clock is None or not span.clock.usable or span.clock.ready()
    except Exception:  # noqa: BLE001 - the device's trouble; settling tells of it
        return True


def _described(device: Device) -> dict[str, Any]:
    return {"index": device.index, "name": device.name, "uuid": device.uuid, "total": device.total}
