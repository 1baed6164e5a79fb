"""Rules on the policy: values that are not finite, entropy, KL, ratio, clipping, gradients and lengths."""

from __future__ import annotations

import numpy as np

from windsock.diagnosis.case import Case, values_at
from windsock.diagnosis.rule import Reading, Spell, Unmeasured, graded, rule, unmeasured
from windsock.diagnosis.rules.learning_signal import TINY_GRADIENT
from windsock.diagnosis.rules.shared import Flags, after, is_falling, is_learning, living, percent
from windsock.diagnosis.tracks import MAX_WINDOW, Floats, Track

CORE = ("loss", "gradient", "kl", "kl_sum", "entropy", "reward", "trained_reward", "ratio", "value_loss", "step_kl")
SMALL_ENTROPY = 0.02  # nats: the policy is deterministic
BASE_ROWS = 10  # whose median is where a signal starts


@rule(
    "nonfinite",
    *CORE,
    explains=("zero_grad", "no_signal", "reward_flat", "reward_constant", "entropy_collapse", "kl_spike", "grad_spike"),
    persist=1,
    rows=1,
)
def nonfinite(case: Case) -> Reading | Unmeasured:
    """A core value is NaN or infinite."""
    tracks = [track for key in CORE if (track := case.get(key)) is not None]
    if not tracks:
        return unmeasured("not_logged")
    bad = [track for track in tracks if not np.isfinite(track.values).all()]
    first = min(bad, key=_first_bad, default=tracks[0])
    wrong = ~np.isfinite(first.values)
    # A trainer may skip single steps whose gradient is not finite.
    tolerated = (np.cumsum(wrong) < 3) if [track.key for track in bad] == ["gradient"] else np.zeros(len(wrong), bool)
    # What comes after such a step is suspect, however good it looks.
    serious = wrong & ~tolerated
    since = np.arange(len(first)) - np.maximum.accumulate(np.where(serious, np.arange(len(first)), -MAX_WINDOW))
    after_it = np.maximum.accumulate(serious)
    return Reading(
        first,
        graded(len(first), warning=(wrong & tolerated) | after_it, critical=after_it & (since < MAX_WINDOW)),
        lambda spell: {
            "names": ", ".join(dict.fromkeys(track.name for track in bad)),
            "count": int(wrong[spell.first :].sum()),
            "rows": len(first) - spell.first,
        },
        beside=tuple(bad),
    )


def _first_bad(track: Track) -> int:
    return int(track.steps[~np.isfinite(track.values)][0])


def _began(condition: Flags, spell: Spell) -> int:
    """Return the row since which a weaker condition has held without a break until the spell."""
    broken = np.flatnonzero(~condition[: spell.first])
    return int(broken[-1]) + 1 if len(broken) else 0


# -- entropy -----------------------------------------------------------------------------------------------------


def _entropy_start(entropy: Track) -> float:
    return max(entropy.first(3), entropy.first(BASE_ROWS))


@rule("entropy_spent", "entropy")
def entropy_spent(case: Case) -> Reading | Unmeasured:
    """Most of the entropy of the start is used: the usual price of learning."""
    entropy = living(case, "entropy")
    if not isinstance(entropy, Track):
        return entropy
    start, now = _entropy_start(entropy), entropy.mean(10)
    return Reading(
        entropy,
        graded(len(entropy), info=(now < 0.25 * start) & after(len(entropy), BASE_ROWS)),
        lambda spell: {"name": entropy.name, "start": start, "now": float(np.nanmin(now[spell.rows]))},
    )


@rule(
    "entropy_collapse",
    "entropy",
    explains=("entropy_spent", "no_signal", "weak_signal", "zero_grad", "reward_flat", "length_collapse"),
)
def entropy_collapse(case: Case) -> Reading | Unmeasured:
    """Almost nothing of the entropy is left."""
    entropy = living(case, "entropy")
    if not isinstance(entropy, Track):
        return entropy
    start, now = _entropy_start(entropy), entropy.mean(10)
    gone = (now < max(0.01, 0.05 * start)) & after(len(entropy), BASE_ROWS) & (start > SMALL_ENTROPY)
    # A policy that is almost certain and still gains is at the end of its task, not at the end of its search.
    learning = is_learning(case, entropy.steps)
    return Reading(
        entropy,
        graded(len(entropy), warning=gone & learning, critical=gone & ~learning),
        lambda spell: {"name": entropy.name, "start": start, "now": float(np.nanmin(now[spell.rows]))},
        beside=(case.get("reward"), case.get("gradient")),
    )


