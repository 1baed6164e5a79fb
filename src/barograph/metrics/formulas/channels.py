"""The channels: quantities that every token has, each declared once, and the per-token formulas of a policy and a
value update, for NumPy arrays and torch tensors.

A channel names the arrays and options that it needs, the parts of a step that measure it, its formula, and the
statistics that a device keeps of it. The host's selection of tokens, the table that a device fills and the switches
of the Triton kernel are derived from ``CHANNELS``; the kernel has the same formulas once more, under the same
names.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Literal, NamedTuple

import numpy as np


def numpy_or_torch(array: Any) -> Any:
    """Return the torch module for a tensor and the numpy module for everything else.

    Both have exp, clip, where, minimum and the other functions that the formulas use. torch is taken from
    ``sys.modules``: a process that never imported it has no tensors.
    """
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np


Clip = tuple[float, float]


def kl_k2(d: Any) -> Any:
    """Return d²/2: biased, never negative."""
    return 0.5 * d * d


def kl_k3(d: Any) -> Any:
    """Return exp(d) - 1 - d: unbiased for KL(old‖current), never negative. Accurate also where d is tiny."""
    return numpy_or_torch(d).expm1(d) - d


def truncated(weights: Any, cap: float) -> Any:
    """Return min(w, cap)."""
    return numpy_or_torch(weights).clip(weights, None, cap)


def kept(weights: Any, low: float, high: float) -> Any:
    """Return where a weight is within the bounds, both included; nowhere for NaN."""
    return (weights >= low) & (weights <= high)


def rejected(weights: Any, low: float, high: float) -> Any:
    """Return where a weight is outside the bounds; nowhere for NaN."""
    return (weights < low) | (weights > high)


class Bound(NamedTuple):
    """A number near the logarithm of a bound of ratios, as the sum of two in single precision.

    Every device decides with it in the same way whether a ratio is beyond the bound: by the exact difference of two
    log-probs, which the exponential and single precision would round.
    """

    high: float
    low: float

    @classmethod
    def of(cls, ratio: float) -> Bound:
        """Return that of a ratio; of 0 and less, which no ratio is below, minus infinity."""
        if ratio <= 0:
            return cls(-math.inf, 0.0)
        exact = math.log(ratio)
        high = _single(exact)
        return cls(high, 0.0 if math.isinf(high) else _single(exact - high))


def _single(number: float) -> float:
    """Return the number in single precision."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def above(d: Any, clip: Clip) -> Any:
    """Return where the ratio is above the band, from the log-ratio in double precision."""
    return d > sum(Bound.of(1.0 + clip[1]))


def below(d: Any, clip: Clip) -> Any:
    """Return where the ratio is below the band, from the log-ratio in double precision."""
    return d < sum(Bound.of(1.0 - clip[0]))


def dual_clip_binds(d: Any, advantages: Any, dual_clip: float) -> Any:
    """Return where dual clipping bounds the loss of a token with a negative advantage and a large ratio."""
    # The clip does not matter: its bound is above 1 only for ratios that it lowers.
    return (advantages < 0) & (d > sum(Bound.of(dual_clip)))


def ratio_above(ratio: Any, clip: Clip) -> Any:
    """Return where the ratio is above the band."""
    return ratio > 1.0 + clip[1]


def ratio_below(ratio: Any, clip: Clip) -> Any:
    """Return where the ratio is below the band."""
    return ratio < 1.0 - clip[0]


def clipped(ratio: Any, clip: Clip | None) -> Any:
    """Return the ratio, clipped to the band."""
    if clip is None:
        return ratio
    return numpy_or_torch(ratio).clip(ratio, 1.0 - clip[0], 1.0 + clip[1])


def surrogate_factors(ratio: Any, clip: Clip | None, dual_clip: float | None = None) -> tuple[Any, Any]:
    """Return what ``surrogate_loss`` multiplies a positive and a negative advantage with, with the sign turned."""
    xp = numpy_or_torch(ratio)
    up, down = xp.minimum(ratio, clipped(ratio, clip)), xp.maximum(ratio, clipped(ratio, clip))
    return up, down if dual_clip is None else xp.clip(down, None, dual_clip)


def surrogate_loss(ratio: Any, advantages: Any, clip: Clip | None, dual_clip: float | None = None) -> Any:
    """Return -min(r·A, clip(r)·A); with ``dual_clip`` c, for A < 0, at most -c·A."""
    xp = numpy_or_torch(ratio)
    gain = xp.minimum(ratio * advantages, clipped(ratio, clip) * advantages)
    if dual_clip is not None:
        gain = xp.where(advantages < 0, xp.maximum(gain, dual_clip * advantages), gain)
    return -gain


