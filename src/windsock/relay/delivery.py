"""Carrying rows to one tracker until the run has ended and everything is delivered."""

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

from windsock.errors import TrackerError
from windsock.journal.folder import read_run_info, segments
from windsock.journal.follow import PIECE, RunFollower
from windsock.journal.reader import SegmentReader, events
from windsock.model import Row, Status, Writer
from windsock.redaction import REDACTED, Redactor
from windsock.relay.delivery_state import DeliveryState, Word, read_desk, write_desk
from windsock.relay.ranks import RankedFollower
from windsock.to_plain import to_plain
from windsock.trackers import registry
from windsock.trackers.protocol import Rewindable, Tracker

LOOK_SECONDS = 0.25
STATUS_SECONDS = 0.5
SAVE_SECONDS = 5.0  # between two writings of the desk while nothing happens
BATCH = 500  # rows handed over at once
FEW_FAILURES = 3  # after so many in a row, rows are tried one by one: one of them may be what the tracker cannot take
MANY_FAILURES = 6  # after so many, the tracker is failing and no longer only retrying
SLOW_SECONDS = 5.0  # a call that takes longer is told of
LONGEST_PAUSE = 60.0
GIVE_UP_SECONDS = 900.0  # after the end of the run

Ended = Callable[[], "Status | None"]


