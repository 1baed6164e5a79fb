"""Time of importing the catalogue, of loading it, and of resolving many names."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time

BARS = {"import": 0.020, "lookup": 0.015, "first": 0.200}
IMPORT = """
import time, barograph
began = time.perf_counter()
import barograph.catalogue.resolution
print(time.perf_counter() - began)
"""


def import_seconds(repeats: int = 9) -> float:
    """Return the median time of importing the resolution after barograph, with cached bytecode."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", IMPORT]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment) for _ in range(repeats + 1)
    ]
    return statistics.median(float(run.stdout) for run in runs[1:])


def distinct_names(count: int) -> list[str]:
    """Return names of all kinds: plain ones, patterns, names of several frameworks, and unknown ones."""
    chance = random.Random(0)
    makers = (
        lambda n: f"memory/cluster{n}/train_step/end/onload/max_allocated/{n % 8}",
        lambda n: f"time/actor_infer_{n}/generate/execute",
        lambda n: f"eval/set{n}/sub/accuracy/best@{2 ** (n % 5)}",
        lambda n: f"rollout/reward_{n}/mean",
        lambda n: f"val-core/source{n}/reward/mean@{n % 9}",
        lambda n: f"timing_s/operation_{n}",
        lambda n: f"train/rewards/function_{n}/mean",
        lambda n: f"own/metric_{n}/value",
        lambda n: f"experience_pipeline/operator_{n}",
        lambda n: f"actor/pg_loss_{n}@sum",
    )
    names = [makers[n % len(makers)](n) for n in range(count)]
    chance.shuffle(names)
    return names


def verdict(seconds: float, bar: str) -> str:
    return f"{'holds' if seconds < BARS[bar] else 'FAILS'}: under {BARS[bar] * 1e3:g}"


def main() -> int:
    """Print the times."""
    adds = import_seconds()
    from barograph.catalogue.resolution import RunNames

    began = time.perf_counter()
    RunNames(["actor/pg_loss"]).resolve_all()
    loading = time.perf_counter() - began
    names = distinct_names(10_000)
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        run = RunNames(names)
        run.resolve_all()
        spent.append(time.perf_counter() - began)
    print(f"import of the catalogue     {adds * 1e3:7.1f} ms   {verdict(adds, 'import')}")
    print(f"first name                  {loading * 1e3:7.1f} ms   {verdict(loading, 'lookup')}")
    print(f"10,000 names, first time    {spent[0] * 1e3:7.1f} ms   {verdict(spent[0], 'first')}")
    print(f"10,000 names, again         {spent[1] * 1e3:7.1f} ms   ({len(run.known):,} known)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
