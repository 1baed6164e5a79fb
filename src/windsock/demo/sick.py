"""Trainings that go wrong on purpose, each by one wrong entry or one real fault, so that trouble can be looked at."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windsock.demo.recipe import Recipe
from windsock.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Sickness:
    """What is changed in a recipe, why that goes wrong, and the metric in which it shows first (catalogue id)."""

    why: str
    shows_in: str
    changes: Mapping[str, Any] = field(default_factory=dict)


SICK: dict[str, Sickness] = {
    "entropy-collapse": Sickness(
        "the entropy bonus has the wrong sign: the policy is paid for being sure, right or not",
        "evaluation/entropy/mean",
        {"entropy_coef": -0.5},
    ),
    "kl-blowup": Sickness(
        "the KL in the reward has the wrong sign: the further from the reference, the better",
        "policy/ref_kl_sum",
        {"kl_coef": -0.3},
    ),
    "ratio-drift": Sickness(
        "the old log-probs are the reference's, not those of the policy, and the clip range is too wide to hold it",
        "policy/ratio/mean",
        {"fault": "old-from-reference", "clip": 5.0},
    ),
    "value-explosion": Sickness(
        "the critic's learning rate is a thousand times too high, and its steps are not clipped",
        "value/loss",
        {"critic_lr": 1.0, "value_clip": None},
    ),
    "nan": Sickness(
        "rewards are divided by the deviation of their group, and the filter lets groups pass that are always right",
        "reward/shaped/mean",
        {"normalise": True, "drop_at_most": 1.0, "fault": "drop-unsolved-only"},
    ),
    "dead-groups": Sickness(
        "the temperature is almost zero: all runs of a task write the same, and there is nothing to compare",
        "reward/groups/solved_none",
        {"temperature": 0.01},
    ),
    "reward-hacking": Sickness(
        "the reward pays for moves towards the goal, not for reaching it: pacing up and down before it pays best",
        "validation/score/mean",
        {"fault": "pay-approach"},
    ),
    "length-explosion": Sickness(
        "every token earns something instead of costing something, so responses never end",
        "tokens/response_length/mean",
        {"move_reward": 0.1},
    ),
    "stale-policy": Sickness(
        "the explorer gets new weights every 25th step alone, and the trainer learns from what it no longer is",
        "sample/staleness/mean",
        {"sync_every": 25},
    ),
    "lr-too-high": Sickness(
        "the actor's learning rate is a hundred times too high: one update throws the policy where nothing is learnt",
        "policy/kl_k2",
        {"actor_lr": 0.02},
    ),
    "slow-phase": Sickness(
        "the reward plays every episode again in a game of its own instead of looking its end up in a table",
        "time/{phase}/execute",
        {"fault": "replay-one-by-one"},
    ),
    "memory-leak": Sickness(
        "the trainer keeps what the policy saw in every step, for nobody",
        "memory/cpu/{phase}/{when}/rss",
        {"fault": "keep-every-batch"},
    ),
}


def sicken(recipe: Recipe, name: str) -> Recipe:
    """Return the recipe with a sickness."""
    if name not in SICK:
        near = difflib.get_close_matches(name, SICK, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"sick: expected one of {', '.join(SICK)}, got {name!r}{hint}")
    return recipe.changed(SICK[name].changes)
