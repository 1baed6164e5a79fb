"""Waiting times in a real browser: first view, scrolling, a new step, the list of runs.

*Large* is the run of ``benchmarks/page.py``: 5,000 steps of 5,000 metrics. The first view is timed from the request of
the address until the first chart has its curve. Scrolling uses the mouse wheel, fast through all charts of the run, and
slowly through many, so that every chart is drawn; the browser reports every task that blocks its main thread for 50 ms
or more. A new step is timed from the return of ``log`` until the chart has its value. The list is complete when all 200
runs are in the page.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page import free_port, make_run, once, serving, until
from playwright.sync_api import sync_playwright

ROUNDS = 5
STEPS = 20  # steps logged while the page is open
BARS = {"cold": 3.0, "warm": 1.0, "task": 0.100, "live": 1.0, "list": 0.5}
DRAWN = "() => [...document.querySelectorAll('.vital, .chart')].some(card => card.querySelector('canvas'))"
LONG_TASKS = (
    "window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries().map(one => one.duration)))"
    ".observe({type: 'longtask', buffered: true})"
)
BUSY = "() => setTimeout(() => { const end = performance.now() + 80; while (performance.now() < end); })"
LAST = (
    "name => [...document.querySelectorAll('.chart')].find(c => c.dataset.name === name)"
    "?.chart.plot?.lines[0]?.main.last.at(-1)"
)


@contextmanager
def served(dir: Path) -> Iterator[str]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with serving([sys.executable, "-m", "windsock", "up", str(dir), "--port", str(port)]):
        until(f"{base}/api/about")
        yield base


def picture(browser: Any, address: str, ready: str = DRAWN) -> float:
    """Return the seconds from the request of an address until the expected element is on the page."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(ready, timeout=60_000)
    took = time.perf_counter() - began
    page.close()
    return took


def scroll(browser: Any, address: str, far: int, turns: int = 10_000) -> float:
    """Scroll to the last chart; print the main thread's tasks and return the longest."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(LONG_TASKS)
    page.goto(address)
    page.wait_for_function(DRAWN)
    page.wait_for_timeout(1000)
    prove_observed(page)
    page.mouse.move(800, 500)
    began = time.perf_counter()
    while turns and page.evaluate("scrollY + innerHeight < document.documentElement.scrollHeight - 4"):
        page.mouse.wheel(0, far)
        page.wait_for_timeout(50)
        turns -= 1
    took = time.perf_counter() - began
    page.wait_for_timeout(500)
    moved, tasks = page.evaluate("scrollY"), page.evaluate("tasks")
    if not moved:
        raise SystemExit(f"{address}: nothing scrolled, so that nothing was measured; are there too few charts?")
    charts, alive = page.locator(".chart").count(), page.locator(".chart canvas").count()
    print(
        f"scrolled {moved:,.0f} pixels at {moved / took:,.0f} a second: {len(tasks)} tasks of 50 ms or more; "
        f"{alive} of {charts:,} charts alive at the end"
    )
    page.close()
    return float(max(tasks, default=0.0)) / 1e3


def prove_observed(page: Any) -> None:
    """Block the main thread for 80 ms, wait until the task is reported, then clear the reports."""
    page.evaluate("tasks.splice(0)")
    page.evaluate(BUSY)  # by a timer: code evaluated from outside is not reported as a task
    page.wait_for_function("() => tasks.length")
    page.evaluate("tasks.splice(0)")


def live(browser: Any, base: str, dir: Path) -> list[float]:
    """Log while the page is open; return the seconds until each step is shown."""
    import windsock

    run = windsock.init(project="page", name="live", id="live", dir=str(dir))
    run.log({"loss": -1.0}, step=0)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{base}/?run=live&tab=charts")
    page.wait_for_function(f"() => ({LAST})('loss') === -1")
    found = []
    for step in range(1, STEPS + 1):
        time.sleep(0.37)  # not a multiple of any polling interval
        run.log({"loss": float(step)}, step=step)
        began = time.perf_counter()
        page.wait_for_function(f"step => ({LAST})('loss') === step", arg=step, polling=5)
        found.append(time.perf_counter() - began)
    run.finish()
    page.close()
    return found


def report(options: argparse.Namespace) -> bool:
    large, many = options.dir / "large", options.dir / "list"
    size = round(5000 * options.scale)
    once(large, lambda: make_run(large, "large", size, size))
    once(many, lambda: [make_run(many, f"r{n:03d}", round(1000 * options.scale), 150) for n in range(200)] and None)
    shutil.rmtree(many / ".page", ignore_errors=True)
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, Chromium {chromium.version}\n")
        with served(large) as base:
            address = f"{base}/?run=large"
            cold = picture(chromium, address)
            warm = statistics.median(picture(chromium, address) for _ in range(ROUNDS))
            charts = statistics.median(picture(chromium, f"{address}&tab=charts") for _ in range(ROUNDS))
            fast = scroll(chromium, f"{address}&tab=charts", 1500)
            slow = scroll(chromium, f"{address}&tab=charts", 300, 200)
        with served(many) as base:
            listed = picture(chromium, base, "() => document.querySelectorAll('.run').length === 200")
            later = live(chromium, base, many)
        shutil.rmtree(many / "page" / "live", ignore_errors=True)
        chromium.close()
    rows = {
        "first picture, server just started": (cold, BARS["cold"]),
        "first picture, server warm": (warm, BARS["warm"]),
        "first charts, server warm": (charts, BARS["warm"]),
        "list of 200 runs, server just started": (listed, BARS["list"]),
        "a new step, median": (statistics.median(later), BARS["live"]),
        "a new step, slowest of 20": (max(later), BARS["live"]),
        "longest task while scrolling, fast": (fast, BARS["task"]),
        "longest task while scrolling, to read": (slow, BARS["task"]),
    }
    print()
    for what, (seconds, bar) in rows.items():
        least = "under 0.05" if what.startswith("longest") and not seconds else f"{seconds:.3f}"
        print(f"{'holds' if seconds < bar else 'FAILS'}  {what:40}{least:>10} s   under {bar:g} s")
    return all(seconds < bar for seconds, bar in rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="directory to keep the runs in (default: a temporary one)")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the runs, to try the script")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-") as scratch:
        options.dir = options.dir or Path(scratch)
        options.dir.mkdir(parents=True, exist_ok=True)
        holds = report(options)
    return int(options.strict and not holds)


if __name__ == "__main__":
    sys.exit(main())
