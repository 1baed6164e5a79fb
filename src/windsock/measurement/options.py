"""The options of measuring: the clips and losses of a trainer's configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from windsock.errors import SettingsError
from windsock.stats.sequences import REDUCTIONS, Reduction


class Truncation(NamedTuple):
    """The cap of importance weights, of each token or of each sequence."""

    level: str
    cap: float


class Rejection(NamedTuple):
    """The bounds outside of which importance weights are rejected: of tokens, of sequences, or of their means."""

    level: str
    low: float
    high: float


LEVELS = TRUNCATION_LEVELS = ("token", "sequence")
REJECTION_LEVELS = ("token", "sequence", "geometric")


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one measurement.

    ``clip`` is one number or ``(low, high)``, or None where the ratio is not clipped; ``dual_clip`` is the bound c
    of dual-clip PPO; ``value_clip`` and ``reward_clip`` are None where nothing is clipped; ``kl_coef`` is the
    weight of the KL in the reward, ``kl_loss_coef`` of that in the loss; ``loss`` is the reduction of losses,
    ``loss_norm`` the divisor of ``seq-mean-token-sum-norm`` and ``token-sum-norm``, and ``loss_batch`` the number of
    sequences that ``token-sum-norm`` sums over; a sequence of ``max_response_length`` or
    ``max_prompt_length`` tokens counts as truncated; ``right_score`` is the score of a right answer;
    ``temperature`` divides logits. ``truncate`` and ``reject`` are the off-policy correction, by the weight of
    trainer over rollout engine: a cap, or ``(level, cap)``, and ``(level, low, high)``. ``level`` is that of the
    ratio that the loss has: of each token, or of each sequence (GSPO).
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
    truncate: Truncation | None = None
    reject: Rejection | None = None
    level: Literal["token", "sequence"] = "token"

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
        checked = {
            "clip": None if clip is None else tuple(clip),
            "truncate": _truncation(given.get("truncate")),
            "reject": _rejection(given.get("reject")),
        }
        options = cls(**{**given, **checked})
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
        if self.level not in LEVELS:
            raise SettingsError(f"measure: level: expected one of {', '.join(LEVELS)}, got {self.level!r}")
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


def _truncation(value: Any) -> Truncation | None:
    if value is None:
        return None
    level, cap = value if isinstance(value, tuple | list) and len(value) == 2 else ("token", value)
    # A weight of 1, which both engines agree on, is never cut.
    if level not in TRUNCATION_LEVELS or not _is_number(cap) or not 1 <= cap < math.inf:
        raise SettingsError(
            f"measure: truncate: expected a cap of 1 or more, or (level, cap) with a level of "
            f"{' or '.join(TRUNCATION_LEVELS)}, got {value!r}"
        )
    return Truncation(level, float(cap))


def _rejection(value: Any) -> Rejection | None:
    if value is None:
        return None
    level, *bounds = value if isinstance(value, tuple | list) else ("",)
    known = level in REJECTION_LEVELS and len(bounds) == 2 and all(map(_is_number, bounds))
    if not known or not 0 <= bounds[0] <= 1 <= bounds[1]:
        raise SettingsError(
            f"measure: reject: expected (level, low, high) with a level of {', '.join(REJECTION_LEVELS)} and "
            f"0 <= low <= 1 <= high, got {value!r}"
        )
    return Rejection(level, float(bounds[0]), float(bounds[1]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def given(arrays: Collection[str], options: Options) -> Callable[[str], bool]:
    """Return a function from the name of an array or an option to whether it is given.

    ``option/level`` asks whether the option is set at that level.
    """

    def has(name: str) -> bool:
        name, _, level = name.partition("/")
        if name not in Options.__dataclass_fields__:
            return name in arrays
        value = getattr(options, name)
        return value is not None and (not level or level == getattr(value, "level", value))

    return has
