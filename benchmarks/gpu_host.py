"""Cost of measuring for the host: calls, commits and steps, compared with eager torch code and with veRL's functions.

A step is one call of ``run.measure`` for its batch and two for each of 16 micro-batches, in a real run. Every call is
timed alone, while the device is idle: a full launch queue would make the host wait for the device. Their mean has a
bar, and so has each kind of call but the first of a step, which finds the host's caches cold. Steps are timed from the
first call to finished numbers, as are the eager code and veRL, which wait for the device at every ``item()``.
Steps alternate between two sets of tensors, and each makes new ``Batch`` objects. The numbers of the last timed steps
are compared with those of the eager code in double precision.

On a machine with a CUDA device, torch and triton; veRL's files need no other package:

    pip install --no-deps --target VERL verl==0.9.1
    PYTHONPATH=src python benchmarks/gpu_host.py --verl VERL --strict

The thread that measures stays on the core that is the fastest in a short trial: on a shared machine others are busy
with somebody else's work, and take up to twice as long.

Without a CUDA device, to try it out: ``--device cpu --rows 16 --width 64``. There are no bars for the CPU.
"""

from __future__ import annotations

import argparse
import gc
import math
import platform
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastest_core import stay_on_fastest_core
from peers import eager
from peers.eager import CLIP, DUAL_CLIP, KL_COEF, VALUE_CLIP, micro_batches
from peers.verl import SAME_MEANING, SAME_MEANING_OF_ONE_BATCH, Verl

import barograph

MICRO_BATCHES, GROUP_SIZE, SCALARS = 16, 8, 20
CALLS = 1 + 2 * MICRO_BATCHES
WARM_UP = 6
FIVE = ("response_mask", "log_probs", "old_log_probs", "ref_log_probs", "advantages", "returns")
TOLERANCE = 1e-4  # relative; of numbers below SMALL, relative to SMALL
QUANTILE_TOLERANCE = 0.031  # barograph's quantiles are of bins, and of 64 tokens of each sequence
SMALL = 0.01
BUSY_CYCLES = 400_000_000  # about 0.2 s
Arrays = dict[str, Any]
Compared = Sequence[Mapping[str, float]]

CALLS_SHOWN = {
    "call": f"measure, mean of the {CALLS} calls of a step",
    "first": "  the first one, data part",
    "policy": "  policy part of a micro-batch",
    "value": "  value part of a micro-batch",
    "data": "  data part of a further batch",
    "split": f"split({MICRO_BATCHES})",
    "commit": f"commit of {CALLS} calls, the device has finished",
    "finished": "measure to finished values, five tensors",
    "log": f"log of {SCALARS} scalars on the device",
    "make": "Batch of fourteen arrays",
    "having": "micro.having of three tensors, policy part",
    "add": "one torch operation of 16 numbers, x.add_(1)",
}
CALL_BARS = {"call": 60, "policy": 60, "value": 60, "data": 60}  # µs
BARS = {**CALL_BARS, "split": 100, "commit": 2000, "finished": 500, "log": 132}
PARTS = ("policy", "value")  # of every micro-batch
VERL = ("data", "actor", "critic")
STEPS_SHOWN = {
    "step": f"barograph: {CALLS} calls of measure, and commit",
    "eager": "eager torch, one item() per metric",
    "eager quantiles": "  with 25 quantiles of sorted values",
    "verl": "veRL: metrics of the data, actor loss, critic loss",
    "verl data": "  compute_data_metrics",
    "verl actor": f"  ppo_loss of {MICRO_BATCHES} micro-batches, with its metrics",
    "verl critic": f"  value_loss of {MICRO_BATCHES} micro-batches, with its metrics",
}


