"""Cost of rollouts: a step as dicts and as columns, and an evaluation compared with the documented algorithm.

The documented algorithm is written here as in its source: dict by dict, with 1,000 bootstrap samples for best@k and
worst@k.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from collections import defaultdict

import numpy as np

import barograph

BARS = {"dicts": 0.5, "columns": 0.1, "evaluation": 0.4}
DRAWS = 1000


def rollout_reports(tasks: int, runs: int, metrics: int) -> list[tuple[str, int, dict[str, float]]]:
    """Return a step's experiences with their tasks and runs."""
    chance = np.random.default_rng(0)
    names = [f"metric_{n}" for n in range(metrics)]
    values = chance.random((tasks * runs, metrics)).tolist()
    return [(f"task-{n // runs}", n % runs, dict(zip(names, row, strict=True))) for n, row in enumerate(values)]


def by_dicts(run: barograph.Run, reports: list[tuple[str, int, dict[str, float]]], step: int) -> float:
    began = time.perf_counter()
    rollouts = run.rollouts(step)
    for task, number, metrics in reports:
        rollouts.add(task=task, run=number, metrics=metrics)
    rollouts.close()
    return time.perf_counter() - began


def by_columns(run: barograph.Run, reports: list[tuple[str, int, dict[str, float]]], step: int) -> float:
    tasks, runs = [report[0] for report in reports], np.array([report[1] for report in reports])
    columns = {name: np.array([report[2][name] for report in reports]) for name in reports[0][2]}
    began = time.perf_counter()
    rollouts = run.rollouts(step)
    rollouts.add_many(tasks=tasks, runs=runs, metrics=columns)
    rollouts.close()
    return time.perf_counter() - began


def evaluated(run: barograph.Run, reports: list[tuple[str, int, dict[str, float]]], repeats: int, step: int) -> float:
    began = time.perf_counter()
    evaluation = run.evaluation("set", step=step, repeats=repeats)
    for task, number, metrics in reports:
        evaluation.add(task=task, run=number, metrics=metrics)
    evaluation.close()
    return time.perf_counter() - began


def plainly(reports: list[tuple[str, int, dict[str, float]]]) -> tuple[float, dict[str, float]]:
    """Evaluate with the documented algorithm; return the seconds and the result."""
    began = time.perf_counter()
    by_task: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, _, metrics in reports:
        for name, value in metrics.items():
            by_task[task][name].append(value)
    of_tasks: dict[str, list[float]] = defaultdict(list)
    for metrics_of in by_task.values():
        for name, values in metrics_of.items():
            n = len(values)
            of_tasks[f"{name}/mean@{n}"].append(float(np.mean(values)))
            of_tasks[f"{name}/std@{n}"].append(float(np.std(values)))
            k = 2
            while True:
                size = min(k, n)
                np.random.seed(42)
                drawn = [np.random.choice(values, size=size, replace=True) for _ in range(DRAWS)]
                of_tasks[f"{name}/best@{size}"].append(float(np.mean([np.max(draw) for draw in drawn])))
                of_tasks[f"{name}/worst@{size}"].append(float(np.mean([np.min(draw) for draw in drawn])))
                if k >= n:
                    break
                k *= 2
    result = {name: float(np.mean(values)) for name, values in of_tasks.items()}
    return time.perf_counter() - began, result


def verdict(seconds: float, bar: str) -> str:
    return f"{'holds' if seconds < BARS[bar] else 'FAILS'}: under {BARS[bar] * 1e3:g} ms"


def memory_by_experiences(tasks: int, experiences: int) -> float:
    """Return the memory in MiB after a number of experiences."""
    from barograph.metrics.rollouts.gathering import Gathering

    tracemalloc.start()
    gathering = Gathering()
    for n in range(experiences):
        gathering.add(f"task-{n % tasks}", None, {"reward": 1.0, "length": 2.0})
    gathering._add_queued()
    held = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    return held


def main() -> int:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; the median is shown")
    parser.add_argument("--plain-tasks", type=int, default=40, help="tasks for the documented algorithm (it is slow)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = barograph.init(dir=folder, project="benchmark")
        run.rollouts(0).add("warm", {"up": 1.0})
        run.commit(0)
        steps = iter(range(1, 10_000))
        reports = rollout_reports(4096, 16, 20)
        dicts = float(np.median([by_dicts(run, reports, next(steps)) for _ in range(options.repeats)]))
        columns = float(np.median([by_columns(run, reports, next(steps)) for _ in range(options.repeats)]))
        print(f"4,096 tasks x 16 runs x 20 metrics, dicts    {dicts * 1e3:8.1f} ms   {verdict(dicts, 'dicts')}")
        print(f"4,096 tasks x 16 runs x 20 metrics, columns  {columns * 1e3:8.1f} ms   {verdict(columns, 'columns')}")
        reports = rollout_reports(10_000, 8, 5)
        whole = float(np.median([evaluated(run, reports, 8, next(steps)) for _ in range(options.repeats)]))
        print(f"10,000 tasks x 8 runs x 5 metrics, evaluated {whole * 1e3:8.1f} ms   {verdict(whole, 'evaluation')}")
        few = reports[: options.plain_tasks * 8]
        plain, expected = plainly(few)
        plain *= 10_000 / options.plain_tasks
        step = next(steps)
        evaluated(run, few, 8, step)
        view = barograph.open(run.path)
        for name, value in expected.items():
            ours = view.series(f"eval/set/{name}").last
            assert abs(ours - value) < 0.02, (name, ours, value)
        ratio = plain / whole
        print(f"the documented algorithm, from {options.plain_tasks} tasks       {plain * 1e3:8.0f} ms   "
              f"{'holds' if ratio >= 10 else 'FAILS'}: {ratio:,.0f} x, at least 10 x")  # fmt: skip
        run.finish()
    few_, many = memory_by_experiences(1000, 20_000), memory_by_experiences(1000, 200_000)
    print(f"held for 1,000 tasks: {few_:.2f} MiB after 20,000 experiences, {many:.2f} MiB after 200,000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
