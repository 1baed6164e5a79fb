"""Many writers that send 50 values a second each into one server, over connections of their own.

A writer has a row of 50 values due each second. What is due is sent in one request, as a process that sends a run does,
so that a server that is too slow gets fewer and larger requests. The lag is the time from when a row was due until it
was acknowledged.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ingest_parts.servers import SERVERS, TargetServer, Writer

THREADS = 32
VALUES = 50
WARM_SHARE = 0.25  # of the time at the start that is not counted: writers connect and runs are created
LOOK_SECONDS = 1.0


@dataclass
class Tally:
    """What the writers have done after the start."""

    rows: int = 0
    requests: int = 0
    failures: int = 0
    error: str = ""
    lags: list[float] = field(default_factory=list)


def write(writers: list[tuple[float, Writer]], began: float, warm: float, until: float, tally: Tally) -> None:
    """Send what is due of each writer in turn; each has its own moment within the second."""
    sent = [0] * len(writers)
    for turn in itertools.count():
        for place, (phase, writer) in enumerate(writers):
            due_at = began + turn + phase
            time.sleep(max(due_at - time.monotonic(), 0.0))
            now = time.monotonic()
            if now > until:
                return
            rows = int(now - began - phase) + 1 - sent[place]
            if rows <= 0:
                continue
            try:
                writer.send(list(range(sent[place], sent[place] + rows)))
            except Exception as error:  # noqa: BLE001 - of any server; it is tried again in the next turn
                tally.failures += 1
                tally.error = f"{type(error).__name__}: {error}"[:200]
                continue
            oldest, sent[place] = began + phase + sent[place], sent[place] + rows
            if now > warm:
                tally.rows += rows
                tally.requests += 1
                tally.lags.append(time.monotonic() - oldest)


def look(server: TargetServer, until: float, looks: list[float], memory: list[int]) -> None:
    """Ask for the page now and then; note the seconds of each answer, and the memory of the server."""
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        began = time.monotonic()
        try:
            server.look()
            looks.append(time.monotonic() - began)
        except Exception:  # noqa: BLE001 - an answer that takes too long is one
            looks.append(float("inf"))
        memory.append(sum(process.memory_info().rss for process in processes_of(server)))


def processes_of(server: TargetServer) -> list[psutil.Process]:
    """Return the processes of a server."""
    parent = psutil.Process(server.process.pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(server: TargetServer) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes_of(server))


def at(numbers: list[float], share: float) -> float:
    return sorted(numbers)[min(int(len(numbers) * share), len(numbers) - 1)] if numbers else float("nan")


def run(name: str, count: int, seconds: float, dir: Path) -> int:
    """Let so many writers write for some seconds, and print what was sustained; return the exit code."""
    server = SERVERS[name](dir)
    try:
        writers = [server.writer(number) for number in range(count)]
        tallies = [Tally() for _ in range(min(THREADS, count))]
        began = time.monotonic() + 0.5
        warm, until = began + seconds * WARM_SHARE, began + seconds
        phased = [(number / count, writer) for number, writer in enumerate(writers)]
        threads = [
            threading.Thread(target=write, args=(phased[n :: len(tallies)], began, warm, until, tally), daemon=True)
            for n, tally in enumerate(tallies)
        ]
        looks: list[float] = []
        memory: list[int] = []
        threads.append(threading.Thread(target=look, args=(server, until, looks, memory), daemon=True))
        for thread in threads:
            thread.start()
        time.sleep(max(warm - time.monotonic(), 0.0))
        server_cpu, client_cpu, before = cpu_seconds(server), sum(os.times()[:2]), memory[-1] if memory else 0
        time.sleep(max(until - time.monotonic(), 0.0))
        server_cpu, client_cpu = cpu_seconds(server) - server_cpu, sum(os.times()[:2]) - client_cpu
        for thread in threads:
            thread.join(30)
    finally:
        server.close()
    report(name, count, until - warm, tallies, looks, [before, *memory])
    print(f"CPU seconds: server {server_cpu:.1f}, clients {client_cpu:.1f}, of {2 * (until - warm):.0f} of two cores")
    return 0


def report(name: str, count: int, seconds: float, tallies: list[Tally], looks: list[float], memory: list[int]) -> None:
    """Print what the writers have done."""
    lags = [lag for tally in tallies for lag in tally.lags]
    rows, requests = sum(t.rows for t in tallies), sum(t.requests for t in tallies)
    load = os.getloadavg()[0]
    print(f"{name}: {count} writers, {VALUES} values a second each, {seconds:.0f} s, load of the machine {load:.1f}")
    rate, asked = rows * VALUES / seconds, count * VALUES
    print(f"sustained: {rate:,.0f} of {asked:,} values/s, in {requests / seconds:,.0f} requests/s")
    print(f"lag: p50 {at(lags, 0.5):.2f} s, p99 {at(lags, 0.99):.2f} s, max {max(lags, default=0.0):.2f} s")
    print(f"page: p50 {at(looks, 0.5):.2f} s, max {max(looks, default=0.0):.2f} s")
    print(f"memory of the server: {memory[0] / 1e6:.0f} MB after the start, {max(memory) / 1e6:.0f} MB at most")
    if failures := sum(t.failures for t in tallies):
        print(f"failed requests: {failures}, such as {next(t.error for t in tallies if t.error)}", file=sys.stderr)
