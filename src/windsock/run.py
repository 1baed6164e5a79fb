"""The run that a training loop holds: ``log``, ``count``, ``commit``, ``finish``."""

from __future__ import annotations

import operator
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from windsock.counters import Counters
from windsock.environment import describe_environment
from windsock.exit_status import call_on_exit, cancel_on_exit, crash_status
from windsock.journal.folder import (
    write_run_info,
)
from windsock.journal.frames import Kind
from windsock.journal.status import HEARTBEAT_SECONDS
from windsock.journal.writer import JournalWriter
from windsock.model import RunInfo, Status, Writer
from windsock.probe.phased import Phased
from windsock.process import process_identity
from windsock.redaction import Redactor
from windsock.rollouts.reports import Reports
from windsock.samples.offers import Offers
from windsock.scalars import Deferred, classify, packable
from windsock.settings import Settings, plain_config
from windsock.to_plain import to_plain

if TYPE_CHECKING:
    from windsock.measurement.batch import Batch
    from windsock.measurement.parts import Measurement
    from windsock.trackers.protocol import Link

TEND_SECONDS = 1.0
PACKING_PROBLEMS = (struct.error, TypeError, ValueError, OverflowError, RuntimeError)
STEP_RANGE = range(-(2**63) + 1, 2**63)
MANY_OPEN_ROWS = 1000
MANY_NOTICES = 1000


