"""Cost of one run with many ranks: of a commit in each rank, and of reading what all of them have measured.

A lone process, rank 0 and rank 1 record steps of 50 measured metrics and a counter with barograph, in turn, and their
commits are timed. The segments of the other ranks are copies of rank 1's: the content of states does not change the
time of reading them. The run is then read in a new process, with the files in the page cache, while its writers are
alive. Last, every rank appends one more step, as in a run that is watched.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import barograph
from barograph.base.model import Writer
from barograph.journal.format.folder import RUN_FILE, segment_path

METRICS = 50
TOKEN_FIELDS = ("log_probs", "old_log_probs", "ref_log_probs", "advantages", "returns", "values")
BATCHES = 16  # different ones, which are measured in turn
TOKENS = 64  # of a rank in a step
MERGED = "actor/pg_loss"  # the series that is read
COUNTED = "system/tokens"  # a count of each step, summed over ranks
READINGS = {
    "open": "open the run",
    "names": "names of all metrics (merges every step)",
    "one": "one merged series",
    "counter": "one counter, summed over ranks",
    "all": "all series",
    "refresh": "one more step: refresh, one series",
}


@dataclass(slots=True)
class Recorded:
    """One process that records, with the seconds of its commits."""

    what: str
    run: barograph.Run
    commits: list[float] = field(default_factory=list)
    size: int = 0  # bytes of the segment before the last step

    @property
    def segment(self) -> Path:
        """The file that it writes."""
        return segment_path(self.run.path, self.run.writer, 0)


@dataclass(frozen=True, slots=True)
class Copied:
    """A segment in two pieces: all steps but the last, and the last."""

    steps: bytes
    last: bytes


def batches() -> list[dict[str, Any]]:
    chance = np.random.default_rng(0)
    shape = (4, 16)
    return [
        {
            "response_mask": np.ones(shape, bool),
            "scores": chance.normal(size=shape[0]),
            **{name: -np.abs(chance.normal(size=shape)) for name in TOKEN_FIELDS},
        }
        for _ in range(BATCHES)
    ]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)


def record(dir: Path, steps: int, ranks: int) -> list[Recorded]:
    """Record with a lone process and two of many ranks, step by step in turn, and time the commits."""
    shared = {"dir": dir, "project": "ranks", "concurrent": True}
    found = [
        Recorded("a lone process: values", barograph.init(id="lone", world_size=1, **shared)),
        Recorded("rank 0: states and values", barograph.init(id="many", rank=0, world_size=ranks, **shared)),
        Recorded("any other rank: states", barograph.init(id="many", rank=1, world_size=ranks, **shared)),
    ]
    data = batches()
    for step in range(steps + 1):  # the last one is the step that is appended later
        if step % 100 == 0:
            progress(f"recording step {step:,} of {steps:,}")
        for one in found:
            if step == steps:
                one.size = one.segment.stat().st_size
            one.run.measure(data[step % BATCHES], part=None)
            one.run.count(tokens=TOKENS)
            began = time.perf_counter()
            one.run.commit(step)
            one.commits.append(time.perf_counter() - began)
    return found


def copied(one: Recorded) -> Copied:
    data = one.segment.read_bytes()
    return Copied(data[: one.size], data[one.size :])


def write_run(folder: Path, ranks: int, source: Path, first: Copied, other: Copied) -> int:
    """Write the segments of all ranks without the last step; return their size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_FILE).write_bytes((source / RUN_FILE).read_bytes())
    for rank in range(ranks):
        progress(f"writing rank {rank} of {ranks}")
        content = first if rank == 0 else other
        segment_path(folder, Writer("trainer", rank, 1), 0).write_bytes(content.steps)
    (folder / "last.0").write_bytes(first.last)
    (folder / "last.1").write_bytes(other.last)
    return len(first.steps) + (ranks - 1) * len(other.steps)


def append_step(folder: Path, ranks: int) -> None:
    """Append the last step to the segments of all ranks."""
    last = [(folder / f"last.{number}").read_bytes() for number in range(2)]
    for rank in range(ranks):
        with segment_path(folder, Writer("trainer", rank, 1), 0).open("ab") as segment:
            segment.write(last[rank > 0])