@rule("entropy_low_start", "entropy", explains=("no_signal", "weak_signal", "reward_flat"), persist=1)
def entropy_low_start(case: Case) -> Reading | Unmeasured:
    """The policy is deterministic before it is trained."""
    entropy = living(case, "entropy")
    if not isinstance(entropy, Track):
        return entropy
    start = entropy.first(BASE_ROWS)
    low = after(len(entropy), BASE_ROWS - 1) & (0 <= start < SMALL_ENTROPY)
    return Reading(
        entropy,
        graded(len(entropy), warning=low),
        lambda spell: {"name": entropy.name, "start": start},
        lambda spell: 0,
    )


@rule("entropy_explosion", "entropy", explains=("length_explosion", "reward_falling", "truncation", "kl_drift"))
def entropy_explosion(case: Case) -> Reading | Unmeasured:
    """The entropy is many times that of the start."""
    entropy = living(case, "entropy")
    if not isinstance(entropy, Track):
        return entropy
    start, now = _entropy_start(entropy), entropy.median(5)
    high = (now > max(3 * start, start + 1.5)) & after(len(entropy), BASE_ROWS)
    return Reading(
        entropy,
        graded(len(entropy), critical=high),
        lambda spell: {"name": entropy.name, "start": start, "now": float(np.nanmax(now[spell.rows]))},
        beside=(case.get("length"),),
    )


# -- KL ----------------------------------------------------------------------------------------------------------


def _kl(case: Case) -> Track | Unmeasured:
    """Return the KL to the reference per token."""
    kl = case.get("kl")
    if kl is None:
        return unmeasured("summed") if case.get("kl_sum") is not None else unmeasured("not_logged")
    if kl.is_constant and len(kl) >= 5 and kl.values[0] == 0:
        beta = case.setting("beta", "kl_coef", "kl_loss_coef", "init_kl_coef")
        return unmeasured("beta_zero" if beta == 0 else "dead", name=kl.name, value=0.0)
    return kl


@rule("kl_drift", "kl", "kl_sum", explains=("reward_falling", "entropy_spent"))
def kl_drift(case: Case) -> Reading | Unmeasured:
    """The policy is far from the reference."""
    kl = _kl(case)
    if not isinstance(kl, Track):
        total = case.get("kl_sum")
        return kl if total is None else _summed_kl_drift(case, total)
    now = np.fmin(kl.median(5), _summed_per_token(case, kl))
    learning = is_learning(case, kl.steps)
    far = now >= 1.0
    # Becoming certain costs about the entropy of the start; more is spent on going elsewhere.
    entropy = case.get("entropy")
    price = _entropy_start(entropy) if entropy is not None else np.nan
    elsewhere = far & ~(now < 1.5 * price)
    away = (now >= 0.4 * price) & is_falling(case, kl.steps)
    return Reading(
        kl,
        graded(len(kl), info=far, warning=elsewhere, critical=(far & ~learning) | away),
        lambda spell: {"name": kl.name, "now": float(np.nanmax(now[spell.rows])), "per": "token"},
        beside=(case.get("reward"),),
    )


def _summed_per_token(case: Case, kl: Track) -> Floats:
    """Return the KL of whole answers per token, at the rows of another estimate; NaN where it is not known."""
    total, lengths = case.get("kl_sum"), case.at("length", kl.steps)
    if total is None:
        return np.full(len(kl), np.nan)
    return values_at(total.steps, total.median(5), kl.steps) / np.where(lengths > 0, lengths, np.nan)


def _summed_kl_drift(case: Case, kl: Track) -> Reading:
    """Judge a KL that is summed over the answer by nats per token; where lengths are unknown, by its growth."""
    now, lengths = kl.median(5), case.at("length", kl.steps)
    per_token = now / np.where(lengths > 0, lengths, np.nan)
    start = max(abs(kl.first(BASE_ROWS)), 1.0)
    grown = (now > 30 * start) & (now > 100.0)
    high = np.where(np.isnan(per_token), grown, per_token > 1.0)
    learning = is_learning(case, kl.steps)
    return Reading(
        kl,
        graded(len(kl), warning=high, critical=high & ~learning),
        lambda spell: {"name": kl.name, "now": float(np.nanmax(now[spell.rows])), "per": "answer"},
        beside=(case.get("reward"),),
    )


