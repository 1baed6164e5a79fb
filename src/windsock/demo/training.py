"""A whole training of the demo, from the recipe to the end of the run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from windsock.demo.recipe import Recipe
from windsock.demo.trainer import Trainer
from windsock.run import Run
from windsock.session import init


def begin(recipe: Recipe, source: Any = None, **settings: Any) -> tuple[Run, Run]:
    """Begin the run: return what records the trainer and what records the explorer."""
    usual: dict[str, Any] = {
        "project": "demo",
        "config": {"demo": asdict(recipe)},
        "devices": 1,
        "peak_flops": peak_flops(),
    }
    run = init(source, **(usual | settings))
    shared: dict[str, Any] = {"id": run.id, "vocabulary": run.info.vocabulary, "project": run.project}
    shared |= {name: settings.get(name) for name in ("mode", "concurrent")}
    folder = settings.get("dir") or run.path.parent.parent
    return run, init(role="explorer", dir=folder, track_with=[], **shared)  # trackers are fed by the trainer


def train(
    recipe: Recipe,
    run: Run,
    explorer: Run,
    after_step: Callable[[int], None] | None = None,
    keep: Path | None = None,
) -> Trainer:
    """Train; ``after_step`` is called with each step that was committed.

    The states of the workers lie in a folder that goes when the training ends, or in ``keep``.
    """
    with tempfile.TemporaryDirectory(prefix="windsock-demo-") as folder, one_thread():
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(recipe, run, explorer, keep or Path(folder))
        for number in range(recipe.steps):
            trainer.step(number)
            if after_step is not None:
                after_step(number)
    return trainer


def one_thread() -> AbstractContextManager[Any]:
    """Keep NumPy to one thread: matrices this small only wait for each other in several."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def peak_flops(size: int = 384, tries: int = 5) -> float:
    """Return how many operations a second this processor does at best, by multiplying matrices."""
    matrix = np.ones((size, size), np.float32)
    seconds = []
    with one_thread():
        for _ in range(tries):
            began = time.perf_counter()
            matrix @ matrix
            seconds.append(time.perf_counter() - began)
    return 2.0 * size**3 / min(seconds)
