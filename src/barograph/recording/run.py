"""The run that a training loop uses: ``log``, ``measure``, ``commit``, ``finish`` and the other calls."""

from __future__ import annotations

import os
import struct
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from barograph.base.displayed import Displayed
from barograph.base.formatting import counted, to_plain
from barograph.base.lazy import StepValues
from barograph.base.model import RunInfo, Sample, Status, Writer
from barograph.base.problems import Problems, guarded
from barograph.base.process.background import BackgroundThread
from barograph.base.process.distributed import ProcessGroup
from barograph.base.process.exit_status import call_on_exit, cancel_on_exit, crash_status
from barograph.base.process.identity import describe_environment
from barograph.base.redaction import Redactor
from barograph.base.scalars import classify, packable
from barograph.base.settings import Settings, plain_config
from barograph.journal.format.frames import Kind
from barograph.journal.read.status import HEARTBEAT_SECONDS
from barograph.recording.collectors import Collectors, values_of_others
from barograph.recording.context import STEP_RANGE, Recording
from barograph.recording.ticket import Ticket

if TYPE_CHECKING:
    from barograph.metrics.batch.arrays import Batch
    from barograph.recording.collectors.rollout_handles import Evaluation, Rollouts, Validation
    from barograph.recording.probe.phases import Amount, Phase
    from barograph.recording.tracker import DeliveryClient

PACKING_ERRORS = (struct.error, TypeError, ValueError, OverflowError, RuntimeError)
MAX_OPEN_ROWS = 1000  # without any commit; then a hint is printed
TRACKER_SECONDS = 10.0  # to wait for trackers at the end
HURRIED_TRACKER_SECONDS = 1.0  # after SIGTERM: the relay goes on without this process
HURRIED_SECONDS = 0.5  # after SIGTERM, for the background thread, and for what is collected
MAX_ANNOTATION = 1000  # characters
MAX_TEXT = 1 << 22  # characters; a frame of more than 1 GiB cannot be read
EMPTY: Mapping[str, Any] = MappingProxyType({})

StartClients = Callable[[Recording], Iterable["DeliveryClient"]]


def _unrecorded_phase(run: Run, name: Any = "", onload: Any = None, offload: Any = None, *_: Any, **__: Any) -> Phase:
    """Return a phase that records nothing; the caller's onload and offload are still called."""
    from barograph.recording.probe.phases import Phase, SpanRecorder

    return Phase(SpanRecorder(), name if isinstance(name, str) else "", onload=onload, offload=offload)


def _unrecorded_timer(run: Run, name: Any = "", *_: Any, **__: Any) -> Phase:
    return _unrecorded_phase(run, name)


def _inert_handle(kind: str) -> Callable[..., Any]:
    def make(*_: Any, **__: Any) -> Any:
        from barograph.recording.collectors import rollout_handles

        return getattr(rollout_handles, kind).inert()

    return make


def _values_of_others(run: Run, *_: Any, gather: bool = False, group: Any = None, **__: Any) -> StepValues:
    """Return the values of a commit that records nothing; the other processes of a group wait for this one."""
    # Not where a recorded commit has failed: it has taken part in the exchange already.
    if gather and (run._problems is None or run._ended is not None):
        with suppress(Exception):
            found = ProcessGroup.find(group)
            if found is not None:
                return values_of_others(found, run.info.vocabulary)
    return StepValues()