@rule("kl_spike", "kl", explains=("kl_drift", "no_signal"), persist=1, rows=1)
def kl_spike(case: Case) -> Reading | Unmeasured:
    """One row has a very large KL."""
    kl = _kl(case)
    if not isinstance(kl, Track):
        return kl

    def facts(spell: Spell) -> dict[str, object]:
        row = spell.first + int(np.nanargmax(kl.finite[spell.rows]))
        return {"name": kl.name, "most": float(kl.finite[row]), "usual": kl.first(max(1, row))}

    return Reading(kl, graded(len(kl), warning=kl.finite > 10, critical=kl.finite > 100), facts)


@rule("kl_offset_start", "kl", explains=("kl_drift", "kl_spike", "ratio_drift"), persist=1, rows=1)
def kl_offset_start(case: Case) -> Reading | Unmeasured:
    """Policy and reference differ in the first row."""
    kl = _kl(case)
    if not isinstance(kl, Track):
        return kl
    if kl.steps[0] > 2:
        return unmeasured("late_start")
    levels = graded(len(kl), warning=np.full(len(kl), kl.finite[0] > 0.05))
    return Reading(kl, levels, lambda spell: {"name": kl.name, "first": float(kl.finite[0])})


@rule("kl_negative", "kl", "kl_sum")
def kl_negative(case: Case) -> Reading | Unmeasured:
    """The KL is clearly below 0."""
    kl = case.get("kl") or case.get("kl_sum")
    if kl is None:
        return unmeasured("not_logged")
    now = kl.mean(5)
    low = now < (-0.05 if kl.key == "kl" else -1.0)
    return Reading(
        kl, graded(len(kl), warning=low), lambda spell: {"name": kl.name, "now": float(np.nanmin(now[spell.rows]))}
    )


# -- size of an update -------------------------------------------------------------------------------------------


@rule(
    "ppo_kl_high",
    "step_kl",
    explains=("clipfrac_high", "grad_spike", "kl_drift", "entropy_collapse", "reward_falling", "reward_flat"),
)
def ppo_kl_high(case: Case) -> Reading | Unmeasured:
    """One update moves the policy far."""
    kl = case.get("step_kl")
    if kl is None:
        return unmeasured("not_logged")
    if kl.is_constant and len(kl) >= 5:
        return unmeasured("one_update", name=kl.name, value=float(kl.values[0]))
    now, clipped = np.abs(kl.mean(10)), case.at("clipped", kl.steps)
    high = (now > 0.02) & ~(clipped < 0.1)
    learning = is_learning(case, kl.steps)
    return Reading(
        kl,
        graded(len(kl), info=high & learning, warning=high & ~learning, critical=(now > 0.1) & ~learning),
        lambda spell: {"name": kl.name, "now": float(np.nanmax(now[spell.rows]))},
        beside=(case.get("clipped"),),
    )


@rule("ratio_drift", "ratio", explains=("ppo_kl_high", "clipfrac_high"))
def ratio_drift(case: Case) -> Reading | Unmeasured:
    """The mean importance ratio is not near 1."""
    ratio = case.get("ratio")
    if ratio is None:
        return unmeasured("not_logged")
    level = ratio.first(20)
    parts = next((parts for parts in (2, 3, 4, 8, 16) if abs(level * parts - 1) < 0.03), 0)
    if parts:
        return unmeasured("divided", name=ratio.name, parts=parts)
    now = ratio.median(5)
    return Reading(
        ratio,
        graded(len(ratio), warning=np.abs(now - 1) > 0.2, critical=(now > 2.0) | (now < 0.5)),
        lambda spell: {"name": ratio.name, "now": _furthest(now[spell.rows])},
        beside=(case.get("clipped"),),
    )


