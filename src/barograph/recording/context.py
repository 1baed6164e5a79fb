"""Interface that collectors use: the run's identity, journal, settings and problems, and a buffer of the states of the
last steps, for as long as it is unknown whether another process records the same steps.
"""

from __future__ import annotations

import json
import operator
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from barograph.base.errors import JournalError
from barograph.base.files.compression import count_values
from barograph.base.files.mounts import make_spool_folder
from barograph.base.lazy import Finish
from barograph.base.model import RunInfo, Writer
from barograph.base.problems import Problems
from barograph.base.process.identity import actor_id, process_identity
from barograph.base.redaction import Redactor
from barograph.base.settings import Settings
from barograph.journal.format.folder import segments, write_run_info
from barograph.journal.write.writer import JournalWriter

MAX_CONFIG_BYTES = 4 << 20  # of JSON
MAX_NAME = 200  # characters of the name of an entry in a message
MAX_CONFIG_VALUES = 500_000  # readers take no more than twice as many
STEP_RANGE = range(-(2**63) + 1, 2**63)  # a row stores the step as an int64; the lowest one means "open"


class Recording:
    """One writer of a run: everything that is needed to record under its name.

    ``on_new_segment`` is called when the journal begins a further file: after a fork, or when a file may not grow.
    """

    def __init__(
        self,
        settings: Settings,
        info: RunInfo,
        path: Path,
        writer: Writer,
        redactor: Redactor,
        on_new_segment: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.info = info
        self.path = path
        self.redactor = redactor
        self.step: int | None = None  # the last committed one
        self.contributes = settings.replica == 0
        """Whether what this process measures counts: replicas hold the same data as another process."""
        self.late_batches = 0  # measured for a step that was committed already
        self.began = time.perf_counter()
        self._shared = settings.alone is False
        self._looked_at = 0  # modification time of the run's directory
        self._declared: set[str] = set()
        self._on_new_segment = on_new_segment
        self._actor = actor_id()
        self._spool = settings.spool / info.id if settings.spool else None
        self.journal = JournalWriter(
            self._spool or path,
            writer,
            self._prepare_folder,
            self._begin_segment,
            claimed=settings.claimed and (self._spool is None or settings.elsewhere or settings.server is not None),
        )
        self.problems = Problems(redactor.redact_text, self.journal.event)

    @property
    def writer(self) -> Writer:
        """Role, rank and attempt; the attempt is known when the segment was created."""
        return self.journal.segment.writer

    @property
    def shared(self) -> bool:
        """Whether other processes may record the same steps, so that states are written beside values.

        Where the settings do not tell, the process is alone until it gives out a ticket or another process of its role
        writes to the run's directory.
        """
        if not self._shared and self.settings.alone is None:
            self._shared = self._sees_others()
        return self._shared

    @property
    def known_to_be_shared(self) -> bool:
        """Whether ``shared`` was true when it was last asked for."""
        return self._shared

    @property
    def processes(self) -> int | None:
        """The number of processes of the run; None if it is not known."""
        known = self.settings.world_size
        return known if known and known > 1 else None if self.shared else 1

    def expect_others(self) -> None:
        """Note that another process was given what it needs to join."""
        self._shared = True

    def _sees_others(self) -> bool:
        """Return whether another process of this role has written to the run's directory."""
        try:
            changed = os.stat(self.path).st_mtime_ns
        except OSError:
            return False
        if changed == self._looked_at:
            return False
        self._looked_at = changed
        mine, own = self.writer, self.journal.segment.path
        return any(
            s.writer.role == mine.role and (s.writer.rank != mine.rank or (s.writer == mine and s.path != own))
            for s in segments(self.path)
        )

    def declare_counts(self, counts: Mapping[str, str]) -> None:
        """Write, once, which metrics are this process's part of a whole, and how the parts add up."""
        new = {name: how for name, how in counts.items() if name not in self._declared}
        self._declared |= new.keys()
        for how in sorted(set(new.values())):
            self.journal.event("counts", how=how, names=[name for name in new if new[name] == how])

    @property
    def next_step(self) -> int:
        """The step of a commit that names none: the last one plus one, or 0; the highest step is followed by itself."""
        return 0 if self.step is None else min(self.step + 1, STEP_RANGE[-1])

    def to_step(self, step: Any, otherwise: str = "logged without a step") -> int | None:
        """Return a step as an int, or warn and return None. Whole floats and the integers of other libraries count."""
        expected = "an int"
        try:
            number = int(step) if isinstance(step, float) and step.is_integer() else operator.index(step)
            if number in STEP_RANGE:
                return number
            expected = "an int of 64 bits"
        except (TypeError, ValueError):
            pass
        self.problems.warn(f"step must be {expected}; got {step!r}, {otherwise}")
        return None

    def open_step(self, step: Any) -> int | None:
        """Return the step that a user gave; None is the step that the next commit names."""
        return None if step is None else self.to_step(step)

    def write_row(self, values: Mapping[str, float], step: int | None) -> None:
        """Write finished values; without a step, for the step that the next commit names."""
        self.journal.row(tuple(values), values.values(), step)

    def write_start(self) -> None:
        """Write which process records here, as the first frame of a segment file."""
        settings = self.settings
        known = {"world_size": settings.world_size, "replica": settings.replica or None, "actor": self._actor}
        facts = {name: value for name, value in known.items() if value is not None}
        self.journal.event("start", **facts, **process_identity())

    def write_config(self, event: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Write a config as an event, without entries that are too large for readers; return what was written."""
        fitting, left_out = _fitting(config)
        for name, size in left_out.items():
            self.problems.skip(
                {f"{event}.{name}": f"value has {size:,} bytes; a {event} can have {MAX_CONFIG_BYTES:,} in all"}
            )
        self.journal.event(event, **{event: fitting})
        return fitting

    def report_journal(self) -> None:
        """Warn if bytes did not reach the disk, and report what happened to the segment's file."""
        segment = self.journal.segment
        if segment.sync_trouble:
            self.problems.warn(
                f"cannot sync {segment.path} to the disk: {segment.sync_trouble}; its rows survive the end of the "
                "process, but perhaps not that of the machine: check the disk"
            )
        for notice in segment.take_notices():
            self.problems.report("journal", JournalError(notice))

    def _begin_segment(self) -> None:
        self.write_start()
        self._on_new_segment()

    def _prepare_folder(self) -> None:
        if self._spool is not None:
            make_spool_folder(self._spool.parent, self._spool.name)
        else:
            write_run_info(self.path, self.info)


class Collector:
    """One kind of data that a run collects between commits. It owns its state; a failure costs only itself."""

    def commit(self, step: int) -> Finish | None:
        """Write everything that belongs to a step which ends now; return how to get its values, if it has any."""
        return None

    def finish(self) -> None:
        """Write everything that is left when the run ends."""

    def after_fork(self) -> None:
        """Drop all state in a forked child: the data is the parent's to write, and its locks may be held."""

    def uncommitted_steps(self) -> Collection[int | None]:
        """Return the steps with data that only a commit writes; None is the step that the next commit names."""
        return ()


def _fitting(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the entries of a config that fit, the small ones first, and the sizes of the others."""
    texts = {name: json.dumps({name: value}).encode() for name, value in config.items()}
    left_out: dict[str, int] = {}
    size = values = 0
    for name, text in sorted(texts.items(), key=lambda entry: len(entry[1])):
        size, values = size + len(text), values + count_values(text)
        if size > MAX_CONFIG_BYTES or values > MAX_CONFIG_VALUES:
            left_out[shortened(name)] = len(text)
    return {name: value for name, value in config.items() if shortened(name) not in left_out}, left_out


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """Return a text of at most ``limit`` characters, with a note if it is cut."""
    return text if len(text) <= limit else f"{text[: limit - 40]}… (of {len(text):,} characters)"


State = TypeVar("State")

MAX_KEPT_STEPS = 64
MAX_KEPT_BYTES = 16 << 20


class StateBuffer(Generic[State]):
    """States that are written at once in a run of several processes, and kept while there may be others.

    A process that is alone for certain keeps and writes none. ``write`` is called with the step, the state and its
    time. ``kind`` names the states in the event that a process writes when another one joins it.
    """

    def __init__(self, recording: Recording, kind: str, write: Callable[[int, State, float], object]) -> None:
        self._recording = recording
        self._kind = kind
        self._write = write
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the states: the parent writes them."""
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._kept: deque[tuple[int, State, float, int]] = deque()
        self._states_of: Counter[int] = Counter()  # how many are kept, by step
        self._bytes = 0
        self._dropped = 0  # states
        self._alone: set[tuple[str, str]] = set()  # kinds of states that were not written because of that

    def wants(self, kind: str, taskset: str = "") -> bool:
        """Return whether states are written, or may be later; if not now, the journal says so for that kind."""
        if self._recording.shared:
            return True
        if (kind, taskset) not in self._alone:
            self._alone.add((kind, taskset))
            self._recording.journal.event("alone", kind=kind, taskset=taskset)
        return self._recording.settings.alone is None

    def add(self, step: int, state: State, size: int) -> None:
        """Write a state of ``size`` bytes, or keep it. ``wants`` has looked for other processes before."""
        if self._recording.known_to_be_shared:
            self.flush(step)
            self._write(step, state, time.time())
        elif self._recording.settings.alone is None:
            with self._lock:
                self._kept.append((step, state, time.time(), size))
                self._states_of[step] += 1
                self._bytes += size
                self._limit()

    def flush(self, next_step: int | None = None) -> None:
        """Write the states that were kept, if another process has joined meanwhile; ``next_step`` has the next one."""
        if not self._alone or not self._recording.shared:
            return
        with self._lock:
            kept, self._kept, self._bytes = self._kept, deque(), 0
            self._states_of.clear()
            steps = [step for step, *_ in kept] + ([] if next_step is None else [next_step])
            if not steps:
                return
            self._alone.clear()
        # Readers know from this event that earlier steps of this process have no states, rather than nothing to add.
        gone = self._dropped if self._recording.settings.alone is None else 1
        self._recording.journal.event("shared", kind=self._kind, since=min(steps), dropped=gone)
        for step, state, at, _ in kept:
            self._write(step, state, at)

    def _limit(self) -> None:
        while len(self._kept) > 1 and (len(self._states_of) > MAX_KEPT_STEPS or self._bytes > MAX_KEPT_BYTES):
            step, _, _, size = self._kept.popleft()
            self._bytes -= size
            self._dropped += 1
            self._states_of[step] -= 1
            if not self._states_of[step]:
                del self._states_of[step]
