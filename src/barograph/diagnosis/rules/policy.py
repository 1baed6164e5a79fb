"""Rules on the policy: values that are not finite, entropy, KL, ratio, clipping, gradients and lengths."""

from __future__ import annotations

import numpy as np

from barograph.base.arrays import Floats
from barograph.catalogue.spec import Text
from barograph.diagnosis.rule import (
    ALMOST_ALL,
    NOTHING,
    TINY_GRADIENT,
    Case,
    RuleReading,
    Spell,
    UnmeasuredError,
    after,
    began,
    check_moves,
    full_window,
    graded,
    has_lost,
    held_at,
    is_falling,
    is_learning,
    lags,
    living,
    percent,
    rule,
    sign_note,
    values_at,
)
from barograph.metrics.tracks import MAX_WINDOW, MIN_TREND, Track

CORE = ("loss", "gradient", "kl", "kl_sum", "entropy", "reward", "trained_reward", "ratio", "value_loss", "step_kl")
SMALL_ENTROPY = 0.02  # nats: the policy is deterministic
MAX_NAMES = 3  # of a sentence
BASE_ROWS = 10  # whose median is where a signal starts


AFTER_NONFINITE = (
    "zero_grad", "no_signal", "weak_signal", "reward_flat", "reward_constant", "reward_falling", "entropy_collapse",
    "kl_spike", "grad_spike", "length_explosion", "truncation",
)  # fmt: skip


@rule("nonfinite", *CORE, explains=AFTER_NONFINITE, persist=1, rows=1)
def nonfinite(case: Case) -> RuleReading:
    """A core value is NaN or infinite."""
    tracks = [track for key in CORE if (track := case.get(key)) is not None]
    if not tracks:
        raise UnmeasuredError("not_logged")
    bad = [track for track in tracks if not np.isfinite(track.values).all()]
    first = min(bad, key=_first_bad, default=tracks[0])
    names = list(dict.fromkeys(track.name for track in bad))
    wrong = ~np.isfinite(first.values)
    # A trainer may skip single steps whose gradient is not finite.
    tolerated = (np.cumsum(wrong) < 3) if [track.key for track in bad] == ["gradient"] else np.zeros(len(wrong), bool)
    # What comes after such a step is suspect, however good it looks.
    serious = wrong & ~tolerated
    since = np.arange(len(first)) - np.maximum.accumulate(np.where(serious, np.arange(len(first)), -MAX_WINDOW))
    after_it = np.maximum.accumulate(serious)
    return RuleReading(
        first,
        graded(len(first), warning=(wrong & tolerated) | after_it, critical=after_it & (since < MAX_WINDOW)),
        lambda spell: {
            "names": ", ".join(names[:MAX_NAMES]),
            "more": _more(len(names)),
            "count": int(wrong[spell.first :].sum()),
            "rows": len(first) - spell.first,
            "step": int(first.steps[spell.first]),
        },
        beside=tuple(bad),
    )


def _more(count: int) -> Text:
    """Return how many names a sentence leaves out."""
    left = count - MAX_NAMES
    return Text(f" and {left} more", f" 等 {count} 个值") if left > 0 else NOTHING


def _first_bad(track: Track) -> int:
    return int(track.steps[~np.isfinite(track.values)][0])


# -- entropy -----------------------------------------------------------------------------------------------------


def _entropy_start(entropy: Track) -> float:
    return max(entropy.first(3), entropy.first(BASE_ROWS))


@rule("entropy_spent", "entropy")
def entropy_spent(case: Case) -> RuleReading:
    """Most of the entropy of the start is used: the usual price of learning."""
    entropy = living(case, "entropy")
    start, now = _entropy_start(entropy), entropy.mean(10)
    return RuleReading(
        entropy,
        graded(len(entropy), info=(now < 0.25 * start) & after(len(entropy), BASE_ROWS)),
        lambda spell: {"name": entropy.name, "start": start, "now": float(np.nanmin(now[spell.rows]))},
    )


AFTER_COLLAPSE = (
    "entropy_spent", "no_signal", "weak_signal", "zero_grad", "reward_flat", "length_collapse", "length_explosion",
    "truncation", "eos_loss",
)  # fmt: skip


