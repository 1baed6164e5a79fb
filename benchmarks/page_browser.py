"""Waiting times in a real browser: the first view, scrolling, a new step, the list of runs.

*Large* is the run of ``benchmarks/page.py``: 5,000 steps of 5,000 metrics. A view is timed from the request until the
first chart has its curve. Scrolling uses the mouse wheel: fast through all charts of the run, and slowly through many,
so that each of them is drawn; the browser records every task that blocks its main thread for 50 ms or more. A new step
is timed from the return of ``log`` until the chart has its value, the list until its first page is there.

The table has 5,000 runs, which the server has read before. Its first view is timed until rows are in the page, a sort
and a filter from the click or key until the table shows the result.

``page_live.py`` measures runs that go on and are overlaid.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from browser_cpu import longest_task, main_thread
from page import free_port, make_run, once, serving, until
from playwright.sync_api import sync_playwright

ROUNDS = 5
STEPS = 20  # logged while the page is open
BARS = {"cold": 3.0, "warm": 1.0, "task": 0.100, "live": 1.0, "list": 0.5, "table": 0.1, "table task": 0.05}
TABLE_RUNS = 5000
SETTINGS = 50  # runs that are logged; the others are copies
DRAWN = "() => [...document.querySelectorAll('.vital, .chart')].some(card => card.querySelector('canvas'))"
LONG_TASKS = (
    "window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries().map(one => one.duration)))"
    ".observe({type: 'longtask', buffered: true})"
)
BUSY = "() => setTimeout(() => { const end = performance.now() + 80; while (performance.now() < end); })"
LAST = (
    "name => [...document.querySelectorAll('.chart')].find(c => c.dataset.name === name)"
    "?.card.plot?.lines[0]?.main.last.at(-1)"
)
# The milliseconds from a click on the head of a column, or a key in the filter, until the rows are drawn.
SORT = """async column => {
  const began = performance.now();
  document.querySelector(`.grid-head [data-column="${column}"] button`).click();
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""
FILTER = """async text => {
  const count = document.querySelector('.table-count');
  const before = count.textContent;
  const field = document.querySelector('#where');
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event('input'));
  while (count.textContent === before) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


Rows = dict[str, tuple[float, float]]
"""What was measured: seconds, and the bar."""


@contextmanager
def served(dir: Path) -> Iterator[str]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with serving([sys.executable, "-m", "barograph", "up", str(dir), "--port", str(port)]):
        until(f"{base}/api/about")
        yield base


def view_seconds(browser: Any, address: str, ready: str = DRAWN) -> float:
    """Return the seconds from the request until a condition is true on the page."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(ready, timeout=60_000)
    took = time.perf_counter() - began
    page.close()
    return took


def scroll(browser: Any, address: str, far: int, turns: int = 10_000) -> float:
    """Scroll to the last chart, ``far`` pixels at a time; print and return the longest task of the main thread."""
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
        raise SystemExit(f"{address}: nothing scrolled, so nothing was measured: use a larger --scale")
    charts, alive = page.locator(".chart").count(), page.locator(".chart canvas").count()
    print(
        f"scrolled {moved:,.0f} pixels at {moved / took:,.0f} a second: {len(tasks)} tasks of 50 ms or more; "
        f"{alive} of {charts:,} charts alive at the end"
    )
    page.close()
    return float(max(tasks, default=0.0)) / 1e3


def prove_observed(page: Any) -> None:
    """Block the main thread for 80 ms, wait until the observer reports it, then clear its records."""
    page.evaluate("tasks.splice(0)")
    page.evaluate(BUSY)  # in a timer: an evaluated script is no task of the page
    page.wait_for_function("() => tasks.length")
    page.evaluate("tasks.splice(0)")


def live(browser: Any, base: str, dir: Path) -> list[float]:
    """Log while the page is open; return the seconds until each step is on it."""
    import barograph

    run = barograph.init(project="page", name="live", id="live", dir=str(dir))
    run.log({"loss": -1.0}, step=0)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{base}/?run=live&tab=charts")
    page.wait_for_function(f"() => ({LAST})('loss') === -1")
    found = []
    for step in range(1, STEPS + 1):
        time.sleep(0.37)  # no multiple of a polling interval
        run.log({"loss": float(step)}, step=step)
        began = time.perf_counter()
        page.wait_for_function(f"step => ({LAST})('loss') === step", arg=step, polling=5)
        found.append(time.perf_counter() - began)
    run.finish()
    page.close()
    return found


def make_table(dir: Path, count: int) -> None:
    """Make runs of different configs, and copies of them under other ids."""
    import barograph

    for number in range(min(SETTINGS, count)):
        config = {"actor": {"lr": (number % 10 + 1) * 1e-6, "clip": 0.1 * (number % 3)}, "seed": number % 5}
        run = barograph.init(project="table", id=f"t{number:05d}", dir=str(dir), config=config, tags=["sweep"])
        for step in range(20):
            score = number / SETTINGS + step / 20
            run.log({"critic/score/mean": score, "val/score/mean": score / 2, "loss": 1 / (step + 1)}, step=step)
        run.finish()
    for number in range(SETTINGS, count):
        first = dir / "table" / f"t{number % SETTINGS:05d}"
        folder = first.with_name(f"t{number:05d}")
        shutil.copytree(first, folder)
        info = json.loads((first / "run.json").read_text())
        own = {"id": folder.name, "name": f"run-{number}", "created": info["created"] + number}
        (folder / "run.json").write_text(json.dumps({**info, **own}))


def timed(page: Any, cpu: Callable[[], float], script: str, argument: str) -> tuple[float, float]:
    """Run a script that returns its milliseconds; return its seconds, and the CPU seconds of what it causes."""
    before = cpu()
    took = page.evaluate(script, argument) / 1e3
    page.wait_for_timeout(250)
    return took, cpu() - before


def turn_wheel(page: Any) -> None:
    """Scroll through a good part of the table."""
    for _ in range(100):
        page.mouse.wheel(0, 1700)
        page.wait_for_timeout(30)


def table(browser: Any, base: str, count: int) -> Rows:
    """Return the waiting times of the table of many runs, each with its bar."""
    until(f"{base}/api/table?column=validation")
    while json.loads(httpx.get(f"{base}/api/table", timeout=600).content)["pending"]:
        time.sleep(0.5)
    address = f"{base}/?tab=table"
    rows = "() => document.querySelectorAll('.grid-row').length > 5"
    first = statistics.median(view_seconds(browser, address, rows) for _ in range(ROUNDS))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    page.wait_for_function(rows)
    page.wait_for_timeout(2000)
    cpu = main_thread(page)
    sorts = [timed(page, cpu, SORT, column) for column in ("best:validation", "name", "actor.lr") * 2]
    texts = ("actor.lr > 5e-6", "validation > 0.5 and tag = sweep", "")
    filters = [timed(page, cpu, FILTER, text) for text in texts]
    page.mouse.move(800, 500)
    task, task_cpu = longest_task(browser, page, lambda: turn_wheel(page))
    moved = page.evaluate("document.querySelector('.grid').scrollTop")
    if count > 200 and not moved:
        raise SystemExit("the table did not scroll, so nothing was measured")
    print(f"scrolled the table by {moved:,.0f} pixels; CPU time of the page's main thread:")
    print(f"  sort {max(one for _, one in sorts):.3f} s, filter {max(one for _, one in filters):.3f} s", end="")
    print(f", longest task while scrolling {task_cpu:.3f} s (by the clock {task:.3f} s)")
    page.close()
    return {
        f"table of {count:,} runs, server warm": (first, BARS["warm"]),
        "slowest sort of the table": (max(one for one, _ in sorts), BARS["table"]),
        "slowest filter of the table": (max(one for one, _ in filters), BARS["table"]),
        "longest task of scrolling it, CPU time": (task_cpu, BARS["table task"]),
    }


def measure_run(chromium: Any, options: argparse.Namespace) -> Rows:
    """Measure the views of a large run."""
    large, size = options.dir / "large", round(5000 * options.scale)
    once(large, lambda: make_run(large, "large", size, size))
    with served(large) as base:
        address = f"{base}/?run=large"
        cold = view_seconds(chromium, address)
        warm = statistics.median(view_seconds(chromium, address) for _ in range(ROUNDS))
        charts = statistics.median(view_seconds(chromium, f"{address}&tab=charts") for _ in range(ROUNDS))
        fast = scroll(chromium, f"{address}&tab=charts", 1500)
        slow = scroll(chromium, f"{address}&tab=charts", 300, 200)
    return {
        "first view, server just started": (cold, BARS["cold"]),
        "first view, server warm": (warm, BARS["warm"]),
        "first charts, server warm": (charts, BARS["warm"]),
        "longest task while scrolling, fast": (fast, BARS["task"]),
        "longest task while scrolling, to read": (slow, BARS["task"]),
    }


def measure_list(chromium: Any, options: argparse.Namespace) -> Rows:
    """Measure the list of many runs, and new steps of one beside them."""
    many = options.dir / "list"
    once(many, lambda: [make_run(many, f"r{n:03d}", round(1000 * options.scale), 150) for n in range(200)] and None)
    shutil.rmtree(many / ".page", ignore_errors=True)
    with served(many) as base:
        listed = view_seconds(
            chromium, f"{base}/?tab=overview", "() => document.querySelectorAll('.run').length === 100"
        )
        later = live(chromium, base, many)
    shutil.rmtree(many / "page" / "live", ignore_errors=True)
    return {
        "list of 200 runs, server just started": (listed, BARS["list"]),
        "a new step, median": (statistics.median(later), BARS["live"]),
        "a new step, slowest of 20": (max(later), BARS["live"]),
    }


def measure_table(chromium: Any, options: argparse.Namespace) -> Rows:
    """Measure the table of thousands of runs."""
    runs, count = options.dir / "table", round(TABLE_RUNS * options.scale)
    once(runs, lambda: make_table(runs, count))
    with served(runs) as base:
        return table(chromium, base, count)


PARTS: dict[str, Callable[[Any, argparse.Namespace], Rows]] = {
    "run": measure_run,
    "list": measure_list,
    "table": measure_table,
}


def report(options: argparse.Namespace) -> bool:
    rows: Rows = {}
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, Chromium {chromium.version}\n")
        for name in options.only or PARTS:
            rows |= PARTS[name](chromium, options)
        chromium.close()
    print()
    for what, (seconds, bar) in rows.items():
        least = "under 0.05" if what.startswith("longest") and not seconds else f"{seconds:.3f}"
        print(f"{'holds' if seconds < bar else 'FAILS'}  {what:40}{least:>10} s   under {bar:g} s")
    return all(seconds < bar for seconds, bar in rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where the runs are kept for next time (default: nowhere)")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the runs, to try the script")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure one part; may be repeated")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-") as scratch:
        options.dir = options.dir or Path(scratch)
        options.dir.mkdir(parents=True, exist_ok=True)
        holds = report(options)
    return int(options.strict and not holds)


if __name__ == "__main__":
    sys.exit(main())
