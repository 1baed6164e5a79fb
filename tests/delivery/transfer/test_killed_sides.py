"""Both sides of a transfer are killed at random moments: the bytes are equal in the end, and no step is lost.

``benchmarks/ingest.py rounds`` is the long form, over cut and slowed links.
"""

import mmap
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import odd_server
import pytest
from odd_server import until

import barograph
from barograph.base.model import RunInfo, Writer
from barograph.base.process.identity import process_identity
from barograph.delivery.transfer import sending
from barograph.delivery.transfer.destination import ServerRun
from barograph.journal.format.folder import segments, write_run_info
from barograph.journal.write.writer import JournalWriter

ROUNDS = 10
MAX_SECONDS = 0.4  # of a round
NODES = 2
forked = multiprocessing.get_context("fork")


def log_until_killed(folder: Path, rank: int, acknowledged: mmap.mmap) -> None:
    """Log steps after the last acknowledged one, a row for each."""
    attempt = max((s.writer.attempt for s in segments(folder) if s.writer.rank == rank), default=0) + 1
    journal = JournalWriter(folder, Writer("trainer", rank, attempt))
    journal.event("start", world_size=NODES, **process_identity())
    (step,) = struct.unpack_from("q", acknowledged, 8 * rank)
    while True:
        step += 1
        journal.row(("a", f"b{step % 7}"), (step / 7, float(rank)), step)
        struct.pack_into("q", acknowledged, 8 * rank, step)
        time.sleep(0.001)


def send_until_killed(folder: Path, run: ServerRun) -> None:
    sending.SEND_SECONDS = sending.FETCH_SECONDS = 0.01
    os._exit(sending.send_until_ended(folder, run))


class Cluster:
    """Two nodes that record and send, and a server."""

    def __init__(self, dir: Path) -> None:
        self.served = dir / "served"
        self.folders = [dir / f"node{rank}" / "p" / "run1" for rank in range(NODES)]
        self.acknowledged = mmap.mmap(-1, 8 * NODES)
        for folder in self.folders:
            write_run_info(folder, RunInfo("run1", "p", "first", 1.0))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        run = ServerRun(f"http://127.0.0.1:{self.port}", "p", "run1", None)
        self._start: dict[str, Callable[[], Any]] = {"server": self._serve}
        for rank, folder in enumerate(self.folders):
            self._start[f"log {rank}"] = self._forking(log_until_killed, folder, rank, self.acknowledged)
            self._start[f"send {rank}"] = self._forking(send_until_killed, folder, run)
        self.running: dict[str, Any] = {}

    def _serve(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, odd_server.__file__, str(self.served), str(self.port)])

    def _forking(self, target: Callable[..., None], *args: Any) -> Callable[[], Any]:
        def start() -> Any:
            process = forked.Process(target=target, args=args, daemon=True)
            process.start()
            return process

        return start

    def start(self, *names: str) -> None:
        """Start what does not run, of these or of everything; a sender exits when it has sent all of ended writers."""
        for name in names or self._start:
            if name not in self.running or _has_exited(self.running[name]):
                self.running[name] = self._start[name]()

    def kill(self, *names: str) -> None:
        """Kill processes, and wait for their end."""
        for process in [self.running.pop(name) for name in names or list(self.running)]:
            process.kill()
            process.wait() if isinstance(process, subprocess.Popen) else process.join()

    def contents(self, folder: Path) -> dict[str, bytes]:
        return {segment.path.name: segment.path.read_bytes() for segment in segments(folder)}

    def is_equal(self) -> bool:
        """Return whether the server and the first node have all that the nodes have recorded."""
        own = {name: data for f in self.folders for name, data in self.contents(f).items()}
        return self.contents(self.served / "p" / "run1") == own == self.contents(self.folders[0])


def _has_exited(process: Any) -> bool:
    return process.poll() is not None if isinstance(process, subprocess.Popen) else not process.is_alive()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.kill()


def test_bytes_are_equal_after_kills_of_both_sides(cluster: Cluster):
    """Ten rounds in which loggers, senders and the server are killed with SIGKILL at random."""
    chosen = random.Random(25)
    for _ in range(ROUNDS):
        cluster.start()
        time.sleep(chosen.uniform(0.02, MAX_SECONDS))
        cluster.kill(*chosen.sample(sorted(cluster.running), chosen.randrange(1, len(cluster.running) + 1)))
    cluster.kill(*(name for name in list(cluster.running) if name.startswith("log")))

    def is_settled() -> bool:
        cluster.start("server", *(f"send {rank}" for rank in range(NODES)))
        return cluster.is_equal()

    until(is_settled)
    view = barograph.open(cluster.served / "p" / "run1")
    for rank in range(NODES):
        (last,) = struct.unpack_from("q", cluster.acknowledged, 8 * rank)
        steps = view.series("a", rank=rank).steps.tolist()
        assert steps in (list(range(1, last + 1)), list(range(1, last + 2)))  # the last may not be acknowledged
    assert last > ROUNDS