def make(rows: int, width: int, device: str, seed: int) -> Arrays:
    """Return the arrays of a batch as trainers have them: tensors on the device, and the names of groups."""
    torch.manual_seed(seed)

    def noise(scale: float) -> torch.Tensor:
        return scale * torch.randn(rows, width, device=device)

    lengths = torch.randint(1, width + 1, (rows, 1), device=device)
    mask = torch.arange(width, device=device) < lengths
    old = -torch.rand(rows, width, device=device) * 3
    returns = noise(1.0)
    old_values = returns + noise(0.5)
    return {
        "response_mask": mask,
        "old_log_probs": old,
        # A few tokens are far away, as in a training: the dual clip has something to bind.
        "log_probs": old + torch.where(torch.rand_like(old) < 0.01, noise(1.0), noise(0.1)),
        "ref_log_probs": old + noise(0.1),
        "rollout_log_probs": old + noise(0.01),
        "advantages": noise(1.0),
        "returns": returns,
        "old_values": old_values,
        "values": old_values + noise(0.3),
        "rewards": noise(0.1) * mask,
        "entropy": torch.rand(rows, width, device=device),
        "actions": torch.randint(0, 150_000, (rows, width), device=device),
        "scores": (torch.rand(rows, device=device) < 0.4).float(),
        "groups": np.array([f"prompt-{seed}-{row // GROUP_SIZE}" for row in range(rows)], object),
    }


@dataclass(frozen=True, slots=True)
class Bench:
    """A run, the sets of tensors that steps alternate between, and the times that were measured, in seconds."""

    run: barograph.Run
    sets: list[Arrays]
    device: str
    repeats: int
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """Do some work and keep its time; the device is idle before it."""
        self.wait()
        began = time.perf_counter()
        result = work()
        self.spent[name].append(time.perf_counter() - began)
        return result

    def median(self, name: str) -> float:
        """Return the median of the times under a name."""
        return statistics.median(self.spent[name])

    def repeated(self, step: Callable[[int], Any]) -> list[Any]:
        """Repeat a step, and return its last result with each set."""
        known = set(self.spent)
        for number in range(WARM_UP):  # kernels are compiled, memory is reserved
            step(number % len(self.sets))
        for name in self.spent.keys() - known:
            del self.spent[name]
        gc.collect()
        last = {number % len(self.sets): step(number % len(self.sets)) for number in range(self.repeats)}
        return [last[number] for number in range(len(self.sets))]

    def measure_data(self, batch: barograph.Batch) -> None:
        """Measure the rollout batch."""
        self.run.measure(batch, part="data", kl_coef=KL_COEF, max_response_length=batch.response_mask.shape[1])

    def measure_policy(self, micro: barograph.Batch) -> None:
        """Measure the policy of a micro-batch."""
        self.run.measure(micro, part="policy", clip=CLIP, dual_clip=DUAL_CLIP)

    def measure_value(self, micro: barograph.Batch) -> None:
        """Measure the values of a micro-batch."""
        self.run.measure(micro, part="value", value_clip=VALUE_CLIP)

    def measure_all(self, batch: barograph.Batch, micros: Sequence[barograph.Batch]) -> None:
        """Make all calls of a step."""
        self.measure_data(batch)
        for micro in micros:
            self.measure_policy(micro)
            self.measure_value(micro)


def one_by_one(bench: Bench) -> None:
    """Time every call of a step alone, and the commit after the device has finished."""

    def step(number: int) -> None:
        batch = bench.timed("make", lambda: barograph.Batch(**bench.sets[number]))
        bench.timed("first", lambda: bench.measure_data(batch))
        for micro in bench.timed("split", lambda: batch.split(MICRO_BATCHES)):
            bench.timed("policy", lambda: bench.measure_policy(micro))  # noqa: B023
            bench.timed("value", lambda: bench.measure_value(micro))  # noqa: B023
        spent = [bench.spent["first"][-1], *(time for name in PARTS for time in bench.spent[name][-MICRO_BATCHES:])]
        bench.spent["call"].append(sum(spent) / len(spent))
        bench.timed("commit", bench.run.commit)

    bench.repeated(step)


