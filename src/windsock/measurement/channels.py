"""The per-token quantities that metrics are made of, by name: one definition for the host and for devices.

A channel is computed of a batch's token arrays, which ``pick`` hands out. Most are over the valid tokens; those of
``RESPONSE`` are over all response tokens, whatever ``keep`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windsock.stats import policy, value
from windsock.stats.library import library

Pick = Callable[[str], Any]
Channel = Callable[[Pick, Any], Any]


def _d(pick: Pick) -> Any:
    return pick("log_probs") - pick("old_log_probs")


def _ratio(pick: Pick, o: Any = None) -> Any:
    d = _d(pick)
    return library(d).exp(d)


def _above(pick: Pick, o: Any) -> Any:
    return policy.ratio_above(_ratio(pick), o.clip)


def _below(pick: Pick, o: Any) -> Any:
    return policy.ratio_below(_ratio(pick), o.clip)


def _mismatch(pick: Pick, o: Any = None) -> Any:
    return pick("old_log_probs") - pick("rollout_log_probs")


def _mismatch_ratio(pick: Pick, o: Any) -> Any:
    difference = _mismatch(pick)
    return library(difference).exp(difference)


def _probability_difference(pick: Pick, o: Any) -> Any:
    old, rollout = pick("old_log_probs"), pick("rollout_log_probs")
    xp = library(old)
    return xp.abs(xp.exp(old) - xp.exp(rollout))


def _value_loss(pick: Pick, o: Any) -> Any:
    old = pick("old_values") if o.value_clip is not None else None
    return value.value_loss(pick("values"), pick("returns"), old, o.value_clip)


def _given(name: str) -> Channel:
    return lambda pick, o: pick(name)


CHANNELS: dict[str, Channel] = {
    **{name: _given(name) for name in (
        "advantages", "returns", "old_values", "values", "entropy", "old_entropy", "old_log_probs", "ref_log_probs",
        "rollout_log_probs", "exact_kl", "rewards", "ends",
    )},
    "nll": lambda pick, o: -pick("log_probs"),
    "ratio": _ratio,
    "above": _above,
    "below": _below,
    "outside": lambda pick, o: _above(pick, o) | _below(pick, o),
    "binds": lambda pick, o: policy.clip_binds(_ratio(pick), pick("advantages"), o.clip),
    "high": lambda pick, o: _above(pick, o) & (pick("advantages") > 0),
    "low": lambda pick, o: _below(pick, o) & (pick("advantages") < 0),
    "dual": lambda pick, o: policy.dual_clip_binds(_ratio(pick), pick("advantages"), o.clip, o.dual_clip),
    "kl_k1": lambda pick, o: policy.kl_k1(_d(pick)),
    "kl_k2": lambda pick, o: policy.kl_k2(_d(pick)),
    "kl_k3": lambda pick, o: policy.kl_k3(_d(pick)),
    "ref_k3": lambda pick, o: policy.kl_k3(pick("ref_log_probs") - pick("log_probs")),
    "surrogate": lambda pick, o: policy.surrogate_loss(_ratio(pick), pick("advantages"), o.clip, o.dual_clip),
    "old_minus_ref": lambda pick, o: pick("old_log_probs") - pick("ref_log_probs"),
    "mismatch": _mismatch,
    "mismatch_k1": lambda pick, o: policy.kl_k1(_mismatch(pick)),
    "mismatch_k3": lambda pick, o: policy.kl_k3(_mismatch(pick)),
    "mismatch_ratio": _mismatch_ratio,
    "log_prob_difference": lambda pick, o: abs(_mismatch(pick)),
    "probability_difference": _probability_difference,
    "residual": lambda pick, o: pick("returns") - pick("old_values"),
    "error": lambda pick, o: value.squared_error(pick("values"), pick("returns")),
    "value_loss": _value_loss,
    "value_clip": lambda pick, o: value.value_clip_binds(
        pick("values"), pick("returns"), pick("old_values"), o.value_clip
    ),
}  # fmt: skip
RESPONSE = frozenset(("rewards", "ends"))
