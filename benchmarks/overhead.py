"""What recording costs the demo's training: the same loop with recording off, without measuring, and whole.

Trainings of one seed are equal step by step. Here they go side by side in one process, a step of each in turn, so that
whatever else the machine does meets all of them; what each took of the processor is compared step by step. The first
steps, in which modules are imported, are left out.

    scripts/bench overhead --steps 40
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from windsock.demo.recipe import Recipe
from windsock.demo.trainer import Trainer
from windsock.demo.training import begin, one_thread

FIRST = 3
KINDS = ("off", "phases and values", "rollouts and samples", "measure as well")
NOTHING = {
    "phases and values": ("measure", "rollouts", "evaluation", "validation", "pipeline", "drawn", "samples"),
    "rollouts and samples": ("measure",),
}


class Silent:
    """Stands in for a handle whose every call does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def trainer_of(kind: str, recipe: Recipe, folder: Path) -> Trainer:
    """Return a training that records as much as its kind says."""
    (folder / kind).mkdir()
    run, explorer = begin(recipe, dir=folder, mode="disabled" if kind == "off" else "online", alongside=True)
    for one in (run, explorer):
        for call in NOTHING.get(kind, ()):
            setattr(one, call, lambda *args, **kwargs: Silent())
    return Trainer(recipe, run, explorer, folder / kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    recipe = Recipe().changed({"steps": options.steps})
    seconds = np.zeros((options.steps, len(KINDS), 2))
    with tempfile.TemporaryDirectory() as folder, one_thread():
        trainers = [trainer_of(kind, recipe, Path(folder)) for kind in KINDS]
        for number in range(options.steps):
            for place in np.roll(np.arange(len(KINDS)), number):
                began = time.perf_counter(), time.process_time()
                trainers[place].step(number)
                seconds[number, place] = time.perf_counter() - began[0], time.process_time() - began[1]
        for trainer in trainers:
            trainer.explorer.finish()
            trainer.run.finish()
    report(seconds[FIRST:])


def report(seconds: Any) -> None:
    """Print what each kind took beyond the first."""
    off = seconds[:, 0]
    print(f"{len(seconds)} steps; without recording one takes {np.median(off[:, 1]) * 1e3:.0f} ms of the processor")
    for place, kind in list(enumerate(KINDS))[1:]:
        more = seconds[:, place] - off
        wall, busy = (float(np.median(more[:, which])) / float(np.median(off[:, which])) for which in (0, 1))
        total = more[:, 1].sum() / off[:, 1].sum()
        print(
            f"{kind:22}{np.median(more[:, 1]) * 1e3:+7.2f} ms a step: {busy:+.2%} of the processor's time "
            f"({total:+.2%} in sum, {wall:+.2%} on the clock)"
        )


if __name__ == "__main__":
    main()
