"""A run in a Ray cluster without a shared disk: each node has an actor that sends its spool to the run's folder.

The processes of the training call Ray only when they join, with a time limit; from then on they write files of
their node, and read from one how far the sending is. The actor also writes the end of processes of its node that
were killed: readers on other machines would wait for an hour.
"""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import ray

from barograph.base.formatting import size
from barograph.base.model import Writer
from barograph.base.process.identity import node_id
from barograph.delivery.processes import restart_pause
from barograph.delivery.ray.destination import RayDestination, RayRun, actor_on, end_this_actor, ray_errors
from barograph.delivery.ray.nodes import SendingNode, how_to_get
from barograph.delivery.transfer.claiming import Claim
from barograph.delivery.transfer.destination import DestinationError, ServerRun
from barograph.delivery.transfer.sending import SEND_SECONDS, Sending, ServerClient
from barograph.delivery.transfer.state import read_progress, unsent_bytes
from barograph.journal.format import frames
from barograph.journal.format.folder import SegmentFile, closing_fd, folder_name, segment_path, segments
from barograph.journal.read.status import KILLED, first_events, segment_end, start_event
from barograph.journal.write.segment import SEGMENT_FLAGS

IDENTITY = ("host", "machine", "pid", "born", "actor")


def note_lost_writers(folder: Path, segments: Iterable[SegmentFile]) -> None:
    """Write the end of each process of this machine that has not written it itself, as a further segment of it.

    ``segments`` are in the order of writers and indexes.
    """
    for writer, of_writer in groupby(segments, key=lambda segment: segment.writer):
        first, *later = of_writer
        if first.index == 0 and segment_end(first.path) == "lost" and not _is_noted([first, *later][-1].path):
            index = max(segment.index for segment in (first, *later)) + 1
            _write_end(segment_path(folder, writer, index), first.path)


def _is_noted(path: Path) -> bool:
    return any(event.get("event") == "finish" and event.get("lost") for event in first_events(path))


def _write_end(path: Path, of: Path) -> None:
    start = start_event(of) or {}
    known = {name: start[name] for name in IDENTITY if name in start}
    events = (
        {"event": "start", "time": time.time(), **known},
        {"event": "finish", "time": time.time(), "status": KILLED.word, "reason": KILLED.reason, "lost": True},
    )
    payloads = (frames.record_payload(frames.Kind.EVENT, event) for event in events)
    with closing_fd(os.open(path, SEGMENT_FLAGS, 0o644)) as fd:
        os.write(fd, frames.segment_head() + b"".join(map(frames.frame, payloads)))


JOIN_SECONDS = 30.0  # to start two actors and to claim a rank

STAY_SECONDS = 60.0  # that an actor without work waits for processes which were about to join

SILENT_SECONDS = 60.0  # without progress while bytes are left, until the actor is looked for


class SendingActor:
    """The actor of a node: it sends a spool until its writers have ended and everything is sent."""

    def __init__(self, run: RayRun, spool: Path) -> None:
        self._spool = spool
        self._name = sender_name(run, spool)
        self._target = RayDestination(run)
        self._sending = Sending(spool, spooled_run(run), self._target)
        self._address = run.address
        self._turn_lock, self._end_lock = threading.Lock(), threading.Lock()
        self._stay_until = time.monotonic() + STAY_SECONDS
        self._is_registered = self._has_ended = False
        threading.Thread(target=self._work, daemon=True, name="barograph sending").start()

    def stay(self) -> bool:
        """Wait for a process that is about to record; return False if this actor has ended its work already."""
        with self._end_lock:
            self._stay_until = time.monotonic() + STAY_SECONDS
            return not self._has_ended

    def send_now(self) -> str:
        """Send what is recorded up to now; return what kept it from being sent."""
        self._turn()
        return read_progress(self._spool).error

    def _turn(self) -> float | None:
        with self._turn_lock:
            with suppress(DestinationError):  # the turn fails for the same reason, and tells it
                if not self._is_registered:
                    self._target.register(SendingNode(self._name, platform.node(), str(self._spool)))
                    self._is_registered = True
            with suppress(OSError):  # a full disk: it is tried again
                note_lost_writers(self._spool, segments(self._spool))
            return self._sending.turn()

    def _work(self) -> None:
        while True:
            pause = self._turn()
            if pause is None and self._end():
                break
            if self._sending.is_hopeless():
                break
            time.sleep(SEND_SECONDS if pause is None else pause)
        end_this_actor()

    def _end(self) -> bool:
        """Remove the spool if everything in it was sent; return False if processes are about to join."""
        with self._end_lock:
            if time.monotonic() < self._stay_until:
                return False
            self._has_ended = True
        if not unsent_bytes(self._spool, self._address):
            shutil.rmtree(self._spool, ignore_errors=True)
            with suppress(DestinationError):  # the driver then tells that bytes may be left here
                self._target.unregister(self._name)
        return True


