"""What recording costs the demo's training: the same loop with recording off, without measuring, and whole.

Trainings of one seed are equal step by step, so that a step can be compared with itself: of several trainings of each
kind, taken in turn, the quickest passage through each step counts, in wall and in processor time. That leaves out what
else the machine does. The first steps, in which modules are imported, are left out too.

    scripts/bench overhead --steps 30 --rounds 5
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
    run, explorer = begin(recipe, dir=folder, mode="disabled" if kind == "off" else "online")
    for one in (run, explorer):
        for call in NOTHING.get(kind, ()):
            setattr(one, call, lambda *args, **kwargs: Silent())
    return Trainer(recipe, run, explorer, folder / kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    recipe = Recipe().changed({"steps": options.steps})
    seconds = np.zeros((options.rounds, len(KINDS), options.steps, 2))
    with one_thread():
        for number in range(options.rounds):
            for place in np.roll(np.arange(len(KINDS)), number):
                seconds[number, place] = step_seconds(KINDS[place], recipe)
    report(seconds[:, :, FIRST:].min(axis=0))


def step_seconds(kind: str, recipe: Recipe) -> list[tuple[float, float]]:
    """Train once; return the wall and processor seconds of each step."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(kind, recipe, Path(folder))
        for number in range(recipe.steps):
            began = time.perf_counter(), time.process_time()
            trainer.step(number)
            found.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        trainer.explorer.finish()
        trainer.run.finish()
    return found


def report(seconds: Any) -> None:
    """Print what each kind took beyond the first, which records nothing."""
    mean = seconds.mean(axis=1) * 1e3
    wall, busy = mean[0]
    print(f"{seconds.shape[1]} steps; without recording one takes {wall:.1f} ms, {busy:.1f} ms of the processor")
    for kind, (wall, busy) in list(zip(KINDS, mean, strict=True))[1:]:
        print(
            f"{kind:22}{wall - mean[0, 0]:+7.2f} ms a step: {wall / mean[0, 0] - 1:+.2%} of the time, "
            f"{busy / mean[0, 1] - 1:+.2%} of the processor's"
        )


if __name__ == "__main__":
    main()