def _furthest(ratios: Floats) -> float:
    """Return the ratio that is furthest from 1, as a factor."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(ratios[int(np.nanargmax(np.abs(np.log(np.maximum(ratios, 1e-30)))))])


@rule("clipfrac_high", "clipped")
def clipfrac_high(case: Case) -> Reading | Unmeasured:
    """Many tokens are clipped."""
    clipped = case.get("clipped")
    if clipped is None:
        return unmeasured("not_logged")
    if clipped.is_constant and len(clipped) >= 5 and clipped.values[0] == 0:
        return unmeasured("one_update", name=clipped.name, value=0.0)
    now = clipped.median(10)
    learning = is_learning(case, clipped.steps)
    high = (now > 0.3) & after(len(clipped), BASE_ROWS)
    return Reading(
        clipped,
        graded(len(clipped), info=high & learning, warning=high & ~learning),
        lambda spell: {"name": clipped.name, "share": percent(float(np.nanmax(now[spell.rows])))},
    )


# -- gradient ----------------------------------------------------------------------------------------------------


def _with_gradient(case: Case) -> Track | Unmeasured:
    """Return the gradient norm in the rows that have a gradient: without a signal there is none to judge."""
    gradient = case.get("gradient")
    if gradient is None:
        return unmeasured("not_logged")
    has_one = gradient.finite > TINY_GRADIENT
    if has_one.sum() < 20:
        return unmeasured("few_rows")
    return gradient.derived("with gradient", gradient.steps[has_one], gradient.finite[has_one])


@rule("grad_spike", "gradient", persist=1)
def grad_spike(case: Case) -> Reading | Unmeasured:
    """The gradient norm jumps several times."""
    gradient = _with_gradient(case)
    if not isinstance(gradient, Track):
        return gradient
    high = (gradient.outlying() > 6) & (gradient.finite > 5 * gradient.median(MAX_WINDOW))
    total = np.cumsum(high)
    recent = total - np.concatenate([np.zeros(min(MAX_WINDOW, len(total)), int), total[:-MAX_WINDOW]])
    return Reading(
        gradient,
        graded(len(gradient), info=high, warning=high & (recent >= 4)),
        lambda spell: {
            "name": gradient.name,
            "count": int(high[spell.rows].sum()),
            "most": float(gradient.finite[spell.rows].max()),
            "usual": float(np.nanmedian(gradient.finite)),
        },
    )


@rule("grad_rising", "gradient", rows=MAX_WINDOW)
def grad_rising(case: Case) -> Reading | Unmeasured:
    """The gradient norm grows steadily."""
    gradient = _with_gradient(case)
    if not isinstance(gradient, Track):
        return gradient
    logs = gradient.derived("log", gradient.steps, np.log10(gradient.finite))
    trend, now = logs.trend, gradient.median(MAX_WINDOW // 2)
    start = gradient.first(MAX_WINDOW // 2)
    rising = (trend.chance < 1e-3) & (trend.effect > 2) & (now > 5 * start) & after(len(gradient), MAX_WINDOW)
    learning = is_learning(case, gradient.steps)
    return Reading(
        gradient,
        graded(len(gradient), info=rising & learning, warning=rising & ~learning),
        lambda spell: {"name": gradient.name, "start": start, "now": float(now[spell.last])},
    )


# -- length ------------------------------------------------------------------------------------------------------


@rule("length_explosion", "length", explains=("truncation", "slowdown", "kl_drift"))
def length_explosion(case: Case) -> Reading | Unmeasured:
    """Answers are several times as long as at the start."""
    length = living(case, "length")
    if not isinstance(length, Track):
        return length
    start = min(float(length.finite[0]), length.first(3), length.first(BASE_ROWS))  # it may grow within a few rows
    now = length.mean(10)
    learning, cut = is_learning(case, length.steps), case.at("truncated", length.steps) > 0.25
    long = (now > 3 * start) & after(len(length), BASE_ROWS)
    return Reading(
        length,
        graded(len(length), info=long, warning=long & (~learning | cut), critical=long & ~learning & cut),
        lambda spell: {"start": start, "now": float(np.nanmax(now[spell.rows]))},
        lambda spell: _began(length.median(3) > 2 * start, spell),
        (case.get("truncated"), case.get("reward")),
    )


@rule("length_collapse", "length")
def length_collapse(case: Case) -> Reading | Unmeasured:
    """Answers are a small part of their length at the start."""
    length = living(case, "length")
    if not isinstance(length, Track):
        return length
    start, now = length.first(BASE_ROWS), length.mean(10)
    learning = is_learning(case, length.steps)
    short = (now < start / 3) & after(len(length), BASE_ROWS)
    return Reading(
        length,
        graded(len(length), info=short, warning=short & ~(learning & (now >= 16))),
        lambda spell: {"start": start, "now": float(np.nanmin(now[spell.rows]))},
        beside=(case.get("reward"),),
    )