class Delivery:
    """Feeds one tracker from its cursor. ``carry`` returns when all is done, refused or given up.

    A tracker may raise and is asked again, later and later; it may hang, for which the caller watches ``busy_since``.
    Rows that it has are never offered again where it can be cut back to a mark; rows that it refuses while it takes
    others are passed over and counted. With ``once`` it returns when all that is there now is delivered; with ``only``
    it carries the rows of one writer; without ``keep`` it leaves no desk behind; with ``anew`` it begins at the first
    row.
    """

    def __init__(
        self,
        folder: Path,
        tracker: str,
        kwargs: Mapping[str, Any],
        ended: Ended,
        *,
        session: str = "",
        give_up: float = GIVE_UP_SECONDS,
        restarts: int = 0,
        once: bool = False,
        only: Writer | None = None,
        keep: bool = True,
        anew: bool = False,
        say: Callable[[DeliveryState], None] = lambda desk: None,
    ) -> None:
        self._folder = folder
        self._name = tracker
        self._kwargs = kwargs
        self._ended = ended
        self._give_up = give_up
        self._once = once
        self._say = say
        self._redactor = Redactor()
        self._redactor.redact(dict(kwargs))
        self._stop = threading.Event()
        self._failures = 0
        self._status_at = 0.0
        self._status: Status | None = None
        self._end_seen: float | None = None
        self._saved_at = 0.0
        self._rows: list[Row] = []
        self.busy_since: float | None = None
        self._save_lock = threading.Lock()
        self._only = only
        self._keep = keep
        found = (read_desk(folder, tracker) if keep else DeliveryState(tracker)).turned_to(_target(kwargs))
        if anew:
            found = DeliveryState(tracker, target=found.target, others=found.others)
        self._began_well = bool(session) and found.session == session and found.state not in ("starting", "refused")
        self.desk = found.said("starting", session=session, error="", restarts=restarts, lag=0)
        self._saved_mark = self.desk.mark
        self._saved_places = dict(self.desk.places)

    def stop(self) -> None:
        """End soon, wherever it is; the cursor stands where it stands."""
        self._stop.set()

    def tell_if_slow(self) -> None:
        """Show on the desk that the tracker has not answered for long; for the thread that watches this one."""
        with self._save_lock:
            busy = 0.0 if self.busy_since is None else time.monotonic() - self.busy_since
            if busy > SLOW_SECONDS and self.desk.state == "healthy" and self._keep:
                slow = self.desk.said("retrying", error=f"no answer for {busy:.0f} s", lag=len(self._rows))
                with suppress(OSError):
                    write_desk(self._folder, slow)

    def carry(self) -> DeliveryState:
        """Deliver until there is nothing left to deliver."""
        self._save("starting")
        try:
            tracker = self._started()
            if tracker is not None:
                self._deliver_all(tracker)
        except TrackerError as problem:
            self._save("refused", error=self._redactor.redact_text(str(problem)))
        except Exception as problem:  # noqa: BLE001 - the journal cannot be read, say: whoever watches starts anew
            self._save("failing", error=self._words(problem), errors=self.desk.errors + 1)
        return self.desk

    def _started(self) -> Tracker | None:
        """Make and start the tracker, as often as it takes; None where that was given up."""
        while not self._stop.is_set():
            tracker = registry.make(self._name, self._kwargs)
            try:
                self._call(tracker.start, read_run_info(self._folder), config_of(self._folder), self._folder)
                if isinstance(tracker, Rewindable):
                    self._call(tracker.rewind, self._saved_mark or {})
                    # What lies before the first row is known only now: a place may hold things that are not ours.
                    self._saved_mark = tracker.mark() or self._saved_mark
            except Exception as problem:
                if isinstance(problem, TrackerError) and not self._began_well:
                    raise
                if not self._failed(problem):
                    return None
                continue
            self._began_well = True
            self._recovered(tracker)
            return tracker
        return None

    def _deliver_all(self, tracker: Tracker) -> None:
        vocabulary = read_run_info(self._folder).vocabulary
        follower = RankedFollower(self._folder, self._saved_places, self._only, vocabulary)
        while not self._stop.is_set():
            end = self._run_end()
            self._rows += follower.new_rows()
            whole = end is not None and not follower.waits
            if not self._rows and whole:
                self._rows += follower.take_unfinished()
            if not self._rows:
                if whole and end is not None:
                    self._finish(tracker, follower, end)
                    return
                if self._once and not follower.waits:
                    self._mark_if_possible(tracker, follower)
                    return
                self._keep_desk()
                self._stop.wait(LOOK_SECONDS)
            elif not self._deliver(tracker, follower):
                return

    def _deliver(self, tracker: Tracker, follower: RunFollower) -> bool:
        """Hand over what waits; False where that was given up or stopped, and the cursor stays where it is."""
        while self._rows:
            try:
                if self._failures >= FEW_FAILURES:
                    self._one_by_one(tracker)
                else:
                    self._call(tracker.log, self._rows[:BATCH])
                    self._handed_over(tracker, len(self._rows[:BATCH]))
            except Exception as problem:  # noqa: BLE001 - a tracker may do anything
                if not self._failed(problem):
                    return False
            if self._rows and self._stop.is_set():
                return False
        self._mark_if_possible(tracker, follower)
        return True

    def _one_by_one(self, tracker: Tracker) -> None:
        """Hand over rows singly: one that fails before another that does not is what the tracker cannot take.

        Where a few in a row fail, or the last ones do, it may be the tracker and not the rows: they stay, and the
        trouble is passed on.
        """
        refused: list[tuple[Row, Exception]] = []
        for row in self._rows[:BATCH]:
            try:
                self._call(tracker.log, [row])
            except Exception as problem:
                refused.append((row, problem))
                if len(refused) in (FEW_FAILURES, len(self._rows)):
                    raise
                continue
            if refused:
                self._note_refused(refused)
            self._handed_over(tracker, len(refused) + 1, len(refused))
            refused.clear()

    def _handed_over(self, tracker: Tracker, count: int, refused: int = 0) -> None:
        del self._rows[:count]
        self._recovered(tracker, delivered=self.desk.delivered + count - refused)

    def _note_refused(self, refused: Sequence[tuple[Row, Exception]]) -> None:
        row, last = refused[-1]
        text = f"step {row.step}: {self._words(last)}"
        self.desk = self.desk.said(self.desk.state, dropped=self.desk.dropped + len(refused), error=text)

    def _finish(self, tracker: Tracker, follower: RunFollower, status: Status) -> None:
        while not self._stop.is_set():
            try:
                self._call(tracker.finish, status)
                self._mark(tracker, follower)
                self._save("done", lag=0)
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

    def _mark_if_possible(self, tracker: Tracker, follower: RunFollower) -> None:
        """Save how far we are; where what was handed over cannot be made safe, the cursor stays where it is."""
        try:
            self._mark(tracker, follower)
        except Exception as problem:  # noqa: BLE001 - a tracker may do anything
            self._save(self.desk.state, error=self._words(problem), errors=self.desk.errors + 1)

    def _mark(self, tracker: Tracker, follower: RunFollower) -> None:
        """Save how far we are, where what the tracker has is safe."""
        if isinstance(tracker, Rewindable):
            mark = tracker.mark()
            if mark is None:
                self._keep_desk()
                return
            self._saved_mark = mark
        self._saved_places = follower.places()
        self._save(self.desk.state, lag=len(self._rows), skipped=int(getattr(tracker, "skipped", 0)))

    def _recovered(self, tracker: Tracker, **changes: Any) -> None:
        was = self.desk.state
        self._failures = 0
        url = self._redactor.redact_text(str(getattr(tracker, "url", None) or ""))
        self.desk = self.desk.said("healthy", url=url, **changes)
        if was != "healthy":
            self._save("healthy")

    def _failed(self, problem: Exception) -> bool:
        """Note a failure and wait; False where the run ended too long ago to wait on."""
        self._failures += 1
        word: Word = "failing" if self._failures >= MANY_FAILURES else "retrying"
        self._save(word, error=self._words(problem), errors=self.desk.errors + 1, lag=len(self._rows))
        self._run_end()
        if self._end_seen is not None and time.monotonic() - self._end_seen > self._give_up:
            self._save("given up")
            return False
        pause = min(0.25 * 2**self._failures, LONGEST_PAUSE)
        self._stop.wait(pause * random.uniform(0.5, 1.0))
        return not self._stop.is_set()

    def _run_end(self) -> Status | None:
        """Return how the run ended; None while it goes on, or goes on again.

        Asking costs a little, so it is not done all the time.
        """
        now = time.monotonic()
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self._status = self._ended()
            self._end_seen = (self._end_seen or now) if self._status is not None else None
        return self._status

    def _words(self, problem: Exception) -> str:
        return self._redactor.redact_text(f"{type(problem).__name__}: {problem}")

    def _keep_desk(self) -> None:
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._save(self.desk.state, lag=0)

    def _save(self, state: Word, **changes: Any) -> None:
        self.desk = self.desk.said(state, places=self._saved_places, mark=self._saved_mark, **changes)
        self._saved_at = time.monotonic()
        try:
            with self._save_lock:
                if self._keep:
                    write_desk(self._folder, self.desk)
        except OSError as problem:  # the disk is full or gone: delivery goes on, and may be done again
            self.desk = self.desk.said(state, error=f"cannot save the cursor: {problem.strerror}")
        self._say(self.desk)