def data_again(bench: Bench) -> None:
    """Time the data part of further batches: the first call of a step finds the host's caches cold."""

    def step(number: int) -> None:
        for batch in [barograph.Batch(**bench.sets[number]) for _ in range(MICRO_BATCHES)]:
            bench.timed("data", lambda: bench.measure_data(batch))  # noqa: B023
        bench.run.commit()

    bench.repeated(step)


def with_new_tensors(bench: Bench) -> None:
    """Time the policy part as loops call it: with the tensors of the forward pass in place of the batch's."""

    def step(number: int) -> None:
        data = bench.sets[number]
        parts = barograph.Batch(**data).split(MICRO_BATCHES)
        for part, arrays in zip(parts, micro_batches(data, MICRO_BATCHES), strict=True):
            new = {name: arrays[name] for name in ("log_probs", "entropy", "values")}
            bench.timed("having", lambda: bench.measure_policy(part.having(**new)))  # noqa: B023
        bench.run.commit()

    bench.repeated(step)


def steps(bench: Bench) -> list[dict[str, float]]:
    """Time the calls of a step and its commit together; return the numbers of the last step with each set."""

    def step(number: int) -> dict[str, float]:
        batch = barograph.Batch(**bench.sets[number])
        micros = batch.split(MICRO_BATCHES)

        def work() -> dict[str, float]:
            bench.measure_all(batch, micros)
            return dict(bench.run.commit())

        values: dict[str, float] = bench.timed("step", work)
        return values

    return bench.repeated(step)


def eager_steps(bench: Bench) -> dict[str, int]:
    """Time the same metrics by eager code, without and with quantiles; return the numbers of metrics."""
    cut = [list(micro_batches(data, MICRO_BATCHES)) for data in bench.sets]
    counts = {}
    for name, quantiles in (("eager", False), ("eager quantiles", True)):

        def step(number: int, name: str = name, quantiles: bool = quantiles) -> dict[str, float]:
            found: dict[str, float] = bench.timed(
                name, lambda: eager.step_metrics(bench.sets[number], cut[number], quantiles)
            )
            return found

        counts[name] = len(bench.repeated(step)[0])
    return counts


def one_batch(bench: Bench) -> None:
    """Time measuring one batch of five tensors and a mask without a run, to finished numbers."""

    def step(number: int) -> None:
        batch = barograph.Batch(**{name: bench.sets[number][name] for name in FIVE})
        bench.timed("finished", lambda: barograph.measure(batch))

    bench.repeated(step)


def logged(bench: Bench) -> dict[str, float]:
    """Time logging scalars of the device; return those of the last step."""
    last: dict[str, torch.Tensor] = {}

    def step(number: int) -> None:
        last.update({f"scalar/{n}": torch.rand((), device=bench.device) for n in range(SCALARS)})
        bench.timed("log", lambda: bench.run.log(last))
        bench.run.commit()

    bench.repeated(step)
    return {name: value.item() for name, value in last.items()}


def one_operation(bench: Bench) -> None:
    """Time the smallest operation of torch: the other times follow how fast a machine's host is."""
    numbers = torch.zeros(16, device=bench.device)

    def step(_: int) -> None:
        for _ in range(MICRO_BATCHES):
            bench.timed("add", lambda: numbers.add_(1))

    bench.repeated(step)


def behind_busy_device(bench: Bench) -> tuple[float, bool]:
    """Make a step's calls, and log scalars, behind other work; return the seconds, and whether that work goes on."""
    batch = barograph.Batch(**bench.sets[0])
    micros = batch.split(MICRO_BATCHES)
    scalars = {f"behind/{n}": torch.rand((), device=bench.device) for n in range(SCALARS)}
    bench.wait()
    torch.cuda._sleep(BUSY_CYCLES)
    busy = torch.cuda.Event()
    busy.record()
    began = time.perf_counter()
    bench.measure_all(batch, micros)
    bench.run.log(scalars)
    spent, busy_still = time.perf_counter() - began, not busy.query()
    bench.run.commit()
    return spent, busy_still


