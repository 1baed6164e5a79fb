"""Configuration of the demo's training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from barograph.base.errors import SettingsError, did_you_mean


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Hyperparameters. ``fault`` names a fault in the trainer's code; see ``sick_runs``."""

    steps: int = 100
    seed: int = 0
    maps: int = 512
    tasks: int = 128  # per step; a task is a map and a start position
    runs: int = 8  # per task; the runs of a task are a group
    turns: int = 16  # maximum tokens of a response
    temperature: float = 1.0
    hidden: int = 320
    actor_lr: float = 2e-4
    critic_lr: float = 1e-3
    max_grad_norm: float = 1.0
    epochs: int = 3
    mini_batches: int = 2
    clip: float = 0.2
    level: str = "token"  # of the ratio that is clipped; "sequence": one ratio for each episode, as in GSPO
    value_clip: float | None = 0.2
    reward_clip: float = 5.0
    move_reward: float = -0.01  # per token, so that short paths are better
    normalise: bool = False  # rewards by the mean and standard deviation of their group
    discount: float = 0.99
    trace: float = 0.95  # GAE's lambda
    kl_coef: float = 0.01
    entropy_coef: float = 0.01
    drop_at_most: float = 0.5  # share of groups; groups with equal scores are dropped
    sync_every: int = 1  # steps between weight transfers to the explorer
    largest_weight: float = 2.0  # maximum importance weight of an episode
    smallest_weight: float = 0.0  # episodes with a smaller importance weight are not trained on
    shards: int = 4  # data-parallel shards that are simulated
    validate_every: int = 10
    validation_maps: int = 64
    repeats: int = 4
    save_every: int = 50
    fault: str = ""

    def changed(self, changes: Mapping[str, Any]) -> DemoConfig:
        """Return a copy with changed values; raise for an unknown name, with the nearest one."""
        known = {field.name: field for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise SettingsError(f"demo: unknown hyperparameter {name!r}{did_you_mean(name, known, before='; ')}")
            if not _fits(value, getattr(self, name), nullable="None" in str(known[name].type)):
                raise SettingsError(f"demo: {name} must be {_kind(getattr(self, name))}; got {value!r}")
        config = replace(self, **changes)
        if config.steps < 1:
            raise SettingsError(f"demo: steps must be 1 or more; got {config.steps}")
        if not 1 <= config.largest_weight < math.inf:  # 1 is the weight where explorer and trainer agree
            raise SettingsError(f"demo: largest_weight must be finite and 1 or more; got {config.largest_weight}")
        if not 0 <= config.smallest_weight <= 1:
            raise SettingsError(f"demo: smallest_weight must be between 0 and 1; got {config.smallest_weight}")
        if config.level not in ("token", "sequence"):
            raise SettingsError(f"demo: level must be token or sequence; got {config.level!r}")
        return config


def _fits(value: Any, usual: Any, nullable: bool) -> bool:
    if value is None:
        return nullable  # value_clip may be off
    if isinstance(usual, bool | str) or isinstance(value, bool):
        return type(value) is type(usual)
    return isinstance(value, int) or (isinstance(value, float) and isinstance(usual, float | None))


def _kind(usual: Any) -> str:
    return {bool: "true or false", int: "an integer", str: "a string"}.get(type(usual), "a number")
