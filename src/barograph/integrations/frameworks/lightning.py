"""Lightning: ``Trainer(logger=BarographLogger())``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from barograph.base.process.exit_status import crash_status
from barograph.base.settings import resolve
from barograph.integrations.frameworks.run import begin_configured, record
from barograph.recording.run import Run

# Both packages have the same classes; a program uses one of them.
_USED = [name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules] or ["lightning.pytorch"]
_lightning = import_module(_USED[0])


class BarographLogger(_lightning.loggers.Logger):  # type: ignore[misc, name-defined]
    """Record what a Lightning Trainer logs. ``run`` is a run to record to; the settings are those of ``init``.

    Rank 0 records. Other ranks do if they know the run: from the launcher, ``id`` or ``BAROGRAPH_RUN_ID``.
    """

    def __init__(self, run: Run | None = None, **settings: Any) -> None:
        super().__init__()
        self._settings = settings
        self._run = run

    @property
    def experiment(self) -> Run:
        """The run; it begins with its first use."""
        if self._run is None:
            rank = _lightning.utilities.rank_zero_only.rank
            known: dict[str, Any] = {"rank": rank}
            if rank > 0 and resolve(None, {"id": self._settings.get("id")}).id is None:
                known["mode"] = "disabled"
            self._run = begin_configured(known, self._settings)
        return self._run

    @property
    def name(self) -> str:
        """The project, the first part of the path of checkpoints."""
        return self.experiment.project

    @property
    def version(self) -> str:
        """The id of the run, the second part of the path of checkpoints."""
        return self.experiment.id

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log values under the trainer's step."""
        record(self.experiment, metrics, step)

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        """Add hyperparameters to the run's config."""
        self.experiment.update_config(params)

    def finalize(self, status: str) -> None:
        """End the run if the training failed; else it stays open for a test or another fit."""
        kind, problem, _ = sys.exc_info()
        if status == "failed" and kind is not None:
            self.experiment.finish(crash_status(kind, problem))
