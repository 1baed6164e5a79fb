"""Cost of samples: submitting them, writing them, and searching 50,000; and of their tokens.

In the run every step submits more samples than are stored: groups of eight completions of about 2 kB. The run is then
opened, searched once, which builds the index, and searched again in several ways: in one process, and with the command.
Another run has a few long samples with values of their tokens. One of them is opened and scrolled in a real browser, if
Playwright is installed; on a busy machine, compare the CPU time.

``tokens`` measures only what the tokens of measured sequences cost a step: a batch with ids and its micro-batches, with
``tokens=0`` and with ``tokens=4`` in turn. Every call is timed alone. Between calls the caches of the device are
overwritten, as by the layers of a model; between steps the thread queues operations, as that of a training does: after
a sleep its core is slow and its caches are cold. The kernels are timed by PyTorch's profiler, in steps of their own. It
needs torch and NumPy alone, and uses a CUDA device if there is one:

    PYTHONPATH=src python benchmarks/samples.py tokens --strict
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from browser_cpu import longest_task, main_thread
from fastest_core import stay_on_fastest_core

KEPT_PER_STEP, GROUP = 64, 8
BAR = 1.0  # seconds
REPEATS = 5
SEARCHES: dict[str, dict[str, Any]] = {
    "a rare word": {"grep": "answer 777"},
    "a word in no sample": {"grep": "no such word"},
    "a word in all": {"grep": "therefore", "sort": "-reward"},
    "a word with a letter beyond ASCII": {"grep": "überall"},
    "a word of such letters": {"grep": "повсюду"},
    "a regular expression": {"regex": r"answer 77\d\b"},
    "one that begins with no letter *": {"regex": r"\b77[78]$"},
    "step, reward and word": {"step": 12, "min_reward": 0.5, "grep": "therefore"},
    "reward alone": {"min_reward": 0.999},
    "two conditions": {"where": "reward.format < 0.5 and correct = false", "sort": "-reward.format"},
    "two conditions and a word": {"where": "reward.format < 0.5 and correct = false", "grep": "answer 777"},
}
TOKENS, TOKEN_SAMPLES, LONG_TOKENS = 8192, 4, 32_768
SCROLLS = 60  # turns of the wheel
TOKEN_BAR = 0.3  # seconds to answer the request for a sample of LONG_TOKENS tokens, and to show it
TASK_BAR = 0.05  # CPU seconds of the longest task of the browser's main thread while the tokens are scrolled
OPEN = """() => new Promise((done) => {
    const began = performance.now();
    const done_at = () => done(performance.now() - began);
    const look = () => document.querySelector('.token-row') ? done_at() : requestAnimationFrame(look);
    [...document.querySelectorAll('nav.tabs a')].find((link) => link.href.includes('tab=samples')).click();
    look();
})"""
MICRO_BATCHES, WARM_UP = 16, 4
HOST_BAR, PASS_BAR, BYTES_BAR = 100.0, 1.0, 300.0  # µs of the host and per cent of the pass more, and kB, of a step
CALLS = {
    "measure, data part, µs": slice(0, 1), "measure, first policy part, µs": slice(1, 2),
    "measure, second policy part, µs": slice(2, 3), f"measure, {MICRO_BATCHES - 2} further ones, µs": slice(3, -1),
    "commit, µs": slice(-1, None),
}  # fmt: skip
PASSES = {
    "kernel of the data part, ms": slice(0, 1), "  of the first policy part": slice(1, 2),
    "  of the further ones": slice(2, None), "all kernels of the pass, ms": slice(None),
}  # fmt: skip
BUSY_CYCLES = 40_000_000  # about 20 ms, in which the host queues a step
CACHE_BYTES = 1 << 28  # more than a device's caches have
PROFILES, PAUSE_IN_PROFILE = 6, 0.01  # seconds
KERNELS = ("_rows", "_choose")  # of the pass


class Writer:
    """Generator of English-like text: common and rare words, and repeated phrases."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgk"
        words = ["".join(self._draw.choices(letters, k=self._draw.randrange(2, 10))) for _ in range(5000)]
        weights = [1 / (rank + 5) for rank in range(len(words))]
        self._phrases = [" ".join(self._draw.choices(words, weights, k=12)) for _ in range(20_000)]

    def text(self, size: int) -> str:
        """Return a text of about this length."""
        phrases = self._draw.choices(self._phrases, k=max(1, size // 70))
        return ".\n".join(f"{phrase} – therefore {self._draw.randrange(1000)}" for phrase in phrases)


def offered(writer: Writer, step: int, count: int) -> list[dict[str, Any]]:
    """Return the samples of a step as keyword arguments."""
    draw = random.Random(step)
    rows = []
    for group in range(count // GROUP):
        prompt, task = writer.text(400), f"task-{draw.randrange(2000)}"
        for _ in range(GROUP):
            text = f"{writer.text(draw.randrange(800, 2400))}\nanswer {draw.randrange(1000)}"
            rows.append({
                "prompt": prompt, "completion": text, "reward": draw.random(),
                "rewards": {"accuracy": float(draw.random() > 0.5), "format": draw.random()},
                "advantage": draw.gauss(0, 1), "length": len(text) // 4, "task": task, "group": f"{step}-{group}",
                "finish_reason": draw.choice(["stop", "stop", "stop", "length"]), "weight_version": step,
                "correct": draw.random() > 0.5, "staleness": draw.randrange(4),
            })  # fmt: skip
    return rows


def record(dir: Path, steps: int, per_step: int) -> dict[str, Any]:
    """Write the run; return it and the cost of each part."""
    import barograph

    writer = Writer(7)
    run = barograph.init(dir=dir, project="bench", name="samples", samples_per_step=KEPT_PER_STEP)
    offering, committing, size = [], [], 0
    for step in range(steps):
        rows = offered(writer, step, per_step)
        size += sum(len(row["prompt"].encode()) + len(row["completion"].encode()) for row in rows[:KEPT_PER_STEP])
        began = time.perf_counter()
        for row in rows:
            run.sample(**row)
        offering.append((time.perf_counter() - began) / per_step)
        run.log({f"metric/{n}": float(n) for n in range(50)})
        began = time.perf_counter()
        run.commit(step)
        committing.append(time.perf_counter() - began)
    run.finish()
    return {"path": run.path, "offer": offering, "commit": committing, "text": size / (steps * KEPT_PER_STEP)}


def token_fields(count: int, seed: int) -> dict[str, Any]:
    """Return the tokens of a sample and six arrays of values, as a trainer has them."""
    import numpy as np

    draw = np.random.default_rng(seed)
    log_prob = -draw.exponential(0.4, count)
    words = [f"w{n} " for n in draw.integers(0, 500, count)]
    return {
        "completion": "".join(words), "tokens": words, "length": count,
        "token_values": {
            "log_prob": log_prob, "old": log_prob + draw.normal(0, 0.05, count), "mask": np.ones(count),
            "rollout": log_prob + draw.normal(0, 0.02, count), "advantage": np.full(count, 0.7),
            "entropy": draw.exponential(0.5, count),
        },
    }  # fmt: skip


def tokens(dir: Path) -> bool:
    """Print what tokens with values cost; return whether a long sample is answered within its bar."""
    import barograph
    from barograph.answers.responses import encode
    from barograph.answers.views.samples import whole_sample
    from barograph.journal.samples.query import Query

    run = barograph.init(dir=dir, project="bench", name="tokens", sample_bytes_per_step=4 << 20)
    steps, submitting = 5, []
    for step in range(steps):
        rows = [token_fields(TOKENS, TOKEN_SAMPLES * step + n) for n in range(TOKEN_SAMPLES)]
        submitting += [timed(lambda row=row: run.sample(**row), 1)[0] for row in rows]
        run.commit(step)
    run.finish()
    size = sum(file.stat().st_size for file in run.path.glob("*.seg"))
    other = barograph.init(dir=dir, project="bench", name="long", id="long", sample_bytes_per_step=8 << 20)
    other.sample(**token_fields(LONG_TOKENS, 1))
    other.finish()
    view = barograph.open(other.path)
    place = view.find_samples(Query()).places[0]
    answer, _ = timed(lambda: encode(whole_sample(view.find_samples(Query(place=place), 1).samples[0])))
    print(f"\nTokens with six arrays of values, {TOKEN_SAMPLES} samples of {TOKENS:,} tokens a step\n")
    line("run.sample, each", statistics.median(submitting) * 1e3, "ms")
    line("on disk, a step, with the texts", size / steps / 1000, "kB")
    line(f"answer with {LONG_TOKENS:,} tokens", answer * 1e3, "ms")
    return answer < TOKEN_BAR and shown_tokens(dir)


def shown_tokens(dir: Path) -> bool:
    """Print how long a browser takes to show LONG_TOKENS tokens and to scroll them; return whether the bars hold."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("  not shown in a browser: Playwright is not installed")
        return True
    from page_browser import served

    with served(dir) as base, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        cpu = main_thread(page)
        opening = [opened(page, base, cpu) for _ in range(REPEATS + 1)][1:]  # the first one fills the server's caches
        wall, longest = longest_scroll(browser, page)
        browser.close()
    shown = statistics.median(seconds for seconds, _ in opening)
    line(f"open the view of {LONG_TOKENS:,} tokens", shown * 1e3, "ms")
    line("  CPU time of the browser's main thread", statistics.median(cpu for _, cpu in opening) * 1e3, "ms")
    line("scroll through them: longest task, CPU time", longest * 1e3, "ms")
    line("  longest task by the clock", wall * 1e3, "ms")
    return shown < TOKEN_BAR and longest < TASK_BAR


def opened(page: Any, base: str, cpu: Callable[[], float]) -> tuple[float, float]:
    """Open the samples of the long run from its overview; return seconds until tokens are shown, and CPU seconds."""
    page.goto(f"{base}/?run=long")
    page.wait_for_selector("nav.tabs a")
    page.wait_for_timeout(500)
    before = cpu()
    seconds = page.evaluate(OPEN) / 1e3
    return seconds, cpu() - before


def longest_scroll(browser: Any, page: Any) -> tuple[float, float]:
    """Scroll the tokens; return the longest task of the main thread by the clock and by its CPU time, in seconds."""

    def scroll() -> None:
        for _ in range(SCROLLS):
            page.mouse.wheel(0, 1500)
            page.wait_for_timeout(30)

    page.locator(".token-text").scroll_into_view_if_needed()
    page.hover(".token-text")
    found = longest_task(browser, page, scroll)
    if not page.evaluate("document.querySelector('.token-text').scrollTop"):
        raise SystemExit("nothing scrolled, so nothing was measured")
    return found


def measured_batch(rows: int, width: int, device: str, seed: int) -> dict[str, Any]:
    """Return the arrays of a batch as trainers have them, all of whose tokens belong to the response."""
    import torch

    torch.manual_seed(seed)
    old = -torch.rand(rows, width, device=device).log_().neg_() * 0.5

    def near(scale: float) -> Any:
        return old + scale * torch.randn_like(old)

    return {
        "response_mask": torch.ones(rows, width, dtype=torch.bool, device=device), "old_log_probs": old,
        "log_probs": near(0.05), "ref_log_probs": near(0.1), "rollout_log_probs": near(0.02),
        "entropy": torch.rand(rows, width, device=device),
        "advantages": torch.randn(rows, 1, device=device).expand(rows, width).contiguous(),
        "actions": (torch.rand(rows, width, device=device) ** 4 * 500).long(),  # a few words are frequent
        "ids": [f"{seed}-{row}" for row in range(rows)],
    }  # fmt: skip


class MeasuredSteps:
    """Steps of a run whose batches are measured, with and without tokens, and what they took."""

    def __init__(self, run: Any, device: str, sets: Sequence[dict[str, Any]], number: int) -> None:
        import torch

        self._run, self._sets, self._number = run, sets, number
        self._is_cuda = device == "cuda"
        self._cached = torch.empty(CACHE_BYTES if self._is_cuda else 0, dtype=torch.uint8, device=device)
        self.times: list[list[float]] = []  # of each step, the seconds of its calls: measure, and the commit at the end
        self.passes: list[list[float]] = []  # of each step, the microseconds of its kernels

    def step(self, number: int, counts: bool) -> None:
        """Measure a batch and its micro-batches, and commit when the device has finished."""
        import torch

        import barograph

        batch = barograph.Batch(**self._sets[number % len(self._sets)])
        micros = batch.split(MICRO_BATCHES)
        if self._is_cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(BUSY_CYCLES)
        times = [self._timed(lambda: self._run.measure(batch, tokens=self._number))]
        times += [self._timed(lambda micro=micro: self._run.measure(micro, part="policy")) for micro in micros]
        if self._is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        self._run.commit()
        times.append(time.perf_counter() - began)
        if counts:
            self.times.append(times)

    def profile(self, steps: int) -> None:
        """Time the kernels of some steps."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for number in range(steps):
                self.step(number, False)
                time.sleep(PAUSE_IN_PROFILE)
        events = sorted((event for event in found.events() if event.name in KERNELS), key=lambda e: e.time_range.start)
        each = len(events) // steps
        for n in range(0, len(events), each):
            self.passes.append([event.time_range.elapsed_us() for event in events[n : n + each]])

    def device_time(self, kernels: slice) -> float:
        """Return the median of the milliseconds that some kernels of a step take."""
        return statistics.median(sum(times[kernels]) for times in self.passes) / 1e3

    def sums(self, calls: slice) -> list[float]:
        """Return the seconds of some calls, for each step."""
        return [sum(times[calls]) for times in self.times]

    def _timed(self, call: Callable[[], None]) -> float:
        """Call with cold caches of the device, and return the seconds that the host needs."""
        self._cached.zero_()
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


def train(device: str, seconds: float) -> None:
    """Keep the thread busy as a training does between steps: queue operations, and wait for one of many results."""
    import torch

    x = weights = torch.rand(256, 256, device=device)
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for _ in range(64):
            x = torch.nn.functional.layer_norm(torch.relu(x @ weights), (256,))
        x.sum().item()


def more_line(what: str, none: Sequence[float], some: Sequence[float]) -> float:
    """Print the medians of two series of seconds, and of the differences of its pairs; return the last in µs."""
    apart = sorted((b - a) * 1e6 for a, b in zip(none, some, strict=True))
    median, reach = statistics.median(apart), round(0.98 * len(apart) ** 0.5)  # of the order, by a binomial
    low, high = (apart[max(0, min(len(apart) - 1, len(apart) // 2 + side))] for side in (-reach, reach))
    columns = f"{statistics.median(none) * 1e6:12,.0f}{statistics.median(some) * 1e6:12,.0f}{median:12,.0f}"
    print(f"  {what:40}{columns}{f'{low:,.0f} … {high:,.0f}':>20}")
    return median


def step_tokens(dir: Path, options: argparse.Namespace) -> bool:
    """Print what tokens of measured sequences cost a step; return whether the bars hold."""
    import torch

    import barograph

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, width = options.rows or (256 if device == "cuda" else 32), options.width
    sets = [measured_batch(rows, width, device, seed) for seed in range(2)]
    run = barograph.init(dir=dir, project="bench", name="tokens")
    words = [f"w{n} " for n in range(500)]
    run.tokenizer(lambda ids: "".join(words[id] for id in ids))
    kinds = {number: MeasuredSteps(run, device, sets, number) for number in (0, TOKEN_SAMPLES)}
    steps = WARM_UP + options.steps
    for step in range(steps):
        # In turn, as the host and the device change their pace: without and with, then with and without.
        for number in sorted(kinds, reverse=step % 2 == 1):
            kinds[number].step(step, step >= WARM_UP)
            train(device, options.pause)  # meanwhile another thread packs the tokens
        if step == 0:  # the threads that exist now may use all cores
            stay_on_fastest_core()
    for number in sorted(kinds) * (PROFILES if device == "cuda" else 0):
        kinds[number].profile(options.steps // PROFILES)
    run.finish()
    steps += len(kinds[0].passes)
    size = sum(file.stat().st_size for file in run.path.glob("*.seg")) / steps / 1000
    none, some = kinds.values()
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    print(f"{name}, torch {torch.__version__}, {rows} x {width:,} tokens, {MICRO_BATCHES} micro-batches, ", end="")
    print(f"{TOKEN_SAMPLES} sequences a step, {options.steps} steps\n")
    print(f"  {'medians':40}{'tokens=0':>12}{f'tokens={TOKEN_SAMPLES}':>12}{'more':>12}{'95 % interval':>20}")
    for what, calls in CALLS.items():
        more_line(what, none.sums(calls), some.sums(calls))
    host = more_line("host time of a step, µs", none.sums(slice(None)), some.sums(slice(None)))
    holds = True
    if device == "cuda":
        whole = none.device_time(slice(None))
        for what, kernels in PASSES.items():
            before, after = none.device_time(kernels), some.device_time(kernels)
            more = 100 * (after - before) / whole
            print(f"  {what:40}{before:12.4f}{after:12.4f}{more:11.2f}%")
        holds = host <= HOST_BAR and more <= PASS_BAR
    print(f"  {'on disk, kB a step, with metrics':40}{'':24}{size:12,.0f}")
    scaled = size * 8192 / width  # the bar is that of 8,192 tokens
    holds = holds and scaled <= BYTES_BAR
    bars = f"{HOST_BAR:.0f} µs, {PASS_BAR:.0f} % and {BYTES_BAR:.0f} kB for 8,192 tokens"
    print(f"\n  within {bars}: {'holds' if holds else 'FAILS'}" + ("" if device == "cuda" else " (bytes alone)"))
    return holds


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Return the median time of a call and its result."""
    times, result = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return statistics.median(times), result


def command_arguments(filters: dict[str, Any]) -> list[str]:
    return [part for name, value in filters.items() for part in (f"--{name.replace('_', '-')}={value}",)]


def searches(path: Path) -> list[float]:
    """Print the time of every search, in process and as a command; return all times."""
    import barograph
    from barograph.journal.samples.query import Query

    view = barograph.open(path)
    first, _ = timed(lambda: view.find_samples(Query(grep="answer 777"), 20), 1)
    print(f"  {'the first search, which builds the index':48}{first:9.2f} s")
    print(f"\n  {'later searches (median of ' + str(REPEATS) + ')':36}{'matches':>12}{'in process':>12}{'command':>12}")
    times = []
    for name, filters in SEARCHES.items():
        inside, found = timed(lambda filters=filters: view.find_samples(Query(**filters), 20))
        command = [sys.executable, "-m", "barograph", "samples", str(path), *command_arguments(filters)]
        outside, _ = timed(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        print(f"  {name:36}{found.matched:12,}{inside:10.3f} s{outside:10.3f} s")
        times += [] if name.endswith("*") else [inside, outside]
    print("  * as fast as Python's re, which scans every text: not part of the bar")
    return times


def opening(path: Path) -> tuple[float, float]:
    """Return seconds and MiB for opening the run and reading a metric, in a new process."""
    code = (
        "import time, barograph, resource; barograph.View; t = time.perf_counter(); "
        f"barograph.open({str(path)!r}).series('metric/1'); print(time.perf_counter() - t, "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(REPEATS)]
    return statistics.median(float(s) for s, _ in runs), statistics.median(float(m) for _, m in runs)


def report(dir: Path, options: argparse.Namespace) -> bool:
    """Write the run, print the times, and return whether the bar holds."""
    steps = -(-options.samples // KEPT_PER_STEP)
    made = record(dir, steps, options.offered)
    kept = steps * KEPT_PER_STEP
    journal = sum(file.stat().st_size for file in made["path"].iterdir() if file.is_file())
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {load}, {platform.platform()}")
    print(f"{kept:,} of {steps * options.offered:,} submitted samples stored, in {steps:,} steps\n")
    line("run.sample, each", statistics.median(made["offer"]) * 1e6, "µs")
    line(f"commit of a step with {KEPT_PER_STEP}", statistics.median(made["commit"]) * 1e3, "ms")
    line("peak memory of the training process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")
    line("texts of a sample", made["text"], "bytes")
    line("on disk, each", journal / kept, "bytes")
    seconds, mebibytes = opening(made["path"])
    line("open the run for a metric", seconds, "s")
    line("  and the memory that takes", mebibytes, "MiB")
    times = searches(made["path"])
    index = sum(file.stat().st_size for file in (made["path"] / "index").iterdir())
    print()
    line("the index, each", index / kept, "bytes")
    holds = max(times) < BAR
    print(f"\n  under a second after the first: {'holds' if holds else 'FAILS'} (the slowest took {max(times):.2f} s)")
    is_quick = tokens(dir)
    print(f"\n  tokens under {TOKEN_BAR} s: {'holds' if is_quick else 'FAILS'}")
    return holds and is_quick


def line(what: str, value: float, unit: str) -> None:
    print(f"  {what:48}{value:9.3f} {unit}" if value < 10 else f"  {what:48}{value:9,.0f} {unit}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure what samples cost, and how fast they are found.")
    parser.add_argument("what", nargs="?", choices=("all", "tokens"), default="all")
    parser.add_argument("--rows", type=int, help="sequences of a measured batch (default 256, without a device 32)")
    parser.add_argument("--width", type=int, default=8192, help="tokens of each (default 8,192)")
    parser.add_argument("--steps", type=int, default=120, help="measured steps of each kind (default 120)")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds of training between steps (default 0.2)")
    parser.add_argument("--samples", type=int, default=50_000, help="number of stored samples (default 50,000)")
    parser.add_argument("--offered", type=int, default=256, help="samples submitted per step (default 256)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless the bar holds")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="samples-") as scratch:
        holds = (step_tokens if options.what == "tokens" else report)(Path(scratch), options)
    return int(options.strict and not holds)


if __name__ == "__main__":
    sys.exit(main())
