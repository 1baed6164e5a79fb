"""Collector of measured batches."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from windsock.journal.frames import Kind
from windsock.measurement.batch import Batch
from windsock.measurement.options import Options
from windsock.measurement.step import Measurement, check_part
from windsock.recording import Collector, Recording


class MeasurementCollector(Collector):
    """Measurements of the steps that are under way. Usable from several threads."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._missing: dict[str, str] = {}
        self.after_fork()

    def after_fork(self) -> None:
        """Drop all measurements: the parent writes them."""
        self._measurements: dict[int | None, Measurement] = {}
        self._layouts: dict[int, Path | None] = {}  # layout to the segment file that has it
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere

    def add(
        self, batch: Batch | Mapping[str, Any], part: str | None, step: int | None, options: Mapping[str, Any]
    ) -> None:
        """Measure a batch for a step; a step that was committed already is counted as late instead."""
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
            measurement = self._measurements.setdefault(step, Measurement(self._recording.writer.rank))
        # Without this lock: measuring takes long, and a measurement has a lock of its own.
        measurement.add(whole, parts, checked)

    def uncommitted_steps(self) -> Collection[int | None]:
        """Return the steps that have measurements."""
        return list(self._measurements)

    def commit(self, step: int) -> None:
        """Write a step's values if this is rank 0, and its states if other processes have states of the same step."""
        with self._lock:
            # Batches without a step are of the step that this commit names.
            found = [self._measurements.pop(key) for key in (None, step) if key in self._measurements]
        if not found:
            return
        measurement = found[0]
        for other in found[1:]:
            measurement.merge(other)
        if self._recording.shared:
            self._write_state(measurement, step)
        # One row is enough: where several ranks have states, readers show the merged values in its place.
        if self._recording.writer.rank == 0:
            self._write_values(measurement)

    def _write_values(self, measurement: Measurement) -> None:
        measured = measurement.finish(self._recording.info.vocabulary)
        if measured:
            self._recording.write_row(measured, None)
        # The reasons rarely change, so an event for every step would only make the journal longer.
        if measured.missing != self._missing:
            self._missing = measured.missing
            self._recording.journal.event("missing", metrics=measured.missing)

    def _write_state(self, measurement: Measurement, step: int) -> None:
        journal = self._recording.journal
        layout, vector = measurement.packed()
        # A state is readable only with its layout, so every segment file gets its own copy.
        if layout.hash not in self._layouts or self._layouts[layout.hash] != journal.segment.path:
            journal.record(
                Kind.LAYOUT,
                {"layout": str(layout.hash), "entries": layout.entries, "options": measurement.described_options()},
            )
            self._layouts[layout.hash] = journal.segment.path
        journal.state(layout.hash, step, vector.tolist())
