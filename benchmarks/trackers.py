"""Cost of delivery to TensorBoard: barograph's event files and torch's SummaryWriter, with the same values.

Each writes the same rows from a new process, flushed after every step, as a relay does. CPU time is that of the process
and its threads from the first row to the end, without imports.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BAR = 20.0
FAMILIES = ("actor", "critic", "rollout", "time", "system")
STATISTICS = ("mean", "max", "min", "std", "p99")


@dataclass(frozen=True, slots=True)
class Cost:
    """Measurements of one implementation."""

    cpu: float  # seconds per step
    bytes_per_value: float


def names(count: int) -> list[str]:
    """Return names of a realistic length."""
    return [f"{FAMILIES[n % 5]}/metric_{n // 25}/{STATISTICS[n // 5 % 5]}" for n in range(count)]


def steps(count: int, values: int) -> list[dict[str, float]]:
    chance, known = random.Random(0), names(values)
    return [{name: chance.uniform(-2, 2) for name in known} for _ in range(count)]


def write_barograph(folder: Path, logged: list[dict[str, float]]) -> float:
    from barograph.base.model import Row, RunInfo, Status, Writer
    from barograph.delivery.trackers.tensorboard import TensorBoardTracker

    tracker = TensorBoardTracker(log_dir=folder)
    tracker.start(RunInfo("bench", "bench", "bench", time.time()), {}, folder)
    rows = [Row(step, time.time(), values, Writer("trainer", 0, 1)) for step, values in enumerate(logged)]
    began = time.process_time()
    for row in rows:
        tracker.log([row])
    tracker.finish(Status("finished"))
    return time.process_time() - began


def write_torch(folder: Path, logged: list[dict[str, float]]) -> float:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(folder))
    began = time.process_time()
    for step, values in enumerate(logged):
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()
    writer.close()
    return time.process_time() - began


CONTENDERS: dict[str, Callable[[Path, list[dict[str, float]]], float]] = {
    "barograph": write_barograph,
    "torch": write_torch,
}


def measure(name: str, count: int, values: int) -> Cost:
    """Measure one implementation in this process."""
    logged = steps(count, values)
    with tempfile.TemporaryDirectory(prefix="trackers-") as scratch:
        folder = Path(scratch)
        cpu = CONTENDERS[name](folder, logged)
        size = sum(path.stat().st_size for path in folder.rglob("*tfevents*"))
    return Cost(cpu / count, size / (count * values))


def measure_apart(name: str, options: argparse.Namespace) -> Cost:
    """Return the best of several tries, each in a new process."""
    command = [sys.executable, __file__, "--one", name, "--steps", str(options.steps), "--values", str(options.values)]
    tries = []
    for _ in range(options.repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        tries.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    return min(tries, key=lambda cost: cost.cpu)


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def report(ours: Cost, theirs: Cost, options: argparse.Namespace) -> bool:
    length = sum(map(len, names(options.values))) / options.values
    print(f"TensorBoard: {options.steps:,} steps of {options.values} values, names of {length:.1f} characters")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}\n")
    print(f"{'':32}{'CPU µs/step':>14}{'bytes/value':>14}{'ratio':>8}")
    for title, cost in (("barograph", ours), (f"torch SummaryWriter {version('torch')}", theirs)):
        print(f"{title:32}{cost.cpu * 1e6:>14,.0f}{cost.bytes_per_value:>14.1f}{cost.cpu / ours.cpu:>8.1f}")
    ratio = theirs.cpu / ours.cpu
    print(f"\n{'holds' if ratio >= BAR else 'FAILS'}: {ratio:.0f} x less CPU time than torch, at least {BAR:g}")
    return ratio >= BAR


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what it costs to deliver to TensorBoard.")
    parser.add_argument("--steps", type=int, default=500, help="rows to write (default %(default)s)")
    parser.add_argument("--values", type=int, default=150, help="values in a row (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="tries, of which the best counts (default %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless the bar holds")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)  # run as this implementation's process
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.one:
        cost: dict[str, Any] = asdict(measure(options.one, options.steps, options.values))
        print(json.dumps(cost))
        return 0
    missing = [package for package in ("torch", "tensorboard") if not importlib.util.find_spec(package)]
    if missing:
        print(f"not measured: {', '.join(missing)} not installed")
        return int(options.strict)
    holds = report(measure_apart("barograph", options), measure_apart("torch", options), options)
    return int(options.strict and not holds)


if __name__ == "__main__":
    sys.exit(main())
