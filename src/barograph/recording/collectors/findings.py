"""What the doctor says while a run goes on, and requests to stop it, as the training process takes notice of them.

The doctor is another process. It leaves its findings in the run's directory, where a thread looks for them; a commit
writes them to the journal and tells the user. A request to stop may come from others too: without a doctor the thread
begins to look when ``run.should_stop`` is first read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from barograph.base.files.mounts import is_remote
from barograph.base.model import MAIN_ROLE
from barograph.journal import findings
from barograph.journal.findings import TEXT_NAME, Change, StopRequest
from barograph.journal.format.frames import Kind
from barograph.recording.context import Collector, Recording

LOOK_SECONDS = 0.2
REMOTE_LOOK_SECONDS = 5.0  # thousands of ranks may look at one network file system
LAST_LOOK_SECONDS = 2.0  # at the end of the run, for the doctor to look at the last steps
COMMIT_SECONDS = 5.0  # without a commit, after which findings are written all the same


class LiveFindings(Collector):
    """Findings that a commit writes and tells, and the request to stop."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._folder = recording.path
        self._is_main = recording.settings.rank == 0 and recording.settings.role == MAIN_ROLE
        self._taken = findings.read_taken(self._folder) if self._is_main else 0
        self._since = time.time() - (time.perf_counter() - recording.began)
        self._waiting: list[Change] = []
        self._waiting_since = 0.0
        self._looked_at = 0  # step of the doctor's last look
        self._seen = (0, 0)
        self._stop: StopRequest | None = None
        self._pause = REMOTE_LOOK_SECONDS if is_remote(self._folder) else LOOK_SECONDS
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_again, name="barograph-findings", daemon=True)
        self._thread.start()

    def should_stop(self, step: int | None) -> bool:
        """Return whether the training should end now, after a step."""
        stop = self._stop
        return stop is not None and step is not None and step >= stop.step

    def commit(self, step: int) -> None:
        """Write what was found since the last commit, and tell the user."""
        if self._waiting:
            self._write(step)

    def finish(self) -> None:
        """Wait a moment for the doctor's look at the last steps, and write what it found."""
        last = self._recording.step
        until = time.monotonic() + (LAST_LOOK_SECONDS if self._is_main and self._looked_at else 0.0)
        while last is not None and self._looked_at < last and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 4)
            self._look()
        self._ended.set()
        if self._waiting:
            self._write(last)

    def after_fork(self) -> None:
        """Leave the findings to the parent."""
        self._is_main = False
        self._waiting = []
        self._lock = threading.RLock()

    def _look_again(self) -> None:
        while not self._ended.wait(self._pause):
            self._recording.problems.attempt("findings of the doctor", self._look)
            # A loop that names its steps in ``log`` makes no commit.
            if self._waiting and time.monotonic() - self._waiting_since > COMMIT_SECONDS:
                self._recording.problems.attempt("findings of the doctor", self._write, None)

    def _look(self) -> None:
        with self._lock:
            seen = findings.told_at(self._folder), findings.stop_at(self._folder)
            if seen == self._seen:
                return
            if self._is_main:
                self._take_notice()
            found = findings.read_stop(self._folder)
            if found is not None and found.time >= self._since:  # an older one was for an earlier start
                self._stop = found
                self._recording.problems.warn(f"the training is asked to stop after step {found.step}: {found.reason}")
            self._seen = seen

    def _take_notice(self) -> None:
        told = findings.read_told(self._folder)
        self._looked_at = told.step or 0
        known = max(self._taken, self._waiting[-1].number if self._waiting else 0)
        new = [change for change in told.changes if change.number > known]
        if new and not self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting = [*self._waiting, *new]

    def _write(self, step: int | None) -> None:
        with self._lock:
            changes, self._waiting = self._waiting, []
            if changes:
                self._taken = changes[-1].number
                findings.write_taken(self._folder, self._taken)
        if changes:
            self._tell(changes, changes[-1].step if step is None else step)

    def _tell(self, changes: Sequence[Change], step: int) -> None:
        recording, now = self._recording, time.time()
        for change in changes:
            record = change.record()
            recording.journal.event("finding", **{**record, "time": now, "found": record["time"]})
        # One text: a step has one of each name.
        text = "\n".join(change.text for change in changes)
        recording.journal.record(Kind.TEXT, {"name": TEXT_NAME, "step": step, "time": now, "text": text})
        for change in changes:
            recording.problems.warn(f"{change.text} (barograph doctor {recording.info.id})")
            if recording.settings.on_finding is not None:
                recording.problems.attempt("on_finding", recording.settings.on_finding, change.finding)
