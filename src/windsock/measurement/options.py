"""What a trainer's losses and clips are set to: the part of its configuration that metrics depend on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from windsock.errors import SettingsError
from windsock.stats.sequences import REDUCTIONS, Reduction


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one measurement.

    ``clip`` is one number or ``(low, high)``; ``dual_clip`` is the bound c of dual-clip PPO; ``value_clip`` and
    ``reward_clip`` are None where nothing is clipped; ``kl_coef`` weighs the KL in the reward, ``kl_loss_coef`` that in
    the loss; ``loss`` is how losses are reduced and ``loss_norm`` the divisor of ``seq-mean-token-sum-norm``;
    ``max_response_length`` and ``max_prompt_length`` are the configured limits, against which truncation is told;
    ``right_score`` is what a right answer earns; ``temperature`` divides logits where those are given.
    """

    clip: tuple[float, float] = (0.2, 0.2)
    dual_clip: float | None = None
    value_clip: float | None = None
    reward_clip: float | None = None
    kl_coef: float | None = None
    kl_loss_coef: float = 0.0
    entropy_coef: float = 0.0
    loss: Reduction = "seq-mean-token-mean"
    loss_norm: float | None = None
    max_response_length: int | None = None
    max_prompt_length: int | None = None
    right_score: float = 1.0
    temperature: float = 1.0

    @classmethod
    def from_keywords(cls, given: dict[str, Any]) -> Options:
        """Check and complete what a user gave."""
        known = cls.__dataclass_fields__
        for name in given:
            if name not in known:
                raise SettingsError(f"measure: unknown option {name!r}; it takes {', '.join(known)}")
        clip = given.get("clip", (0.2, 0.2))
        if isinstance(clip, int | float):
            clip = (float(clip), float(clip))
        options = cls(**{**given, "clip": tuple(clip)})
        options._check()
        return options

    def united(self, other: Options) -> Options:
        """Return what was set for either part of a step; where both were, the other's.

        A trainer tells the coefficients of its policy loss with the policy's batches alone: a batch of the critic that
        comes later does not take them back.
        """
        usual = Options()
        changed = {
            name: getattr(other, name)
            for name in self.__dataclass_fields__
            if getattr(other, name) != getattr(usual, name)
        }
        return replace(self, **changed)

    def _check(self) -> None:
        if len(self.clip) != 2 or not all(0 <= side < math.inf for side in self.clip):
            raise SettingsError(f"measure: clip: expected a number or (low, high), each 0 or more, got {self.clip}")
        if self.loss not in REDUCTIONS:
            raise SettingsError(f"measure: loss: expected one of {', '.join(REDUCTIONS)}, got {self.loss!r}")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise SettingsError(f"measure: dual_clip: expected a bound above 1, got {self.dual_clip}")
        if self.loss == "seq-mean-token-sum-norm" and not self.loss_norm:
            raise SettingsError("measure: loss seq-mean-token-sum-norm divides by loss_norm: give it")


def given(arrays: Collection[str], options: Options) -> Callable[[str], bool]:
    """Return a function that tells whether the input of a name, an array or an option, is there."""

    def has(name: str) -> bool:
        return getattr(options, name) is not None if name in Options.__dataclass_fields__ else name in arrays

    return has
