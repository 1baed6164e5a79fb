"""Rounds in which two nodes train and a server takes their runs, while links fail and processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import barograph
from barograph.journal.format.folder import segments
from ingest_parts import node as node_module
from ingest_parts.links import PORT, Links, ProxyLinks, links
from ingest_parts.node import last_step, read_notes

ROUND_SECONDS = (1.0, 3.5)
PATIENCE_SECONDS = 120.0
PROJECT, ID = "lab", "rounds"
ELSEWHERE = "/another/machine"  # the directory of the run as the second node knows it: it is not there


class Cluster:
    """Two nodes and a server as processes, each on its own network."""

    def __init__(self, dir: Path, made: Links) -> None:
        self.dir = dir
        self.links = made
        self.served = dir / "served"
        self.served.mkdir()
        (dir / "token").write_text("root")
        self.notes = [dir / f"notes{node}" for node in range(2)]
        self.local_notes = dir / "local-notes"
        self.folders = [dir / "runs" / PROJECT / ID, dir / "spool" / ID]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: Counter[str] = Counter()

    @property
    def copy(self) -> Path:
        """The run as the server has it."""
        return self.served / PROJECT / ID

    def start(self) -> None:
        """Start what does not run."""
        self.start_server()
        known = {"BAROGRAPH_TOKEN": "root", "BAROGRAPH_PROJECT": PROJECT}
        here = {"BAROGRAPH_SERVER": self.links.url(0), "BAROGRAPH_RUN_ID": ID, "BAROGRAPH_DIR": str(self.dir / "runs")}
        there = {"BAROGRAPH_SERVER": self.links.url(1), "BAROGRAPH_SPOOL": str(self.dir / "spool")}
        ticket = f"file://{ELSEWHERE}/{PROJECT}/{ID}?role=trainer&project={PROJECT}&world_size=2"
        forever = [node_module.__file__, str(self.notes[0]), "0", "1e9"]
        self._run("node 0", self.links.prefix(0), forever, {**known, **here})
        joining = [node_module.__file__, str(self.notes[1]), "1", "1e9", ticket]
        self._run("node 1", self.links.prefix(1), joining, {**known, **there})
        # A run without a server, at the same time: the load of the machine changes.
        alone = [node_module.__file__, str(self.local_notes), "0", "1e9"]
        self._run("local", [], alone, {"BAROGRAPH_DIR": str(self.dir / "local")})

    def start_server(self) -> None:
        """Start the server unless it runs."""
        listening = ["--host", self.links.host, "--port", str(PORT), "--token-file", str(self.dir / "token")]
        self._run(
            "server", self.links.prefix(None), ["-m", "barograph", "up", str(self.served), "--ingest", *listening], {}
        )

    def _run(self, name: str, prefix: list[str], arguments: list[str], environment: dict[str, str]) -> None:
        if name not in self._processes or self._processes[name].poll() is not None:
            with (self.dir / f"{name.replace(' ', '')}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(
                    [*prefix, sys.executable, *arguments],
                    env={**environment_of_children(), **environment},
                    stdout=log,
                    stderr=log,
                )

    def kill(self, name: str) -> None:
        """Kill a process of this cluster with SIGKILL; ``send 0`` is the one that sends the bytes of node 0."""
        self.killed[name.split()[0]] += 1
        if name.startswith("send"):
            for pid in senders(self.folders[int(name[-1])]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self._processes[name].kill()
            self._processes[name].wait()

    def push(self, node: int) -> None:
        """Send what a node has left, by hand."""
        if segments(self.folders[node]):
            command = [sys.executable, "-m", "barograph", "push", str(self.folders[node]), "--to", self.links.url(node)]
            environment = {**environment_of_children(), "BAROGRAPH_TOKEN": "root"}
            subprocess.run([*self.links.prefix(node), *command], env=environment, check=True, capture_output=True)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        for folder in self.folders:
            for pid in senders(folder):
                os.kill(pid, signal.SIGKILL)


def environment_of_children() -> dict[str, str]:
    """Return the environment, with what this process imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def senders(folder: Path) -> list[int]:
    """Return the processes that send a folder."""
    wanted = b"\0".join((b"barograph.delivery.relay", b"--send", os.fsencode(folder))) + b"\0"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().endswith(wanted):
                found.append(int(path.parent.name))
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {segment.path.name: segment.path.read_bytes() for segment in segments(folder)}