def verl_steps(bench: Bench, verl: Verl) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Time veRL's metrics; return its numbers with each set, of a step and of one batch without micro-batches."""
    batches = [verl.trainer_batch(data) for data in bench.sets]
    micros, wholes = [], []
    for data in bench.sets:
        sizes = (len(data["scores"]), int(data["response_mask"].sum()))
        micros.append([verl.worker_batch(micro, *sizes) for micro in micro_batches(data, MICRO_BATCHES)])
        wholes.append([verl.worker_batch(data, *sizes)])

    def step(number: int) -> dict[str, float]:
        return {
            **bench.timed("verl data", lambda: verl.data(batches[number])),
            **bench.timed("verl actor", lambda: verl.actor(micros[number])),
            **bench.timed("verl critic", lambda: verl.critic(micros[number])),
        }

    found = bench.repeated(step)
    bench.spent["verl"] = [sum(parts) for parts in zip(*(bench.spent[f"verl {part}"] for part in VERL), strict=True)]
    return found, [{**verl.actor(whole), **verl.critic(whole)} for whole in wholes]


def in_double_precision(data: Arrays) -> tuple[dict[str, float], dict[str, float]]:
    """Return the eager code's numbers of a complete batch, computed in double precision, and its quantiles."""
    wide = {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in data.items()
    }
    metrics = eager.data_metrics(wide) | eager.policy_metrics(wide) | eager.value_metrics(wide)
    return metrics, eager.data_quantiles(wide) | eager.policy_quantiles(wide)


def difference(got: Mapping[str, float], expected: Mapping[str, float]) -> tuple[float, str]:
    """Return the largest relative difference and its metric; one that is missing or NaN differs infinitely."""
    apart = {
        name: abs(got.get(name, math.inf) - value) / max(abs(value), _scale(name, expected))
        for name, value in expected.items()
    }
    return max((math.inf if math.isnan(size) else size, name) for name, size in apart.items())


def _scale(name: str, values: Mapping[str, float]) -> float:
    """Return the size below which a number's difference is relative to that size: for quantiles, their spread."""
    whole = re.match(r"(.*[/_]p)\d+$", name)
    return SMALL if whole is None else abs(values[f"{whole[1]}90"] - values[f"{whole[1]}10"])