@rule("entropy_collapse", "entropy", explains=AFTER_COLLAPSE)
def entropy_collapse(case: Case) -> RuleReading:
    """Almost nothing of the entropy is left."""
    entropy = living(case, "entropy")
    start, now = _entropy_start(entropy), entropy.median(5)
    gone = (now < max(0.01, 0.05 * start)) & after(len(entropy), BASE_ROWS) & (start > SMALL_ENTROPY)
    # A policy that is almost certain and still gains is at the end of its task, not at the end of its search.
    learning = is_learning(case, entropy.steps)
    return RuleReading(
        entropy,
        graded(len(entropy), warning=gone & learning, critical=gone & ~learning),
        lambda spell: {
            "name": entropy.name,
            "start": start,
            "now": float(np.nanmin(now[spell.rows])),
            "sign": sign_note(case, "entropy_coef", "a negative one rewards certainty", "为负会奖励确定性"),
        },
        lambda spell: began(entropy.median(3) < 0.5 * start, spell),
        (case.get("reward"), case.get("gradient")),
    )


@rule("entropy_low_start", "entropy", explains=("no_signal", "weak_signal", "reward_flat"), persist=1)
def entropy_low_start(case: Case) -> RuleReading:
    """The policy is deterministic before it is trained."""
    entropy = living(case, "entropy")
    start = entropy.first(BASE_ROWS)
    low = after(len(entropy), BASE_ROWS - 1) & (0 <= start < SMALL_ENTROPY)
    return RuleReading(
        entropy,
        graded(len(entropy), warning=low),
        lambda spell: {"name": entropy.name, "start": start},
        lambda spell: 0,
    )


@rule("entropy_explosion", "entropy", explains=("length_explosion", "reward_falling", "truncation", "kl_drift"))
def entropy_explosion(case: Case) -> RuleReading:
    """The entropy is many times that of the start."""
    entropy = living(case, "entropy")
    start, now = _entropy_start(entropy), entropy.median(5)
    high = (now > max(3 * start, start + 1.5)) & after(len(entropy), BASE_ROWS)
    return RuleReading(
        entropy,
        graded(len(entropy), critical=high),
        lambda spell: {"name": entropy.name, "start": start, "now": float(np.nanmax(now[spell.rows]))},
        beside=(case.get("length"),),
    )


# -- KL ----------------------------------------------------------------------------------------------------------


def _kl(case: Case) -> Track:
    """Return the KL to the reference per token."""
    kl = case.need("kl", reason="not_logged" if case.get("kl_sum") is None else "summed")
    if kl.is_constant and len(kl) >= 5 and kl.values[0] == 0:
        beta = case.setting("beta", "kl_coef", "kl_loss_coef", "init_kl_coef")
        settings = case.settings.reference_kl_off or ("beta = 0" if beta == 0 else "")
        raise UnmeasuredError("not_computed" if settings else "dead", name=kl.name, value=0.0, settings=settings)
    return kl


@rule("kl_drift", "kl", "kl_sum", explains=("reward_falling", "entropy_spent"), persist=3)
def kl_drift(case: Case) -> RuleReading:
    """The policy is far from the reference."""
    total = case.get("kl_sum")
    try:
        kl = _kl(case)
    except UnmeasuredError:
        if total is None:
            raise
        return _summed_kl_drift(case, total)
    own, summed = kl.median(5), _summed_per_token(case, kl)
    now = np.fmin(own, summed)
    learning = is_learning(case, kl.steps)
    far = now >= 1.0
    # Becoming certain costs about the entropy of the start; more is spent on going elsewhere.
    entropy = case.get("entropy")
    price = _entropy_start(entropy) if entropy is not None else np.nan
    elsewhere = far & ~(now < 1.5 * price)
    away = (now >= 0.4 * price) & (is_falling(case, kl.steps) | has_lost(case, kl.steps))
    return RuleReading(
        kl,
        graded(len(kl), info=far, warning=elsewhere, critical=(far & ~learning) | away),
        lambda spell: {
            "name": case.tracks["kl_sum"].name if summed[spell.last] < own[spell.last] else kl.name,
            "now": float(np.nanmax(now[spell.rows])),
            "per": Text("token", "每 token"),
            "meanwhile": _meanwhile(case, kl, spell),
            "sign": _kl_sign(case),
        },
        lambda spell: began(now >= np.fmin(1.0, 0.25 * price), spell),
        (case.get("reward"),),
    )


