"""Rules on the learning rate."""

from __future__ import annotations

import numpy as np

from barograph.diagnosis.rule import Case, RuleReading, UnmeasuredError, after, graded, rule
from barograph.metrics.tracks import Track

SYMPTOMS = (
    "ppo_kl_high", "kl_spike", "kl_drift", "kl_offset_start", "grad_spike", "entropy_collapse", "entropy_low_start",
    "reward_falling", "reward_constant", "no_signal", "length_explosion", "truncation", "nonfinite",
)  # fmt: skip


def _rate(case: Case) -> Track:
    rate = case.need("learning_rate")
    if not rate.finite.any() and _rounded(case):  # a log with three decimals prints 1e-6 as 0
        raise UnmeasuredError("rounded", name=rate.name)
    return rate


def _rounded(case: Case) -> bool:
    """Return whether the values of the run have at most three decimals."""
    tracks = [track for key in ("loss", "entropy", "gradient") if (track := case.get(key)) is not None]
    values = np.concatenate([track.finite for track in tracks]) if tracks else np.empty(0)
    values = values[np.isfinite(values)]
    return len(values) > 0 and bool((np.abs(values * 1000 - np.round(values * 1000)) < 1e-6).all())


def _planned(case: Case) -> int | None:
    """Return the number of steps that the run is planned for."""
    planned = case.setting("max_steps", "total_training_steps", "total_steps")
    return planned if isinstance(planned, int) and planned > 0 else None


@rule("lr_implausible", "learning_rate", explains=SYMPTOMS, persist=1, rows=1)
def lr_implausible(case: Case) -> RuleReading:
    """The learning rate is far above what RL of language models bears."""
    rate = _rate(case)
    return RuleReading(
        rate,
        graded(len(rate), warning=rate.finite >= 1e-3, critical=rate.finite >= 5e-3),
        lambda spell: {"name": rate.name, "most": float(np.nanmax(rate.finite[spell.rows]))},
    )


@rule("lr_zero", "learning_rate", explains=("reward_flat", "zero_grad"), rows=20)
def lr_zero(case: Case) -> RuleReading:
    """The learning rate is 0 although the schedule has not ended."""
    rate = _rate(case)
    never = (np.fmax.accumulate(rate.finite) == 0) & after(len(rate), 20)
    return RuleReading(rate, graded(len(rate), warning=never), lambda spell: {"name": rate.name}, lambda spell: 0)


@rule("lr_still_warmup", "learning_rate", explains=("reward_flat",), rows=20)
def lr_still_warmup(case: Case) -> RuleReading:
    """The learning rate still rises after many steps."""
    rate = _rate(case)
    values, rows = rate.finite, np.arange(len(rate))
    middle = values[rows // 2]
    rising = (values >= np.fmax.accumulate(values)) & (values > 1.5 * middle) & (middle > 0)
    planned = _planned(case)
    young = np.zeros(len(rate), bool) if planned is None else rate.steps < 0.1 * planned
    late = (rate.steps - rate.steps[0] >= 50) & after(len(rate), 20) & ~young
    return RuleReading(
        rate,
        graded(len(rate), warning=rising & late & (rate.steps - rate.steps[0] >= 200), info=rising & late),
        lambda spell: {"name": rate.name, "now": float(values[spell.last]), "steps": int(rate.steps[spell.last])},
        lambda spell: 0,
    )


@rule("lr_exhausted", "learning_rate", explains=("reward_flat", "zero_grad"))
def lr_exhausted(case: Case) -> RuleReading:
    """The learning rate has fallen to almost 0, and the run goes on."""
    rate = _rate(case)
    values, peak, planned = rate.finite, np.fmax.accumulate(rate.finite), _planned(case)
    if planned is None and not ((values == 0) & (peak > 0)).any():
        raise UnmeasuredError("plan_unknown")
    spent = (values < 0.01 * peak) & (rate.steps < 0.9 * planned) if planned is not None else np.zeros(len(rate), bool)
    after_end = (values == 0) & (peak > 0)
    return RuleReading(
        rate,
        graded(len(rate), info=spent | after_end, warning=after_end & (rate.share(after_end, 20) >= 1)),
        lambda spell: {"name": rate.name, "now": float(values[spell.last]), "most": float(peak[spell.last])},
    )
