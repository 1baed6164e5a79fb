"""Delivering rows to one tracker, until the run has ended and the tracker has everything."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from barograph.base.errors import TrackerError
from barograph.base.formatting import to_plain
from barograph.base.model import Row, Status, Writer
from barograph.base.redaction import REDACTED, Redactor
from barograph.delivery.processes import restart_pause
from barograph.delivery.relay.merged_rows import MergedFollower
from barograph.delivery.relay.state import DeliveryState, State, read_delivery_state, write_delivery_state
from barograph.delivery.trackers import registry
from barograph.journal.format.folder import read_run_info, segments
from barograph.journal.read.segment_follower import PIECE, START
from barograph.journal.segments.reader import SegmentReader, events
from barograph.recording.tracker import Rewindable, Tracker

LOOK_SECONDS = 0.25
STATUS_SECONDS = 0.5
SAVE_SECONDS = 5.0  # between two writes of the delivery state while nothing happens
BATCH_ROWS = 500  # rows in one call of the tracker
FAILURES_TO_SPLIT = 3  # in a row: then rows are delivered one by one, since one of them may be the cause
FAILURES_TO_FAIL = 6  # in a row: then the state is "failing" and not only "retrying"
SLOW_SECONDS = 5.0  # a call that takes longer is shown in the state
MAX_PAUSE = 60.0
GIVE_UP_SECONDS = 900.0  # after the end of the run

RunEnd = Callable[[], "Status | None"]


class Delivery:
    """Delivers rows to one tracker from its cursor. ``deliver`` returns when all is done, refused or given up.

    A tracker that raises is called again, after longer and longer pauses. It may hang, for which the caller watches
    ``busy_since``. Rows that it has are not delivered again if it can be rewound to a mark; rows that it rejects while
    it takes others are skipped and counted.

    ``run_end`` returns how the run ended, or None. With ``once``, ``deliver`` returns when everything that is there is
    delivered; with ``only``, the rows of one writer are delivered; without ``keep``, no delivery state is written; with
    ``from_start``, an earlier cursor is ignored.
    """

    def __init__(
        self,
        folder: Path,
        tracker: str,
        kwargs: Mapping[str, Any],
        run_end: RunEnd,
        *,
        session: str = "",
        give_up: float = GIVE_UP_SECONDS,
        restarts: int = 0,
        once: bool = False,
        only: Writer | None = None,
        keep: bool = True,
        from_start: bool = False,
        on_change: Callable[[DeliveryState], None] = lambda state: None,
    ) -> None:
        self._folder = folder
        self._name = tracker
        self._kwargs = kwargs
        self._get_run_end = run_end
        self._give_up = give_up
        self._once = once
        self._on_change = on_change
        self._redactor = Redactor()
        self._redactor.redact(dict(kwargs))  # learns the secrets, which the text of an exception may repeat
        self._stop = threading.Event()
        self._failures = 0
        self._status_at = 0.0
        self._status: Status | None = None
        self._end_seen: float | None = None
        self._saved_at = 0.0
        self._rows: list[Row] = []
        self._follower: MergedFollower | None = None
        self.busy_since: float | None = None
        self._save_lock = threading.Lock()
        self._only = only
        self._keep = keep
        found = read_delivery_state(folder, tracker) if keep else DeliveryState(tracker)
        found = found.for_target(_target(kwargs))
        if from_start:
            found = DeliveryState(tracker, target=found.target, others=found.others)
        self._has_started = bool(session) and found.session == session and found.state not in ("starting", "refused")
        self.state = found.with_state("starting", session=session, error="", restarts=restarts, lag=0, lag_bytes=0)
        self._saved_mark = self.state.mark
        self._saved_cursors = dict(self.state.places)

    def stop(self) -> None:
        """Return from ``deliver`` soon; the cursor stays where it is."""
        self._stop.set()

    def report_if_slow(self) -> None:
        """Show in the delivery state that the tracker has not returned for long; called from a watching thread."""
        with self._save_lock:
            busy = 0.0 if self.busy_since is None else time.monotonic() - self.busy_since
            if busy > SLOW_SECONDS and self.state.state == "healthy" and self._keep:
                # Written but not set: the delivering thread goes on from its own state when the tracker returns.
                slow = self.state.with_state("retrying", error=f"no answer for {busy:.0f} s", **self._lag())
                with suppress(OSError):
                    write_delivery_state(self._folder, slow)

    def deliver(self) -> DeliveryState:
        """Deliver until there is nothing left to deliver."""
        self._save("starting")
        try:
            tracker = self._started()
            if tracker is not None:
                self._deliver_all(tracker)
        except TrackerError as problem:
            self._save("refused", error=self._redactor.redact_text(str(problem)))
        except Exception as problem:  # noqa: BLE001 - the journal cannot be read, say: the supervisor starts again
            self._save("failing", error=self._describe(problem), errors=self.state.errors + 1)
        return self.state

    def _started(self) -> Tracker | None:
        """Create and start the tracker, as often as it takes; return None if that was given up."""
        while not self._stop.is_set():
            # A tracker whose start failed may be half open, so every try has a new one.
            tracker = registry.make(self._name, self._kwargs)
            try:
                self._call(tracker.start, read_run_info(self._folder), recorded_config(self._folder), self._folder)
                if isinstance(tracker, Rewindable):
                    self._call(tracker.rewind, self._saved_mark or {})
                    # The tracker may contain other data: only now is it known where our first row begins.
                    self._saved_mark = tracker.mark() or self._saved_mark
            except Exception as problem:
                # At the first start this is a wrong configuration, which init raises. After that the arguments
                # have worked, so the tracker is tried again.
                if isinstance(problem, TrackerError) and not self._has_started:
                    raise
                if not self._failed(problem):
                    return None
                continue
            self._has_started = True
            self._recovered(tracker)
            return tracker
        return None

    def _deliver_all(self, tracker: Tracker) -> None:
        vocabulary = read_run_info(self._folder).vocabulary
        follower = MergedFollower(self._folder, self._saved_cursors, self._only, vocabulary=vocabulary)
        self._follower = follower
        while not self._stop.is_set():
            # The end is looked at before the rows are read: what was written before the end is then among them.
            end = self._run_end()
            self._rows += follower.new_rows()
            is_complete = end is not None and not follower.waits
            if not self._rows and is_complete:
                self._rows += follower.take_unfinished()
            if not self._rows:
                if is_complete and end is not None:
                    self._finish(tracker, follower, end)
                    return
                if self._once and not follower.waits:
                    self._mark_if_possible(tracker, follower)
                    return
                self._save_sometimes()
                self._stop.wait(LOOK_SECONDS)
            elif not self._deliver(tracker, follower):
                return

    def _deliver(self, tracker: Tracker, follower: MergedFollower) -> bool:
        """Deliver the rows that were read; return False if that was given up or stopped: the cursor stays."""
        if len(self._rows) > BATCH_ROWS:
            self._save_sometimes()
        while self._rows:
            try:
                if self._failures >= FAILURES_TO_SPLIT:
                    self._deliver_one_by_one(tracker)
                else:
                    self._call(tracker.log, self._rows[:BATCH_ROWS])
                    self._count_delivered(tracker, len(self._rows[:BATCH_ROWS]))
            except Exception as problem:  # noqa: BLE001 - a tracker may do anything
                if not self._failed(problem):
                    return False
            if self._rows and self._stop.is_set():
                return False
        # The cursor of the follower is after all rows that were read, so it may be saved only when all are delivered.
        self._mark_if_possible(tracker, follower)
        return True

    def _deliver_one_by_one(self, tracker: Tracker) -> None:
        """Deliver single rows, and skip one that fails if a later one is accepted.

        If several in a row fail, or the last ones do, the cause may be the tracker: they are kept, and the exception
        is raised.
        """
        rejected: list[tuple[Row, Exception]] = []
        for row in self._rows[:BATCH_ROWS]:
            try:
                self._call(tracker.log, [row])
            except Exception as problem:
                rejected.append((row, problem))
                if len(rejected) in (FAILURES_TO_SPLIT, len(self._rows)):
                    raise
                continue
            if rejected:
                self._count_rejected(rejected)
            self._count_delivered(tracker, len(rejected) + 1, len(rejected))
            rejected.clear()

    def _count_delivered(self, tracker: Tracker, count: int, rejected: int = 0) -> None:
        # Rows that were rejected on the way are counted as passed, but not as delivered.
        del self._rows[:count]
        self._recovered(tracker, delivered=self.state.delivered + count - rejected)

    def _count_rejected(self, rejected: Sequence[tuple[Row, Exception]]) -> None:
        row, last = rejected[-1]
        text = f"step {row.step}: {self._describe(last)}"
        self.state = self.state.with_state(self.state.state, dropped=self.state.dropped + len(rejected), error=text)

    def _finish(self, tracker: Tracker, follower: MergedFollower, status: Status) -> None:
        while not self._stop.is_set():
            try:
                self._call(tracker.finish, status)
                self._mark(tracker, follower)
                self._save("done", lag=0, lag_bytes=0)
                return
            except Exception as problem:  # noqa: BLE001 - a tracker may do anything
                if not self._failed(problem):
                    return

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        self.busy_since = time.monotonic()
        try:
            call(*arguments)
        finally:
            self.busy_since = None

    def _mark_if_possible(self, tracker: Tracker, follower: MergedFollower) -> None:
        """Save the cursor, unless the tracker fails to make its rows safe."""
        try:
            self._mark(tracker, follower)
        except Exception as problem:  # noqa: BLE001 - a tracker may do anything
            self._save(self.state.state, error=self._describe(problem), errors=self.state.errors + 1)

    def _mark(self, tracker: Tracker, follower: MergedFollower) -> None:
        """Save the cursor, if the rows that the tracker has are safe."""
        if isinstance(tracker, Rewindable):
            mark = tracker.mark()
            # The rows are not safe yet. The cursor stays before them, so that they are delivered again after a crash.
            if mark is None:
                self._save_sometimes()
                return
            self._saved_mark = mark
        self._saved_cursors = follower.cursors()
        self._save(self.state.state, skipped=int(getattr(tracker, "skipped", 0)))

    def _recovered(self, tracker: Tracker, **changes: Any) -> None:
        was = self.state.state
        self._failures = 0
        url = self._redactor.redact_text(str(getattr(tracker, "url", None) or ""))
        self.state = self.state.with_state("healthy", url=url, **changes)
        if was != "healthy":
            self._save("healthy")

    def _failed(self, problem: Exception) -> bool:
        """Count a failure and wait; return False if the run ended too long ago to try again."""
        self._failures += 1
        state: State = "failing" if self._failures >= FAILURES_TO_FAIL else "retrying"
        self._save(state, error=self._describe(problem), errors=self.state.errors + 1)
        self._run_end()
        if self._end_seen is not None and time.monotonic() - self._end_seen > self._give_up:
            self._save("given up")
            return False
        # Random pauses, so that the runs of a cluster do not all call a server at the moment it is back.
        self._stop.wait(restart_pause(self._failures, 0.25, MAX_PAUSE) * random.uniform(0.5, 1.0))
        return not self._stop.is_set()

    def _run_end(self) -> Status | None:
        """Return how the run ended; None while it goes on, or goes on again.

        Finding out reads files, so the answer is kept for a moment.
        """
        now = time.monotonic()
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self._status = self._get_run_end()
            self._end_seen = (self._end_seen or now) if self._status is not None else None
        return self._status

    def _describe(self, problem: Exception) -> str:
        return self._redactor.redact_text(f"{type(problem).__name__}: {problem}")

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._save(self.state.state)

    def _lag(self) -> dict[str, int]:
        """Return what is not delivered yet: rows that were read, and bytes that were not."""
        try:
            follower = self._follower
            if follower is not None:
                return {"lag": len(self._rows) + follower.waiting_rows, "lag_bytes": follower.unread_bytes()}
            followed = [segment.path for segment in segments(self._folder) if self._only in (None, segment.writer)]
            done = [self._saved_cursors.get(path.name, START).done for path in followed]
            return {"lag_bytes": sum(max(0, p.stat().st_size - d) for p, d in zip(followed, done, strict=True))}
        except OSError:  # the files were removed, or cannot be read now
            return {}

    def _save(self, state: State, **changes: Any) -> None:
        changes = {"places": self._saved_cursors, "mark": self._saved_mark, **self._lag(), **changes}
        self.state = self.state.with_state(state, **changes)
        self._saved_at = time.monotonic()
        try:
            with self._save_lock:
                if self._keep:
                    write_delivery_state(self._folder, self.state)
        except OSError as problem:  # the disk is full: delivery goes on, and rows may be delivered again later
            self.state = self.state.with_state(state, error=f"cannot save the cursor: {problem.strerror}")
        self._on_change(self.state)


def _target(kwargs: Mapping[str, Any]) -> str:
    """Return a hash of a tracker's arguments without secrets: with other arguments it is another target."""
    # Without secrets: a new API key must not deliver everything once more.
    plain_kwargs = Redactor().redact(to_plain(dict(kwargs)))
    return blake2b(json.dumps(plain_kwargs, sort_keys=True).encode(), digest_size=8).hexdigest()


