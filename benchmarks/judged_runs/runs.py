"""Judged runs: real logs with the verdicts of people, and runs of the demo, whose faults are known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barograph.apps.demo.config import SICK_RUNS, DemoConfig, sick_config
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.rule import Case
from barograph.importers.opening import open_run
from barograph.journal.format.folder import run_folders
from barograph.journal.view import View

DEMO = "demo"
HEALTHY, UNHEALTHY = "healthy", "unhealthy"
INFO, WARNING, CRITICAL = 1, 2, 3
NAMED_BY = {
    "entropy-collapse": ("entropy_collapse",),
    "kl-blowup": ("kl_drift",),
    "ratio-drift": ("ratio_drift",),
    "value-explosion": ("value_loss_spike",),
    "nan": ("nonfinite",),
    "dead-groups": ("no_signal",),
    "reward-hacking": ("proxy_gold_gap",),
    "length-explosion": ("length_explosion",),
    "stale-policy": ("stale",),
    "lr-too-high": ("lr_implausible",),
    "slow-phase": ("phase_imbalance",),
    "memory-leak": ("memory_leak",),
}
"""The rule that names each fault of the demo."""


@dataclass(frozen=True)
class JudgedRun:
    """A run with what is known: rules that should fire, from which severity on, and rules that must not."""

    id: str
    framework: str
    verdict: str
    expected: Mapping[str, int]
    forbidden: frozenset[str]
    case: Case

    @property
    def origin(self) -> str:
        """Whether it is a demo or real."""
        return DEMO if self.framework == DEMO else "real"

    @property
    def causes(self) -> list[str]:
        """The rules that should give at least a warning."""
        return [rule for rule, level in self.expected.items() if level > INFO]


def real_runs(folder: Path) -> Iterator[JudgedRun]:
    """Yield the runs of a folder with a truth.json; each has a folder with its log and a series.csv."""
    for known in json.loads((folder / "truth.json").read_text(encoding="utf-8")):
        log = next(path for path in (folder / known["id"]).iterdir() if path.name != "series.csv")
        yield JudgedRun(
            id=known["id"],
            framework=known["framework"].split(" (")[0],
            verdict=known["verdict"],
            expected={
                name.removesuffix("~"): INFO if name[-1] == "~" else WARNING for name in known["expected_findings"]
            },
            forbidden=frozenset(known["must_not_fire"]),
            case=Visit().case_of(open_run(log)),
        )


def demo_runs(folder: Path) -> Iterator[JudgedRun]:
    """Yield the demo's runs of a folder, the newest of each name: one that is named like a fault has it."""
    for name, view in demo_views(folder).items():
        yield JudgedRun(
            id=name,
            framework=DEMO,
            verdict=UNHEALTHY if name in SICK_RUNS else HEALTHY,
            expected=dict.fromkeys(NAMED_BY.get(name, ()), WARNING),
            forbidden=frozenset(),
            case=Visit().case_of(view),
        )


def demo_views(folder: Path) -> dict[str, View]:
    """Return the newest run of each name."""
    views = sorted((View(path) for path in run_folders(folder)), key=lambda view: view.info.created)
    return {view.name: view for view in views}


def make_demos(folder: Path, seeds: int) -> None:
    """Train the sick runs, and healthy ones with other seeds, that the folder does not have."""
    from barograph.apps.demo.trainer import start_runs, train

    wanted = {name: sick_config(DemoConfig(), name) for name in SICK_RUNS}
    wanted |= {f"seed-{seed}": DemoConfig().changed({"seed": seed}) for seed in range(1, seeds + 1)}
    known = demo_views(folder) if folder.exists() else {}
    for name, config in wanted.items():
        if name not in known:
            print(f"training {name} …", flush=True)
            run, explorer = start_runs(config, dir=folder, name=name)
            with run, explorer:
                train(config, run, explorer)
