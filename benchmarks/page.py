"""Response times of the page's server, cold and warm, compared with TensorBoard on the same data.

*Large* is one run of 5,000 steps of 5,000 metrics, of which 23 have a spike of one point, written by barograph and,
value by value the same, as TensorBoard event files; *list* is 200 runs of 1,000 steps of 150 metrics. Cold is from the
start of the server's process to the last byte of the answer, with the files in the system's cache; warm is the same
request again, without an ETag. TensorBoard is asked over its own HTTP interface: it has drawn a chart when it lists all
tags and gives the points of one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

COLD = 3  # starts; the median counts
WARM = 7  # responses; the median counts
TIMEOUT_SECONDS = 300.0
CHARTS = 24
SPIKE = 1e6
SAMPLED = 1000  # points that TensorBoard keeps of a series
REWARD = "critic/score/mean"
BARS = {"cold": 3.0, "warm": 1.0, "list": 0.5}


def names(count: int) -> list[str]:
    return [REWARD, *(f"layer_{i // 50:03d}/metric_{i % 50:02d}/mean" for i in range(count - 1))]


def rows(steps: int, count: int) -> Iterator[list[float]]:
    """Yield a row of values for each step; some metrics have one spike each."""
    draw = random.Random(7).random
    pool = [draw() for _ in range(count + 997)]
    for step in range(steps):
        row = pool[step % 997 : step % 997 + count]
        for place in range(1, CHARTS):
            if step == place * 617 % steps:
                row[place] = SPIKE
        yield row


def make_run(dir: Path, id: str, steps: int, count: int) -> None:
    import barograph

    run = barograph.init(project="page", name=id, id=id, dir=str(dir))
    keys = names(count)
    for step, row in enumerate(rows(steps, count)):
        run.log(dict(zip(keys, row, strict=True)))
        run.commit(step)
    run.finish()


def make_events(dir: Path, steps: int, count: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(dir), max_queue_size=1000, flush_secs=60)
    keys = names(count)
    for step, row in enumerate(rows(steps, count)):
        values = [Summary.Value(tag=key, simple_value=value) for key, value in zip(keys, row, strict=True)]
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=values)))
    writer.close()


def once(folder: Path, make: Callable[[], None]) -> None:
    """Make data unless it is complete from an earlier time."""
    stamp = folder.with_name(f"{folder.name}.made")
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"  making {folder.name} …", file=sys.stderr, flush=True)
        make()
        stamp.touch()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(command: list[str]) -> Iterator[float]:
    """Run a server; yield the time at which its process was started."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield began
    finally:
        process.terminate()
        process.wait()


def fetch(address: str) -> bytes:
    with urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
        return bytes(answer.read())