def _meanwhile(case: Case, kl: Track, spell: Spell) -> Text:
    """Return what the reward does meanwhile, as a part of a sentence."""
    step, reward = kl.steps[spell.last : spell.last + 1], case.get("reward")
    if reward is None or is_learning(case, step)[0]:
        return NOTHING
    if is_falling(case, step)[0] or has_lost(case, step)[0]:
        return Text(f", and {reward.name} has fallen", f"，而 {reward.name} 已下降")
    return Text(f", and {reward.name} has not risen", f"，而 {reward.name} 没有上升")


def _kl_sign(case: Case) -> Text:
    return sign_note(case, "kl_coef", "a negative one rewards the distance", "为负会奖励远离参考模型")


def _summed_per_token(case: Case, kl: Track) -> Floats:
    """Return the KL of whole answers per token, at the rows of another estimate; NaN where it is not known."""
    total, lengths = case.get("kl_sum"), case.at("length", kl.steps)
    if total is None:
        return np.full(len(kl), np.nan)
    return values_at(total.steps, total.median(5), kl.steps) / np.where(lengths > 0, lengths, np.nan)


def _summed_kl_drift(case: Case, kl: Track) -> RuleReading:
    """Judge a KL that is summed over the answer by nats per token; where lengths are unknown, by its growth."""
    now, lengths = kl.median(5), case.at("length", kl.steps)
    per_token = now / np.where(lengths > 0, lengths, np.nan)
    start = max(abs(kl.first(BASE_ROWS)), 1.0)
    grown = (now > 30 * start) & (now > 100.0)
    high = np.where(np.isnan(per_token), grown, per_token > 1.0)
    learning = is_learning(case, kl.steps)
    return RuleReading(
        kl,
        graded(len(kl), warning=high, critical=high & ~learning),
        lambda spell: {
            "name": kl.name,
            "now": float(np.nanmax(now[spell.rows])),
            "per": Text("answer", "每个回答"),
            "meanwhile": _meanwhile(case, kl, spell),
            "sign": _kl_sign(case),
        },
        beside=(case.get("reward"),),
    )


@rule("kl_spike", "kl", explains=("kl_drift", "no_signal"), persist=1, rows=1)
def kl_spike(case: Case) -> RuleReading:
    """One row has a very large KL."""
    kl = _kl(case)

    def facts(spell: Spell) -> dict[str, object]:
        row = spell.first + int(np.nanargmax(kl.finite[spell.rows]))
        return {"name": kl.name, "most": float(kl.finite[row]), "usual": kl.first(max(1, row))}

    return RuleReading(kl, graded(len(kl), warning=kl.finite > 10, critical=kl.finite > 100), facts)


@rule("kl_offset_start", "kl", explains=("kl_drift", "kl_spike", "ratio_drift"), persist=1, rows=1)
def kl_offset_start(case: Case) -> RuleReading:
    """Policy and reference differ in the first row."""
    kl = _kl(case)
    if kl.steps[0] > 2:
        raise UnmeasuredError("late_start")
    levels = graded(len(kl), warning=np.full(len(kl), kl.finite[0] > 0.05))
    return RuleReading(kl, levels, lambda spell: {"name": kl.name, "first": float(kl.finite[0])})


@rule("kl_negative", "kl", "kl_sum")
def kl_negative(case: Case) -> RuleReading:
    """The KL is clearly below 0."""
    kl = case.need("kl_sum") if case.get("kl") is None else _kl(case)
    now = kl.mean(5)
    low = now < (-1.0 if kl.key == "kl_sum" else -0.05 if _is_signed(case, kl) else -0.001)
    return RuleReading(
        kl, graded(len(kl), warning=low), lambda spell: {"name": kl.name, "now": float(np.nanmin(now[spell.rows]))}
    )


def _is_signed(case: Case, kl: Track) -> bool:
    """Return whether an estimate of a KL may be negative: k1 is, and what an unknown setting chooses may be."""
    estimator = case.settings.kl_estimator(kl.metric)
    if estimator is not None:
        return bool(estimator.value == "k1")
    return kl.metric in ("policy/ref_kl_k1", "policy/kl_loss")


