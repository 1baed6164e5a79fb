"""Collector of measured batches, and the measured states of a step as processes exchange them: what each sends, and
what all of it is together.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.errors import SettingsError
from barograph.base.lazy import Finish
from barograph.base.process.distributed import Share
from barograph.journal.format.frames import Kind
from barograph.journal.merge.measurements import DescribedLayout
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Domains, Options
from barograph.metrics.batch.plan import PackedStates
from barograph.metrics.batch.step import Measurement, check_part
from barograph.metrics.batch.step_states import StepStates, laid_out
from barograph.metrics.batch.token_rows import MAX_SEED, MOST_SEQUENCES, Request, TakenTokens
from barograph.metrics.batch.values import Measured
from barograph.metrics.states.layout import Layout, encode_sparse
from barograph.recording.context import Collector, Recording, StateBuffer


def measured_share(measurement: StepStates, contributes: bool = True) -> Share:
    """Return the share of one process. A replica describes its states, as the others do, and sends none."""
    layout, vector = measurement.packed()
    description = {
        "layout": str(layout.hash),
        "entries": layout.entries,
        "missing": measurement.missing,
    }
    body = b"".join(_pieces(layout, vector)) if contributes else b""
    return Share(zlib.compress(json.dumps(description, sort_keys=True).encode(), 1), body)


def merged_measurement_of(shares: Sequence[Share]) -> StepStates:
    """Return the measurement of all processes. Every process merges in the same order, and gets the same bits."""
    bodies: dict[bytes, list[bytes]] = {}
    for share in shares:
        if share.body:
            bodies.setdefault(share.description, []).append(share.body)
    whole = StepStates()
    for description, alike in bodies.items():
        record = json.loads(zlib.decompress(description))
        _, described = DescribedLayout.parse(record)
        whole.merge(StepStates(_states(described.layout, alike), missing=record["missing"]))
    return whole


def _pieces(layout: Layout, vector: NDArray[np.float64]) -> Iterator[bytes]:
    """Yield the numbers of the last part, and of the others the length and the encoded numbers."""
    *encoded, (_, slots) = layout.parts
    yield vector[slots].astype("<f8", copy=False).tobytes()
    for _, slots in encoded:
        piece = encode_sparse(vector[slots])
        yield len(piece).to_bytes(4, "little") + piece


def _states(layout: Layout, bodies: Sequence[bytes]) -> dict[str, NDArray[np.float64]]:
    """Return the merged states of processes with the same layout."""
    *encoded, (last, _) = layout.parts
    # Vectors of one layout at once: a few calls of NumPy for each process, and not one for each metric.
    states = last.unpack(last.merge([np.frombuffer(body, "<f8", last.width).astype(np.float64) for body in bodies]))
    places = [8 * last.width] * len(bodies)
    for part, _ in encoded:
        begins = [place + 4 for place in places]
        lengths = [int.from_bytes(body[at - 4 : at], "little") for body, at in zip(bodies, begins, strict=True)]
        places = [at + length for at, length in zip(begins, lengths, strict=True)]
        pieces = [body[at:end] for body, at, end in zip(bodies, begins, places, strict=True)]
        states |= part.unpack(part.merge_encoded(pieces))
    return states


def finished_measurement(measurement: StepStates, shares: Sequence[Share], vocabulary: str) -> Measured:
    """Return the values of all processes; none if one could not contribute: the rest would be a wrong number."""
    measured = measurement.finish(vocabulary)
    errors = [share.error for share in shares if share.error]
    if not errors:
        return measured
    return Measured({}, dict.fromkeys([*measured, *measured.missing], f"a rank could not contribute: {errors[0]}"))


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
        return measured_share(taken, self._recording.contributes)

    def commit_own(self, step: int) -> Finish | None:
        """Write what ``share`` has taken out, where the exchange failed."""
        taken, self._taken = self._taken, None
        return self._commit(taken, step)

    def commit_shares(self, step: int, shares: Sequence[Share], is_writer: bool) -> Finish:
        """Write what all processes measured in a step, if this one is to; return how to get its values."""
        self._taken = None
        self._states.flush()
        merged = cache(lambda: merged_measurement_of(shares))
        finish = cache(lambda: finished_measurement(merged(), shares, self._vocabulary))
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

    def _keep_state(self, measurement: StepStates, step: int) -> None:
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
        pieces: list[tuple[int, Any]] = [(layout.hash, encode_sparse(vector[slots])) for layout, slots in encoded]
        # A reader knows who contributed by the last one: it has the others then.
        journal.states([*pieces, (last.hash, vector[last_slots].tolist())], step, at)


def _finish_of(finish: Any) -> Finish:
    return lambda: (finish(), finish().missing)
