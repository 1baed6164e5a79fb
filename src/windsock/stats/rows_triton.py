"""The Triton kernels behind ``windsock.stats.rows``: one program goes through one sequence once.

Lanes keep their own sums and extremes and meet once, at the end of the sequence. What is not there, or not asked for,
is compiled out; what lies before the first and after the last response token is not read. Values that are not finite
are counted by a second kernel, which looks only at sequences whose sums came out non-finite.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from windsock.stats.rows import COLUMNS, FLAGS, WIDTH, handed_over

SCAN = 1024  # tokens of the mask that are looked at together, to find where a response begins and ends
BAD_BLOCK = 512


class Shape(NamedTuple):
    """How a sequence is gone through: tokens at a time, warps, and tokens that a lane adds up before its sums."""

    block: int
    warps: int
    per_lane: int
    stages: int
    registers: int | None


SHORT = Shape(256, 2, 4, 3, None)
LONG = Shape(512, 4, 4, 3, 128)
LONG_WIDTH = 16384  # from here on the second is faster, measured on an H200
HALF = tl.constexpr(65536)  # two counts share an integer, one in each half

TENSORS = (
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages", "returns", "values", "old_values",
    "entropy", "old_entropy", "exact_kl", "rewards", "actions",
)  # fmt: skip
C_VALID = tl.constexpr(COLUMNS["valid", "sum"])
C_RESPONSE = tl.constexpr(COLUMNS["response", "sum"])
C_RATIO = tl.constexpr(COLUMNS["ratio", "sum"])
C_ADVANTAGES = tl.constexpr(COLUMNS["advantages", "sum"])
C_RETURNS = tl.constexpr(COLUMNS["returns", "sum"])
C_OLD_VALUES = tl.constexpr(COLUMNS["old_values", "sum"])
C_RESIDUAL = tl.constexpr(COLUMNS["residual", "sum"])
C_MISMATCH_RATIO = tl.constexpr(COLUMNS["mismatch_ratio", "sum"])
C_LOG_PROB_DIFFERENCE = tl.constexpr(COLUMNS["log_prob_difference", "sum"])
C_PROBABILITY_DIFFERENCE = tl.constexpr(COLUMNS["probability_difference", "sum"])
C_NLL = tl.constexpr(COLUMNS["nll", "sum"])
C_KL_K1 = tl.constexpr(COLUMNS["kl_k1", "sum"])
C_KL_K2 = tl.constexpr(COLUMNS["kl_k2", "sum"])
C_KL_K3 = tl.constexpr(COLUMNS["kl_k3", "sum"])
C_REF_K3 = tl.constexpr(COLUMNS["ref_k3", "sum"])
C_SURROGATE = tl.constexpr(COLUMNS["surrogate", "sum"])
C_ENTROPY = tl.constexpr(COLUMNS["entropy", "sum"])
C_EXACT_KL = tl.constexpr(COLUMNS["exact_kl", "sum"])
C_OLD_LOG_PROBS = tl.constexpr(COLUMNS["old_log_probs", "sum"])
C_REF_LOG_PROBS = tl.constexpr(COLUMNS["ref_log_probs", "sum"])
C_OLD_ENTROPY = tl.constexpr(COLUMNS["old_entropy", "sum"])
C_OLD_MINUS_REF = tl.constexpr(COLUMNS["old_minus_ref", "sum"])
C_ROLLOUT_LOG_PROBS = tl.constexpr(COLUMNS["rollout_log_probs", "sum"])
C_MISMATCH = tl.constexpr(COLUMNS["mismatch", "sum"])
C_MISMATCH_K3 = tl.constexpr(COLUMNS["mismatch_k3", "sum"])
C_VALUES = tl.constexpr(COLUMNS["values", "sum"])
C_ERROR = tl.constexpr(COLUMNS["error", "sum"])
C_VALUE_LOSS = tl.constexpr(COLUMNS["value_loss", "sum"])
C_REWARDS = tl.constexpr(COLUMNS["rewards", "sum"])
C_ABOVE = tl.constexpr(COLUMNS["above", "sum"])
C_BELOW = tl.constexpr(COLUMNS["below", "sum"])
C_BINDS = tl.constexpr(COLUMNS["binds", "sum"])
C_HIGH = tl.constexpr(COLUMNS["high", "sum"])
C_LOW = tl.constexpr(COLUMNS["low", "sum"])
C_DUAL = tl.constexpr(COLUMNS["dual", "sum"])
C_VALUE_CLIP = tl.constexpr(COLUMNS["value_clip", "sum"])
C_ENDS = tl.constexpr(COLUMNS["ends", "sum"])


@triton.jit
def _load(pointer, places, inside, mask):
    """Read a tensor in its dtype; what is outside the mask becomes 0, whatever lies there."""
    return tl.where(mask, tl.load(pointer + places, mask=inside, other=0.0).to(tl.float32), 0.0)


@triton.jit
def _k3(d, ratio):
    """Return exp(d) - 1 - d; by its series where d is small, since there the difference would cancel."""
    series = d * d * (0.5 + d * (0.16666667 + d * (0.041666668 + d * 0.008333334)))
    return tl.where(tl.abs(d) < 0.06, series, ratio - 1.0 - d)


@triton.jit
def _finite_sum(x):
    return tl.sum(tl.where(tl.abs(x) < float("inf"), x, 0.0), 0)


@triton.jit
def _first_mean(pointer, places, inside, mask):
    """Return the mean of a sequence's first tokens, near which its values are summed."""
    return _finite_sum(_load(pointer, places, inside, mask)) / tl.maximum(tl.sum(mask.to(tl.float32), 0), 1.0)


