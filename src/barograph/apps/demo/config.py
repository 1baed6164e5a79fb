"""Configuration of the demo's training, and sick runs: trainings with one deliberate fault each, in a hyperparameter or
in the trainer's code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from barograph.base.errors import SettingsError, did_you_mean


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Hyperparameters. ``fault`` names a fault in the trainer's code; see ``SICK_RUNS``."""

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


@dataclass(frozen=True, slots=True)
class SickRun:
    """A fault: why it goes wrong, the metric that shows it first (catalogue id), and the changed hyperparameters."""

    reason: str
    shows_in: str
    changes: Mapping[str, Any] = field(default_factory=dict)


SICK_RUNS: dict[str, SickRun] = {
    "entropy-collapse": SickRun(
        "the entropy bonus has the wrong sign: the policy is rewarded for low entropy",
        "evaluation/entropy/mean",
        {"entropy_coef": -0.5},
    ),
    "kl-blowup": SickRun(
        "the KL penalty has the wrong sign: the policy is rewarded for leaving the reference",
        "policy/ref_kl_sum",
        {"kl_coef": -0.3},
    ),
    "ratio-drift": SickRun(
        "the old log-probs are the reference's instead of the policy's, and the clip range is too wide",
        "policy/ratio/mean",
        {"fault": "old-from-reference", "clip": 5.0},
    ),
    "value-explosion": SickRun(
        "the critic's learning rate is 1000 times too high, and values are not clipped",
        "value/loss",
        {"critic_lr": 1.0, "value_clip": None},
    ),
    "nan": SickRun(
        "rewards are divided by the deviation of their group, and groups with equal rewards are not filtered",
        "reward/shaped/mean",
        {"normalise": True, "drop_at_most": 1.0, "fault": "drop-unsolved-only"},
    ),
    "dead-groups": SickRun(
        "the temperature is almost 0: all runs of a task are equal, so that groups give no signal",
        "reward/groups/solved_none",
        {"temperature": 0.01},
    ),
    "reward-hacking": SickRun(
        "moves towards the goal earn a bonus that doubles, moves away cost nothing: moving back and forth scores best",
        "validation/score/mean",
        {"fault": "pay-approach"},
    ),
    "length-explosion": SickRun(
        "every token is rewarded instead of penalised, so that responses never end",
        "tokens/response_length/mean",
        {"move_reward": 0.1},
    ),
    "stale-policy": SickRun(
        "the explorer gets new weights only every 25 steps, so that the trainer learns from old policies",
        "sample/staleness/mean",
        {"sync_every": 25},
    ),
    "lr-too-high": SickRun(
        "the actor's learning rate is 100 times too high: one update moves the policy to where nothing is learnt",
        "policy/kl_k2",
        {"actor_lr": 0.02},
    ),
    "slow-phase": SickRun(
        "the reward replays every episode in a new environment instead of using the recorded outcome",
        "time/{phase}/execute",
        {"fault": "replay-one-by-one"},
    ),
    "memory-leak": SickRun(
        "the trainer keeps the observations of every step and never uses them",
        "memory/cpu/{phase}/{when}/rss",
        {"fault": "keep-every-batch"},
    ),
}


def sick_config(config: DemoConfig, name: str) -> DemoConfig:
    """Return the configuration with the fault of a sick run."""
    if name not in SICK_RUNS:
        hint = did_you_mean(name, SICK_RUNS, before="; ", quoted=str)
        raise SettingsError(f"--sick must be one of {', '.join(SICK_RUNS)}; got {name!r}{hint}")
    return config.changed(SICK_RUNS[name].changes)