def squared_error(values: Any, returns: Any) -> Any:
    """Return (V - R)²."""
    return numpy_or_torch(values).square(values - returns)


def clipped_squared_error(values: Any, old_values: Any, returns: Any, clip: float) -> Any:
    """Return the squared error of the value, clipped to within ``clip`` of the old value."""
    xp = numpy_or_torch(values)
    return xp.square(xp.clip(values, old_values - clip, old_values + clip) - returns)


def value_loss(values: Any, returns: Any, old_values: Any | None = None, clip: float | None = None) -> Any:
    """Return half the squared error, or with a clip half the larger of it and the clipped error; no coefficient."""
    error = squared_error(values, returns)
    if clip is None or old_values is None:
        return 0.5 * error
    return 0.5 * numpy_or_torch(values).maximum(error, clipped_squared_error(values, old_values, returns, clip))


def value_clip_binds(values: Any, returns: Any, old_values: Any, clip: float) -> Any:
    """Return where the clipped error is larger than the unclipped one."""
    return clipped_squared_error(values, old_values, returns, clip) > squared_error(values, returns)


Statistics = Literal["spread", "sum", "count"]

Formula = Callable[[Any, Any], Any]
"""Takes the tokens and the options. Attributes of the tokens are arrays of the batch and other channels, by name."""


@dataclass(frozen=True, slots=True)
class Need:
    """An input, an array or an option; with ``when``, it is needed only where that option is set.

    With ``level``, an option that is set at that level: of tokens, of sequences.
    """

    name: str
    when: str | None = None
    level: str = ""

    @classmethod
    def parse(cls, text: str) -> Need:
        """Read ``name``, ``name:option`` or ``option/level``."""
        name, _, when = text.partition(":")
        name, _, level = name.partition("/")
        return cls(name, when or None, level)

    def applies(self, has: Callable[[str], bool]) -> bool:
        """Return whether the input is needed, given which options are set."""
        return self.when is None or has(self.when)

    def is_met(self, has: Callable[[str], bool]) -> bool:
        """Return whether the input is there or not needed."""
        return not self.applies(has) or has(f"{self.name}/{self.level}" if self.level else self.name)


@dataclass(frozen=True, slots=True)
class Channel:
    """A quantity of every token.

    ``statistics`` are what a device keeps of each sequence: the ``spread`` (sum, squares, extremes), the ``sum``, or
    the ``count`` of tokens where a condition holds. ``combines`` is set where the channel is a sum of others with
    these factors: a device does not compute it, its statistics follow from theirs. ``near`` is the
    exact value where every input is 0, of channels whose values are close to it. ``nan_of`` is the channel of a
    condition's inputs: where that is NaN the condition neither holds nor fails, and counts as NaN. ``quantiles`` is
    the name of the kind of state that has the channel's quantiles, or empty for none.
    """

    name: str
    parts: tuple[str, ...]
    needs: tuple[Need, ...]  # arrays
    options: tuple[str, ...] = ()
    formula: Formula | None = None  # None: the array of the channel's name
    statistics: Statistics = "sum"
    of_response: bool = False  # over all response tokens, also those that ``keep`` excludes
    near: float | None = None
    combines: Mapping[str, float] = field(default_factory=dict)
    nan_of: str | None = None
    quantiles: str = ""


def _channel(
    name: str, parts: str, needs: str, formula: Formula | None = None, options: str = "", **more: Any
) -> Channel:
    arrays = tuple(map(Need.parse, needs.split()))
    return Channel(name, tuple(parts.split()), arrays, tuple(options.split()), formula, **more)


def _spread(name: str, parts: str, needs: str, formula: Formula | None = None, **more: Any) -> Channel:
    return _channel(name, parts, needs, formula, statistics="spread", **more)


def _count(name: str, parts: str, needs: str, condition: Formula, **more: Any) -> Channel:
    return _channel(name, parts, needs, condition, statistics="count", **more)


def _combined(
    name: str,
    parts: str,
    needs: str,
    formula: Formula | None = None,
    options: str = "",
    nan_of: str | None = None,
    **factors: float,
) -> Channel:
    def combine(x: Any, o: Any) -> Any:
        terms = ((getattr(x, other), factor) for other, factor in factors.items())
        # Without the factor 1 conditions stay boolean; the combined ones exclude each other, so their sum is exact.
        return reduce(add, (term if factor == 1 else term * factor for term, factor in terms))

    return _channel(name, parts, needs, formula or combine, options, combines=factors, nan_of=nan_of)


