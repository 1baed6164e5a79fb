"""Time to open large logs of other programs: the first time, and again, when a journal of them is in the cache.

The logs are written by this script. Each opening is timed in a new process, with the files in the page cache, and reads
one series. Peers read the same file in their own way: TensorBoard's EventAccumulator without its reservoir, pandas, and
Python's JSON; one that is not installed has no number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = [
    f"{group}/{name}"
    for group in ("actor", "critic", "perf", "timing_s")
    for name in ("loss", "kl", "mean", "max", "min")
]
LOGS = 500  # in the directory
NOISE = (
    "(WorkerDict pid=4711) INFO 2026-01-01 12:00:00 [loggers.py:116] Engine 000: Avg prompt throughput: 12.3 tokens/s\n"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One log: how it is written, which series is read, and who else can read it."""

    name: str
    path: str
    size: float  # megabytes, or number of values in millions
    write: Callable[[Path, float], None]
    bar: float | None = None  # seconds of the first opening
    peer: str = ""


def rows(chance: random.Random) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield steps with values; they repeat, which does not affect reading."""
    pool = [chance.uniform(-2, 2) for _ in range(997 + len(NAMES))]
    step = 0
    while True:
        step += 1
        start = step % 997
        yield step, dict(zip(NAMES, pool[start : start + len(NAMES)], strict=True))


def write_lines(path: Path, megabytes: float, line: Callable[[int, dict[str, float]], str], head: str = "") -> None:
    """Write lines until a file has its size."""
    left = megabytes * 1e6
    with path.open("w") as file:
        file.write(head)
        for step, row in rows(random.Random(0)):
            text = line(step, row)
            file.write(text)
            left -= len(text)
            if left <= 0:
                return


def write_events(path: Path, millions: float) -> None:
    """Write an event file of short tags, with the values of a step in one event."""
    from barograph.delivery.trackers import tensorboard as events

    path.mkdir()
    with (path / "events.out.tfevents.1700000000.host.1.0").open("wb") as file:
        file.write(events.event_record(events.version_event(1.7e9)))
        for step, row in rows(random.Random(0)):
            values = {f"m{place}": value for place, value in enumerate(row.values())}
            values["actor/loss"] = values.pop("m0")
            file.write(events.event_record(events.summary_event(1.7e9 + step, step, events.scalar_values(values))))
            if step * len(row) >= millions * 1e6:
                return


def write_console(path: Path, megabytes: float) -> None:
    """Write a console log of veRL: the line of a step among thirty others."""
    write_lines(
        path,
        megabytes,
        lambda step, row: NOISE * 30 + f"(TaskRunner pid=1) step:{step} - "
        + " - ".join(f"{name}:{value!r}" for name, value in row.items()) + "\n",
    )  # fmt: skip


def write_jsonl(path: Path, megabytes: float) -> None:
    write_lines(path, megabytes, lambda step, row: json.dumps({"step": step, **row}) + "\n")


def write_csv(path: Path, megabytes: float) -> None:
    head = ",".join(["step", *NAMES]) + "\n"
    write_lines(path, megabytes, lambda step, row: f"{step},{','.join(map(repr, row.values()))}\n", head)


def write_state(path: Path, megabytes: float) -> None:
    history = []
    for step, row in rows(random.Random(0)):
        history.append({**row, "step": step})
        if step * 1000 >= megabytes * 1e6:
            break
    state = {"epoch": 1.0, "global_step": step, "log_history": history, "max_steps": step}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")


def write_many(path: Path, megabytes: float) -> None:
    """Write a directory of small logs of several formats."""
    writers = ((write_jsonl, "metrics.jsonl"), (write_csv, "log.csv"), (write_console, "train.log"))
    for number in range(round(LOGS * megabytes)):
        write, name = writers[number % len(writers)]
        (path / f"run-{number:03d}").mkdir(parents=True)
        write(path / f"run-{number:03d}" / name, 0.05)


CASES = (
    Case("TensorBoard file, 1.5 M values", "events", 1.5, write_events, 3.0, "EventAccumulator"),
    Case("console log of veRL", "train.log", 100, write_console, 10.0),
    Case("JSON lines", "metrics.jsonl", 100, write_jsonl, None, "pandas"),
    Case("CSV", "metrics.csv", 100, write_csv, None, "pandas"),
    Case("trainer_state.json", "trainer_state.json", 30, write_state, None, "json"),
    Case(f"{LOGS} logs in a directory, listed", "many", 1, write_many),
)


def read(path: Path, case: Case) -> dict[str, float]:
    """Open a log in this process and read a series; of a directory, find its logs."""
    import barograph
    from barograph.importers.logs import find_logs

    _ = barograph.View  # names are imported on first use
    began = clocks()
    if case.path == "many":
        return measured(began, len(list(find_logs(path))))
    view = barograph.open(path)
    return measured(began, len(view.series("actor/loss").values))


def read_as_peer(path: Path, case: Case) -> dict[str, float]:
    """Read a log as another program does."""
    if case.peer == "EventAccumulator":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        began = clocks()
        accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        tags = accumulator.Tags()
        series = accumulator.Scalars if "actor/loss" in tags["scalars"] else accumulator.Tensors
        return measured(began, len(series("actor/loss")))
    if case.peer == "pandas":
        import pandas as pd

        began = clocks()
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_json(path, lines=True)
        return measured(began, len(frame["actor/loss"]))
    began = clocks()
    return measured(began, len(json.loads(path.read_bytes())["log_history"]))


def clocks() -> tuple[float, float]:
    """Return the time, and that of the processor in this process."""
    return time.perf_counter(), time.process_time()


def measured(began: tuple[float, float], points: int) -> dict[str, float]:
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 20)
    seconds, cpu = (now - then for now, then in zip(clocks(), began, strict=True))
    return {"seconds": seconds, "cpu": cpu, "points": points, "mebibytes": peak}


def in_new_process(case: Case, how: str, options: argparse.Namespace) -> dict[str, float] | None:
    """Return the numbers of one reading; None if a peer is not installed."""
    command = [sys.executable, __file__, "--dir", str(options.dir), "--read", case.path, how]
    environment = {**os.environ, "BAROGRAPH_CACHE": str(options.dir / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode and how == "peer":
        return None
    if done.returncode:
        raise SystemExit(f"importing: {case.name} failed\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def size_of(path: Path) -> int:
    """Read a log into the page cache; return its size in bytes."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(len(file.read_bytes()) for file in files)


