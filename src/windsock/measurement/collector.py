"""Collector of measured batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from operator import index
from pathlib import Path
from typing import Any

from windsock.distributed import Share
from windsock.errors import SettingsError
from windsock.journal.frames import Kind
from windsock.measurement import gather
from windsock.measurement.batch import Batch
from windsock.measurement.domains import Domains
from windsock.measurement.options import Options
from windsock.measurement.packed_states import PackedStates
from windsock.measurement.step import Measurement, check_part, laid_out
from windsock.measurement.token_choice import MAX_SEED, MOST_SEQUENCES
from windsock.measurement.token_rows import Request, TakenTokens
from windsock.measurement.values import Measured
from windsock.recording import Collector, Recording
from windsock.state_buffer import StateBuffer
from windsock.states import sparse
from windsock.step_values import Finish


class MeasurementCollector(Collector):
    """Measurements of the steps that are under way. Usable from several threads.

    ``use_tokens`` is called with a step and the sequences that were chosen in it.
    """

    def __init__(
        self,
        recording: Recording,
        use_tokens: Callable[[int, TakenTokens], None] = lambda step, tokens: None,
    ) -> None:
        self._recording = recording
        self._use_tokens = use_tokens
        self._vocabulary = recording.info.vocabulary
        self._written: Measured | None = None  # whose reasons were written last
        self._states: StateBuffer[PackedStates] = StateBuffer(recording, "measured", self._write_state)
        self._domains = Domains(recording.problems.warn)
        self.after_fork()

    def after_fork(self) -> None:
        """Drop all measurements: the parent writes them."""
        self._measurements: dict[int | None, Measurement] = {}
        self._taken: Measurement | None = None  # of the step that is being exchanged
        self._layouts: dict[int, Path | None] = {}  # layout to the segment file that has it
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._states.after_fork()

    def add(
        self,
        batch: Batch | Mapping[str, Any],
        part: str | None,
        step: int | None,
        options: Mapping[str, Any],
        tokens: int | None = None,
    ) -> None:
        """Measure a batch for a step; a step that was committed already is counted as late instead.

        ``tokens`` is the number of sequences whose tokens are kept; None is that of the settings.
        """
        whole = batch if isinstance(batch, Batch) else Batch(**batch)
        parts, checked = check_part(part), Options.from_keywords(dict(options))
        committed = self._recording.step
        if step is not None and committed is not None and step <= committed:
            self._recording.late_batches += 1
            self._recording.problems.warn(
                f"a batch was measured for step {step}, which is committed: it is not counted (reported once)"
            )
            return
        with self._lock:
            measurement = self._measurements.get(step)
            if measurement is None:
                measurement = self._measurements[step] = self._new_measurement()
        # Without this lock: measuring takes long, and a measurement has a lock of its own.
        request = self._request(whole, tokens, step, measurement.rank) if "data" in parts else None
        measurement.add(whole, parts, checked, request)

    def _request(self, batch: Batch, tokens: int | None, step: int | None, rank: int) -> Request | None:
        """Return how many sequences to keep the tokens of; None for none."""
        recording = self._recording
        count = recording.settings.token_samples_per_step if tokens is None else index(tokens)
        if not 0 <= count <= MOST_SEQUENCES:
            raise SettingsError(f"measure: tokens: expected 0 to {MOST_SEQUENCES} sequences, got {count}")
        if not count or not recording.contributes:
            return None
        if "ids" not in batch.given:
            if tokens:
                recording.problems.warn("measure(tokens=…) needs Batch(ids=…), which run.sample(id=…) has too")
            return None
        if step is None:
            step = 0 if recording.step is None else recording.step + 1
        return count, hash((step, rank)) & MAX_SEED  # of integers it is the same in every process

    def uncommitted_steps(self) -> Collection[int | None]:
        """Return the steps that have measurements."""
        return list(self._measurements)

    def commit(self, step: int) -> Finish | None:
        """Write a step's values if this is rank 0, and its states if other processes have states of the same step."""
        measurement = self._take(step)
        finish = self._commit(measurement, step)
        if measurement is not None and measurement.tokens.sets:
            self._use_tokens(step, measurement.take_tokens())
        return finish

    def finish(self) -> None:
        """Write the states that were kept, if another process has joined."""
        self._states.flush()

    def share(self, step: int) -> Share:
        """Take a step out, to exchange it with other processes: ``commit_shares`` or ``commit_own`` writes it."""
        self._taken = taken = self._take(step)
        if taken is None:
            return Share()
        if taken.tokens.sets:
            self._use_tokens(step, taken.take_tokens())
        return gather.share_of(taken, self._recording.contributes)

    def commit_own(self, step: int) -> Finish | None:
        """Write what ``share`` has taken out, where the exchange failed."""
        taken, self._taken = self._taken, None
        return self._commit(taken, step)

    def commit_shares(self, step: int, shares: Sequence[Share], is_writer: bool) -> Finish:
        """Write what all processes measured in a step, if this one is to; return how to get its values."""
        self._taken = None
        self._states.flush()
        merged = cache(lambda: gather.merged(shares))
        finish = cache(lambda: gather.finished(merged(), shares, self._vocabulary))
        if is_writer and any(share.body or share.error for share in shares):
            if not any(share.error for share in shares):
                self._recording.problems.attempt("commit of measured", self._keep_state, merged(), step)
            if self._recording.writer.rank == 0:
                self._recording.problems.attempt("commit of measured", lambda: self._write_values(finish()))
        return _finish_of(finish)

    def _commit(self, measurement: Measurement | None, step: int) -> Finish | None:
        if measurement is None:
            self._states.flush()
            return None
        finish = cache(lambda: measurement.finish(self._vocabulary))
        if self._recording.contributes:
            self._recording.problems.attempt("commit of measured", self._keep_state, measurement, step)
            # One row is enough: where several ranks have states, readers show the merged values in its place.
            if self._recording.writer.rank == 0:
                self._recording.problems.attempt("commit of measured", lambda: self._write_values(finish()))
        return _finish_of(finish)

    def _take(self, step: int) -> Measurement | None:
        """Remove the measurement of a step; batches without a step are of the step that this commit names."""
        with self._lock:
            found = [self._measurements.pop(key) for key in (None, step) if key in self._measurements]
        if len(found) < 2:
            return found[0] if found else None
        whole = self._new_measurement()
        for measurement in found:
            whole.merge(measurement)
        return whole

    def _new_measurement(self) -> Measurement:
        problems = self._recording.problems
        return Measurement(
            self._recording.writer.rank,
            report=lambda metric, error: problems.report(f"metric {metric}", error),
            warn=problems.warn,
            domains=self._domains,
        )

    def _write_values(self, measured: Measured) -> None:
        if measured:
            self._recording.write_row(measured, None)
        # The reasons rarely change, so an event for every step would only make the journal longer.
        if self._written is None or not measured.has_reasons_of(self._written):
            if measured.missing or self._written is not None:
                self._recording.journal.event("missing", metrics=measured.missing)
            self._written = measured

    def _keep_state(self, measurement: Measurement, step: int) -> None:
        if self._states.wants("measured"):
            states = measurement.states
            self._states.add(step, states, states.vector.nbytes)

    def _write_state(self, step: int, states: PackedStates, at: float) -> None:
        journal = self._recording.journal
        whole, vector = laid_out(states)
        for layout, _ in whole.parts:
            # A state is readable only with its layout, so every segment file gets its own copy.
            if layout.hash not in self._layouts or self._layouts[layout.hash] != journal.segment.path:
                journal.record(Kind.LAYOUT, {"layout": str(layout.hash), "entries": layout.entries})
                self._layouts[layout.hash] = journal.segment.path
        *encoded, (last, last_slots) = whole.parts
        pieces: list[tuple[int, Any]] = [(layout.hash, sparse.encode(vector[slots])) for layout, slots in encoded]
        # A reader knows who contributed by the last one: it has the others then.
        journal.states([*pieces, (last.hash, vector[last_slots].tolist())], step, at)


def _finish_of(finish: Any) -> Finish:
    return lambda: (finish(), finish().missing)
