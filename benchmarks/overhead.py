"""Cost of recording in the demo's training: the same loop with recording off, without measuring, complete, and with
the doctor's process beside it.

Trainings with the same seed are equal step by step, so the trainings of all kinds take their steps in turn and each
step is compared with itself. The median of all differences is shown, with the range of the rounds' medians. The first
steps, in which modules are imported, are left out.

A median leaves out rare costs: here, the evaluation of every tenth step. --inside sums the CPU time that the training's
thread spends in barograph's calls, over all steps. It does not include work in other threads and processes.

    scripts/bench overhead --steps 30 --rounds 5
    scripts/bench overhead --inside
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.trainer import Trainer, single_threaded, start_runs
from barograph.recording.collectors.rollout_handles import Handle
from barograph.recording.probe.recorder import Probe
from barograph.recording.run import Run

FIRST = 3
KINDS = ("off", "phases and values", "rollouts and samples", "measure as well", "and the doctor")
NOTHING = {
    "phases and values": ("measure", "rollouts", "evaluation", "validation", "pipeline", "staleness", "samples"),
    "rollouts and samples": ("measure",),
}


CALLS = {
    "values and steps": (Run, ("log", "count", "commit", "shards")),
    "phases": (Probe, ("open", "turn", "close")),
    "rollouts": (Run, ("rollouts", "evaluation", "validation", "pipeline", "staleness")),
    "their handles": (Handle, ("add_columns", "close")),
    "samples": (Run, ("samples",)),
    "measure": (Run, ("measure",)),
}


class Inside:
    """Sums the thread's CPU time in calls; nested calls count once."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(CALLS, 0.0)
        self._deep = False
        for kind, (owner, names) in CALLS.items():
            for name in names:
                setattr(owner, name, self._timed(kind, getattr(owner, name)))

    def _timed(self, kind: str, call: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._deep:
                return call(*args, **kwargs)
            self._deep, began = True, time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self._deep = False
                self.seconds[kind] += time.thread_time() - began

        return timed


def inside(config: DemoConfig) -> None:
    """Train without and with measuring; print the share of each kind of call in the thread's time."""
    timer = Inside()
    for kind in KINDS[2:]:
        spent, own = spent_inside(timer, kind, config)
        steps = config.steps - FIRST
        print(f"{kind}: the training itself takes {own / steps * 1e3:.1f} ms of the processor a step")
        for call, seconds in spent.items():
            print(f"  {call:20}{seconds / steps * 1e3:7.2f} ms a step: {seconds / own:.2%}")
        print(f"  all together {sum(spent.values()) / own:.2%}")


def spent_inside(timer: Inside, kind: str, config: DemoConfig) -> tuple[dict[str, float], float]:
    """Train once; return the seconds in each kind of call and in the rest."""
    with tempfile.TemporaryDirectory() as folder, single_threaded():
        trainer = trainer_of(kind, config, Path(folder))
        for number in range(config.steps):
            if number == FIRST:
                timer.seconds = dict.fromkeys(CALLS, 0.0)
                began = time.thread_time()
            trainer.step(number)
        whole = time.thread_time() - began
        spent = timer.seconds
        trainer.explorer.finish()
        trainer.run.finish()
    return spent, whole - sum(spent.values())


class Silent:
    """A handle whose methods do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def trainer_of(kind: str, config: DemoConfig, folder: Path) -> Trainer:
    """Return a training that records the calls of a kind."""
    (folder / kind).mkdir()
    mode = "disabled" if kind == "off" else "online"
    run, explorer = start_runs(config, dir=folder, mode=mode, doctor=kind == KINDS[-1], concurrent=True)
    for one in (run, explorer):
        for call in NOTHING.get(kind, ()):
            setattr(one, call, lambda *args, **kwargs: Silent())
    return Trainer(config, run, explorer, folder / kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help="sum the time inside barograph's calls instead")
    options = parser.parse_args()
    config = DemoConfig().changed({"steps": options.steps})
    if options.inside:
        inside(config)
        return
    with single_threaded():
        rounds = [one_round(config, number) for number in range(options.rounds)]
    report(np.array(rounds)[:, :, FIRST:] * 1e3)


def one_round(config: DemoConfig, number: int) -> Any:
    """Train all kinds in turn, step by step; return the wall-clock and CPU seconds of each step."""
    found = np.zeros((len(KINDS), config.steps, 2))
    with tempfile.TemporaryDirectory() as folder:
        trainers = [trainer_of(kind, config, Path(folder)) for kind in KINDS]
        for step in range(config.steps):
            for place in np.roll(np.arange(len(KINDS)), number + step):
                began = time.perf_counter(), time.process_time()
                trainers[place].step(step)
                found[place, step] = time.perf_counter() - began[0], time.process_time() - began[1]
        for trainer in trainers:
            trainer.explorer.finish()
            trainer.run.finish()
    return found


def report(ms: Any) -> None:
    """Print the cost of each kind over the first, which records nothing; ``ms`` is by round, kind, step and clock."""
    wall, busy = np.median(ms[:, 0], axis=(0, 1))
    print(
        f"{ms.shape[2]} steps, {len(ms)} rounds; without recording one takes {wall:.1f} ms, {busy:.1f} of the processor"
    )
    for place, kind in list(enumerate(KINDS))[1:]:
        more = ms[:, place] - ms[:, 0]
        (extra, extra_busy), rounds = np.median(more, axis=(0, 1)), np.median(more[:, :, 0], axis=1)
        print(
            f"{kind:22}{extra:+7.2f} ms a step ({rounds.min():+.2f} to {rounds.max():+.2f} by round): "
            f"{extra / wall:+.2%} of the time, {extra_busy / busy:+.2%} of the processor's"
        )


if __name__ == "__main__":
    main()
