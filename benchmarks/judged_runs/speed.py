"""Time of ``barograph doctor`` on a large run and on many, and of a diagnosis after each new row of a live run."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import barograph
from barograph.catalogue.registry import REGISTRY, fill, vocabulary_name
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.signals import FAMILIES, SIGNALS

BARS = {"command": 2.0, "live step": 0.020}  # seconds
PLACES = (
    *(("phase", "actor_train/train_step"), ("when", "end"), ("component", "format")),
    *(("taskset", "math"), ("metric", "score"), ("k", "1")),
)
LEVELS = {
    "learning_rate": 1e-6,
    "ratio": 1.0,
    "explained_variance": 0.5,
    "step_time": 60.0,
    "length": 300.0,
    "kl": 0.03,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``speed``."""
    parser.add_argument("--steps", type=int, default=5000, help="of the large run (default %(default)s)")
    parser.add_argument("--metrics", type=int, default=500, help="of the large run (default %(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="small runs in a directory (default %(default)s)")
    parser.add_argument("--live", type=int, default=50, help="rows that are added one by one (default %(default)s)")
    parser.add_argument("--dir", type=Path, help="keep the runs here, and use those that are there")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless the bars hold")
    parser.set_defaults(run=measure)


def measure(options: argparse.Namespace) -> int:
    """Print the times."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}")
    with tempfile.TemporaryDirectory(prefix="doctor-") as scratch:
        folder = options.dir or Path(scratch)
        large = folder / "large" / "doctor" / "large"
        if not large.exists():
            write(folder / "large", "large", options.steps, options.metrics).finish()
        size = f"{options.steps:,} steps x {options.metrics} metrics"
        holds = [
            report("command", f"barograph doctor, {size}", middle([command(large) for _ in range(3)])),
            report("live step", f"one more row, {size}", middle(live(Path(scratch) / "live", options))),
        ]
        many = folder / "many"
        for number in range(0 if many.exists() else options.runs):
            write(many, f"small-{number}", 100, 100).finish()
        report(None, f"barograph doctor DIR, {options.runs} runs of 100 steps x 100 metrics", command(many))
    return int(options.strict and not all(holds))


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of the processor: on a machine that does other work the clock counts that too."""

    clock: float
    processor: float


def middle(several: Sequence[Spent]) -> Spent:
    return Spent(statistics.median(one.clock for one in several), statistics.median(one.processor for one in several))


def report(bar: str | None, what: str, spent: Spent) -> bool:
    print(f"{what:60}{spent.clock * 1e3:8,.0f} ms, processor {spent.processor * 1e3:6,.0f} ms", end="")
    is_held = bar is None or spent.clock < BARS[bar]
    print(f"   {'holds' if is_held else 'FAILS'}: under {BARS[bar] * 1e3:,.0f} ms" if bar else "", flush=True)
    return is_held


def command(path: Path) -> Spent:
    """Time the command in a new process, with the files in the page cache."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "barograph", "doctor", str(path)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Spent(time.perf_counter() - began, used)


def live(folder: Path, options: argparse.Namespace) -> list[Spent]:
    """Time to read one more row and to judge the run again, row by row."""
    run = write(folder, "live", options.steps, options.metrics)
    view, visit, spent = barograph.open(run.path), Visit(), []
    visit.diagnose(view)
    for step in range(options.steps, options.steps + options.live):
        run.log(values(names(options.metrics), step), step=step)
        began, used = time.perf_counter(), time.process_time()
        view.refresh()
        visit.diagnose(view)
        spent.append(Spent(time.perf_counter() - began, time.process_time() - used))
    run.finish()
    return spent


def names(count: int) -> dict[str, float]:
    """Return names with the levels of their values: what rules look at first, then others."""
    patterns = {ids[0]: LEVELS.get(key, 0.2) for key, ids in {**SIGNALS, **FAMILIES}.items()}
    known = {
        fill(vocabulary_name(REGISTRY.metric(id), "roll").pattern, PLACES): level for id, level in patterns.items()
    }
    return known | {f"layer_{n // 50:02d}/metric_{n % 50:02d}/mean": 1.0 for n in range(count - len(known))}


def values(known: dict[str, float], step: int) -> dict[str, float]:
    """Return a row: levels with noise, and a reward that rises."""
    noise = np.random.default_rng(step).normal(1.0, 0.03, len(known))
    row: dict[str, Any] = dict(zip(known, (noise * list(known.values())).tolist(), strict=True))
    row["critic/score/mean"] = 0.2 + 0.6 * min(1.0, step / 5000) + float(noise[0] - 1)
    return row


def write(folder: Path, id: str, steps: int, metrics: int) -> barograph.Run:
    """Write a run; return it open."""
    known = names(metrics)
    run = barograph.init(project="doctor", id=id, name=id, dir=folder)
    for step in range(steps):
        run.log(values(known, step), step=step)
    return run
