"""The driver of the tests with several Ray nodes: each node sees a disk of its own where the driver has its runs.

It is started in a mount namespace. A node is started from a thread in a further one, in which other file systems are
mounted over the directory of the runs and over that of the spool.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import barograph
from barograph.base.model import Status
from barograph.delivery.ray.nodes import NAMESPACE, NodesClient
from barograph.integrations.frameworks.ray import share, shared_run

CLONE_NEWNS = 0x00020000
RUNS, DISK = Path("runs").absolute(), Path("disk").absolute()  # on each node another one
VALUES = 40  # of each call


@ray.remote(num_cpus=0)
class Trainer:
    """An actor on a node without the driver's disk."""

    def __init__(self, run: barograph.Run | None) -> None:
        self.run = run or shared_run(role="explorer")

    def log(self, first: int) -> list[Any]:
        """Log values; return the place of this process when all of them are acknowledged."""
        assert self.run is not None
        for step in range(first, first + VALUES):
            self.run.log({"value": float(step)}, step=step)
        with self.run.phase("work"):
            self.run.commit(first + VALUES - 1)
        writer = self.run.writer
        return [writer.role, writer.rank, writer.attempt, os.getpid()]

    def pid(self) -> int:
        """Return the process of this actor."""
        return os.getpid()

    def seen(self) -> list[str]:
        """Return the segments in the directory of the runs on this node."""
        return sorted(path.name for path in RUNS.rglob("*.seg"))

    def finish(self) -> None:
        """Finish the run."""
        assert self.run is not None
        self.run.finish()


def add_node(cluster: Cluster, name: str, copied: Path | None = None) -> Any:
    """Start a node with disks of its own; with ``copied`` its disk has a copy of a run under the path of the run."""
    copy = Path("copy")
    if copied is not None:
        shutil.copytree(copied, copy)
    found: list[Any] = []

    def start() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        for place in (RUNS, DISK):
            subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)
        if copied is not None:
            shutil.copytree(copy, copied)
        found.append(cluster.add_node(num_cpus=0, resources={name: 1}, env_vars={"BAROGRAPH_SPOOL": f"{DISK}/spool"}))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    return found[0]


def answer(calls: Any) -> Any:
    return ray.get(calls, timeout=60)


def on(name: str, run: barograph.Run | None, **options: Any) -> Any:
    return Trainer.options(resources={name: 0.1}, **options).remote(run)


def actor(kind: str, place: int = 0) -> Any:
    """Return the receiving actor, or one of those that send."""
    names = sorted(found["name"] for found in ray.util.list_named_actors(all_namespaces=True))
    return ray.get_actor([name for name in names if f"-{kind}-" in name][place], NAMESPACE)


def wait_for_another(trainer: Any, pid: int) -> None:
    """Wait until an actor was restarted: ``ray.kill`` does not wait for the end of the process."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(ray.exceptions.RayError):
            if answer(trainer.pid.remote()) != pid:
                return
        time.sleep(0.1)
    raise TimeoutError


def main() -> None:
    """Start a cluster, and end it whatever happens."""
    RUNS.mkdir()
    DISK.mkdir()
    cluster = Cluster(
        initialize_head=True,
        shutdown_at_exit=False,  # it would set signal handlers, from threads
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "temp_dir": sys.argv[1],
            "_system_config": {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300},
        },
    )
    try:
        found = record(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(found))


def record(cluster: Cluster) -> dict[str, Any]:
    """Record from two nodes, kill what can be killed, and remove one of the nodes."""
    times = {"start": time.monotonic()}
    ray.init(address=cluster.address, log_to_driver=False)
    run = barograph.init(id="nodes", project="p", dir=RUNS)
    share(run)
    add_node(cluster, "a")
    second = add_node(cluster, "b", copied=run.path)
    times["cluster"] = time.monotonic()

    found: dict[str, Any] = {}
    one, other = on("a", run, max_restarts=1), on("b", None)
    found["a"], found["b"] = answer([one.log.remote(0), other.log.remote(0)])
    times["joined"] = time.monotonic()
    ray.kill(one, no_restart=False)
    wait_for_another(one, found["a"][3])
    found["restarted"] = answer(one.log.remote(VALUES))
    times["restarted"] = time.monotonic()

    ray.kill(actor("receive"))
    for place in (0, 1):
        ray.kill(actor("send", place), no_restart=False)
    answer([one.log.remote(2 * VALUES), other.log.remote(VALUES)])
    found["left"] = NodesClient(run.path).wait(Status("running"), 60.0)
    times["killed"] = time.monotonic()

    found["seen"] = answer([one.seen.remote(), other.seen.remote()])
    cluster.remove_node(second, allow_graceful=False)
    answer(one.log.remote(3 * VALUES))
    answer(one.finish.remote())
    times["removed"] = time.monotonic()
    while sum(node["Alive"] for node in ray.nodes()) > 2:
        time.sleep(0.05)
    times["dead"] = time.monotonic()
    warnings: list[str] = []
    run._recording.problems.warn = warnings.append  # type: ignore[method-assign]
    run.finish()
    found["warnings"] = warnings
    times["finished"] = time.monotonic()
    found["times"] = times
    return found


if __name__ == "__main__":
    main()