def recorded_config(folder: Path) -> dict[str, Any]:
    """Return the run's config as its writers recorded it, without secrets."""
    return _recorded(folder, "config")


def recorded_trackers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the trackers that the run was configured with, and their arguments without secrets."""
    found = _recorded(folder, "trackers")
    return {
        name: {key: value for key, value in kwargs.items() if value != REDACTED}
        for name, kwargs in found.items()
        if isinstance(kwargs, dict)
    }


def training_directory(folder: Path) -> AbstractContextManager[None]:
    """Change to the working directory of the training, which its trackers' paths are relative to, if it exists."""
    directory = _recorded(folder, "environment").get("directory")
    return chdir(directory) if directory and Path(directory).is_dir() else nullcontext()


def _recorded(folder: Path, what: str) -> dict[str, Any]:
    """Return the united contents of the events of one name; the newest value of a key counts."""
    found: list[dict[str, Any]] = []
    for segment in segments(folder):
        reader = SegmentReader(segment.path)
        # Piece by piece: the rows on the way to the events may not fit into memory.
        while reader.poll(PIECE):
            found += (event for event in events(reader.records) if event.get("event") == what)
            reader.forget()
    united: dict[str, Any] = {}
    for event in sorted(found, key=lambda event: float(event.get("time", 0.0))):
        if isinstance(event.get(what), dict):
            united |= event[what]
    return united
