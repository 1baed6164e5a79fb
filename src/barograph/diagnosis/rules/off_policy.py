"""Rules on rollouts that are not of the policy that is trained: other engines, old weights, skewed weights."""

from __future__ import annotations

import numpy as np

from barograph.diagnosis.rule import (
    Case,
    RuleReading,
    UnmeasuredError,
    after,
    began,
    graded,
    lags,
    percent,
    rule,
    values_at,
)

LIMITS = {"mismatch": (0.01, 0.05), "mismatch_log": (0.05, 0.2), "mismatch_kl": (0.01, 0.1)}
"""Above the first limit trainer and rollout disagree, above the second they are different policies."""


@rule(
    "mismatch",
    "mismatch",
    "mismatch_log",
    "mismatch_kl",
    explains=("kl_drift", "grad_rising", "ess_low", "is_weight_odd"),
)
def mismatch(case: Case) -> RuleReading:
    """Trainer and inference engine disagree on the probabilities of the same tokens."""
    track = case.need(*LIMITS)
    low, high = LIMITS[track.key]
    now = np.abs(track.mean(10))
    growing = (track.trend.chance < 1e-3) & (now > 3 * abs(track.first(10))) & (now > low)
    return RuleReading(
        track,
        graded(
            len(track),
            info=now > low,
            warning=(growing & lags(case, track.steps)) | (now > high),
            critical=growing & (now > high),
        ),
        lambda spell: {
            "name": track.name,
            "start": track.first(10),
            "now": float(np.nanmax(now[spell.rows])),
        },
        beside=(case.get("staleness"),),
    )


@rule("ess_low", "sample_size", persist=3)
def ess_low(case: Case) -> RuleReading:
    """Few samples carry the update."""
    size = case.need("sample_size")
    now = size.median(5)
    return RuleReading(
        size,
        graded(len(size), warning=now < 0.3),
        lambda spell: {"name": size.name, "share": percent(float(np.nanmin(now[spell.rows])))},
    )


@rule("stale", "staleness", explains=("mismatch", "clipfrac_high", "ppo_kl_high", "ess_low", "is_weight_odd"))
def stale(case: Case) -> RuleReading:
    """Rollouts are many versions old."""
    staleness = case.need("staleness")
    bound = case.setting("max_staleness", "max_head_offpolicyness", "max_off_policy_steps", "staleness_threshold")
    limit = max(8.0, float(bound)) if isinstance(bound, int | float) and not isinstance(bound, bool) else 8.0
    now = staleness.mean(10)
    return RuleReading(
        staleness,
        graded(len(staleness), warning=(now > limit) & after(len(staleness), 5)),
        lambda spell: {
            "name": staleness.name,
            "now": float(np.nanmax(now[spell.rows])),
            "limit": limit,
        },
        lambda spell: began(now > 0.5 * limit, spell),
    )


@rule("is_weight_odd", "weight", "weight_std", explains=("ess_low",))
def is_weight_odd(case: Case) -> RuleReading:
    """The importance weights to the rollout are not near 1, or differ much."""
    weight, std = case.get("weight"), case.get("weight_std")
    track = case.need("weight", "weight_std")
    now = np.full(len(track), 1.0) if weight is None else weight.median(5)
    spread = np.zeros(len(track)) if std is None else values_at(std.steps, std.median(5), track.steps)
    return RuleReading(
        track,
        graded(len(track), warning=(now > 2.0) | (now < 0.5) | (spread > 1.0)),
        lambda spell: {
            "name": track.name,
            "now": float(now[spell.last]),
            "spread": float(np.nanmax(spread[spell.rows])),
        },
        beside=(std, case.get("staleness")),
    )


@rule("advantage_odd", "advantage_mean", "advantage_std")
def advantage_odd(case: Case) -> RuleReading:
    """Normalised advantages are not around 0, or are spread far more than by 1."""
    mean, std = case.need("advantage_mean"), case.need("advantage_std")
    if not 0.5 < std.first(5) < 2:
        raise UnmeasuredError("not_normalised", name=std.name, value=std.first(5))
    centre, spread = np.abs(mean.median(5)), values_at(std.steps, std.median(5), mean.steps)
    # Long answers count more in a mean over tokens, so that it is seldom exactly 0.
    return RuleReading(
        mean,
        graded(len(mean), info=centre > 0.3 * spread, warning=(centre > spread) | (spread > 5.0)),
        lambda spell: {"name": mean.name, "now": float(centre[spell.last]), "spread": float(spread[spell.last])},
        beside=(std,),
    )


@rule("dropped_rollouts", "runs_failed", "aborted")
def dropped_rollouts(case: Case) -> RuleReading:
    """Many rollouts fail or are aborted."""
    failed, expected, aborted = case.get("runs_failed"), case.get("runs_expected"), case.get("aborted")
    if failed is not None and expected is not None:
        total = values_at(expected.steps, expected.finite, failed.steps)
        track = failed.derived("share", failed.steps, failed.finite / np.where(total > 0, total, np.nan))
        limit = 0.05
    elif aborted is not None:
        track, limit = aborted, 0.2  # asynchronous engines abort on purpose
    else:
        raise UnmeasuredError("not_logged")
    now = track.mean(10)
    return RuleReading(
        track,
        graded(len(track), info=now > limit, warning=(now > limit) & (failed is not None)),
        lambda spell: {"name": track.name, "share": percent(float(np.nanmax(now[spell.rows])))},
        beside=(case.get("reward"),),
    )