def _target(kwargs: Mapping[str, Any]) -> str:
    """Return a hash of what a tracker is told, keys aside: with other arguments it is another place."""
    plain_kwargs = Redactor().redact(to_plain(dict(kwargs)))
    return blake2b(json.dumps(plain_kwargs, sort_keys=True).encode(), digest_size=8).hexdigest()


def config_of(folder: Path) -> dict[str, Any]:
    """Return the run's config as its writers recorded it, secrets blank."""
    return _recorded(folder, "config")


def recorded_trackers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the trackers that the run was configured with and what they take; keys are not among that."""
    found = _recorded(folder, "trackers")
    return {
        name: {key: value for key, value in kwargs.items() if value != REDACTED}
        for name, kwargs in found.items()
        if isinstance(kwargs, dict)
    }


def where_it_ran(folder: Path) -> AbstractContextManager[None]:
    """Go to the directory of the training, from which the paths of its trackers are meant, where that is here."""
    place = _recorded(folder, "environment").get("directory")
    return chdir(place) if place and Path(place).is_dir() else nullcontext()


def _recorded(folder: Path, what: str) -> dict[str, Any]:
    """Return what the writers said under a name, united; of what they say several times the newest counts."""
    found: list[dict[str, Any]] = []
    for segment in segments(folder):
        reader = SegmentReader(segment.path)
        while reader.poll(PIECE):
            found += (event for event in events(reader.records) if event.get("event") == what)
            reader.forget()
    united: dict[str, Any] = {}
    for event in sorted(found, key=lambda event: float(event.get("time", 0.0))):
        if isinstance(event.get(what), dict):
            united |= event[what]
    return united