@triton.jit
def _fold(x, LANES: tl.constexpr):
    """Add up what one lane loaded together, in any order."""
    return tl.sum(tl.reshape(x, [LANES, x.shape[0] // LANES], can_reorder=True), 1)


@triton.jit
def _fold_extremes(x, low, high, LANES: tl.constexpr):
    """Return the extremes of what was seen before and what one lane loaded together; both pass over NaN."""
    parts = tl.reshape(x, [LANES, x.shape[0] // LANES], can_reorder=True)
    return tl.minimum(low, tl.min(parts, 1)), tl.maximum(high, tl.max(parts, 1))


@triton.jit
def _take_spread(x, shift, mask, total, squares, low, high, LANES: tl.constexpr):
    """Add values to the sums of their distances to ``shift``, and to the extremes."""
    away = tl.where(mask, x - shift, 0.0)
    low, high = _fold_extremes(tl.where(mask, x, float("nan")), low, high, LANES)
    return total + _fold(away, LANES), squares + _fold(away * away, LANES), low, high


@triton.jit
def _put_spread(out, column: tl.constexpr, total, squares, shift, low, high):
    tl.store(out + column, tl.sum(total, 0))
    tl.store(out + column + 1, tl.sum(squares, 0))
    tl.store(out + column + 2, shift)
    tl.store(out + column + 3, tl.min(tl.where(low == low, low, float("inf")), 0))
    tl.store(out + column + 4, tl.max(tl.where(high == high, high, -float("inf")), 0))
    tl.store(out + column + 5, 0.0)
    tl.store(out + column + 6, 0.0)


@triton.jit
def _put_plain(out, column: tl.constexpr, total):
    tl.store(out + column, tl.sum(total, 0))
    tl.store(out + column + 1, 0.0)


@triton.jit
def _put_counts(out, low_column: tl.constexpr, high_column: tl.constexpr, counts):
    tl.store(out + low_column, tl.sum(counts & 65535, 0).to(tl.float32))
    tl.store(out + high_column, tl.sum(counts >> 16, 0).to(tl.float32))


@triton.jit
def _not_finite(x):
    return (tl.abs(x) < float("inf")).to(tl.int32) ^ 1


@triton.jit
def _bad(x):
    """Return 1 for what is not finite, and in the upper half 1 for NaN."""
    return _not_finite(x) + tl.where(x != x, HALF, 0)


@triton.jit
def _put_bad(out, column: tl.constexpr, bad):
    """Write how many values were not finite behind their sum."""
    tl.store(out + column + 1, tl.sum(bad & 65535, 0).to(tl.float32))


@triton.jit
def _put_spread_bad(out, column: tl.constexpr, bad):
    """Write how many values were not finite behind a spread, and whether one was NaN."""
    tl.store(out + column + 5, tl.sum(bad & 65535, 0).to(tl.float32))
    tl.store(out + column + 6, tl.max((bad >> 16 > 0).to(tl.int32), 0).to(tl.float32))


@triton.jit
def _extent(mask, length, SCAN: tl.constexpr):
    """Return where the stretch begins and ends in which a sequence's response tokens lie, to the nearest SCAN."""
    lane = tl.arange(0, SCAN)
    start, end, seen = 0, length, 0
    while (seen == 0) & (start < end):
        seen = tl.max((tl.load(mask + start + lane, mask=start + lane < end, other=0) != 0).to(tl.int32), 0)
        start = tl.where(seen == 0, start + SCAN, start)
    seen = 0
    while (seen == 0) & (start < end):
        before = (end - 1) // SCAN * SCAN
        seen = tl.max((tl.load(mask + before + lane, mask=before + lane < end, other=0) != 0).to(tl.int32), 0)
        end = tl.where(seen == 0, before, end)
    return start, end


@triton.jit
def _stretch(bounds, row, width, PACKED: tl.constexpr):
    """Return where a sequence begins and how long it is; from its beginning on, 32 bits count its tokens."""
    base, length = row * width, width
    if PACKED:
        base = tl.load(bounds + row).to(tl.int64)
        length = (tl.load(bounds + row + 1) - tl.load(bounds + row)).to(tl.int32)
    return base, length


@triton.jit
def _masks(mask, keep, kept, places, inside, KEEP: tl.constexpr):
    """Return which of some tokens belong to the response, and which of those count."""
    response = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    valid = response
    if KEEP == 1:
        valid = response & kept
    if KEEP == 2:
        valid = response & (tl.load(keep + places, mask=inside, other=0) != 0)
    return response, valid


@triton.jit
def _values(
    lp, old, ref, roll, adv, ret, val, val0, ent, old_ent, exact, rew, places, inside, valid, response,
    POLICY: tl.constexpr, NLL: tl.constexpr, SURROGATE: tl.constexpr,
    REF_LOSS: tl.constexpr, ENTROPY: tl.constexpr, EXACT: tl.constexpr, ADVANTAGES: tl.constexpr,
    RETURNS: tl.constexpr, OLD: tl.constexpr, REF: tl.constexpr, OLD_REF: tl.constexpr,
    OLD_ENTROPY: tl.constexpr, ROLLOUT: tl.constexpr, OLD_VALUES: tl.constexpr, RESIDUAL: tl.constexpr,
    VALUES: tl.constexpr, ERROR: tl.constexpr, VALUE_CLIP: tl.constexpr, REWARDS: tl.constexpr,
):  # fmt: skip
    """Read what is asked for at some places of a sequence; what is not, is 0."""
    x_lp, x_old, x_ref, x_roll, x_adv, x_ret = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    x_val, x_val0, x_ent, x_old_ent, x_exact, x_rew = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if NLL or REF_LOSS or POLICY:
        x_lp = _load(lp, places, inside, valid)
    if POLICY or OLD or OLD_REF or ROLLOUT:
        x_old = _load(old, places, inside, valid)
    if REF_LOSS or REF or OLD_REF:
        x_ref = _load(ref, places, inside, valid)
    if ROLLOUT:
        x_roll = _load(roll, places, inside, valid)
    if ADVANTAGES or SURROGATE:
        x_adv = _load(adv, places, inside, valid)
    if RETURNS or RESIDUAL or ERROR:
        x_ret = _load(ret, places, inside, valid)
    if VALUES or ERROR:
        x_val = _load(val, places, inside, valid)
    if OLD_VALUES or RESIDUAL or VALUE_CLIP:
        x_val0 = _load(val0, places, inside, valid)
    if ENTROPY:
        x_ent = _load(ent, places, inside, valid)
    if OLD_ENTROPY:
        x_old_ent = _load(old_ent, places, inside, valid)
    if EXACT:
        x_exact = _load(exact, places, inside, valid)
    if REWARDS:
        x_rew = _load(rew, places, inside, response)
    return x_lp, x_old, x_ref, x_roll, x_adv, x_ret, x_val, x_val0, x_ent, x_old_ent, x_exact, x_rew


@triton.jit
def _rows(
    out,
    lp, old, ref, roll, adv, ret, val, val0, ent, old_ent, exact, rew, act, mask, keep, bounds, eos,
    width, eos_count, clip_low, clip_high, dual, value_clip,
    POLICY: tl.constexpr, NLL: tl.constexpr, SURROGATE: tl.constexpr, DUAL: tl.constexpr,
    REF_LOSS: tl.constexpr, ENTROPY: tl.constexpr, EXACT: tl.constexpr, ADVANTAGES: tl.constexpr,
    RETURNS: tl.constexpr, OLD: tl.constexpr, REF: tl.constexpr, OLD_REF: tl.constexpr,
    OLD_ENTROPY: tl.constexpr, ROLLOUT: tl.constexpr, OLD_VALUES: tl.constexpr, RESIDUAL: tl.constexpr,
    VALUES: tl.constexpr, ERROR: tl.constexpr, VALUE_CLIP: tl.constexpr, REWARDS: tl.constexpr,
    ENDS: tl.constexpr,
    KEEP: tl.constexpr, PACKED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, SCAN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Go through one sequence. KEEP is 0 for none, 1 per sequence, 2 per token."""
    row = tl.program_id(0).to(tl.int64)
    out += row * WIDTH
    base, length = _stretch(bounds, row, width, PACKED)
    lp, old, ref, roll, adv, ret = lp + base, old + base, ref + base, roll + base, adv + base, ret + base
    val, val0, ent, old_ent, exact = val + base, val0 + base, ent + base, old_ent + base, exact + base
    rew, act, mask = rew + base, act + base, mask + base
    kept = True
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    start, end = _extent(mask, length, SCAN)
    lane = tl.arange(0, BLOCK)
    zero, none = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.int32)
    nan = zero + float("nan")
    valid_n, response_n = none, none
    # Sums are taken of distances to the mean of the first tokens, so that a large mean does not swallow a small spread.
    start = tl.multiple_of(start, SCAN)
    places = start + lane
    inside = places < end
    first = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    adv_c, ret_c, val0_c, res_c = 0.0, 0.0, 0.0, 0.0
    if ADVANTAGES:
        adv_c = _first_mean(adv, places, inside, first)
    if RETURNS or RESIDUAL:
        ret_c = _first_mean(ret, places, inside, first)
    if OLD_VALUES or RESIDUAL:
        val0_c = _first_mean(val0, places, inside, first)
    if RESIDUAL:
        res_c = ret_c - val0_c
    ld_c, pd_c = 0.0, 0.0
    if ROLLOUT:
        before, after = _load(roll, places, inside, first), _load(old, places, inside, first)
        tokens = tl.maximum(tl.sum(first.to(tl.float32), 0), 1.0)
        ld_c = _finite_sum(tl.abs(after - before)) / tokens
        pd_c = _finite_sum(tl.where(first, tl.abs(tl.exp(after) - tl.exp(before)), 0.0)) / tokens
    if POLICY:
        ratio_s, ratio_q, ratio_lo, ratio_hi = zero, zero, nan, nan
        d_s, k2_s, k3_s, band_n = zero, zero, zero, none
    if NLL:
        lp_s = zero
    if SURROGATE:
        pg_s, side_n = zero, none
    if DUAL:
        dual_n = none
    if REF_LOSS:
        rk3_s = zero
    if ENTROPY:
        ent_s = zero
    if EXACT:
        exact_s = zero
    if ADVANTAGES:
        adv_s, adv_q, adv_lo, adv_hi = zero, zero, nan, nan
    if RETURNS:
        ret_s, ret_q, ret_lo, ret_hi = zero, zero, nan, nan
    if OLD:
        old_s = zero
    if REF:
        ref_s = zero
    if OLD_REF:
        old_ref_s = zero
    if OLD_ENTROPY:
        old_ent_s = zero
    if ROLLOUT:
        roll_s, mis_s, mis_k3_s = zero, zero, zero
        mr_s, mr_q, mr_lo, mr_hi = zero, zero, nan, nan
        ld_s, ld_q, ld_lo, ld_hi = zero, zero, nan, nan
        pd_s, pd_q, pd_lo, pd_hi = zero, zero, nan, nan
    if OLD_VALUES:
        val0_s, val0_q, val0_lo, val0_hi = zero, zero, nan, nan
    if RESIDUAL:
        res_s, res_q, res_lo, res_hi = zero, zero, nan, nan
    if VALUES:
        val_s = zero
    if ERROR:
        err_s, loss_s = zero, zero
    if VALUE_CLIP:
        vclip_n = none
    if REWARDS:
        rew_s = zero
    if ENDS:
        ends_n = none
    for at in tl.range(start, end, BLOCK, num_stages=STAGES):
        places = at + lane
        inside = places < end
        response, valid = _masks(mask, keep, kept, places, inside, KEEP)
        valid_n += _fold(valid.to(tl.int32), LANES)
        if KEEP > 0:
            response_n += _fold(response.to(tl.int32), LANES)
        x_lp, x_old, x_ref, x_roll, x_adv, x_ret, x_val, x_val0, x_ent, x_old_ent, x_exact, x_rew = _values(
            lp, old, ref, roll, adv, ret, val, val0, ent, old_ent, exact, rew, places, inside, valid, response,
            POLICY, NLL, SURROGATE, REF_LOSS, ENTROPY, EXACT, ADVANTAGES, RETURNS, OLD, REF, OLD_REF, OLD_ENTROPY,
            ROLLOUT, OLD_VALUES, RESIDUAL, VALUES, ERROR, VALUE_CLIP, REWARDS,
        )  # fmt: skip
        if POLICY:
            d = x_lp - x_old
            x_ratio = tl.exp(d)
            away = x_ratio - 1.0  # 0 outside the mask, where d is
            ratio_s += _fold(away, LANES)
            ratio_q += _fold(away * away, LANES)
            ratio_lo, ratio_hi = _fold_extremes(tl.where(valid, x_ratio, float("nan")), ratio_lo, ratio_hi, LANES)
            d_s += _fold(d, LANES)
            k2_s += _fold(d * d, LANES)
            k3_s += _fold(_k3(d, x_ratio), LANES)
            above, below = x_ratio > 1.0 + clip_high, x_ratio < 1.0 - clip_low
            band_n += _fold(tl.where(above, 1, tl.where(below, HALF, 0)), LANES)
        if NLL:
            lp_s += _fold(x_lp, LANES)
        if SURROGATE:
            plain = x_ratio * x_adv
            bound = tl.minimum(tl.maximum(x_ratio, 1.0 - clip_low), 1.0 + clip_high) * x_adv
            gain = tl.minimum(plain, bound, propagate_nan=tl.PropagateNan.ALL)
            side_n += _fold(tl.where(above & (x_adv > 0), 1, tl.where(below & (x_adv < 0), HALF, 0)), LANES)
            if DUAL:
                floor = dual * x_adv
                dual_n += _fold(((x_adv < 0) & (gain < floor)).to(tl.int32), LANES)
                gain = tl.where(x_adv < 0, tl.maximum(gain, floor, propagate_nan=tl.PropagateNan.ALL), gain)
            pg_s -= _fold(gain, LANES)
        if REF_LOSS:
            e = x_ref - x_lp
            rk3_s += _fold(_k3(e, tl.exp(e)), LANES)
        if ENTROPY:
            ent_s += _fold(x_ent, LANES)
        if EXACT:
            exact_s += _fold(x_exact, LANES)
        if ADVANTAGES:
            adv_s, adv_q, adv_lo, adv_hi = _take_spread(x_adv, adv_c, valid, adv_s, adv_q, adv_lo, adv_hi, LANES)
        if RETURNS:
            ret_s, ret_q, ret_lo, ret_hi = _take_spread(x_ret, ret_c, valid, ret_s, ret_q, ret_lo, ret_hi, LANES)
        if OLD:
            old_s += _fold(x_old, LANES)
        if REF:
            ref_s += _fold(x_ref, LANES)
        if OLD_REF:
            old_ref_s += _fold(x_old - x_ref, LANES)
        if OLD_ENTROPY:
            old_ent_s += _fold(x_old_ent, LANES)
        if ROLLOUT:
            m = x_old - x_roll
            x_mr = tl.exp(m)
            x_pd = tl.abs(tl.exp(x_old) - tl.exp(x_roll))
            roll_s += _fold(x_roll, LANES)
            mis_s += _fold(m, LANES)
            mis_k3_s += _fold(_k3(m, x_mr), LANES)
            mr_s, mr_q, mr_lo, mr_hi = _take_spread(x_mr, 1.0, valid, mr_s, mr_q, mr_lo, mr_hi, LANES)
            ld_s, ld_q, ld_lo, ld_hi = _take_spread(tl.abs(m), ld_c, valid, ld_s, ld_q, ld_lo, ld_hi, LANES)
            pd_s, pd_q, pd_lo, pd_hi = _take_spread(x_pd, pd_c, valid, pd_s, pd_q, pd_lo, pd_hi, LANES)
        if OLD_VALUES:
            val0_s, val0_q, val0_lo, val0_hi = _take_spread(
                x_val0, val0_c, valid, val0_s, val0_q, val0_lo, val0_hi, LANES
            )
        if RESIDUAL:
            res_s, res_q, res_lo, res_hi = _take_spread(
                x_ret - x_val0, res_c, valid, res_s, res_q, res_lo, res_hi, LANES
            )
        if VALUES:
            val_s += _fold(x_val, LANES)
        if ERROR:
            error = (x_val - x_ret) * (x_val - x_ret)
            err_s += _fold(error, LANES)
            if VALUE_CLIP:
                near = tl.minimum(tl.maximum(x_val, x_val0 - value_clip), x_val0 + value_clip) - x_ret
                vclip_n += _fold((near * near > error).to(tl.int32), LANES)
                error = tl.maximum(error, near * near, propagate_nan=tl.PropagateNan.ALL)
            loss_s += _fold(0.5 * error, LANES)
        if REWARDS:
            rew_s += _fold(x_rew, LANES)
        if ENDS:
            token = tl.load(act + places, mask=inside, other=-1)
            is_end = token != token
            for n in range(eos_count):
                is_end = is_end | (token == tl.load(eos + n))
            ends_n += _fold((response & is_end).to(tl.int32), LANES)
    valid_count = tl.sum(valid_n, 0).to(tl.float32)
    tl.store(out + C_VALID, valid_count)
    tl.store(out + C_RESPONSE, tl.sum(response_n, 0).to(tl.float32) if KEEP > 0 else valid_count)
    if POLICY:
        _put_spread(out, C_RATIO, ratio_s, ratio_q, 1.0, ratio_lo, ratio_hi)
        _put_plain(out, C_KL_K1, -d_s)
        _put_plain(out, C_KL_K2, 0.5 * k2_s)
        _put_plain(out, C_KL_K3, k3_s)
        _put_counts(out, C_ABOVE, C_BELOW, band_n)
    if NLL:
        _put_plain(out, C_NLL, -lp_s)
    if SURROGATE:
        _put_plain(out, C_SURROGATE, pg_s)
        _put_counts(out, C_HIGH, C_LOW, side_n)
        tl.store(out + C_BINDS, tl.sum((side_n & 65535) + (side_n >> 16), 0).to(tl.float32))
    if DUAL:
        tl.store(out + C_DUAL, tl.sum(dual_n, 0).to(tl.float32))
    if REF_LOSS:
        _put_plain(out, C_REF_K3, rk3_s)
    if ENTROPY:
        _put_plain(out, C_ENTROPY, ent_s)
    if EXACT:
        _put_plain(out, C_EXACT_KL, exact_s)
    if ADVANTAGES:
        _put_spread(out, C_ADVANTAGES, adv_s, adv_q, adv_c, adv_lo, adv_hi)
    if RETURNS:
        _put_spread(out, C_RETURNS, ret_s, ret_q, ret_c, ret_lo, ret_hi)
    if OLD:
        _put_plain(out, C_OLD_LOG_PROBS, old_s)
    if REF:
        _put_plain(out, C_REF_LOG_PROBS, ref_s)
    if OLD_REF:
        _put_plain(out, C_OLD_MINUS_REF, old_ref_s)
    if OLD_ENTROPY:
        _put_plain(out, C_OLD_ENTROPY, old_ent_s)
    if ROLLOUT:
        _put_plain(out, C_ROLLOUT_LOG_PROBS, roll_s)
        _put_plain(out, C_MISMATCH, mis_s)
        _put_plain(out, C_MISMATCH_K3, mis_k3_s)
        _put_spread(out, C_MISMATCH_RATIO, mr_s, mr_q, 1.0, mr_lo, mr_hi)
        _put_spread(out, C_LOG_PROB_DIFFERENCE, ld_s, ld_q, ld_c, ld_lo, ld_hi)
        _put_spread(out, C_PROBABILITY_DIFFERENCE, pd_s, pd_q, pd_c, pd_lo, pd_hi)
    if OLD_VALUES:
        _put_spread(out, C_OLD_VALUES, val0_s, val0_q, val0_c, val0_lo, val0_hi)
    if RESIDUAL:
        _put_spread(out, C_RESIDUAL, res_s, res_q, res_c, res_lo, res_hi)
    if VALUES:
        _put_plain(out, C_VALUES, val_s)
    if ERROR:
        _put_plain(out, C_ERROR, err_s)
        _put_plain(out, C_VALUE_LOSS, loss_s)
    if VALUE_CLIP:
        tl.store(out + C_VALUE_CLIP, tl.sum(vclip_n, 0).to(tl.float32))
    if REWARDS:
        _put_plain(out, C_REWARDS, rew_s)
    if ENDS:
        tl.store(out + C_ENDS, tl.sum(ends_n, 0).to(tl.float32))


@triton.jit
def _count_not_finite(
    out, is_sum, COLUMNS_UP: tl.constexpr,
    lp, old, ref, roll, adv, ret, val, val0, ent, old_ent, exact, rew, act, mask, keep, bounds, eos,
    width, eos_count, clip_low, clip_high, dual, value_clip,
    POLICY: tl.constexpr, NLL: tl.constexpr, SURROGATE: tl.constexpr, DUAL: tl.constexpr,
    REF_LOSS: tl.constexpr, ENTROPY: tl.constexpr, EXACT: tl.constexpr, ADVANTAGES: tl.constexpr,
    RETURNS: tl.constexpr, OLD: tl.constexpr, REF: tl.constexpr, OLD_REF: tl.constexpr,
    OLD_ENTROPY: tl.constexpr, ROLLOUT: tl.constexpr, OLD_VALUES: tl.constexpr, RESIDUAL: tl.constexpr,
    VALUES: tl.constexpr, ERROR: tl.constexpr, VALUE_CLIP: tl.constexpr, REWARDS: tl.constexpr,
    ENDS: tl.constexpr,
    KEEP: tl.constexpr, PACKED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the values of one sequence that are NaN or infinite, where its sums say that there are any."""
    row = tl.program_id(0).to(tl.int64)
    out += row * WIDTH
    base, length = _stretch(bounds, row, width, PACKED)
    lp, old, ref, roll, adv, ret = lp + base, old + base, ref + base, roll + base, adv + base, ret + base
    val, val0, ent, old_ent, exact = val + base, val0 + base, ent + base, old_ent + base, exact + base
    rew, act, mask = rew + base, act + base, mask + base
    kept = True
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    columns = tl.arange(0, COLUMNS_UP)
    sums = tl.load(out + columns, mask=(columns < WIDTH) & (tl.load(is_sum + columns) != 0), other=0.0)
    if tl.max(_not_finite(sums), 0) == 0:
        return
    lane = tl.arange(0, BLOCK)
    none = tl.zeros([BLOCK], tl.int32)
    ratio_b, k1_b, k2_b, k3_b, nll_b, pg_b, rk3_b = none, none, none, none, none, none, none
    ent_b, exact_b, adv_b, ret_b, old_b, ref_b, old_ref_b = none, none, none, none, none, none, none
    old_ent_b, roll_b, mis_b, mk3_b, mr_b, pd_b, val0_b = none, none, none, none, none, none, none
    res_b, val_b, err_b, rew_b = none, none, none, none
    for at in range(0, length, BLOCK):
        places = at + lane
        inside = places < length
        response, valid = _masks(mask, keep, kept, places, inside, KEEP)
        x_lp, x_old, x_ref, x_roll, x_adv, x_ret, x_val, x_val0, x_ent, x_old_ent, x_exact, x_rew = _values(
            lp, old, ref, roll, adv, ret, val, val0, ent, old_ent, exact, rew, places, inside, valid, response,
            POLICY, NLL, SURROGATE, REF_LOSS, ENTROPY, EXACT, ADVANTAGES, RETURNS, OLD, REF, OLD_REF, OLD_ENTROPY,
            ROLLOUT, OLD_VALUES, RESIDUAL, VALUES, ERROR, VALUE_CLIP, REWARDS,
        )  # fmt: skip
        if POLICY:
            d = x_lp - x_old
            x_ratio = tl.exp(d)
            ratio_b += _bad(x_ratio)
            k1_b += _bad(d)
            k2_b += _bad(d * d)
            k3_b += _bad(_k3(d, x_ratio))
        if NLL:
            nll_b += _bad(x_lp)
        if SURROGATE:
            pg_b += _bad(x_ratio * x_adv)
        if REF_LOSS:
            e = x_ref - x_lp
            rk3_b += _bad(_k3(e, tl.exp(e)))
        if ENTROPY:
            ent_b += _bad(x_ent)
        if EXACT:
            exact_b += _bad(x_exact)
        if ADVANTAGES:
            adv_b += _bad(x_adv)
        if RETURNS:
            ret_b += _bad(x_ret)
        if OLD:
            old_b += _bad(x_old)
        if REF:
            ref_b += _bad(x_ref)
        if OLD_REF:
            old_ref_b += _bad(x_old - x_ref)
        if OLD_ENTROPY:
            old_ent_b += _bad(x_old_ent)
        if ROLLOUT:
            m = x_old - x_roll
            roll_b += _bad(x_roll)
            mis_b += _bad(m)
            mk3_b += _bad(_k3(m, tl.exp(m)))
            mr_b += _bad(tl.exp(m))
            pd_b += _bad(tl.exp(x_old) - tl.exp(x_roll))
        if OLD_VALUES:
            val0_b += _bad(x_val0)
        if RESIDUAL:
            res_b += _bad(x_ret - x_val0)
        if VALUES:
            val_b += _bad(x_val)
        if ERROR:
            err_b += _bad((x_val - x_ret) * (x_val - x_ret))
        if REWARDS:
            rew_b += _bad(x_rew)
    if POLICY:
        _put_spread_bad(out, C_RATIO, ratio_b)
        _put_bad(out, C_KL_K1, k1_b)
        _put_bad(out, C_KL_K2, k2_b)
        _put_bad(out, C_KL_K3, k3_b)
    if NLL:
        _put_bad(out, C_NLL, nll_b)
    if SURROGATE:
        _put_bad(out, C_SURROGATE, pg_b)
    if REF_LOSS:
        _put_bad(out, C_REF_K3, rk3_b)
    if ENTROPY:
        _put_bad(out, C_ENTROPY, ent_b)
    if EXACT:
        _put_bad(out, C_EXACT_KL, exact_b)
    if ADVANTAGES:
        _put_spread_bad(out, C_ADVANTAGES, adv_b)
    if RETURNS:
        _put_spread_bad(out, C_RETURNS, ret_b)
    if OLD:
        _put_bad(out, C_OLD_LOG_PROBS, old_b)
    if REF:
        _put_bad(out, C_REF_LOG_PROBS, ref_b)
    if OLD_REF:
        _put_bad(out, C_OLD_MINUS_REF, old_ref_b)
    if OLD_ENTROPY:
        _put_bad(out, C_OLD_ENTROPY, old_ent_b)
    if ROLLOUT:
        _put_bad(out, C_ROLLOUT_LOG_PROBS, roll_b)
        _put_bad(out, C_MISMATCH, mis_b)
        _put_bad(out, C_MISMATCH_K3, mk3_b)
        _put_spread_bad(out, C_MISMATCH_RATIO, mr_b)
        _put_spread_bad(out, C_LOG_PROB_DIFFERENCE, mis_b)
        _put_spread_bad(out, C_PROBABILITY_DIFFERENCE, pd_b)
    if OLD_VALUES:
        _put_spread_bad(out, C_OLD_VALUES, val0_b)
    if RESIDUAL:
        _put_spread_bad(out, C_RESIDUAL, res_b)
    if VALUES:
        _put_bad(out, C_VALUES, val_b)
    if ERROR:
        _put_bad(out, C_ERROR, err_b)
        _put_bad(out, C_VALUE_LOSS, err_b)
    if REWARDS:
        _put_bad(out, C_REWARDS, rew_b)


@cache
def _sum_columns(device: Any, channels: frozenset[str]) -> Any:
    """Return which columns hold sums of the channels, padded to a power of two."""
    marks = torch.zeros(triton.next_power_of_2(WIDTH), dtype=torch.int8)
    marks[[place for (channel, slot), place in COLUMNS.items() if slot == "sum" and channel in channels]] = 1
    return handed_over(marks, device)


def rows(
    tensors: dict[str, Any],
    mask: Any,
    keep: Any | None,
    bounds: Any | None,
    eos: Any | None,
    flags: set[str],
    channels: frozenset[str],
    options: Any,
) -> Any:
    """Launch the kernels on the tensors' device; return a float32 matrix with a row for each sequence.

    ``channels`` are those that ``flags`` fill; the columns of others hold nothing of sense.
    """
    sequences = len(mask) if bounds is None else len(bounds) - 1
    out = torch.empty(sequences, WIDTH, dtype=torch.float32, device=mask.device)  # only what is asked for is written
    if not sequences:
        return out
    arguments = (
        *(tensors.get(name, mask) for name in TENSORS),  # what is not there is never looked at
        mask,
        mask if keep is None else keep,
        mask if bounds is None else bounds,
        mask if eos is None else eos,
        mask.shape[-1],
        0 if eos is None else len(eos),
        *options.clip,
        options.dual_clip or 0.0,
        options.value_clip or 0.0,
    )
    switches = {flag: flag in flags for flag in FLAGS}
    layout = {
        "KEEP": 0 if keep is None else 1 if keep.shape == (sequences,) else 2,
        "PACKED": bounds is not None,
        "WIDTH": WIDTH,
    }
    shape = LONG if mask.shape[-1] >= LONG_WIDTH and bounds is None else SHORT
    registers = None if "ROLLOUT" in flags else shape.registers  # with all its exponentials it needs more
    sums = _sum_columns(mask.device, channels)
    with torch.cuda.device(mask.device):
        _rows[(sequences,)](
            out,
            *arguments,
            **switches,
            **layout,
            BLOCK=shape.block,
            LANES=shape.block // shape.per_lane,
            SCAN=SCAN,
            STAGES=shape.stages,
            num_warps=shape.warps,
            maxnreg=registers,
        )
        _count_not_finite[(sequences,)](out, sums, len(sums), *arguments, **switches, **layout, BLOCK=BAD_BLOCK)
    return out
