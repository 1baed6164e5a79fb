"""The options of measuring: the clips and losses of a trainer's configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windsock.errors import SettingsError
from windsock.stats.sequences import REDUCTIONS, Reduction


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one measurement.

    ``clip`` is one number or ``(low, high)``, or None where the ratio is not clipped; ``dual_clip`` is the bound c
    of dual-clip PPO; ``value_clip`` and ``reward_clip`` are None where nothing is clipped; ``kl_coef`` is the
    weight of the KL in the reward, ``kl_loss_coef`` of that in the loss; ``loss`` is the reduction of losses,
    ``loss_norm`` the divisor of ``seq-mean-token-sum-norm`` and ``token-sum-norm``, and ``loss_batch`` the number of
    sequences that ``token-sum-norm`` sums over; a sequence of ``max_response_length`` or
    ``max_prompt_length`` tokens counts as truncated; ``right_score`` is the score of a right answer;
    ``temperature`` divides logits.
    """

    clip: tuple[float, float] | None = (0.2, 0.2)
    dual_clip: float | None = None
    value_clip: float | None = None
    reward_clip: float | None = None
    kl_coef: float | None = None
    kl_loss_coef: float = 0.0
    entropy_coef: float = 0.0
    loss: Reduction = "seq-mean-token-mean"
    loss_norm: float | None = None
    loss_batch: int | None = None
    max_response_length: int | None = None
    max_prompt_length: int | None = None
    right_score: float = 1.0
    temperature: float = 1.0

    @classmethod
    def from_keywords(cls, given: dict[str, Any]) -> Options:
        """Return the checked options of a call's keywords; those of equal keywords are one object."""
        try:
            return _cached(tuple(given.items()))
        except TypeError:  # a list, which has no hash
            return cls._checked(given)

    @classmethod
    def _checked(cls, given: dict[str, Any]) -> Options:
        known = cls.__dataclass_fields__
        for name in given:
            if name not in known:
                raise SettingsError(f"measure: unknown option {name!r}; it takes {', '.join(known)}")
        clip = given.get("clip", (0.2, 0.2))
        if isinstance(clip, int | float):
            clip = (float(clip), float(clip))
        options = cls(**{**given, "clip": None if clip is None else tuple(clip)})
        options._check()
        return options

    def _check(self) -> None:
        clip = self.clip
        if clip is not None and (len(clip) != 2 or not all(0 <= side < math.inf for side in clip)):
            raise SettingsError(f"measure: clip: expected a number or (low, high), each 0 or more, got {clip}")
        if self.loss not in REDUCTIONS:
            raise SettingsError(f"measure: loss: expected one of {', '.join(REDUCTIONS)}, got {self.loss!r}")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise SettingsError(f"measure: dual_clip: expected a bound above 1, got {self.dual_clip}")
        if self.loss.endswith("-norm") and not self.loss_norm:
            raise SettingsError(f"measure: loss {self.loss} needs loss_norm, its divisor")
        if self.loss == "token-sum-norm" and not (self.loss_batch and self.loss_batch > 0):
            raise SettingsError(
                "measure: loss token-sum-norm needs loss_batch, the number of sequences that an update sums over, got "
                f"{self.loss_batch}"
            )


@lru_cache(maxsize=256)
def _cached(keywords: tuple[tuple[str, Any], ...]) -> Options:
    return Options._checked(dict(keywords))


def given(arrays: Collection[str], options: Options) -> Callable[[str], bool]:
    """Return a function from the name of an array or an option to whether it is given."""

    def has(name: str) -> bool:
        return getattr(options, name) is not None if name in Options.__dataclass_fields__ else name in arrays

    return has
