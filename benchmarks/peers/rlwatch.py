"""rlwatch on a run: the run's series are logged step by step, as its users do, and its alerts are collected."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from dataclasses import dataclass

from barograph.diagnosis.rule import Case

INPUTS = {
    "entropy": ("entropy",),
    "kl_divergence": ("kl", "kl_sum", "step_kl"),
    "reward_mean": ("reward",),
    "reward_std": ("reward_std",),
    "loss": ("loss",),
    "grad_norm": ("gradient",),
    "learning_rate": ("learning_rate",),
    "clip_fraction": ("clipped",),
}
"""The arguments of rlwatch's ``log_step`` and the signals that they are, the best first."""


@dataclass(frozen=True)
class Alert:
    """An alert that was sent."""

    step: int
    detector: str
    severity: str


def alerts(case: Case, id: str) -> list[Alert]:
    """Return the alerts that rlwatch sends with its default settings."""
    import rlwatch

    logging.getLogger("rlwatch").setLevel(logging.ERROR)
    sent: list[Alert] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()):
        monitor = rlwatch.attach(framework="manual", run_id=id)
        for step, values in rows(case).items():
            sent += [Alert(step, one.detector, one.severity) for one in monitor.log_step(step, **values)]
        monitor.stop()
    return sent


def rows(case: Case) -> dict[int, dict[str, float]]:
    """Return the values of each step by the names of rlwatch's arguments."""
    found: dict[int, dict[str, float]] = {}
    for name, keys in INPUTS.items():
        track = next((track for key in keys if (track := case.get(key)) is not None), None)
        if track is not None:
            for step, value in zip(track.steps.tolist(), track.values.tolist(), strict=True):
                found.setdefault(step, {})[name] = value
    return dict(sorted(found.items()))
