"""Sick runs: trainings with one deliberate fault each, in a hyperparameter or in the trainer's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.apps.demo.config import DemoConfig
from barograph.base.errors import SettingsError, did_you_mean


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
