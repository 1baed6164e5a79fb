"""Check what the doctor says about the demo's sick runs, and about healthy ones.

    scripts/bench demo_diagnoses --dir DIR                  # train what DIR lacks, about a minute each, then judge
    scripts/bench demo_diagnoses --dir DIR --no-training    # judge the runs that are there

A sick run is diagnosed by the rule of its fault within a fifth of its length after the onset: the first step from
which what shows the fault stays outside the range of the healthy runs with other seeds. The onset that the doctor
names lies within a tenth of the length of it. Healthy runs, with other seeds and with other settings, have nothing
above info, neither at their end nor at 10, 25 and 50 % of it. The exit code is 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sick_runs import metric_of, runs_in

import barograph
from barograph.apps.demo.config import SICK_RUNS, DemoConfig, sick_config
from barograph.apps.demo.trainer import start_runs, train
from barograph.diagnosis.diagnose import Visit, diagnose
from barograph.diagnosis.rule import Case
from barograph.journal.findings import Finding

SEEDS, SETTINGS = 20, 20
RULES = {
    "entropy-collapse": ("entropy_collapse",),
    "kl-blowup": ("kl_drift", "kl_spike"),
    "ratio-drift": ("ratio_drift",),
    "value-explosion": ("value_loss_spike",),
    "nan": ("nonfinite",),
    "dead-groups": ("no_signal", "weak_signal"),
    "reward-hacking": ("proxy_gold_gap",),
    "length-explosion": ("length_explosion",),
    "stale-policy": ("stale",),
    "lr-too-high": ("lr_implausible", "ppo_kl_high"),
    "slow-phase": ("phase_imbalance",),
    "memory-leak": ("memory_leak",),
}
"""The rules that name the fault of a sick run."""
CHOICES = {
    "steps": (60, 80, 100),
    "tasks": (32, 64, 128),
    "runs": (4, 8, 12),
    "temperature": (0.9, 1.0, 1.1),
    "actor_lr": (1e-4, 2e-4, 4e-4),
    "critic_lr": (5e-4, 1e-3, 2e-3),
    "epochs": (1, 2, 3),
    "mini_batches": (1, 2, 4),
    "clip": (0.1, 0.2, 0.3),
    "kl_coef": (0.0, 0.01, 0.03),
    "entropy_coef": (0.003, 0.01, 0.02),
    "validate_every": (5, 10, 20),
    "move_reward": (-0.02, -0.01, 0.0),
    "hidden": (128, 320),
}
"""Settings with which the demo still learns."""


@dataclass(frozen=True)
class Answer:
    """What the doctor said about a sick run: when, and since which step; ``onset`` is where the fault shows."""

    onset: int | None
    found: int | None
    named: int | None
    length: int

    @property
    def holds(self) -> bool:
        """Whether it came in time, and names the right step."""
        if self.onset is None or self.found is None or self.named is None:
            return False
        in_time = self.found - self.onset <= 0.2 * self.length
        return in_time and abs(self.named - self.onset) <= 0.1 * self.length


def config_of(name: str) -> DemoConfig:
    """Return the configuration of a run by its name: a sick run, seed-N, or settings-N."""
    kind, _, number = name.rpartition("-")
    if kind == "seed":
        return DemoConfig(seed=int(number))
    if kind != "settings":
        return sick_config(DemoConfig(), name)
    random = np.random.default_rng(int(number))
    chosen = {key: values[int(random.integers(len(values)))] for key, values in CHOICES.items()}
    return DemoConfig(seed=100 + int(number)).changed(chosen)


def train_missing(folder: Path, names: Iterable[str]) -> None:
    """Train what the folder lacks."""
    known = runs_in(folder) if folder.exists() else {}
    for name in names:
        if name not in known:
            config = config_of(name)
            run, explorer = start_runs(config, dir=folder, name=name)
            with run, explorer:
                train(config, run, explorer)


def shown_from(view: barograph.View, metric: str, healthy: Iterable[barograph.View]) -> int | None:
    """Return the first step from which a metric stays outside of the range of healthy runs; None if it does not.

    The median of three values counts, since the staleness of a sawtooth is 0 at single steps.
    """
    series = view.series(metric)
    others = [one.series(metric) for one in healthy]
    inside = np.zeros(len(series), bool)
    for row, (step, value) in enumerate(zip(series.steps, smoothed(series.values), strict=True)):
        beside = [one.values[one.steps == step] for one in others]
        known = np.concatenate([values for values in beside if len(values)] or [np.array([np.nan])])
        inside[row] = bool(np.isfinite(value) and np.nanmin(known) <= value <= np.nanmax(known))
    rows = np.flatnonzero(inside)
    first = int(rows[-1]) + 1 if len(rows) else 0
    return int(series.steps[first]) if first < len(series) else None


def smoothed(values: np.ndarray) -> np.ndarray:
    """Return the median of each value and its neighbours."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)


