"""What the experience pipeline and the drawing of samples report beside rewards and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from windsock.rollouts.finish import spell


def pipeline_values(
    count: int | None, metrics: Mapping[str, Any], seconds: Mapping[str, Any], vocabulary: str
) -> dict[str, Any]:
    """Return the pipeline's own numbers under their names."""
    values: dict[str, Any] = {}
    if count is not None:
        values[spell("pipeline/experience_count", vocabulary)] = count
    values |= {spell("pipeline/{key}", vocabulary, key=key): value for key, value in metrics.items()}
    named = {spell("time/experience_pipeline/{operator}", vocabulary, operator=o): s for o, s in seconds.items()}
    return values | named


def drawn_columns(versions: Any, trainer_version: int | None) -> dict[str, Any]:
    """Return the columns of drawn samples: their versions and, where the trainer's is known, how far they lag."""
    columns: dict[str, Any] = {"model_version": versions}
    if trainer_version is not None:
        columns["staleness"] = trainer_version - np.asarray(versions, np.float64)
    return columns