def read(folder: Path, ranks: int) -> dict[str, float]:
    """Read the run in this process; return seconds, points and memory."""
    found: dict[str, float] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        found[what] = time.perf_counter() - began
        return result

    _ = barograph.View  # names are imported on first use
    view = timed("open", lambda: barograph.open(folder))
    names = timed("names", view.names)
    timed("one", lambda: view.series(MERGED))
    counted = timed("counter", lambda: view.series(COUNTED))
    every = timed("all", lambda: [view.series(name) for name in names])
    append_step(folder, ranks)
    refreshed = timed("refresh", lambda: (view.refresh(), view.series(MERGED))[1])
    found |= {"points": sum(map(len, every)), "count": float(counted.values[-1]), "steps": len(refreshed)}
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss
    return found | {"mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 20)}


def read_in_new_process(folder: Path, ranks: int, limit: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--read", str(folder), str(ranks)]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=limit).stdout))


def reading(dir: Path, ranks: int, recorded: list[Recorded], options: argparse.Namespace) -> dict[str, float]:
    """Write and read a run of some ranks; return the median of each number."""
    _, first, other = recorded
    found = []
    for number in range(options.repeats):
        folder = dir / "ranks" / f"of-{ranks}-{number}"
        size = write_run(folder, ranks, first.run.path, copied(first), copied(other))
        progress(f"reading {ranks} ranks, {number + 1} of {options.repeats}")
        found.append({**read_in_new_process(folder, ranks, options.limit), "disk": size / (1 << 20)})
        for path in folder.iterdir():
            path.unlink()
    medians = {what: statistics.median(one[what] for one in found) for what in found[0]}
    if medians["steps"] != options.steps + 1 or medians["count"] != ranks * TOKENS:
        raise SystemExit(f"ranks: the reader has {medians['steps']:g} steps and {medians['count']:g} tokens in a step")
    return medians


def commit_table(recorded: list[Recorded], steps: int) -> str:
    lines = [f"{'a commit':44}{'p50 µs':>12}{'p99 µs':>12}{'bytes/step':>12}"]
    for one in recorded:
        p50, p99 = np.percentile(one.commits[1:], [50, 99]) * 1e6
        lines.append(f"{one.what:44}{p50:12,.0f}{p99:12,.0f}{one.size / steps:12,.0f}")
    return "\n".join(lines)


def reading_table(found: dict[int, dict[str, float]]) -> str:
    def line(what: str, cells: list[str]) -> str:
        return f"{what:44}" + "".join(f"{cell:>12}" for cell in cells)

    lines = [line("reading", [f"{ranks} ranks" for ranks in found])]
    for what, text in READINGS.items():
        lines.append(line(text, [f"{one[what]:.3f} s" for one in found.values()]))
    lines.append(line("points of all series", [f"{one['points']:,.0f}" for one in found.values()]))
    lines.append(line("disk", [f"{one['disk']:,.0f} MiB" for one in found.values()]))
    lines.append(line("peak memory of the reader", [f"{one['mebibytes']:,.0f} MiB" for one in found.values()]))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time the commits of ranks and the reading of runs with many ranks, and print a table.",
        epilog="example: ranks.py --ranks 4 --steps 50",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256], help="numbers of ranks (default: 64 256)")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each rank (default: 1000)")
    parser.add_argument("--repeats", type=int, default=3, help="readings; the medians are shown (default: 3)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one reading (default: 600)")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)  # run as a reader: directory, ranks
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.read:
        print(json.dumps(read(Path(options.read[0]), int(options.read[1]))))
        return 0
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        recorded = record(Path(scratch), options.steps, max(options.ranks))
        found = {ranks: reading(Path(scratch), ranks, recorded, options) for ranks in options.ranks}
        for one in recorded:
            one.run.finish()
    progress("")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    print(f"{options.steps:,} steps of {METRICS} measured metrics and a counter; median of {options.repeats}\n")
    print(commit_table(recorded, options.steps), reading_table(found), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
