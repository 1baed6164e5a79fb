"""Processes of a run that only write journals, with a clock of their own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

import barograph
from barograph.base.model import Writer
from barograph.journal.format.folder import segment_path
from barograph.journal.format.frames import Kind
from barograph.journal.write.writer import JournalWriter
from barograph.metrics.batch.step import Measurement

RANKS = (0, 1)


class Processes:
    """The processes of a run of two ranks, each with its journal; one clock gives all of them their times."""

    def __init__(self, folder: Path, ranks: Sequence[int] = RANKS, forks_commit: bool = True) -> None:
        self._folder = folder
        self._forks_commit = forks_commit
        self._clock = (time.time() + n / 1000 for n in itertools.count())
        self._numbers = itertools.count(1)
        self._pid = 0
        self._attempts = dict.fromkeys(RANKS, 0)
        self._journals: dict[int, list[JournalWriter]] = {rank: [] for rank in RANKS}
        self._step = dict.fromkeys(RANKS, 0)
        for rank in ranks:
            self.restart(rank)

    def now(self) -> float:
        """Return the next time of the clock."""
        return next(self._clock)

    def restart(self, rank: int) -> None:
        """End the processes of a rank and start a new attempt."""
        self.end(rank)
        self._attempts[rank] += 1
        self._start(rank)

    def fork(self, rank: int, same_process: bool = False) -> None:
        """Start another process of the attempt, or a further segment of the same."""
        if len(self._journals[rank]) < 3:
            self._start(rank, same_process)

    def _start(self, rank: int, same_process: bool = False) -> None:
        writer = Writer("trainer", rank, self._attempts[rank])
        journal = JournalWriter(self._folder, writer)
        if journal.segment.writer != writer:  # another process has begun the attempt: this one is its fork
            _move_to_next_index(journal, writer)
        self._pid += not same_process
        process = {"machine": "another", "pid": self._pid, "born": 1.0, "world_size": len(RANKS)}
        journal.event("start", **process | {"time": next(self._clock)})
        self._journals[rank].append(journal)

    def end_fork(self, rank: int) -> None:
        """End the process that was forked last."""
        if len(self._journals[rank]) > 1:
            self._end(self._journals[rank].pop())

    def end(self, rank: int) -> None:
        """End all processes of a rank, the one that began the attempt last."""
        while self._journals[rank]:
            self._end(self._journals[rank].pop())

    def _end(self, journal: JournalWriter) -> None:
        journal.event("finish", status="finished", time=next(self._clock))
        journal.close()

    def row(self, rank: int, process: int, names: Iterable[str], step: int | None) -> None:
        """Write a row of numbers that occur once."""
        self.values(rank, process, {name: float(next(self._numbers)) for name in sorted(names)}, step)

    def values(self, rank: int, process: int, values: Mapping[str, float], step: int | None = None) -> None:
        """Write a row."""
        self.journal(rank, process).row(tuple(values), values.values(), step, at=next(self._clock))

    def commit(self, rank: int, process: int, step: int) -> None:
        """Commit a step; later ones follow it."""
        if process == 0 or self._forks_commit:
            self.journal(rank, process).commit(step, at=next(self._clock))
            self._step[rank] = step + 1

    def next(self, rank: int) -> None:
        """Commit the next step."""
        self.commit(rank, 0, self._step[rank])

    def measure(self, rank: int, count: int) -> None:
        """Write a state and the rank's own values for the next step, and commit it."""
        measurement = Measurement(rank)
        scores = np.array([float(next(self._numbers)) for _ in range(count)])
        measurement.add(barograph.Batch(response_mask=np.ones((count, 1)), scores=scores))
        layout, vector = measurement.packed()
        journal, step, at = self.journal(rank, 0), self._step[rank], next(self._clock)
        journal.record(Kind.LAYOUT, {"layout": str(layout.hash), "entries": layout.entries})
        journal.state(layout.hash, step, vector.tolist(), at)
        values = measurement.finish("roll")
        journal.row(tuple(values), values.values(), None, at)
        self.commit(rank, 0, step)

    def journal(self, rank: int, process: int = 0) -> JournalWriter:
        """Return the journal of one process of a rank: 0 began the attempt, the others were forked."""
        journals = self._journals[rank]
        return journals[min(process, len(journals) - 1)]


def _move_to_next_index(journal: JournalWriter, writer: Writer) -> None:
    """Rename a segment as a forked process would: a journal that is not forked begins an attempt."""
    paths = (segment_path(journal.segment.folder, writer, index) for index in itertools.count(1))
    assert journal.segment.path is not None
    journal.segment.path.rename(next(path for path in paths if not path.exists()))