def sender_name(run: RayRun, spool: Path) -> str:
    """Return the name of the actor that sends a spool of this node."""
    return run.actor_name("send", node_id() or "", str(spool))


def spooled_run(run: RayRun) -> ServerRun:
    """Return the run as the sending of a spool takes it."""
    return ServerRun(run.address, folder_name(run.folder.parent.name), run.folder.name, None, is_spooled=True)


def sending_actor(run: RayRun, spool: Path) -> Any:
    """Return the actor that sends a spool of this node; it is created if there is none."""
    node = node_id()
    if node is None:
        raise RuntimeError("this process is not in a Ray cluster any more")
    return actor_on(node, sender_name(run, spool), SendingActor, run, spool)


def claim_over_ray(run: RayRun, spool: Path, role: str, wanted: int | None, is_fixed: bool) -> Claim:
    """Claim a rank in the folder of a run, and start the sending; raise DestinationError if that cannot be in time.

    Ray is called from this thread: while it unpickles the arguments of a task, it makes other threads wait.
    """
    until = time.monotonic() + JOIN_SECONDS
    with ray_errors():
        promise = sending_actor(run, spool).stay.remote()
    claim = RayDestination(run, JOIN_SECONDS).claim(role, wanted, is_fixed)
    # An actor that is about to remove the spool has to be asked before a file is created in it.
    with suppress(DestinationError), ray_errors():
        ray.get(promise, timeout=max(until - time.monotonic(), 0.0))
    return claim


class RayClient(ServerClient):
    """The sending of a node as a process of the training sees it. Its calls of Ray are in a thread of their own."""

    def __init__(self, spool: Path, run: RayRun, warn: Callable[[str], None], writer: Writer) -> None:
        super().__init__(spool, spooled_run(run), warn, writer)
        self._ray_run = run
        self._thread: threading.Thread | None = None
        self._sent: object = None
        self._changed = time.monotonic()

    def start(self) -> None:
        """Look for the actor, or create it, until it promises to stay."""
        self._thread = threading.Thread(target=self._find_actor, daemon=True, name="barograph ray")
        self._thread.start()

    def _find_actor(self) -> None:
        for attempt in range(10):
            with suppress(Exception):  # whatever Ray raises: it is tried again, and the bytes wait
                if ray.get(sending_actor(self._ray_run, self._folder).stay.remote(), timeout=JOIN_SECONDS):
                    return
            time.sleep(restart_pause(attempt, 1.0, SILENT_SECONDS))

    def maintain(self) -> None:
        """Look for the actor again if it makes no progress, and warn of what keeps it from sending."""
        progress, now = read_progress(self._folder), time.monotonic()
        if progress.sent != self._sent or not self.left():
            self._sent, self._changed = progress.sent, now
        if now - self._changed > SILENT_SECONDS and self._thread is not None and not self._thread.is_alive():
            self._changed = now
            self.start()
        if progress.error:
            self._warn(f"the run is not sent at the moment: {progress.error}; the training goes on")

    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""
        way = how_to_get(SendingNode("", platform.node(), str(self._folder)), self._ray_run.folder)
        return f"{size(left)} of the run are not sent yet{self._why()}; {way}"

    def after_fork_in_child(self) -> None:
        """Forget the thread, which is the parent's."""
        self._thread = None
