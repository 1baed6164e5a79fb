"""Time of exporting many runs, of exporting them again, of questions about them, and of the doctor over all of them."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import barograph

RATES = (1e-6, 3e-6, 1e-5, 3e-5)
GROWN = 0.05  # share of the runs that go on between two exports
QUESTION = "SELECT metric, count(*), avg(value) FROM t WHERE name = 'critic/score/mean' GROUP BY metric"


def record(dir: Path, number: int, steps: range, metrics: int) -> None:
    """Record a run with a curve for each metric; one in four with the highest rate gets a NaN."""
    noise = random.Random(number)
    rate = RATES[number % len(RATES)]
    config = {"actor": {"lr": rate, "clip": 0.2}, "seed": number, **{f"option{n}": n for n in range(40)}}
    run = barograph.init(
        dir=dir, project=f"project{number % 5}", id=f"run{number:05}", name=f"run {number}", config=config
    )
    names = [f"part{n % 7}/metric{n}" for n in range(metrics)]
    for step in steps:
        broken = rate == RATES[-1] and number % 16 == 3 and step > 50
        values = dict.fromkeys(names, 0.0) | {name: noise.gauss(step / 100, 1) for name in names}
        values |= {"critic/score/mean": step / 400 + noise.random() / 10, "actor/grad_norm": noise.random()}
        run.log({**values, "actor/entropy": float("nan") if broken else 1 / (1 + step / 100)}, step=step)
    run.finish()


def timed(*arguments: str) -> tuple[float, float, str]:
    """Run a command of barograph; return its wall and CPU seconds, and the last line of what it said."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "barograph", *arguments], capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, (done.stderr or done.stdout).strip().splitlines()[-1]


def show(what: str, wall: float, cpu: float, said: str) -> None:
    print(f"{what:<34}{wall:>8.2f} s {cpu:>8.2f} s CPU   {said}", flush=True)


def folder_bytes(dir: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in dir.rglob(pattern))


def bench_export(dir: Path, count: int, steps: int, metrics: int) -> None:
    """Export runs, export them again, and after some have grown; then ask for one metric of all."""
    runs, out = dir / f"runs{count}", dir / f"fleet{count}"
    for number in range(count):
        record(runs, number, range(steps), metrics)
    journal = folder_bytes(runs, "*.seg")
    print(f"\n{count} runs of {steps} steps and {metrics + 3} metrics, {journal / 1e6:.0f} MB of journals")
    command = ("export", str(runs), "--to", "parquet", "--partition", "project,run", "-o", str(out))
    show("export", *timed(*command))
    show("again, nothing is new", *timed(*command))
    for number in range(0, count, round(1 / GROWN)):
        record(runs, number, range(steps, steps + steps // 10), metrics)
    show(f"again, {GROWN:.0%} have grown", *timed(*command))
    show("fleet doctor, all known", *timed("doctor", str(runs), "--fleet", "--by", "actor.lr"))
    size, files = folder_bytes(out, "*.parquet"), len(list(out.rglob("*.parquet")))
    print(f"{size / 1e6:.1f} MB in {files} files, {size / (count * steps * (metrics + 3)):.2f} bytes a value")
    ask(out)


def ask(out: Path) -> None:
    """Time one metric of all runs with DuckDB, if it is installed."""
    try:
        import duckdb
    except ImportError:
        return
    connection = duckdb.connect()
    connection.sql(
        f"CREATE VIEW t AS SELECT * FROM read_parquet('{out}/values/**/*.parquet', hive_partitioning = true)"
    )
    start = time.perf_counter()
    connection.sql(QUESTION).fetchall()
    print(f"DuckDB, one metric of all runs: {time.perf_counter() - start:.2f} s")


def bench_doctor(dir: Path, count: int) -> None:
    """Judge small runs, and sum up the verdicts again when they are known."""
    runs = dir / "small"
    for number in range(count):
        record(runs, number, range(60), 5)
    print(f"\n{count} runs of 60 steps and 8 metrics")
    for what, options in (
        ("fleet doctor, none known", ()),
        ("again, all known", ()),
        ("again, by a key of the config", ("--by", "actor.lr")),
    ):
        wall, cpu, _ = timed("doctor", str(runs), "--fleet", *options)
        show(what, wall, cpu, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="*", default=[200, 400], help="numbers of runs to export")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--small", type=int, default=2000, help="runs for the doctor")
    parser.add_argument("--dir", type=Path, help="where to work (default: a temporary directory)")
    options = parser.parse_args()
    dir = Path(tempfile.mkdtemp(prefix="fleet-", dir=options.dir))
    try:
        for count in options.runs:
            bench_export(dir, count, options.steps, options.metrics)
        if options.small:
            bench_doctor(dir, options.small)
    finally:
        shutil.rmtree(dir, ignore_errors=True)


if __name__ == "__main__":
    main()
