"""Configurations in the flat form that trackers store as hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windsock.formatting import flatten

Param = bool | int | float | str


def flat_params(config: Mapping[str, Any]) -> dict[str, Param]:
    """Return a nested configuration with dotted names (``actor.lr``); lists, None and empty mappings become JSON."""
    return {name: _param(value) for name, value in flatten(config)}


def _param(value: Any) -> Param:
    if isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