def first_shown(name: str, view: barograph.View, healthy: list[barograph.View]) -> int | None:
    """Return the step at which a fault shows; that of one huge update is its first step."""
    return 0 if name == "lr-too-high" else shown_from(view, metric_of(name), healthy)


def findings(found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings and those that they explain."""
    for finding in found:
        yield finding
        yield from findings(finding.explains)


def answer(name: str, view: barograph.View, healthy: list[barograph.View]) -> Answer:
    """Return when the doctor finds the fault of a sick run, and since when it says it is there."""
    case = Visit().case_of(view)
    steps = sorted({int(step) for track in case.tracks.values() for step in track.steps})
    onset = first_shown(name, view, healthy)
    for step in steps:
        diagnosis = diagnose(case.upto(step))
        own = [one for one in findings(diagnosis.findings) if one.rule in RULES[name] and one.severity != "info"]
        if own:
            return Answer(onset, step, own[0].onset, len(steps))
    return Answer(onset, None, None, len(steps))


def alarms(case: Case) -> Iterator[str]:
    """Yield what is above info at 10, 25, 50 and 100 % of a healthy run."""
    last = max(int(track.steps[-1]) for track in case.tracks.values())
    for share in (0.1, 0.25, 0.5, 1.0):
        diagnosis = diagnose(case.upto(int(share * last)))
        for finding in (*findings(diagnosis.findings), *diagnosis.past):
            if finding.severity != "info":
                yield f"{finding.rule} since step {finding.onset}, at {share:.0%}"


def report(views: dict[str, barograph.View]) -> bool:
    """Print what was found; return whether all of it holds."""
    healthy = [view for name, view in views.items() if name.startswith("seed-")]
    others = [name for name in views if name.startswith(("seed-", "settings-"))]
    print(f"range of {len(healthy)} healthy seeds\n\n| sick run | shows from | found at | named | holds |")
    print("|---|---|---|---|---|")
    results = []
    for name in SICK_RUNS:
        if name in views:
            one = answer(name, views[name], healthy)
            results.append(one.holds)
            print(f"| `{name}` | {one.onset} | {one.found} | {one.named} | {'yes' if one.holds else 'no'} |")
    wrong = {name: list(alarms(Visit().case_of(views[name]))) for name in others}
    print(f"\n{sum(not found for found in wrong.values())} of {len(others)} healthy runs have nothing above info")
    for name, found in wrong.items():
        for text in dict.fromkeys(found):
            print(f"  {name}: {text}")
    return all(results) and not any(wrong.values())


def main() -> int:
    """Train and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--no-training", action="store_true", help="judge the runs that are there")
    options = parser.parse_args()
    names = [*SICK_RUNS, *(f"seed-{n}" for n in range(SEEDS)), *(f"settings-{n}" for n in range(SETTINGS))]
    if not options.no_training:
        train_missing(options.dir, names)
    return 0 if report({name: view for name, view in runs_in(options.dir).items() if name in names}) else 1


if __name__ == "__main__":
    sys.exit(main())