class Run(Reports, Offers, Phased):
    """One training, being recorded. Made by ``windsock.init``; usable from several threads and as a context manager.

    Nothing here raises inside a training loop, waits for a tracker or a network, or (except ``commit``, for device
    values that were logged) for the accelerator.
    """

    def __init__(
        self, settings: Settings, info: RunInfo, folder: Path, writer: Writer, on_end: Callable[[Run], None]
    ) -> None:
        self.info = info
        self.path = folder
        self.writer = writer
        self.step: int | None = None  # the last one that was committed
        self._settings = settings
        self._on_end = on_end
        self._redactor = Redactor()
        self._redactor.redact(settings.trackers)  # learn the keys, so that they are blanked everywhere
        self._config: dict[str, Any] = self._redactor.redact(settings.config)
        self._notices: set[str] = set()
        self._skipped: dict[str, tuple[str, int]] = {}
        self._deferred: list[tuple[tuple[str, ...], int | None, float, Deferred]] = []
        self._deferred_lock = threading.RLock()  # re-entrant, as is the next: SIGTERM may end the run anywhere
        self._open_rows = 0
        self._newest: int | None = None  # the step that was logged or committed last
        self._counters = Counters(folder, writer)
        self._measurements: dict[int | None, Measurement] = {}
        self._measure_lock = threading.RLock()
        self._missing: dict[str, str] = {}
        self._layouts: set[int] = set()
        self._late = 0
        self._ended: Status | None = None
        self._forked = False
        self._end_lock = threading.RLock()
        self._links: list[Link] = []
        self._keeper: Keeper | None = None
        self._spool = settings.spool / info.id if settings.spool else None
        self._journal = JournalWriter(self._spool or folder, writer, self._prepare_folder, self._announce)
        self._began = time.perf_counter()

    @property
    def ended(self) -> bool:
        """Whether the run is over for this process."""
        return self._ended is not None

    @property
    def id(self) -> str:
        """The run's id, by which other processes join and commands find it."""
        return self.info.id

    @property
    def name(self) -> str:
        """What people call the run."""
        return self.info.name

    @property
    def project(self) -> str:
        """The project that the run belongs to."""
        return self.info.project

    @property
    def url(self) -> str:
        """Where the run lies, as an address."""
        return self.path.resolve().as_uri()

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's config, read-only, with secrets blanked."""
        return MappingProxyType(self._config)

    def __repr__(self) -> str:
        return f"<windsock.Run {self.id} {self.name!r} in {self.path}>"

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write values now: under ``step``, or without one for the step that the next ``commit`` names.

        Any order of steps and several calls per step are fine: the keys of a step unite, and of a key that comes
        twice the last value is shown. A value that is no number is skipped, counted and told of once.
        """
        try:
            if step is None:
                self._open_rows += 1
            elif type(step) is not int or step not in STEP_RANGE:
                step = self.as_step(step)
                self._newest = self._newest if step is None else step
            else:
                self._newest = step
            names = tuple(values)
            try:
                numbers = packable(values.values())
                if names and numbers is not None:
                    if not self._journal.row(names, numbers, step):
                        self._tell_lost()
                    return
            except PACKING_PROBLEMS:
                pass  # an integer too large, a tensor of several elements, a name that is no string
            self._log_classified(values, step)
        except Exception as problem:  # noqa: BLE001 - the one guard: nothing may stop the training
            self.guard(problem, values)

    def text(self, name: str, text: str, step: int | None = None) -> None:
        """Write a text under a name, for the step that ``log`` would write it for."""
        try:
            number = None if step is None else self.as_step(step)
            self._open_rows += number is None
            self._journal.record(Kind.TEXT, {"name": str(name), "step": number, "time": time.time(), "text": str(text)})
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def count(self, **amounts: float) -> None:
        """Add to the run's counters: tokens, samples, episodes. ``commit`` writes the totals.

        Totals go on over attempts: a run that is continued at step 500 counts on from what stood at step 499.
        """
        try:
            found = classify(amounts)
            self._counters.add(found.numbers)
            if found.deferred:
                self._counters.add_later(found.deferred, Deferred(found.deferred.values()))
            self.skip(found.refused | dict.fromkeys(found.histograms, "a histogram, which cannot be counted"))
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def commit(self, step: int | None = None) -> None:
        """End a step: everything logged without a step since the last commit belongs to it.

        Without a number it is the last step plus one. Device values are on disk when this returns.
        """
        try:
            number = self.as_step(step) if step is not None else None
            if number is None:
                number = 0 if self.step is None else self.step + 1
            self._harvest(wait=True)
            self._write_measured(number)
            self._close_gathered(number)
            self._counters.settle()
            totals = self._counters.totals(number)
            self._write_phases(number, self._counters.take_step(), totals)
            if totals:
                self._journal.row(tuple(totals), totals.values(), None)
            self._write_samples(number)
            self._journal.commit(number)
            self.step = self._newest = number
            self._open_rows = 0
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def measure(
        self, batch: Batch | Mapping[str, Any], part: str | None = "data", step: int | None = None, **options: Any
    ) -> None:
        """Measure a batch, or a micro-batch of it; ``commit`` merges, divides, names and writes.

        ``part`` is which metrics of a step this is about: ``data`` for the rollout batch, once per step; ``policy`` and
        ``value`` for each micro-batch of an update; None for all whose inputs are there. Without ``step`` it belongs to
        the step that the next commit names. The options are those of ``windsock.measure``.
        """
        try:
            from windsock.measurement.batch import Batch  # brings NumPy, which a run that only logs can do without
            from windsock.measurement.options import Options
            from windsock.measurement.parts import check_part

            whole = batch if isinstance(batch, Batch) else Batch(**batch)
            number = None if step is None else self.as_step(step)
            measurement = self._measurement(number)
            if measurement is not None:
                measurement.add(whole, check_part(part), Options.of(options))
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def _measurement(self, step: int | None) -> Measurement | None:
        """Return what is being measured for a step; None, and a count, where that step is over."""
        from windsock.measurement.parts import Measurement

        if step is not None and self.step is not None and step <= self.step:
            self._late += 1
            self.notice(f"a batch was measured for step {step}, which is committed: it is not counted (told once)")
            return None
        with self._measure_lock:
            return self._measurements.setdefault(step, Measurement(self.writer.rank))

    def update_config(self, config: Any) -> None:
        """Add to the run's config, or change entries of it; what stood there before stays in the journal."""
        try:
            update = self._redactor.redact(plain_config(config))
            self._config.update(update)
            self._journal.event("config", config=update)
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def finish(self, status: Status | None = None, timeout: float = 10.0) -> None:
        """End the run: everything is brought to the disk, and trackers get what is left.

        ``timeout`` bounds the waiting for them; what they do not have by then, and how it still gets there, is told.
        Further calls do nothing.
        """
        with self._end_lock:
            if self._ended is not None:
                return
            self._ended = status or Status("finished")
        cancel_on_exit(self._end)
        self._on_end(self)
        try:
            self._end_recording(self._ended, timeout)
        except Exception as problem:  # noqa: BLE001 - see log
            self.guard(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(crash_status(kind, problem) if kind else Status("finished"))

    def start(self, links: Iterable[Link] = ()) -> None:
        """Write what a segment begins with, and start what runs beside the training."""
        self._announce()
        self._journal.event("config", config=self._config)
        if self._settings.trackers:
            self._journal.event("trackers", trackers=self._redactor.redact(to_plain(self._settings.trackers)))
        try:
            for link in links:
                link.start()
                self._links.append(link)
        except Exception as problem:
            self._end(Status("crashed", f"a tracker did not start: {problem}"))
            raise
        self._keeper = Keeper(self)
        self._start_sampler()
        call_on_exit(self._end)

    def _end(self, status: Status) -> None:
        self.finish(Status(status.word, self._redactor.redact_text(status.reason)))

    def _end_recording(self, status: Status, timeout: float) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        self._harvest(wait=True)
        self._finish_measured()
        self._finish_gathered()
        self._write_samples(0 if self.step is None else self.step + 1, last=True)
        self._finish_phases()
        self._tell_skipped()
        counts = {"dropped": self._journal.segment.dropped, "late": self._late}
        self._journal.event("finish", status=status.word, reason=status.reason, **counts)
        self._journal.segment.tend()
        lost = self._journal.close() + self._journal.segment.dropped
        for text in (text for link in self._links for text in link.wait(status, timeout)):
            self.notice(text)
        if lost:
            self.notice(f"{lost} frames could not be written to {self.path}: {self._journal.segment.trouble}")

    def _prepare_folder(self) -> None:
        if self._spool is not None:
            self._spool.mkdir(parents=True, exist_ok=True)
        else:
            write_run_info(self.path, self.info)

    def _announce(self) -> None:
        """Say who writes here: the first frame of a segment, and of each further part."""
        self._layouts.clear()
        self._journal.event("start", world_size=self._settings.world_size, **process_identity())
        if self._forked and self._keeper is None:
            self._keeper = Keeper(self)

    def after_fork_in_child(self) -> None:
        """Forget threads, locks and pending values: they are the parent's. A child that logs gets its own keeper."""
        self._forked = True
        self._keeper = None
        for link in self._links:
            link.after_fork_in_child()
        self._links = []
        self._deferred = []
        self._deferred_lock = threading.RLock()
        self._measurements = {}
        self._measure_lock = threading.RLock()
        self._forget_gathered()
        self._forget_samples()
        self._counters.after_fork_in_child()
        self._forget_phases()

    def as_step(self, step: Any) -> int | None:
        """Return a step as an integer; one that is none makes the row an open one, and is told of."""
        try:
            number = int(step) if isinstance(step, float) and step.is_integer() else operator.index(step)
            if number in STEP_RANGE:
                return number
        except (TypeError, ValueError):
            pass
        self.notice(f"step {step!r} is no integer of 64 bits: the values go to the next commit instead")
        self._open_rows += 1
        return None

    def _log_classified(self, values: Mapping[str, Any], step: int | None) -> None:
        """Log values of which some are no plain numbers."""
        found = classify(values)
        if found.numbers:
            self._journal.row(tuple(found.numbers), found.numbers.values(), step)
        for name, histogram in found.histograms.items():
            self._journal.histogram(name, histogram, step)
        if found.deferred:
            entry = (tuple(found.deferred), step, time.time(), Deferred(found.deferred.values()))
            with self._deferred_lock:
                self._deferred.append(entry)
        if found.refused:
            self.skip(found.refused)

    def _harvest(self, wait: bool = False) -> None:
        """Write device values that have arrived, in the order logged; with ``wait``, all of them."""
        with self._deferred_lock:
            while self._deferred and (wait or self._deferred[0][3].ready()):
                names, step, at, deferred = self._deferred.pop(0)
                self._journal.row(names, deferred.values(), step, at)

    def skip(self, refused: Mapping[str, str]) -> None:
        """Count values that cannot be recorded, and tell of the first of each name."""
        for name, reason in refused.items():
            count = self._skipped.get(name, ("", 0))[1] + 1
            self._skipped[name] = (reason, count)
            if count == 1:
                self._journal.event("skipped", name=name, reason=reason, count=1)
                self.notice(f"{name!r} is not logged: it is {reason} (told once, counted)")

    def _tell_skipped(self) -> None:
        for name, (reason, count) in self._skipped.items():
            if count > 1:
                self._journal.event("skipped", name=name, reason=reason, count=count)

    def _write_measured(self, step: int) -> None:
        """Finish what was measured for a step: values where this is rank 0, states where other ranks hold more."""
        with self._measure_lock:
            found = [self._measurements.pop(key) for key in (None, step) if key in self._measurements]
        if not found:
            return
        measurement = found[0]
        for other in found[1:]:
            measurement.merge(other)
        if self.shared:
            self._write_state(measurement, step)
        if self.writer.rank == 0:
            measured = measurement.finish(self.info.vocabulary)
            if measured:
                self._journal.row(tuple(measured), measured.values(), None)
            if measured.missing != self._missing:
                self._missing = measured.missing
                self._journal.event("missing", metrics=measured.missing)

    def _finish_measured(self) -> None:
        """Commit what was measured for steps that nobody committed."""
        for step in sorted(key for key in self._measurements if key is not None):
            self.commit(step)
        if None in self._measurements:
            self.commit()

    def _write_state(self, measurement: Measurement, step: int) -> None:
        layout, vector = measurement.packed()
        if layout.hash not in self._layouts:
            self._layouts.add(layout.hash)
            self._journal.record(
                Kind.LAYOUT,
                {"layout": str(layout.hash), "entries": layout.entries, "options": measurement.described_options()},
            )
        self._journal.state(layout.hash, step, vector.tolist())

    def _tell_lost(self) -> None:
        if self._ended is not None:
            self.notice("log after finish: the values are not recorded")

    def guard(self, problem: Exception, values: Any = MappingProxyType({})) -> None:
        """Show what went wrong; the training goes on."""
        if not isinstance(values, Mapping):
            self.notice(f"log expects a mapping of names to numbers, got {type(values).__name__}")
        else:
            self.notice(f"{type(problem).__name__}: {problem} (the training goes on)")

    def notice(self, text: str) -> None:
        """Tell something once."""
        if text not in self._notices and len(self._notices) < MANY_NOTICES:
            self._notices.add(text)
            with suppress(Exception):  # standard error may be closed, or none
                print(f"windsock: {self._redactor.redact_text(text)}", file=sys.stderr)

    def _tend(self) -> None:
        """What the keeper does every second."""
        self._harvest()
        segment = self._journal.segment
        segment.tend()
        if segment.trouble:
            self.notice(
                f"cannot write to {self.path}: {segment.trouble}; the training goes on, {segment.waiting} frames wait "
                "in memory and are written when that is possible again"
            )
        if self._open_rows > MANY_OPEN_ROWS and self.step is None:
            self.notice(
                "many rows and no commit: call run.commit(step) at the end of each step, or log(..., step=step)"
            )

    def _tend_links(self) -> None:
        """What the keeper does with every heartbeat: see that rows are carried, and how far."""
        for link in self._links:
            link.tend()
            if self._newest is not None:
                self.log(link.values(), step=self._newest)


class Keeper:
    """The thread beside the training: brings bytes to the disk, says that we live, gathers the surroundings."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="windsock-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it may be in the middle of something."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(TEND_SECONDS * 5)

    def _loop(self) -> None:
        next_beat = time.monotonic() + HEARTBEAT_SECONDS
        self._stop.wait(TEND_SECONDS)  # the first steps, which people watch, have the interpreter for themselves
        self._try(self._gather)
        while not self._stop.wait(TEND_SECONDS):
            self._try(self._run._tend)
            if time.monotonic() >= next_beat:
                next_beat += HEARTBEAT_SECONDS
                self._try(self._beat)

    def _gather(self) -> None:
        if not self._run._forked:
            self._run._journal.event("environment", environment=describe_environment(self._run._redactor))

    def _beat(self) -> None:
        self._run._journal.event("heartbeat", dropped=self._run._journal.segment.dropped)
        self._run._tend_links()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self._run.guard(problem)
