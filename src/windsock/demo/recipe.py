"""What a training of the demo is set to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from windsock.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Recipe:
    """The hyper-parameters. ``fault`` is one of ``sick.py``: something that is wrong in one place of the trainer."""

    steps: int = 100
    seed: int = 0
    maps: int = 512  # to train on
    tasks: int = 128  # of a step: a map and where to start on it
    runs: int = 8  # of each task: a group
    turns: int = 16  # tokens that a response may have
    temperature: float = 1.0
    hidden: int = 320
    actor_lr: float = 2e-4
    critic_lr: float = 1e-3
    max_grad_norm: float = 1.0
    epochs: int = 3
    mini_batches: int = 2
    clip: float = 0.2
    value_clip: float | None = 0.2
    reward_clip: float = 5.0
    move_reward: float = -0.01  # for every token, so that short ways are better
    normalise: bool = False  # rewards by the mean and deviation of their group
    discount: float = 0.99
    trace: float = 0.95  # lambda of GAE
    kl_coef: float = 0.01
    entropy_coef: float = 0.01
    drop_at_most: float = 0.5  # of the groups, those whose scores are all alike
    sync_every: int = 1  # steps, after which the explorer gets the trainer's weights
    largest_weight: float = 2.0  # of an experience that the explorer found likelier than the trainer does
    shards: int = 4  # over which the tokens of a step would be spread
    validate_every: int = 10
    validation_maps: int = 64
    repeats: int = 4
    save_every: int = 50
    samples: int = 8  # episodes that are shown, of a step
    fault: str = ""

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """Return a recipe with some entries changed; an unknown one is an error that names the nearest."""
        known = {field.name: field for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise SettingsError(f"demo: unknown entry {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            if not _fits(value, getattr(self, name), nullable="None" in str(known[name].type)):
                raise SettingsError(f"demo: {name}: expected {_kind(getattr(self, name))}, got {value!r}")
        return replace(self, **changes)


def _fits(value: Any, usual: Any, nullable: bool) -> bool:
    if value is None:
        return nullable  # no value clip
    if isinstance(usual, bool | str) or isinstance(value, bool):
        return type(value) is type(usual)
    return isinstance(value, int) or (isinstance(value, float) and isinstance(usual, float | None))


def _kind(usual: Any) -> str:
    return {bool: "true or false", int: "an integer", str: "a word"}.get(type(usual), "a number")
