"""CPU time of a page's main thread, which other programs disturb less than waiting times."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

TRACED = ["toplevel", "disabled-by-default-devtools.timeline", "__metadata"]


def main_thread(page: Any, what: str = "TaskDuration") -> Callable[[], float]:
    """Return a function that returns the CPU seconds of a page's main thread so far, or those of its scripts."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        measured = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return float(measured[what])

    return seconds


def longest_task(browser: Any, page: Any, work: Callable[[], None]) -> tuple[float, float]:
    """Return the longest task of the main thread during some work, by the clock and by its CPU time, in seconds."""
    browser.start_tracing(page=page, categories=TRACED)
    work()
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    main = {thread for thread, name in threads.items() if name == "CrRendererMain"}
    # A task that goes on at the end of the trace has no duration.
    tasks = [e for e in events if e["name"] == "RunTask" and (e["pid"], e["tid"]) in main and "dur" in e]
    return max(task["dur"] for task in tasks) / 1e6, max(task["tdur"] for task in tasks) / 1e6
