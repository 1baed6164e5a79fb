"""Rules on the critic of PPO."""

from __future__ import annotations

import numpy as np

from barograph.diagnosis.rule import Case, RuleReading, after, graded, rule
from barograph.metrics.tracks import MAX_WINDOW

WARM_UP = 20  # rows in which an untrained critic is far off


@rule("value_loss_spike", "value_loss", explains=("ev_bad",), rows=WARM_UP)
def value_loss_spike(case: Case) -> RuleReading:
    """The value loss stays far above what it was, or grows without end."""
    loss = case.need("value_loss", reason="no_critic")
    now = loss.median(5)
    settled = np.fmin.accumulate(loss.median(MAX_WINDOW))
    late = after(len(loss), WARM_UP)
    grown = (now > 10 * settled) & (now > 2 * loss.first(5)) & late
    # A critic that knows nothing is off by the size of the rewards, squared.
    most = np.fmax.accumulate(np.fmax(np.abs(case.at("reward_max", loss.steps)), np.abs(case.at("reward", loss.steps))))
    absurd = (now > 10 * most**2) & (most > 0) & (late | ((now > 100 * most**2) & after(len(loss), WARM_UP // 2)))
    return RuleReading(
        loss,
        graded(
            len(loss),
            warning=grown | absurd,
            critical=(grown & (now > 100 * settled)) | (absurd & (now > 100 * most**2)),
        ),
        lambda spell: {
            "name": loss.name,
            "most": float(np.nanmax(now[spell.rows])),
            "usual": float(np.fmin(settled, now)[spell.first]),
            "reward": float(most[spell.last]),
        },
        lambda spell: 0 if absurd[spell.first] and spell.first <= WARM_UP else spell.first,
        (case.get("explained_variance"), case.get("value_gradient")),
    )


@rule("ev_bad", "explained_variance", rows=MAX_WINDOW)
def ev_bad(case: Case) -> RuleReading:
    """The critic predicts worse than a constant."""
    variance = case.need("explained_variance", reason="not_logged" if case.get("value_loss") else "no_critic")
    now = variance.mean(10)
    late = after(len(variance), MAX_WINDOW)
    return RuleReading(
        variance,
        graded(len(variance), warning=(now < 0) & late, critical=(now < -1) & late),
        lambda spell: {"name": variance.name, "now": float(np.nanmin(now[spell.rows]))},
    )


@rule("critic_warmup", "value_loss", persist=1, rows=WARM_UP)
def critic_warmup(case: Case) -> RuleReading:
    """The value loss falls steeply in the first rows, as it should."""
    loss = case.need("value_loss", reason="no_critic")
    first = float(loss.finite[0])
    low = np.fmin.accumulate(loss.median(3))
    fell = (low * 10 < first) & ~after(len(loss), WARM_UP) & after(len(loss), 3)
    warm = np.maximum.accumulate(fell)
    return RuleReading(
        loss,
        graded(len(loss), info=warm),
        lambda spell: {"name": loss.name, "first": first, "now": float(low[spell.last])},
        lambda spell: 0,
    )
