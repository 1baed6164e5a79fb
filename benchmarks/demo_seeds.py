"""Validation scores of the demo with several seeds, read from the runs' journals.

scripts/bench demo_seeds --seeds 0 1 2 3 4 5
"""

from __future__ import annotations

import argparse
import tempfile
import time

import barograph
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.trainer import start_runs, train


def learn(seed: int, steps: int | None, folder: str) -> None:
    config = DemoConfig().changed({"seed": seed} | ({"steps": steps} if steps else {}))
    run, explorer = start_runs(config, dir=folder, name=f"seed-{seed}")
    began, busy = time.perf_counter(), time.process_time()
    train(config, run, explorer)
    explorer.finish()
    run.finish()
    scores = barograph.open(run.path).series("val/score/of_best")
    curve = " ".join(f"{score:.2f}" for score in scores.values)
    took = f"{time.perf_counter() - began:.0f} s, {time.process_time() - busy:.0f} s of a core"
    print(
        f"seed {seed}: {scores.values[0]:.3f} to {scores.values[-1]:.3f} of the best possible ({took})  {curve}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dir", help="keep the runs here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            learn(seed, options.steps, options.dir or folder)


if __name__ == "__main__":
    main()
