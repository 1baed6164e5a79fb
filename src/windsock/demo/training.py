"""A complete training of the demo."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from windsock.demo.config import DemoConfig
from windsock.demo.trainer import Trainer
from windsock.run import Run
from windsock.session import init


def start_runs(config: DemoConfig, source: Any = None, **settings: Any) -> tuple[Run, Run]:
    """Start the run in both roles; return the trainer's and the explorer's run."""
    defaults: dict[str, Any] = {
        "project": "demo",
        "config": {"demo": asdict(config)},
        "devices": 1,
        "peak_flops": measure_peak_flops(),
    }
    run = init(source, **(defaults | settings))
    shared: dict[str, Any] = {"id": run.id, "vocabulary": run.info.vocabulary, "project": run.project}
    shared |= {name: settings.get(name) for name in ("mode", "concurrent")}
    folder = settings.get("dir") or run.path.parent.parent
    return run, init(role="explorer", dir=folder, track_with=[], **shared)  # the trainer's run delivers to trackers


def train(
    config: DemoConfig,
    run: Run,
    explorer: Run,
    after_step: Callable[[int], None] | None = None,
    keep: Path | None = None,
) -> Trainer:
    """Train; call ``after_step`` with each committed step.

    The states of the workers are stored in a temporary folder, or in ``keep``.
    """
    with tempfile.TemporaryDirectory(prefix="windsock-demo-") as folder, single_threaded():
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(config, run, explorer, keep or Path(folder))
        for number in range(config.steps):
            trainer.step(number)
            if after_step is not None:
                after_step(number)
    return trainer


def single_threaded() -> AbstractContextManager[Any]:
    """Limit NumPy to one thread: for matrices this small, several threads are slower."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def measure_peak_flops(size: int = 384, tries: int = 5) -> float:
    """Return this processor's peak FLOP/s, measured by matrix products."""
    matrix = np.ones((size, size), np.float32)
    seconds = []
    with single_threaded():
        for _ in range(tries):
            began = time.perf_counter()
            matrix @ matrix
            seconds.append(time.perf_counter() - began)
    return 2.0 * size**3 / min(seconds)  # the fastest try is the least disturbed one