def _exp(d: Any) -> Any:
    return numpy_or_torch(d).exp(d)


def _clipped(x: Any, low: float | None, high: float | None) -> Any:
    return numpy_or_torch(x).clip(x, low, high)


def _where(condition: Any, then: Any, otherwise: Any) -> Any:
    return numpy_or_torch(otherwise).where(condition, then, otherwise)


def _value_loss(x: Any, o: Any) -> Any:
    old = x.old_values if o.value_clip is not None else None
    return value_loss(x.values, x.returns, old, o.value_clip)


RATIO = "log_probs old_log_probs"

SURROGATE = f"{RATIO} advantages"

REFERENCE = "old_log_probs ref_log_probs"

MISMATCH = "old_log_probs rollout_log_probs"

VALUES = "values returns"

CHANNELS: dict[str, Channel] = {channel.name: channel for channel in (
    _channel(
        "log_ratio", "policy", RATIO, lambda x, o: x.log_probs - x.old_log_probs, quantiles="log-quantiles"
    ),
    _spread("ratio", "policy", RATIO, lambda x, o: _exp(x.log_ratio), near=1.0),
    _count("above", "policy", RATIO, lambda x, o: above(x.log_ratio, o.clip), options="clip", nan_of="ratio"),
    _count("below", "policy", RATIO, lambda x, o: below(x.log_ratio, o.clip), options="clip", nan_of="ratio"),
    _combined("outside", "policy", RATIO, options="clip", nan_of="ratio", above=1, below=1),
    _combined("kl_k1", "policy", RATIO, log_ratio=-1.0),
    _channel("kl_k2", "policy", RATIO, lambda x, o: kl_k2(x.log_ratio)),
    _channel("kl_k3", "policy", RATIO, lambda x, o: kl_k3(x.log_ratio)),
    _channel("exact_kl", "policy", "exact_kl"),
    _channel("exact_ref_kl", "policy", "exact_ref_kl"),
    _spread("highest_logits", "policy", "highest_logits"),
    _spread("lowest_logits", "policy", "lowest_logits"),
    _channel("entropy", "policy", "entropy", quantiles="positive-quantiles"),
    _channel("log_probs", "policy", "log_probs"),
    _combined("nll", "policy", "log_probs", log_probs=-1.0),
    _channel("ref_k3", "policy", "log_probs ref_log_probs", lambda x, o: kl_k3(x.ref_log_probs - x.log_probs)),
    _channel(
        "surrogate", "policy", SURROGATE,
        lambda x, o: surrogate_loss(x.ratio, x.advantages, o.clip, o.dual_clip), options="level/token",
    ),
    _count(
        "high", "policy", SURROGATE, lambda x, o: x.above & (x.advantages > 0), options="clip level/token",
        nan_of="surrogate",
    ),
    _count(
        "low", "policy", SURROGATE, lambda x, o: x.below & (x.advantages < 0), options="clip level/token",
        nan_of="surrogate",
    ),
    _combined("binds", "policy", SURROGATE, options="clip level/token", nan_of="surrogate", high=1, low=1),
    _count(
        "dual", "policy", SURROGATE,
        lambda x, o: dual_clip_binds(x.log_ratio, x.advantages, o.dual_clip),
        options="dual_clip level/token", nan_of="surrogate",
    ),
    # With one ratio for all tokens of a sequence, the loss of the sequence follows from these.
    _channel(
        "positive_advantages", "policy", SURROGATE, lambda x, o: _clipped(x.advantages, 0.0, None),
        options="level/sequence",
    ),
    _channel(
        "negative_advantages", "policy", SURROGATE, lambda x, o: _clipped(x.advantages, None, 0.0),
        options="level/sequence",
    ),
    _count(
        "positive_tokens", "policy", SURROGATE, lambda x, o: x.advantages > 0, options="level/sequence",
        nan_of="positive_advantages",
    ),
    _count(
        "negative_tokens", "policy", SURROGATE, lambda x, o: x.advantages < 0, options="level/sequence",
        nan_of="positive_advantages",
    ),

    _spread("advantages", "data", "advantages", quantiles="quantiles"),
    # Not the zeros themselves: a device has 0 for every token outside the mask.
    _count("nonzero_advantages", "data", "advantages", lambda x, o: x.advantages != 0, nan_of="advantages"),
    _spread("returns", "data", "returns"),
    _spread("old_values", "data value", "old_values"),
    _spread("residual", "data", "returns old_values", lambda x, o: x.returns - x.old_values),
    _channel("old_log_probs", "data", "old_log_probs"),
    _channel("ref_log_probs", "data", "ref_log_probs"),
    _channel("old_minus_ref", "data", REFERENCE, lambda x, o: x.old_log_probs - x.ref_log_probs),
    _channel("old_ref_k3", "data", REFERENCE, lambda x, o: kl_k3(x.ref_log_probs - x.old_log_probs)),
    _channel("old_entropy", "data", "old_entropy"),
    _channel("rewards", "data", "rewards", of_response=True),
    _count(
        "ends", "data", "actions eos_ids", lambda x, o: numpy_or_torch(x.actions).isin(x.actions, x.eos_ids),
        of_response=True,
    ),

    _channel("rollout_log_probs", "data", MISMATCH),
    _channel("mismatch", "data", MISMATCH, lambda x, o: x.old_log_probs - x.rollout_log_probs),
    _combined("mismatch_k1", "data", MISMATCH, mismatch=-1.0),
    _channel("mismatch_k3", "data", MISMATCH, lambda x, o: kl_k3(x.mismatch)),
    _spread("mismatch_ratio", "data", MISMATCH, lambda x, o: _exp(x.mismatch), near=1.0),
    _spread(
        "log_prob_difference", "data", MISMATCH, lambda x, o: abs(x.mismatch), quantiles="positive-quantiles"
    ),
    _spread(
        "probability_difference", "data", MISMATCH, lambda x, o: abs(_exp(x.old_log_probs) - _exp(x.rollout_log_probs))
    ),
    _spread(
        "truncated_weight", "data", MISMATCH, lambda x, o: truncated(x.mismatch_ratio, o.truncate.cap),
        options="truncate/token", near=1.0,
    ),
    _channel(
        "truncated_distance", "data", MISMATCH, lambda x, o: abs(x.truncated_weight - 1.0), options="truncate/token"
    ),
    _count(
        "truncates", "data", MISMATCH, lambda x, o: x.mismatch_ratio > o.truncate.cap, options="truncate/token",
        nan_of="mismatch_ratio",
    ),
    _count(
        "rejects", "data", MISMATCH, lambda x, o: rejected(x.mismatch_ratio, o.reject.low, o.reject.high),
        options="reject/token", nan_of="mismatch_ratio",
    ),
    # Both are NaN where the ratio is: that token is neither kept nor rejected.
    _channel(
        "kept_k3", "data", MISMATCH, lambda x, o: _where(x.rejects, 0.0, x.mismatch_k3), options="reject/token"
    ),
    _channel(
        "rejected_k3", "data", MISMATCH,
        lambda x, o: _where(kept(x.mismatch_ratio, o.reject.low, o.reject.high), 0.0, x.mismatch_k3),
        options="reject/token",
    ),

    _channel("values", "value", "values"),
    _channel("error", "value", VALUES, lambda x, o: squared_error(x.values, x.returns)),
    _channel("value_loss", "value", f"{VALUES} old_values:value_clip", _value_loss),
    _count(
        "value_clip", "value", f"{VALUES} old_values",
        lambda x, o: value_clip_binds(x.values, x.returns, x.old_values, o.value_clip), options="value_clip",
        nan_of="value_loss",
    ),
)}  # fmt: skip