def measure(case: Case, options: argparse.Namespace) -> tuple[str, bool]:
    """Write a log, open it twice, let its peer read it; return the line of the table and whether the bar holds."""
    print(f"  {case.name} …", file=sys.stderr, flush=True)
    path = options.dir / case.path
    case.write(path, case.size * options.scale)
    size = size_of(path) / 1e6
    first, again = in_new_process(case, "read", options), in_new_process(case, "read", options)
    other = in_new_process(case, "peer", options) if case.peer else None
    assert first is not None
    assert again is not None
    if first["points"] != again["points"] or (other and other["points"] != first["points"]):
        raise SystemExit(f"importing: {case.name}: readings differ in the number of points")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(options.dir / "cache", ignore_errors=True)
    holds = case.bar is None or first["seconds"] < case.bar * options.scale
    bar = "" if case.bar is None else f"under {case.bar * options.scale:g} s: {'holds' if holds else 'FAILS'}"
    peer = f"{case.peer}: {other['cpu']:.2f} CPU s, {other['mebibytes']:,.0f} MiB" if other else ""
    times = f"{first['seconds']:.2f}", f"{first['cpu']:.2f}", f"{again['cpu']:.3f}"
    return line(
        case.name, f"{size:,.0f}", f"{first['points']:,.0f}", times, f"{first['mebibytes']:,.0f}", bar, peer
    ), holds


def line(name: str, size: str, points: str, times: Sequence[str], peak: str, bar: str, peer: str) -> str:
    first, cpu, again = times
    return f"{name:34}{size:>6}{points:>10}{first:>9}{cpu:>8}{again:>13}{peak:>10}   {bar:20}{peer}".rstrip()


def report(options: argparse.Namespace) -> bool:
    """Measure all logs and print the table; return whether all bars hold."""
    chosen = [case for case in CASES if not options.only or case.path in options.only]
    found = [measure(case, options) for case in chosen]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}\n")
    print(line("log", "MB", "points", ("first s", "CPU s", "again CPU s"), "peak MiB", "bar", "peer"))
    print("\n".join(text for text, _ in found))
    return all(holds for _, holds in found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time how long large logs of other programs take to open, and print a table.",
        epilog="example: importing.py --only metrics.csv --scale 0.1",
    )
    parser.add_argument(
        "--dir", type=Path, help="directory below which the logs are written (default: that of temporary files)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="shorten the logs and the bars, to try the script")
    parser.add_argument("--only", action="append", choices=[case.path for case in CASES], help="measure only this log")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)  # run as a reader: log, how
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.read:
        case = next(case for case in CASES if case.path == options.read[0])
        reading: Callable[[Path, Case], Any] = read if options.read[1] == "read" else read_as_peer
        print(json.dumps(reading(options.dir / case.path, case)))
        return 0
    with tempfile.TemporaryDirectory(prefix="importing-", dir=options.dir) as scratch:
        options.dir = Path(scratch)
        kept = report(options)
    return int(options.strict and not kept)


if __name__ == "__main__":
    sys.exit(main())