@rule("kl_coef_growing", "kl_coef", rows=MIN_TREND)
def kl_coef_growing(case: Case) -> RuleReading:
    """The adaptive coefficient of the KL grows, and the KL grows in spite of it."""
    coefficient = case.need("kl_coef")
    if coefficient.is_constant:
        raise UnmeasuredError("fixed", name=coefficient.name, value=float(coefficient.values[0]))
    kl = case.need("kl_sum", "kl", reason="no_kl", name=coefficient.name)
    start, now = coefficient.first(5), coefficient.median(5)
    grown = (now > 2 * start) & (start > 0) & (coefficient.trend.chance < 1e-3) & (coefficient.trend.effect > 1)
    rising = held_at(kl, (kl.trend.chance < 1e-3) & (kl.trend.effect > 1), coefficient.steps)
    return RuleReading(
        coefficient,
        graded(len(coefficient), info=grown, warning=grown & rising),
        lambda spell: {
            "name": coefficient.name,
            "start": start,
            "now": float(now[spell.last]),
            "kl": kl.name,
            "kl_now": float(case.at(kl.key, coefficient.steps)[spell.last]),
        },
        beside=(kl,),
    )


# -- size of an update -------------------------------------------------------------------------------------------


@rule(
    "ppo_kl_high",
    "step_kl",
    explains=("clipfrac_high", "grad_spike", "kl_drift", "entropy_collapse", "reward_falling", "reward_flat"),
)
def ppo_kl_high(case: Case) -> RuleReading:
    """One update moves the policy far."""
    kl = case.need("step_kl")
    check_moves(case, kl, 0.0)
    now, clipped = np.abs(kl.mean(10)), case.at("clipped", kl.steps)
    high = (now > 0.02) & ~(clipped < 0.1)
    learning = is_learning(case, kl.steps)
    return RuleReading(
        kl,
        graded(len(kl), info=high & learning, warning=high & ~learning, critical=(now > 0.1) & ~learning),
        lambda spell: {"name": kl.name, "now": float(np.nanmax(now[spell.rows]))},
        beside=(case.get("clipped"),),
    )