class Run(Displayed):
    """One training that is being recorded. ``barograph.init`` makes it.

    It can be used from several threads and as a context manager. No call raises inside a training loop or waits for a
    tracker or a network; only ``commit`` waits for the accelerator, if device values were logged. With
    ``BAROGRAPH_MODE=disabled`` nothing is recorded and every call is a cheap no-op.
    """

    _recording: Recording  # these two exist only while something is recorded
    _collectors: Collectors
    _problems: Problems | None = None  # None: the run is disabled, and the guard lets no call through

    _join: ClassVar[Callable[[str], Run]]  # how a pickled run joins; the session sets it

    def __init__(
        self,
        settings: Settings,
        info: RunInfo,
        path: Path,
        writer: Writer,
        on_end: Callable[[Run], None] = lambda run: None,
        clients: StartClients = lambda recording: (),
    ) -> None:
        self.info = info
        self.path = path
        self.writer = writer
        self._on_end = on_end
        self._redactor = Redactor()
        self._redactor.redact(settings.trackers)  # learns the keys of trackers, to redact them everywhere
        self._config: dict[str, Any] = self._redactor.redact(settings.config)
        self._newest_step: int | None = None  # logged or committed last
        self._open_rows = 0
        self._is_before_commit = False  # of a run that continues after a step
        self._ended: Status | None = None
        self._end_lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._forked = False
        self._clients: list[DeliveryClient] = []
        self._background: BackgroundThread | None = None
        if not settings.disabled:
            self._recording = Recording(settings, info, path, writer, self._redactor, self._restart_background)
            self.writer = self._recording.writer
            self._problems = self._recording.problems
            self._collectors = Collectors(self._recording)
            self._write_row = self._recording.journal.row
            self._start(clients)

    @property
    def id(self) -> str:
        """The run's id, by which other processes join and commands find it."""
        return self.info.id

    @property
    def name(self) -> str:
        """The run's display name."""
        return self.info.name

    @property
    def project(self) -> str:
        """The project that the run belongs to."""
        return self.info.project

    @property
    def url(self) -> str:
        """The run's folder as a file URL."""
        return self.path.resolve().as_uri()

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's config, read-only, with secrets redacted."""
        return MappingProxyType(self._config)

    @property
    def step(self) -> int | None:
        """The last committed step."""
        return None if self._problems is None else self._recording.step

    @property
    def should_stop(self) -> bool:
        """Whether the training should end now: the doctor found what ``stop_on`` names, or someone asked for it.

        All processes of a run see it change at the same step.
        """
        if self._problems is None:
            return False
        return self._collectors.findings.should_stop(self._newest_step)

    @property
    def ended(self) -> bool:
        """Whether the run is finished in this process."""
        return self._ended is not None

    def __repr__(self) -> str:
        return f"<barograph.Run {self.id} {self.name!r} in {self.path}>"

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write values now: under ``step``, or without one for the step that the next ``commit`` names.

        Steps may be logged in any order and in several calls. The keys of a step are merged; the last value of a key is
        shown. A value that is not a number is skipped, counted and reported once.
        """
        # The guard is written out here: as a decorator it would add 3 % to the time of a call.
        if self._problems is None:
            return
        try:
            if step is None:
                self._open_rows += 1
            elif type(step) is not int or step not in STEP_RANGE:
                step = self._recording.to_step(step)
                self._newest_step = self._newest_step if step is None else step
            else:
                self._newest_step = step
            names = tuple(values)
            try:
                numbers = packable(values.values())
                if names and numbers is not None:
                    if not self._write_row(names, numbers, step) and self._ended is not None:
                        self._problems.warn("run.log after finish: the values are not recorded")
                    return
            except PACKING_ERRORS:
                pass  # a number too large, a tensor of several elements, a name that is not a string
            self._log_classified(values, step)
        except Exception as error:  # noqa: BLE001 - see guarded
            try:
                self._problems.report("run.log", error if isinstance(values, Mapping) else _not_a_mapping(values))
            except RecursionError:  # so near the limit that nothing can be called; counted without a call
                self._problems.unreported += 1

    @guarded()
    def text(self, name: str, text: str, step: int | None = None) -> None:
        """Write a text under a name, for the same step as ``log`` would. Of a long one the first 4 Mi characters."""
        number = self._recording.open_step(step)
        self._open_rows += number is None
        written = str(text)
        if len(written) > MAX_TEXT:
            self._recording.problems.warn(
                f"text {name!r} has {len(written):,} characters; the first {MAX_TEXT:,} are kept"
            )
            written = written[:MAX_TEXT]
        record = {"name": str(name), "step": number, "time": time.time(), "text": written}
        self._recording.journal.record(Kind.TEXT, record)

    @guarded()
    def annotate(self, text: str, step: int | None = None) -> None:
        """Note what explains a bend in the curves, such as a new data mix; charts mark it.

        It is at ``step``, or at the step that is open now. Of a long text the first 1,000 characters are kept.
        """
        recording, number = self._recording, self._recording.open_step(step)
        if number is None:
            is_committed = recording.step is not None or self._newest_step is None
            number = recording.next_step if is_committed else self._newest_step
        recording.journal.event("annotation", text=str(text)[:MAX_ANNOTATION], step=number)

    @guarded()
    def count(self, **amounts: float) -> None:
        """Add to the run's counters, such as tokens, samples or episodes. ``commit`` writes the totals.

        Totals continue over attempts: a run that is continued at step 500 starts with the totals of step 499. A replica
        counts nothing: it works on the same data as another process.
        """
        if self._recording.contributes:
            self._collectors.counters.add(amounts)

    @guarded(fallback=_values_of_others)
    def commit(self, step: int | None = None, *, gather: bool = False, group: Any = None) -> StepValues:
        """End a step: everything logged without a step since the last commit belongs to it.

        Without a number it is the last step plus one. Device values are on disk when this returns.

        Return what this process measured in the step, and the values of rollouts and evaluations that were closed for
        it: a mapping of names to numbers, with the reasons for metrics without a value in ``missing``. It is computed
        when it is first read. With ``gather`` it has the values of all processes of ``group``, by default of all, and
        is the same on each of them. This is a collective call, under ``torch.distributed`` with any backend: all
        processes of the group must make it, and it costs two collectives. Without a process group it has the values
        of this process.
        """
        recording = self._recording
        if self._ended is not None and gather:
            return _values_of_others(self, gather=True, group=group)
        number = recording.next_step
        if step is not None:
            given = recording.to_step(step, f"committed as step {number}")
            number = number if given is None else given
        try:
            return self._collectors.commit(number, self._process_group(group) if gather else None)
        finally:  # whatever fails: the rows of this step must not get the number of the next one
            recording.journal.commit(number)
            recording.step = self._newest_step = number
            self._open_rows = 0
            self._is_before_commit = False

    @guarded()
    def measure(
        self,
        batch: Batch | Mapping[str, Any],
        part: str | None = "data",
        step: int | None = None,
        *,
        tokens: int | None = None,
        **options: Any,
    ) -> None:
        """Measure a batch, or a micro-batch of it. ``commit`` merges, divides, names and writes the metrics.

        ``part`` selects the metrics: ``data`` for the rollout batch, once per step; ``policy`` and ``value`` for each
        micro-batch of an update; None for all metrics whose inputs are given. Without ``step`` the batch belongs to the
        step that the next commit names. The options are those of ``barograph.measure``.

        Where the batch has ``ids``, those of ``run.sample(id=…)``, the values of the tokens of ``tokens`` sequences are
        stored with their samples, by default of ``token_samples_per_step``. The data part chooses the most informative
        sequences; later policy parts complete what is known about these.
        """
        self._collectors.measured.add(batch, part, self._recording.open_step(step), options, tokens)

    @guarded(fallback=_inert_handle("Rollouts"))
    def rollouts(
        self,
        step: int | None = None,
        *,
        stats: Sequence[str] = ("mean", "max", "min"),
        reductions: Mapping[str, str] = EMPTY,
        failures: str = "leave_out",
        failed_value: float = 0.0,
        declared: Mapping[str, str] | None = None,
    ) -> Rollouts:
        """Return the handle for the rollouts of a step. Closing it, or the commit of the step, writes the statistics.

        ``stats`` are statistics over tasks: mean, max, min, std, or quantiles such as p95. ``reductions`` are for
        metrics that are not averaged, such as ``{"tokens": "sum"}``: sum, max, min or last at every level. With
        ``failures="count"`` a failed run counts as ``failed_value`` instead of being left out. ``declared`` is the old
        name of ``reductions``.
        """
        from barograph.metrics.rollouts.plan import RolloutPlan
        from barograph.recording.collectors.rollout_handles import Rollouts

        reductions = _reductions(reductions, declared)
        plan = RolloutPlan("rollout", "", None, dict(reductions), tuple(stats), failures, failed_value)
        return self._collectors.rollouts.open(Rollouts, plan, step)

    @guarded(fallback=_inert_handle("Evaluation"))
    def evaluation(
        self,
        taskset: str,
        step: int | None = None,
        *,
        repeats: int | None = None,
        prefix: str = "eval",
        reductions: Mapping[str, str] = EMPTY,
        failures: str = "leave_out",
        failed_value: float = 0.0,
        detailed_stats: bool | None = None,
        declared: Mapping[str, str] | None = None,
        ks: Sequence[int] = (),
    ) -> Evaluation:
        """Return the handle for one evaluation of a set of tasks. Closing it writes the statistics.

        ``repeats`` is the number of runs per task, the k of mean@k; without it, the most runs that any task has.
        ``ks`` are the k of best@k, worst@k, pass@k and maj@k; without it, ``repeats`` and the powers of two below it.
        ``prefix`` is ``eval`` or ``bench``. ``reductions``, ``failures`` and ``failed_value`` are as in ``rollouts``; a
        metric with a reduction, such as ``{"seconds": "mean"}``, has no statistics of k, nor has one that
        ``barograph.define`` declares with a statistic or with the unit of a duration or a count.
        """
        from barograph.metrics.rollouts.plan import RolloutPlan
        from barograph.recording.collectors.rollout_handles import Evaluation

        if prefix not in ("eval", "bench"):
            self._recording.problems.warn(f"prefix: expected eval or bench, got {prefix!r}; eval is used")
            prefix = "eval"
        reductions = _reductions(reductions, declared)
        detailed = self._recording.settings.detailed_stats if detailed_stats is None else detailed_stats
        plan = RolloutPlan(prefix, str(taskset), repeats, dict(reductions), (), failures, failed_value, detailed, ks=ks)
        return self._collectors.rollouts.open(Evaluation, plan, step)

    @guarded(fallback=_inert_handle("Validation"))
    def validation(self, step: int | None = None) -> Validation:
        """Return the handle for the scores of validation episodes. Closing it writes them."""
        from barograph.metrics.rollouts.plan import RolloutPlan
        from barograph.recording.collectors.rollout_handles import Validation

        return self._collectors.rollouts.open(Validation, RolloutPlan("validation"), step)

    @guarded()
    def pipeline(
        self,
        *,
        count: int | None = None,
        rewards: Any = None,
        groups: Any = None,
        metrics: Mapping[str, Any] = EMPTY,
        seconds: Mapping[str, Any] = EMPTY,
        step: int | None = None,
    ) -> None:
        """Report the experience pipeline: the number of experiences left, rewards by group, and operators' metrics.

        ``rewards`` and ``groups`` have one entry per experience; ``seconds`` is the time of each operator. The call may
        be repeated in a step: rewards are collected, of the other values the last counts.
        """
        rollouts = self._collectors.rollouts
        self.log(rollouts.pipeline_values(count, metrics, seconds), step)
        if rewards is not None and groups is not None:
            rollouts.add_group_rewards(rewards, groups, step)

    @guarded()
    def staleness(
        self, *, weight_versions: Any, tasks: Any, trainer_version: int | None = None, step: int | None = None
    ) -> None:
        """Report the weight version and the task of each sample of an update.

        With ``trainer_version``, the version being trained, the samples' staleness is computed.
        """
        self._collectors.rollouts.add_staleness(weight_versions, tasks, trainer_version, step)

    def drawn(self, *, versions: Any, tasks: Any, trainer_version: int | None = None, step: int | None = None) -> None:
        """Call ``staleness``, whose old name this is."""
        text = "barograph: run.drawn(versions=) is now run.staleness(weight_versions=); the old name works until 0.3"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        self.staleness(weight_versions=versions, tasks=tasks, trainer_version=trainer_version, step=step)

    @guarded(fallback=_unrecorded_phase)
    def phase(
        self,
        name: str,
        onload: Callable[[], Any] | None = None,
        offload: Callable[[], Any] | None = None,
        tokens: Amount = None,
        flops: Amount = None,
        clock: str = "host",
    ) -> Phase:
        """Return a phase of the step, to enter with ``with`` or ``async with`` or to decorate a function with.

        Time and memory are written as ``time/{name}/…`` and ``memory/{name}/…`` of the step that is open when it
        begins. ``onload`` and ``offload`` are called before and after the body and timed separately. ``tokens`` is the
        number of processed tokens: a number, a mapping of their kind to it (``{"generated": n}``), or a function that
        is called at the end. ``flops`` is the same for a model's FLOPs, ``{"actor": n}``. ``clock="device"`` measures
        on the device.
        """
        return self._collectors.phases.probe.phase(name, onload, offload, tokens, flops, clock)

    @guarded(fallback=_unrecorded_timer)
    def timer(self, name: str, tokens: Amount = None) -> Phase:
        """Return a plain timer, used like a phase: ``time/{name}``, without memory."""
        return self._collectors.phases.probe.phase(name, timer=True, tokens=tokens)

    @guarded()
    def shards(self, before: Sequence[float], after: Sequence[float] | None = None) -> None:
        """Log the tokens of each data-parallel shard of the step, before and after balancing."""
        self.log(self._collectors.phases.probe.shards(before, after))

    @guarded()
    def watch_engine(self, url: str, name: str | None = None) -> None:
        """Record the load of an inference engine, vLLM or SGLang, from its ``/metrics``; repeat it for several engines.

        A thread reads requests, KV cache, preemptions and tokens every ``engine_seconds``. A commit writes them as
        ``engine/…``: over all engines, and by engine (``name``, by default host and port) where there are several. An
        engine that does not answer is reported once and tried again. Only rank 0 of a role reads.
        """
        if self._ended is not None:
            self._recording.problems.warn("run.watch_engine after finish: the engine is not read")
            return
        self._collectors.phases.watch_engine(url, name)

    @guarded()
    def sample(
        self,
        prompt: Any = None,
        completion: Any = None,
        *,
        messages: Any = None,
        reward: Any = None,
        rewards: Any = None,
        advantage: Any = None,
        length: Any = None,
        finish_reason: Any = None,
        task: Any = None,
        run: Any = None,
        group: Any = None,
        weight_version: Any = None,
        id: Any = None,
        answer: Any = None,
        reference: Any = None,
        discarded: Any = None,
        tokens: Any = None,
        token_values: Any = None,
        top_logprobs: Any = None,
        decode: Any = None,
        columns: Any = None,
        step: int | None = None,
        **further: Any,
    ) -> None:
        """Submit one completion. The most informative of a step are written at its commit, within the run's budget.

        ``messages`` replace prompt and completion in a chat; ``rewards`` are the components of ``reward`` by name;
        ``length`` is in tokens. ``answer`` and ``reference`` are the given and the right answer, ``discarded`` is why
        the trainer does not use the sample. ``tokens`` are texts, or ids for ``decode`` or the run's tokenizer, and
        ``token_values`` arrays by name with a number for each; ``top_logprobs`` are the most likely tokens at each
        place, as pairs, or as vLLM or OpenAI's API give them. Further numbers, truth values and names are columns.

        Without ``step`` the sample belongs to the step that the next commit names. A field with a wrong value is left
        out, counted and reported once. A number on an accelerator is waited for.
        """
        fields = {name: value for name, value in locals().items() if name not in ("self", "step", "further")}
        if self._accepts_samples():
            self._collectors.samples.submit(fields | further, step)

    @guarded()
    def tokenizer(self, tokenizer: Any) -> None:
        """Decode the token ids of samples with a tokenizer that has ``decode``, or a function of a list of ids."""
        self._collectors.samples.use_tokenizer(tokenizer)

    @guarded()
    def samples(
        self, samples: Iterable[Mapping[str, Any] | Sample] | Mapping[str, Any], step: int | None = None
    ) -> None:
        """Submit many samples: mappings, ``Sample`` records, or a mapping of columns in which single values repeat."""
        if self._accepts_samples():
            self._collectors.samples.submit_all(samples, step)

    @guarded()
    def update_config(self, config: Any) -> None:
        """Add entries to the run's config, or change them; the journal keeps the earlier values."""
        update = self._redactor.redact(plain_config(config))
        self._config.update(self._recording.write_config("config", update))

    def finish(self, status: Status | None = None, timeout: float = TRACKER_SECONDS) -> None:
        """End the run: write everything to disk, and let trackers receive the rest.

        ``timeout`` limits the wait for the disk, if it is full, and for trackers; if one is not done by then, a warning
        explains how to deliver the rest. Further calls do nothing.
        """
        self._finish(status, timeout)

    def _finish(self, status: Any, timeout: float, hurry: bool = False) -> None:
        with self._end_lock:
            if self._ended is not None:
                return
            self._ended = status if isinstance(status, Status) else Status("finished")
        cancel_on_exit(self._end)
        _recorded_runs.discard(self)
        self._on_end(self)
        if self._problems is not None:
            if status is not None and status is not self._ended:
                self._problems.warn(
                    f"finish: expected a barograph.Status, got {type(status).__name__}; recorded as finished"
                )
            self._problems.attempt("run.finish", self._end_recording, self._ended, timeout, hurry)

    def ticket(self) -> str:
        """Return a string with which another process joins this run: ``barograph.join(ticket)``.

        It is the run's place, without secrets, for the environment or a command line of that process. A pickled run is
        its ticket: a process that unpickles it joins.
        """
        if self._problems is None:
            return str(Ticket(None, self.writer.role, {}))
        self._recording.expect_others()
        return str(Ticket.issue(self.path, self.writer.role, self._recording.settings, self.info))

    def __reduce__(self) -> tuple[Callable[[str], Run], tuple[str]]:
        return type(self)._join, (self.ticket(),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(crash_status(kind, problem) if kind else Status("finished"))

    @guarded()
    def _continue_after(self, step: int) -> None:
        """Go on after a step of an earlier attempt: what names no step is of the one after it, also if this ends now.

        Without a commit readers would take it for step 0, from which on the attempt hides the earlier one.
        """
        self._recording.step = self._recording.open_step(step)
        self._is_before_commit = True

    def _start(self, clients: StartClients) -> None:
        """Write the first frames, and start the tracker clients and the background thread."""
        recording, settings = self._recording, self._recording.settings
        recording.write_start()
        self._config = recording.write_config("config", self._config)
        if settings.trackers:
            recording.write_config("trackers", self._redactor.redact(to_plain(settings.trackers)))
        try:
            for client in clients(recording):
                client.start()
                self._clients.append(client)
        except Exception as error:
            self._end(Status("crashed", f"a tracker did not start: {error}"))
            raise
        self._start_background()
        self._collectors.phases.start()
        call_on_exit(self._end)
        _recorded_runs.add(self)

    def _end(self, status: Status, hurry: bool = False) -> None:
        """Finish with a status; in a ``hurry``, wait neither for a device nor long for trackers."""
        timeout = HURRIED_TRACKER_SECONDS if hurry else TRACKER_SECONDS
        self._finish(Status(status.word, self._redactor.redact_text(status.reason)), timeout, hurry)

    def _end_recording(self, status: Status, timeout: float, hurry: bool) -> None:
        """Write everything that is left, and the end. What fails is reported and does not keep the rest from it."""
        recording, journal = self._recording, self._recording.journal
        attempt = recording.problems.attempt
        if self._background is not None:
            attempt("run.finish", self._background.stop, *([HURRIED_SECONDS] if hurry else []))
        attempt("run.finish", self._write_collected_in_time if hurry else self._write_collected)
        attempt("run.finish", self._write_end, status)
        has_started = self._background is not None  # else there is nothing that is worth a wait
        lost = journal.close(timeout if has_started else 0.0) + journal.segment.dropped
        recording.report_journal()
        for text in (text for client in self._clients for text in client.wait(status, timeout)):
            recording.problems.warn(text)
        if lost:
            frames = counted(lost, "frame")
            recording.problems.warn(f"{frames} could not be written to {self.path}: {journal.segment.trouble}")

    def _write_collected_in_time(self) -> None:
        """Write what is left unless that takes long: a device may be busy, or hang."""
        work = threading.Thread(target=self._recording.problems.attempt, args=("run.finish", self._write_collected))
        work.daemon = True
        work.start()
        work.join(HURRIED_SECONDS)

    def _write_collected(self) -> None:
        """Commit the steps that are open, and let every collector write what is left."""
        try:
            for step in self._collectors.uncommitted_steps() or ([None] if self._is_before_commit else []):
                self.commit(step)
        finally:
            self._collectors.finish()

    def _write_end(self, status: Status) -> None:
        recording, journal = self._recording, self._recording.journal
        recording.problems.finish()
        journal.segment.maintain()  # before the counts are written
        recording.report_journal()
        counts = {**journal.segment.counts, "late": recording.late_batches}
        journal.event("finish", status=status.word, reason=status.reason, **counts)

    def _process_group(self, group: Any) -> ProcessGroup | None:
        """Return the group to exchange a step with, or None where there is none."""
        problems = self._recording.problems
        found = problems.attempt("run.commit", ProcessGroup.find, group)
        if found is None and self._recording.shared:
            problems.warn(
                "commit(gather=True): torch.distributed has no process group that this process is in; the values are "
                "those of this process"
            )
        return found

    def _log_classified(self, values: Mapping[str, Any], step: int | None) -> None:
        """Log values that are not all plain numbers."""
        found = classify(values)
        if found.numbers:
            self._recording.write_row(found.numbers, step)
        for name, histogram in found.histograms.items():
            self._recording.journal.histogram(name, histogram, step)
        if found.rejected:
            self._recording.problems.skip(found.rejected)
        if found.deferred:  # last: starting the copy raises if the device has failed
            self._collectors.device_values.add(found.deferred, step)

    def _accepts_samples(self) -> bool:
        if self._ended is not None:
            self._recording.problems.warn("run.sample after finish: the sample is not recorded")
        return self._ended is None

    def _start_background(self) -> None:
        work = self._describe_environment, self._maintain, self._heartbeat
        self._background = BackgroundThread(*work, HEARTBEAT_SECONDS)

    def _restart_background(self) -> None:
        """Start a background thread when a forked child writes its first frame: threads do not survive a fork."""
        if self._forked and self._background is None:
            self._start_background()

    @guarded()
    def _describe_environment(self) -> None:
        if not self._forked:
            self._recording.journal.event("environment", environment=describe_environment(self._redactor))

    @guarded()
    def _maintain(self) -> None:
        """Write arrived device values and waiting frames, and warn if that fails; called every second."""
        self._collectors.device_values.write_ready()
        segment, problems = self._recording.journal.segment, self._recording.problems
        segment.maintain()
        self._recording.report_journal()
        if segment.trouble:
            problems.warn(
                f"cannot write to {self.path}: {segment.trouble}; the training goes on, and what waits in memory "
                f"({counted(segment.waiting, 'frame')}) is written when that is possible again"
            )
        if self._open_rows > MAX_OPEN_ROWS and self._recording.step is None:
            problems.warn(
                "many rows and no commit: call run.commit(step) at the end of each step, or log(..., step=step)"
            )

    @guarded()
    def _heartbeat(self) -> None:
        journal = self._recording.journal
        journal.event("heartbeat", **journal.segment.counts)
        self._recording.problems.write_counts()
        self._maintain_clients()

    def _maintain_clients(self) -> None:
        """Check that rows are delivered; log how far, and for trackers such as Prometheus which writes failed."""
        for client in self._clients:
            client.maintain()
            if self._newest_step is not None:
                self.log(client.values(), step=self._newest_step)
        counts = self._recording.journal.segment.counts
        if self._clients and self._newest_step is not None and any(counts.values()):
            self.log({f"barograph/journal/{name}": count for name, count in counts.items()}, step=self._newest_step)

    def _after_fork(self) -> None:
        """Drop threads, locks and collected data in a forked child: they are the parent's."""
        self._forked = True
        self._background = None
        self._end_lock = threading.RLock()
        for client in self._clients:
            client.after_fork_in_child()
        self._clients = []
        self._recording.expect_others()
        self._recording.problems.after_fork()
        self._collectors.after_fork()


def _not_a_mapping(values: Any) -> TypeError:
    return TypeError(f"expected a mapping of names to numbers, got {type(values).__name__}")


def _reductions(reductions: Mapping[str, str], declared: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the reductions, also where they were given under their old name."""
    if declared is None:
        return reductions
    text = "barograph: declared= is now reductions=; the old name works until 0.3"
    warnings.warn(text, DeprecationWarning, stacklevel=4)  # behind rollouts or evaluation, and the guard
    return declared


_recorded_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for run in list(_recorded_runs):
        run._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
