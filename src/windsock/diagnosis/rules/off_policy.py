"""Rules on rollouts that are not of the policy that is trained: other engines, old weights, skewed weights."""

from __future__ import annotations

import numpy as np

from windsock.diagnosis.case import Case
from windsock.diagnosis.rule import Reading, Unmeasured, graded, rule, unmeasured
from windsock.diagnosis.rules.shared import after, percent

LIMITS = {"mismatch": (0.01, 0.05), "mismatch_log": (0.05, 0.2), "mismatch_kl": (0.01, 0.1)}
"""Above the first limit trainer and rollout disagree, above the second they are different policies."""


@rule(
    "mismatch",
    "mismatch",
    "mismatch_log",
    "mismatch_kl",
    explains=("ratio_drift", "kl_drift", "grad_rising", "ess_low"),
)
def mismatch(case: Case) -> Reading | Unmeasured:
    """Trainer and inference engine disagree on the probabilities of the same tokens."""
    track = next((track for key in LIMITS if (track := case.get(key)) is not None), None)
    if track is None:
        return unmeasured("not_logged")
    low, high = LIMITS[track.key]
    now = np.abs(track.mean(10))
    growing = (track.trend.chance < 1e-3) & (now > 3 * abs(track.first(10))) & (now > low)
    return Reading(
        track,
        graded(len(track), info=now > low, warning=growing | (now > high), critical=growing & (now > high)),
        lambda spell: {
            "name": track.name,
            "start": track.first(10),
            "now": float(np.nanmax(now[spell.rows])),
        },
        beside=(case.get("staleness"),),
    )


@rule("ess_low", "sample_size", persist=3)
def ess_low(case: Case) -> Reading | Unmeasured:
    """Few samples carry the update."""
    size = case.get("sample_size")
    if size is None:
        return unmeasured("not_logged")
    now = size.median(5)
    return Reading(
        size,
        graded(len(size), warning=now < 0.3),
        lambda spell: {"name": size.name, "share": percent(float(np.nanmin(now[spell.rows])))},
    )


@rule("stale", "staleness", explains=("mismatch", "clipfrac_high", "ppo_kl_high", "ess_low"))
def stale(case: Case) -> Reading | Unmeasured:
    """Rollouts are many versions old."""
    staleness = case.get("staleness")
    if staleness is None:
        return unmeasured("not_logged")
    bound = case.setting("max_staleness", "max_head_offpolicyness", "max_off_policy_steps", "staleness_threshold")
    limit = max(8.0, float(bound)) if isinstance(bound, int | float) and not isinstance(bound, bool) else 8.0
    now = staleness.mean(10)
    return Reading(
        staleness,
        graded(len(staleness), warning=(now > limit) & after(len(staleness), 5)),
        lambda spell: {
            "name": staleness.name,
            "now": float(np.nanmax(now[spell.rows])),
            "limit": limit,
        },
    )