@rule("ratio_drift", "ratio", explains=("ppo_kl_high", "clipfrac_high", "mismatch", "is_weight_odd", "ess_low"))
def ratio_drift(case: Case) -> RuleReading:
    """The mean importance ratio is not near 1."""
    ratio = case.need("ratio")
    check_moves(case, ratio, 1.0)
    given = case.settings.settings.get("num_mini_batches", "")
    likely = (int(given),) if given.isdecimal() else (2, 3, 4, 8, 16)
    parts = next((parts for parts in likely if parts > 1 and abs(ratio.first(20) * parts - 1) < 0.03), 0)
    if parts:
        raise UnmeasuredError("divided", name=ratio.name, parts=parts)
    now = ratio.median(5)
    return RuleReading(
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
def clipfrac_high(case: Case) -> RuleReading:
    """Many tokens are clipped."""
    clipped = case.need("clipped")
    check_moves(case, clipped, 0.0)
    now = clipped.median(10)
    learning = is_learning(case, clipped.steps)
    high = (now > 0.3) & after(len(clipped), BASE_ROWS)
    return RuleReading(
        clipped,
        graded(len(clipped), info=high & learning, warning=high & ~learning),
        lambda spell: {"name": clipped.name, "share": percent(float(np.nanmax(now[spell.rows])))},
    )


@rule("clipfrac_zero", "clipped", "step_kl", rows=MAX_WINDOW)
def clipfrac_zero(case: Case) -> RuleReading:
    """Several updates of a batch clip nothing and have no KL: the old log-probs may be those of the current policy."""
    clipped, kl = case.need("clipped"), case.need("step_kl")
    updates = case.settings.updates_per_batch
    if updates is None or updates.value == 1:
        reason = "updates_unknown" if updates is None else "one_update_set"
        raise UnmeasuredError(reason, name=clipped.name, value=0.0, settings=updates.settings if updates else "")
    zero = (clipped.finite == 0) & (case.at("step_kl", clipped.steps) == 0)
    return RuleReading(
        clipped,
        graded(len(clipped), info=full_window(clipped.share(zero, MAX_WINDOW), MAX_WINDOW) >= 1.0),
        lambda spell: {"names": f"{clipped.name}, {kl.name}", "updates": updates.value, "settings": updates.settings},
        lambda spell: max(0, spell.first - MAX_WINDOW + 1),
        (kl,),
    )


# -- gradient ----------------------------------------------------------------------------------------------------


def _with_gradient(case: Case) -> Track:
    """Return the gradient norm in the rows that have a gradient: without a signal there is none to judge."""
    gradient = case.need("gradient")
    has_one = gradient.finite > TINY_GRADIENT
    if has_one.sum() < 20:
        raise UnmeasuredError("early", count=int(has_one.sum()), needed=20)
    return gradient.derived("with gradient", gradient.steps[has_one], gradient.finite[has_one])


@rule("grad_spike", "gradient", persist=1, rows=20)
def grad_spike(case: Case) -> RuleReading:
    """The gradient norm jumps several times."""
    gradient = _with_gradient(case)
    high = (gradient.outlying() > 6) & (gradient.finite > 5 * gradient.median(MAX_WINDOW))
    total = np.cumsum(high)
    recent = total - np.concatenate([np.zeros(min(MAX_WINDOW, len(total)), int), total[:-MAX_WINDOW]])
    return RuleReading(
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
def grad_rising(case: Case) -> RuleReading:
    """The gradient norm grows steadily."""
    gradient = _with_gradient(case)
    logs = gradient.derived("log", gradient.steps, np.log10(gradient.finite))
    trend, now = logs.trend, gradient.median(MAX_WINDOW // 2)
    start = gradient.first(MAX_WINDOW // 2)
    rising = (trend.chance < 1e-3) & (trend.effect > 2) & (now > 5 * start) & after(len(gradient), MAX_WINDOW)
    learning = is_learning(case, gradient.steps)
    return RuleReading(
        gradient,
        graded(len(gradient), info=rising & learning, warning=rising & ~learning),
        lambda spell: {"name": gradient.name, "start": start, "now": float(now[spell.last])},
    )


# -- length ------------------------------------------------------------------------------------------------------


@rule("length_explosion", "length", explains=("truncation", "eos_loss", "slowdown"))
def length_explosion(case: Case) -> RuleReading:
    """Answers are several times as long as at the start."""
    length = living(case, "length")
    start = min(float(length.finite[0]), length.first(3), length.first(BASE_ROWS))  # it may grow within a few rows
    now = length.mean(10)
    late, truncated = lags(case, length.steps), case.get("truncated")
    cut = case.at("truncated", length.steps)
    all_cut = np.zeros(len(length), bool)
    if truncated is not None:
        all_cut = held_at(truncated, truncated.mean(10) >= ALMOST_ALL, length.steps)
    long = (now > 3 * start) & after(len(length), BASE_ROWS)
    return RuleReading(
        length,
        graded(
            len(length),
            info=long,
            warning=long & (late | all_cut),
            critical=long & late & (cut > 0.25),
        ),
        lambda spell: {"start": start, "now": float(np.nanmax(now[spell.rows]))},
        lambda spell: began(length.median(3) > 2 * start, spell),
        (truncated, case.get("reward")),
    )


@rule("length_collapse", "length")
def length_collapse(case: Case) -> RuleReading:
    """Answers are a small part of their length at the start."""
    length = living(case, "length")
    start, now = length.first(BASE_ROWS), length.mean(10)
    learning = is_learning(case, length.steps)
    short = (now < start / 3) & after(len(length), BASE_ROWS)
    return RuleReading(
        length,
        graded(len(length), info=short, warning=short & ~(learning & (now >= 16))),
        lambda spell: {"start": start, "now": float(np.nanmin(now[spell.rows]))},
        beside=(case.get("reward"),),
    )


@rule("eos_loss", "ended", "end_tokens", explains=("truncation",))
def eos_loss(case: Case) -> RuleReading:
    """Answers that ended with an end token no longer do."""
    ended = case.need("ended", "end_tokens")
    start, now = ended.first(BASE_ROWS), ended.mean(10)
    if not start > 0:
        raise UnmeasuredError("never_ended", name=ended.name)
    # A share can be compared; the number of end tokens goes with that of the answers, and counts when few are left.
    lost = (start - now >= 0.2) if ended.key == "ended" else (now < 0.1 * start)
    return RuleReading(
        ended,
        graded(len(ended), info=lost, warning=lost & lags(case, ended.steps)),
        lambda spell: {"name": ended.name, "start": start, "now": float(np.nanmin(now[spell.rows]))},
        beside=(case.get("length"), case.get("truncated")),
    )


@rule("repetition", "repetition")
def repetition(case: Case) -> RuleReading:
    """Many answers end in a repetition, and more than at the start."""
    repeated = case.need("repetition")
    start, now = repeated.first(BASE_ROWS), repeated.mean(10)
    more = (now > 3 * start) & (now - start > 0.1)
    return RuleReading(
        repeated,
        graded(len(repeated), info=more, warning=more & lags(case, repeated.steps)),
        lambda spell: {
            "name": repeated.name,
            "start": percent(start),
            "now": percent(float(np.nanmax(now[spell.rows]))),
        },
        beside=(case.get("length"),),
    )