def wait_for_first_steps(cluster: Cluster) -> None:
    """Start everything, and wait until both nodes have logged and the server has something."""
    cluster.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while not (all(map(last_step, cluster.notes)) and segments(cluster.copy)):
        if time.monotonic() > until:
            raise TimeoutError(f"the nodes did not begin: see {cluster.dir}")
        time.sleep(0.1)


def one_round(cluster: Cluster, recorded: dict[str, bytes]) -> None:
    """Let links and processes fail for a few seconds; keep what node 1 has, since its spool is removed when sent."""
    cluster.start()
    for node in range(2):
        cluster.links.spoil(node, random.choice(("fine", "fine", "cut", "slow")))
    time.sleep(random.uniform(*ROUND_SECONDS))
    # A node needs some seconds to begin again, in which there is nothing to kill: it is killed less often.
    targets = ["server", "server", "send 0", "send 1", "node 0", "node 1"][: random.choice((4, 4, 6))]
    for name in dict.fromkeys(random.sample(targets, random.randrange(len(targets)))):
        cluster.kill(name)
    recorded |= contents(cluster.folders[1])


def settle(cluster: Cluster, recorded: dict[str, bytes]) -> float:
    """Mend everything, send what is left, and return how long that took."""
    began = time.monotonic()
    for node in range(2):
        cluster.links.spoil(node, "fine")
    for name in ("node 0", "node 1"):
        cluster.kill(name)
    recorded |= contents(cluster.folders[1])
    cluster.start_server()
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for node in range(2):
            with suppress(subprocess.CalledProcessError):
                cluster.push(node)
        wanted = {**recorded, **own_contents(cluster.folders[0])}
        if contents(cluster.copy) == wanted:
            break
        time.sleep(1.0)
    return time.monotonic() - began


def own_contents(folder: Path) -> dict[str, bytes]:
    """Return the segments that were recorded in a folder."""
    received = folder / "transfer" / "received"
    names = received.read_text().split("\n") if received.exists() else []
    return {name: data for name, data in contents(folder).items() if name not in names}


def check(cluster: Cluster, recorded: dict[str, bytes]) -> dict[str, object]:
    """Compare what was recorded with what the server has."""
    copy, wanted = contents(cluster.copy), {**recorded, **own_contents(cluster.folders[0])}
    view = barograph.open(cluster.copy)
    missing = doubled = 0
    for rank, notes in enumerate(cluster.notes):
        steps = view.series("metric/0", rank=rank).steps.tolist()
        missing += len(set(range(1, last_step(notes) + 1)) - set(steps))
        doubled += len(steps) - len(set(steps))
    differing = sum(copy.get(name) != data for name, data in wanted.items()) + len(copy.keys() - wanted.keys())
    return {
        "segments": len(wanted),
        "megabytes": sum(map(len, wanted.values())) / 1e6,
        "steps": sum(last_step(notes) for notes in cluster.notes),
        "segments that differ": differing,
        "steps missing": missing,
        "steps doubled": doubled,
    }


def percentiles(notes: list[Path]) -> str:
    ordered = sorted(took for path in notes for _, took in read_notes(path))
    p50, p99 = (ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99))
    return f"p50 {p50:.0f} µs, p99 {p99:.0f} µs ({len(ordered):,} calls)"


def run(rounds: int, dir: Path, seed: int, proxies: bool = False) -> int:
    """Run so many rounds and print what was found; return the exit code."""
    random.seed(seed)
    made = ProxyLinks() if proxies else links()
    print(f"{rounds} rounds over {made}, seed {seed}")
    cluster, recorded = Cluster(dir, made), {}
    try:
        wait_for_first_steps(cluster)
        for number in range(rounds):
            one_round(cluster, recorded)
            print(f"\rround {number + 1}, {dict(cluster.killed)} killed", end="", file=sys.stderr, flush=True)
        seconds = settle(cluster, recorded)
        found = check(cluster, recorded)
    finally:
        cluster.close()
        made.close()
    print(f"\nkilled with SIGKILL: {json.dumps(cluster.killed)}; settled in {seconds:.1f} s")
    for name, value in found.items():
        print(f"{name}: {value if isinstance(value, int) else format(value, '.1f')}")
    print(f"log of 50 values, sent to the server: {percentiles(cluster.notes)}")
    print(f"log of 50 values, local run:          {percentiles([cluster.local_notes])}")
    return 0 if not any(found[name] for name in ("segments that differ", "steps missing", "steps doubled")) else 1
