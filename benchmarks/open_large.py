"""Time to open large runs and read one series, or every series of every writer.

Two runs are written once with barograph: *wide*, one writer with 5,000 steps of 5,000 metrics, and *long*, four
processes with a million rows of 25 values in total, in 20 key sets. In the long run each key set has 20 names of its
own and shares five with all others; the series that is read is one of the five, so it is assembled from all key sets.
Each reading is timed in a new process, with the files in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "open-large"
KEY_SETS, SHARED = 20, 5
SHARED_NAMES = [f"progress/shared_{i}" for i in range(SHARED)]
REPEATS = 3
DRAWN_POINTS = 1000
BARS = {"one": 1.0, "all": 3.0}  # seconds
WHAT = {
    "one": f"open, draw one series in {DRAWN_POINTS:,} buckets",
    "all": "open, every series of every writer",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a large run; ``rows`` is per writer."""

    writers: int
    rows: int
    key_sets: tuple[tuple[str, ...], ...]
    drawn: str  # the series that is read

    @property
    def points(self) -> int:
        """Number of values of all writers."""
        return self.writers * self.rows * len(self.key_sets[0])


def shapes(scale: float) -> dict[str, Shape]:
    wide = tuple(f"layer_{i // 50:03d}/metric_{i % 50:02d}/mean" for i in range(5000))
    own = [[f"part_{k:02d}/metric_{i:02d}" for i in range(25 - SHARED)] for k in range(KEY_SETS)]
    sets = tuple((*SHARED_NAMES, *names) for names in own)
    return {
        "wide": Shape(1, max(1, round(5000 * scale)), (wide,), wide[2500]),
        "long": Shape(4, max(1, round(250_000 * scale)), sets, SHARED_NAMES[2]),
    }


def rows_of(shape: Shape, seed: int) -> Iterator[dict[str, float]]:
    """Yield a writer's rows with alternating key sets. Values repeat, which does not affect reading."""
    width = len(shape.key_sets[0])
    draw = random.Random(seed).random
    pool = [draw() for _ in range(width + 997)]
    for row in range(shape.rows):
        start = row % 997
        yield dict(zip(shape.key_sets[row % len(shape.key_sets)], pool[start : start + width], strict=True))


def write(name: str, rank: int, options: argparse.Namespace) -> None:
    """Write one writer's rows in this process."""
    import barograph

    run = barograph.init(project=PROJECT, name=name, id=f"large-{name}", rank=rank, dir=options.dir)
    for step, row in enumerate(rows_of(shapes(options.scale)[name], rank)):
        run.log(row, step=step)
    run.finish()


def read(name: str, what: str, options: argparse.Namespace) -> dict[str, float]:
    """Read a run in this process; return seconds, points and memory."""
    began = time.perf_counter()
    import barograph

    _ = barograph.View  # names are imported on first use
    imported = time.perf_counter()
    view = barograph.open(run_folder(options.dir, name))
    points = draw_one(view, shapes(options.scale)[name]) if what == "one" else read_all(view)
    done = time.perf_counter()
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 20)
    return {"import": imported - began, "seconds": done - imported, "points": points, "mebibytes": peak}


def draw_one(view: Any, shape: Shape) -> int:
    return int(view.series(shape.drawn).zoom(max_points=DRAWN_POINTS).count.sum())


def read_all(view: Any) -> int:
    names = view.names()
    held = [view.series(name, role=w.role, rank=w.rank) for w in view.writers() for name in names]
    return sum(len(series.values) for series in held)


def run_folder(dir: Path, name: str) -> Path:
    return dir / PROJECT / f"large-{name}"


def command(options: argparse.Namespace, *arguments: object) -> list[str]:
    shared = ("--dir", options.dir, "--scale", options.scale)
    return [sys.executable, __file__, *map(str, (*arguments, *shared))]


def make(name: str, shape: Shape, options: argparse.Namespace) -> None:
    """Write a run unless a complete one exists."""
    folder = run_folder(options.dir, name)
    mark = options.dir / f"large-{name}.made"
    if mark.exists() and mark.read_text() == repr(shape):
        return
    shutil.rmtree(folder, ignore_errors=True)
    print(f"  writing the {name} run …", file=sys.stderr, flush=True)
    writers = [subprocess.Popen(command(options, "--write", name, rank)) for rank in range(shape.writers)]
    codes = [writer.wait() for writer in writers]
    if any(codes):
        raise SystemExit(f"open_large: a writer of the {name} run failed")
    mark.write_text(repr(shape))


def warm(folder: Path) -> int:
    """Read a run's files into the page cache; return their size in bytes."""
    size = 0
    for path in folder.iterdir():
        with path.open("rb") as file:
            while data := file.read(1 << 22):
                size += len(data)
    return size


def measure(name: str, what: str, options: argparse.Namespace) -> dict[str, float]:
    """Read a run in new processes; return the median of each number."""
    warm(run_folder(options.dir, name))
    found = []
    for _ in range(REPEATS):
        print(f"  {name}: {WHAT[what]} …", file=sys.stderr, flush=True)
        found.append(json.loads(subprocess.check_output(command(options, "--read", name, what))))
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def judge(cost: dict[str, float], shape: Shape, what: str) -> str:
    expected = shape.points if what == "all" else shape.rows
    if cost["points"] != expected:
        return f"FAILS: expected {expected:,} points"
    return "holds" if cost["seconds"] < BARS[what] else "FAILS"


def numbers(cost: dict[str, float]) -> tuple[str, str, str, str]:
    times = f"{cost['import']:.3f}", f"{cost['seconds']:.3f}"
    return f"{cost['points']:,.0f}", *times, f"{cost['mebibytes']:,.0f}"


def line(run: str, what: str, size: str, points: str, loading: str, reading: str, peak: str, bar: str) -> str:
    return f"{run:5} {what:40}{size:>9}{points:>12}{loading:>10}{reading:>13}{peak:>10}   {bar}"


def report(options: argparse.Namespace) -> bool:
    """Write missing runs, measure, print the table; return whether all bars hold."""
    lines, verdicts = [], []
    for name, shape in shapes(options.scale).items():
        make(name, shape, options)
        size = warm(run_folder(options.dir, name)) / (1 << 20)
        for what, limit in BARS.items():
            cost = measure(name, what, options)
            verdicts.append(judge(cost, shape, what))
            bar = f"under {limit:g} s: {verdicts[-1]}"
            lines.append(line(name, WHAT[what], f"{size:,.0f}", *numbers(cost), bar))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    print(f"medians of {REPEATS}; the import is not part of the bar\n")
    print(line("run", "what", "disk MiB", "points", "import s", "open+read s", "peak MiB", "bar"))
    print("\n".join(lines))
    return all(verdict == "holds" for verdict in verdicts)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time how long two large runs take to open and read, and print a table.",
        epilog="example: open_large.py --dir /var/tmp/large",
    )
    parser.add_argument("--dir", type=Path, help="directory to keep the runs in (default: a temporary one)")
    parser.add_argument("--scale", type=float, default=1.0, help="shorten the runs, to try the script")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)  # run as a writer: run, rank
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)  # run as a reader: run, what
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.write:
        write(options.write[0], int(options.write[1]), options)
        return 0
    if options.read:
        print(json.dumps(read(*options.read, options)))
        return 0
    with tempfile.TemporaryDirectory(prefix="open-large-") as scratch:
        options.dir = options.dir or Path(scratch)
        options.dir.mkdir(parents=True, exist_ok=True)
        kept = report(options)
    return int(options.strict and not kept)


if __name__ == "__main__":
    sys.exit(main())