def until(address: str, enough: Callable[[bytes], bool] = lambda body: True) -> bytes:
    """Request until a response is enough."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError, TimeoutError):
            body = fetch(address)
            if enough(body):
                return body
        time.sleep(0.02)
    raise SystemExit(f"page: no response from {address}")


def median(address: str) -> float:
    taken = []
    for _ in range(WARM):
        began = time.perf_counter()
        fetch(address)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def barograph_times(dir: Path, key: str, count: int) -> dict[str, float]:
    """Measure the overview, 24 charts and the list of a directory."""
    port = free_port()
    base = f"http://127.0.0.1:{port}/api"
    charts = urlencode([("name", name) for name in names(count)[:CHARTS]])
    with serving([sys.executable, "-m", "barograph", "up", str(dir), "--port", str(port)]) as began:
        until(f"{base}/runs/{key}/overview")
        found = {"overview cold": time.perf_counter() - began}
        fetch(f"{base}/runs/{key}/series?{charts}")
        found["first 24 charts cold"] = time.perf_counter() - began
        found["overview warm"] = median(f"{base}/runs/{key}/overview")
        found["24 charts warm"] = median(f"{base}/runs/{key}/series?{charts}")
        found["names warm"] = median(f"{base}/runs/{key}/names")
        drawn = json.loads(fetch(f"{base}/runs/{key}/series?{charts}&points=100&format=json"))["series"]
        found["spikes kept of 23"] = sum(max(one.get("max") or one["last"]) == SPIKE for one in drawn)
    return found


def medians(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    found = [measure() for _ in range(COLD)]
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def list_times(dir: Path) -> dict[str, float]:
    port = free_port()
    base = f"http://127.0.0.1:{port}/api"
    with serving([sys.executable, "-m", "barograph", "up", str(dir), "--port", str(port)]):
        until(f"{base}/about")
        began = time.perf_counter()
        fetch(f"{base}/runs")
        found = {"first list": time.perf_counter() - began}
        until(f"{base}/runs", lambda body: json.loads(body)["pending"] == 0)
        found["with all sparklines"] = time.perf_counter() - began
        found["list warm"] = median(f"{base}/runs")
    return found


def tensorboard_times(dir: Path, steps: int, count: int) -> dict[str, float]:
    """Time TensorBoard until it lists all tags and gives one series, then 24 of them."""
    port = free_port()
    base = f"http://127.0.0.1:{port}/data/plugin/scalars"
    wanted = names(count)
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(dir), "--port", str(port)]
    with serving(command) as began:
        until(f"{base}/tags", lambda body: any(len(tags) == count for tags in json.loads(body).values()))
        one = f"{base}/scalars?{urlencode({'run': '.', 'tag': wanted[0]})}"
        until(one, lambda body: len(json.loads(body)) > 0.9 * min(steps, SAMPLED))
        found = {"overview cold": time.perf_counter() - began}
        drawn = [fetch(f"{base}/scalars?{urlencode({'run': '.', 'tag': name})}") for name in wanted[:CHARTS]]
        found["first 24 charts cold"] = time.perf_counter() - began
        found["overview warm"] = median(f"{base}/tags") + median(one)
        found["24 charts warm"] = CHARTS * median(one)
        found["spikes kept of 23"] = sum(max(p[2] for p in json.loads(points)) == SPIKE for points in drawn)
    return found


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    print(f"  {'':24}" + "".join(f"{name:>16}" for name in columns))
    for key in dict.fromkeys(key for found in columns.values() for key in found):
        cells = "".join(f"{_cell(key, found.get(key)):>16}" for found in columns.values())
        print(f"  {key:24}{cells}")


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if key.startswith("spikes") else f"{value:.3f} s"


def report(options: argparse.Namespace) -> bool:
    large, many, events = (options.dir / name for name in ("large", "list", "events"))
    steps, count = round(5000 * options.scale), round(5000 * options.scale)
    once(large, lambda: make_run(large, "large", steps, count))
    once(many, lambda: [make_run(many, f"r{n:03d}", round(1000 * options.scale), 150) for n in range(200)] and None)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    both = {"barograph": medians(lambda: barograph_times(large, "large", count))}
    if not options.alone:
        once(events, lambda: make_events(events, steps, count))
        both["TensorBoard"] = medians(lambda: tensorboard_times(events, steps, count))
    shutil.rmtree(many / ".page", ignore_errors=True)  # what an earlier server remembers
    listed = list_times(many)
    listed["by the next server"] = list_times(many)["with all sparklines"]
    print_table(f"one run of {steps:,} steps of {count:,} metrics", both)
    print_table("200 runs of 1,000 steps of 150 metrics", {"barograph": listed})
    return verdict(listed, both)


def verdict(listed: dict[str, float], both: dict[str, dict[str, float]]) -> bool:
    found = both["barograph"]
    checks: list[tuple[bool, str]] = [
        (found["overview cold"] < BARS["cold"], f"overview cold under {BARS['cold']:g} s"),
        (found["overview warm"] < BARS["warm"], f"overview warm under {BARS['warm']:g} s"),
        (listed["first list"] < BARS["list"], f"200 runs under {BARS['list']:g} s"),
        (found["spikes kept of 23"] == CHARTS - 1, "no spike is lost"),
    ]
    if "TensorBoard" in both:
        times = both["TensorBoard"]["overview cold"] / found["overview cold"]
        checks.append((times >= 10, f"first chart 10 x sooner than TensorBoard: {times:.1f} x"))
    print()
    for holds, text in checks:
        print(f"{'holds' if holds else 'FAILS':6} {text}")
    return all(holds for holds, _ in checks)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the runs are kept for next time (default: nowhere)")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the runs, to try the script")
    parser.add_argument("--alone", action="store_true", help="without TensorBoard")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="page-") as scratch:
        options.dir = options.dir or Path(scratch)
        options.dir.mkdir(parents=True, exist_ok=True)
        kept: Any = report(options)
    return int(options.strict and not kept)


if __name__ == "__main__":
    sys.exit(main())
