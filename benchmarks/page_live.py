"""Twenty running runs overlaid in thirty charts of a real browser, each with one step a second.

A process logs the steps, evenly spread over the second. A step is timed from the return of ``commit`` until every chart
in view has its point; the window is large enough for all charts. The server's CPU time is that of its process, the
page's that of the browser's main thread: both are less disturbed by other programs than waiting times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from browser_cpu import main_thread
from page import free_port, serving, until
from playwright.sync_api import sync_playwright

RUNS, CHARTS, BEFORE, SECONDS = 20, 30, 500, 20
WINDOW = {"width": 2560, "height": 2200}
KNOWN = ("critic/score/mean", "actor/pg_clipfrac", "actor/approxkl", "actor/entropy_loss", "val/score/mean")
BARS = {"live": 0.3, "server": 10.0}
# Remembers when each line of each chart got a step: [run, step, milliseconds since 1970].
WATCH = """() => {
  window.seen = [];
  const drawn = new Map();
  const look = () => {
    const now = performance.timeOrigin + performance.now();
    for (const node of document.querySelectorAll('.chart')) {
      const lines = node.card.plot?.lines;
      const known = drawn.get(node);
      if (!lines || known?.lines === lines) continue;
      const steps = {};
      for (const { run, main } of lines) {
        steps[run] = main.x_end.at(-1);
        if (known && steps[run] !== known.steps[run]) seen.push([run, steps[run], now, node.dataset.name]);
      }
      drawn.set(node, { lines, steps });
    }
    requestAnimationFrame(look);
  };
  look();
}"""
READY = "count => [...document.querySelectorAll('.chart')].filter(one => one.card.plot?.lines.length).length >= count"


def names(count: int) -> list[str]:
    return [*KNOWN, *(f"layers/norm_{i:02d}" for i in range(count))][:count]


def write(options: argparse.Namespace) -> None:
    """Log steps of all runs until standard input ends; print run, step and time of each."""
    import barograph

    keys = names(options.charts)
    runs = [
        barograph.init(project="live", id=f"r{n:02d}", name=f"r{n:02d}", dir=options.dir, concurrent=True)
        for n in range(options.runs)
    ]

    def log(number: int, step: int) -> None:
        values = {key: 0.3 + 0.1 * math.sin(step / 40 + place) + number / 100 for place, key in enumerate(keys)}
        runs[number].log(values)
        runs[number].commit(step)

    for step in range(options.before):
        for number in range(options.runs):
            log(number, step)
    print("ready", flush=True)
    sys.stdin.readline()
    began, count = time.monotonic(), 0
    while count < options.runs * options.seconds:
        time.sleep(max(0.0, began + count / options.runs - time.monotonic()))
        number, step = count % options.runs, options.before + count // options.runs
        log(number, step)
        print(json.dumps([f"r{number:02d}", step, time.time()]), flush=True)
        count += 1
    for run in runs:
        run.finish()


@contextmanager
def writing(options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """Run the process that logs, up to its first live step."""
    given = [f"--{name}={getattr(options, name)}" for name in ("dir", "runs", "charts", "before", "seconds")]
    command = [sys.executable, __file__, "--write", *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def waiting_times(written: list[Any], seen: list[Any]) -> list[float]:
    """Return the seconds from the writing of each step until the last chart had it, or a later one."""
    found = []
    charts = {name for _, _, _, name in seen}
    for run, step, at in written:
        first = {}
        for key, shown, now, name in seen:
            if key == run and shown >= step:
                first.setdefault(name, now / 1e3)
        found.append(max(first.values()) - at if charts <= first.keys() else math.inf)
    return found


def measure(browser: Any, options: argparse.Namespace) -> dict[str, float]:
    """Open the charts of all runs while they go on; return what was measured."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    keys = [f"r{n:02d}" for n in range(options.runs)]
    command = [sys.executable, "-m", "barograph", "up", str(options.dir), "--port", str(port)]
    with writing(options) as writer, serving(command):
        server = next(one for one in psutil.Process().children() if one.pid != writer.pid and "up" in one.cmdline())
        until(f"{base}/api/about")
        page = browser.new_page(viewport=WINDOW)
        page.goto(f"{base}/?tab=charts&run={keys[0]}&with={','.join(keys[1:])}")
        page.wait_for_function(READY, arg=options.charts, timeout=60_000)
        page.wait_for_timeout(3000)  # what a page does at first: rewards and verdicts of the list
        clocks = [main_thread(page), main_thread(page, "ScriptDuration")]
        page.evaluate(WATCH)
        requests: Counter[str] = Counter()
        page.on("request", lambda request: requests.update([request.url.split("?")[0].removeprefix(base)]))
        assert writer.stdin is not None
        assert writer.stdout is not None
        before, ticks, began = server.cpu_times(), [clock() for clock in clocks], time.monotonic()
        writer.stdin.write("\n")
        writer.stdin.flush()
        page.wait_for_timeout(options.seconds * 1000)
        passed = time.monotonic() - began
        after, later = server.cpu_times(), [clock() for clock in clocks]
        written = [json.loads(line) for line in writer.stdout]
        page.wait_for_timeout(1000)
        waits = waiting_times(written, page.evaluate("seen"))
        page.close()
    for path, count in requests.most_common():
        print(f"  {count / passed:6.1f} a second  {path}")
    return {
        "a new step, median": statistics.median(waits),
        "a new step, 95 of 100": sorted(waits)[int(len(waits) * 0.95)],
        "a new step, slowest": max(waits),
        "server CPU %": 100 * (after.user + after.system - before.user - before.system) / passed,
        "page CPU %": 100 * (later[0] - ticks[0]) / passed,
        "of it scripts %": 100 * (later[1] - ticks[1]) / passed,
        "requests a second": sum(requests.values()) / passed,
    }


def report(found: dict[str, float]) -> bool:
    bars = {"a new step, median": BARS["live"], "a new step, 95 of 100": BARS["live"], "server CPU %": BARS["server"]}
    for what, value in found.items():
        bar = bars.get(what)
        word = "" if bar is None else "holds" if value < bar else "FAILS"
        print(f"{word:5}  {what:40}{value:10.3f}" + ("" if bar is None else f"   under {bar:g}"))
    return all(found[what] < bar for what, bar in bars.items())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--charts", type=int, default=CHARTS)
    parser.add_argument("--before", type=int, default=BEFORE, help="steps of each run before the page opens")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="that are measured")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    parser.add_argument("--dir", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.write:
        write(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="page-live-") as options.dir, sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, Chromium {chromium.version}\n")
        found = measure(chromium, options)
        chromium.close()
    print()
    return int(not report(found) and options.strict)


if __name__ == "__main__":
    sys.exit(main())