def by_our_names(found: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    return {ours: float(found[theirs]) for theirs, ours in names.items() if theirs in found}


def show_calls(bench: Bench) -> None:
    print(f"{'host time of a call':52}{'median':>12}{'p90':>12}")
    for name, text in CALLS_SHOWN.items():
        ordered = sorted(bench.spent[name])
        high = ordered[math.ceil(0.9 * len(ordered)) - 1]
        print(f"{text:52}{bench.median(name) * 1e6:9,.1f} µs{high * 1e6:9,.1f} µs")


def show_steps(bench: Bench, metrics: Mapping[str, int]) -> None:
    print(f"\n{'a step to finished numbers':52}{'median':>12}{'ratio':>9}{'metrics':>10}")
    for name, text in STEPS_SHOWN.items():
        if name in bench.spent:
            ratio = bench.median(name) / bench.median("step")
            print(f"{text:52}{bench.median(name) * 1e3:9,.2f} ms{ratio:9,.2f}{metrics.get(name, ''):>10}")


def judged(word: str, text: str, holds: bool) -> bool:
    print(f"{'holds' if holds else 'FAILS'}   {word:52}{text}")
    return holds


def time_bars(bench: Bench) -> bool:
    """Print the bars of times and return whether all hold."""
    held = []
    for name, micros in BARS.items():
        got = bench.median(name) * 1e6
        held.append(judged(CALLS_SHOWN[name].strip(), f"{got:,.1f} µs, at most {micros:,.0f} µs", got <= micros))
    ours, theirs = bench.median("step") * 1e3, bench.median("eager") * 1e3
    text = f"{ours:,.2f} ms, at most {theirs / 4:,.2f} ms"
    held.append(judged(f"{CALLS} calls and commit: 1/4 of the eager code", text, ours <= theirs / 4))
    spent, busy = behind_busy_device(bench)
    text = f"{spent * 1e3:,.2f} ms for {CALLS} calls and a log"
    held.append(judged("nothing waits for a busy device", text, busy))
    return all(held)


def agree(source: str, ours: Compared, expected: Compared, tolerance: float = TOLERANCE) -> bool:
    """Print how far our numbers are from others, and return whether they agree."""
    worst, name = max(difference(*pair) for pair in zip(ours, expected, strict=True))
    text = f"{worst:.1e} ({name}), at most {tolerance:g}"
    return judged(f"{len(expected[0])} values agree with {source}", text, worst <= tolerance)


def value_bars(bench: Bench, ours: Compared, theirs: Compared, scalars: Mapping[str, float]) -> bool:
    """Compare the numbers of the last steps and the logged scalars; return whether all agree."""
    expected, quantiles = zip(*(in_double_precision(data) for data in bench.sets), strict=True)
    held = [agree("the eager code", ours, expected)]
    if ours[0].keys() & quantiles[0].keys():
        held.append(agree("the eager code: quantiles", ours, quantiles, QUANTILE_TOLERANCE))
    if theirs:
        held.append(agree("veRL", ours, theirs))
    view = barograph.open(bench.run.path)
    held.append(agree("the logged scalars", [{name: view.series(name).last for name in scalars}], [scalars]))
    return all(held)


def benchmark(bench: Bench, verl: Verl | None) -> bool:
    """Measure everything, print the tables and return whether the bars hold."""
    one_by_one(bench)
    data_again(bench)
    with_new_tensors(bench)
    one_batch(bench)
    scalars = logged(bench)
    one_operation(bench)
    ours = steps(bench)
    metrics = {"step": len(ours[0]), **eager_steps(bench)}
    theirs: Compared = []
    if verl is not None:
        found, wholes = verl_steps(bench, verl)
        metrics["verl"] = len(found[0])
        theirs = [
            by_our_names(step, SAME_MEANING) | by_our_names(whole, SAME_MEANING_OF_ONE_BATCH)
            for step, whole in zip(found, wholes, strict=True)
        ]
    show_calls(bench)
    show_steps(bench, metrics)
    if verl is None:
        print("veRL is left out: --verl names a folder that has its files")
    print()
    fast = bench.device != "cuda" or time_bars(bench)
    bench.run.finish()
    return value_bars(bench, ours, theirs, scalars) and fast


def main() -> int:
    """Measure in a run in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=int, default=1024, help="sequences (default %(default)s)")
    parser.add_argument("--width", type=int, default=8192, help="tokens of a sequence (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=50, help="steps; medians are shown (default %(default)s)")
    parser.add_argument("--verl", type=Path, metavar="FOLDER", help="a folder with the files of the package verl")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    options = parser.parse_args()
    if options.rows < MICRO_BATCHES or options.repeats < 2:
        parser.error(f"expected at least {MICRO_BATCHES} rows and 2 repeats")
    verl = None if options.verl is None else Verl(options.verl, CLIP, DUAL_CLIP, VALUE_CLIP)
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(
        f"{where}, Python {platform.python_version()}, torch {torch.__version__}"
        + (f", veRL {verl.version}" if verl else "")
    )
    print(f"{options.rows:,} x {options.width:,} tokens, ten float32 tensors, {MICRO_BATCHES} micro-batches\n")
    sets = [make(options.rows, options.width, options.device, seed) for seed in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        run = barograph.init(dir=folder, project="benchmark")
        run.commit()
        stay_on_fastest_core()
        holds = benchmark(Bench(run, sets, options.device, options.repeats), verl)
    return int(options.strict and not holds)


if __name__ == "__main__":
    sys.exit(main())
