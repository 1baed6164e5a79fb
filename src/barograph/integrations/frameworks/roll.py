"""ROLL: ``track_with: barograph`` after ``import barograph.roll`` in the script that starts the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roll.utils.tracking import BaseTracker, tracker_registry

from barograph.base.formatting import flattened
from barograph.integrations.frameworks.run import begin, record, source_of
from barograph.integrations.guard import unharmed

REDUCERS = ("mean", "max", "min", "p50", "p99", "std", "sum")  # that ROLL understands behind an @


class RollTracker(BaseTracker):  # type: ignore[misc]
    """The tracker of a pipeline. ``tracker_kwargs`` are settings of ``barograph.init``."""

    def __init__(self, config: Mapping[str, Any], **kwargs: Any) -> None:
        name = config.get("exp_name")
        self.run = begin(source_of("roll", "roll"), config, kwargs, project="roll", name=name and str(name))

    @unharmed
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Record the values of a step; without one, of the step after the last."""
        record(self.run, dict(_without_reducers(values)), step)

    @unharmed
    def finish(self) -> None:
        """End the run. ROLL does not call it: a run ends with its process."""
        self.run.finish()


def _without_reducers(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield values by their names without the reducer that ROLL has applied: ``actor/pg_loss@sum``, not ``val/pass@8``.

    ROLL's own trackers cut every name at its last @, so that they have one series for all k of pass@k.
    """
    for name, value in flattened(values):
        bare, _, reducer = name.rpartition("@")
        yield (bare if bare and reducer in REDUCERS else name), value


tracker_registry["barograph"] = RollTracker