class Tokens:
    """The tokens of a batch as formulas see them: arrays and channels are attributes.

    ``read`` returns an array of the batch at the tokens. A channel is computed when a formula asks for it, and kept
    where ``keep`` is set: on the host that saves time, on a device the memory matters more.
    """

    def __init__(self, read: Callable[[str], Any], options: Any, keep: bool) -> None:
        self._read = read
        self._options = options
        self._keep = keep

    def __getattr__(self, name: str) -> Any:
        channel = CHANNELS.get(name)
        formula = None if channel is None else channel.formula
        result = self._read(name) if formula is None else formula(self, self._options)
        if self._keep:
            setattr(self, name, result)  # found before __getattr__ is called again
        return result


def wanted(parts: Iterable[str], has: Callable[[str], bool]) -> frozenset[str]:
    """Return the channels that some parts of a step measure and whose arrays and options are given."""
    asked = set(parts)
    return frozenset(
        channel.name
        for channel in CHANNELS.values()
        if not asked.isdisjoint(channel.parts)
        and all(need.is_met(has) for need in channel.needs)
        and all(has(option) for option in channel.options)
    )


def arrays_of(channels: Iterable[str], has: Callable[[str], bool]) -> set[str]:
    """Return the arrays that some channels are computed from."""
    return {need.name for channel in channels for need in CHANNELS[channel].needs if need.applies(has)}
