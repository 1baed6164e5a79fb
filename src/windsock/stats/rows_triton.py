"""The Triton kernels behind ``windsock.stats.rows``: one program reads the tokens of one sequence once.

Each lane has its own sums and extremes; they are combined once, at the end of the sequence. A channel that is not
wanted is compiled out, and tokens before the first and after the last response token are not read. A second kernel
counts the values that are not finite; it reads only the sequences whose sums came out non-finite.

``_values`` has the formulas of the channels. The rest follows from their declarations in ``windsock.stats.channels``:
the switches, the arrays to read, the accumulators and the columns. Loops over channels run at compile time.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# mypy: disable-error-code="assignment"
# ruff: noqa: N803, RUF005 - Triton cannot compile starred items of a tuple
from __future__ import annotations

import math
from collections import namedtuple
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from windsock.stats.rows import COLUMNS, SLOTS, STORED, WIDTH, moved_to

SCAN = 1024  # tokens of the mask that are read together, to find where a response begins and ends
BAD_BLOCK = 512


class Shape(NamedTuple):
    """How a sequence is read: tokens at a time, warps, and tokens that a lane adds up before its sums."""

    block: int
    warps: int
    per_lane: int
    stages: int
    registers: int | None


SHORT = Shape(256, 2, 4, 3, None)
LONG = Shape(512, 4, 4, 3, 128)
LONG_WIDTH = 16384  # from this width on LONG is faster, measured on an H200
HALF = tl.constexpr(65536)  # two counts share an integer: of all values, and from here on of NaN


named_tuple: Any = namedtuple  # for mypy, which takes literal fields only


def _field(name: str) -> str:
    """Return the name of a tuple's field; ``values`` is an attribute of all tuples in Triton."""
    return "values_" if name == "values" else name


Wanted = named_tuple("Wanted", [channel.name for channel in STORED])
"""Whether each channel is wanted: a constant of the compilation."""
Values = named_tuple("Values", [_field(name) for name in Wanted._fields])
"""The channels at some tokens: spreads, then sums, then conditions that are counted."""
ARRAYS = tuple(dict.fromkeys(
    need.name for channel in STORED for need in channel.needs if need.name not in ("actions", "eos_ids")
))  # fmt: skip
"""The arrays of numbers that channels need; token ids are compared and not computed with."""
Arrays = named_tuple("Arrays", [_field(name) for name in ARRAYS])


class Limits(NamedTuple):
    """The options that formulas use; no wanted channel uses one that is not set."""

    clip_low: float
    clip_high: float
    dual_clip: float
    value_clip: float
    truncate: float
    reject_low: float
    reject_high: float

    @classmethod
    def of(cls, options: Any) -> Limits:
        """Return the limits of some options."""
        # An infinite band clips nothing.
        low, high = options.clip or (math.inf, math.inf)
        cap = options.truncate.cap if options.truncate else math.inf
        kept = (options.reject.low, options.reject.high) if options.reject else (0.0, math.inf)
        return cls(low, high, options.dual_clip or 0.0, options.value_clip or 0.0, cap, *kept)


SPREADS = tl.constexpr(sum(channel.statistics == "spread" for channel in STORED))
SUMMED = tl.constexpr(sum(channel.statistics != "count" for channel in STORED))  # spreads and sums
CHANNEL_COUNT = tl.constexpr(len(STORED))
ARRAY_COUNT = tl.constexpr(len(ARRAYS))
NEAR = tl.constexpr(tuple(channel.near for channel in STORED))
COLUMN = tl.constexpr(tuple(COLUMNS[channel.name, "sum"] for channel in STORED))
OF_RESPONSE = tl.constexpr(tuple(
    all(channel.of_response for channel in STORED if name in {need.name for need in channel.needs}) for name in ARRAYS
))  # fmt: skip
VALID_COLUMN = tl.constexpr(COLUMNS["valid", "sum"])
RESPONSE_COLUMN = tl.constexpr(COLUMNS["response", "sum"])
SQUARES, SHIFT, LOW, HIGH, SPREAD_BAD, SPREAD_NAN = (
    tl.constexpr(SLOTS["spread"].index(slot)) for slot in ("squares", "shift", "min", "max", "bad", "nan")
)
SUM_BAD, SUM_NAN = (tl.constexpr(SLOTS["sum"].index(slot)) for slot in ("bad", "nan"))


@triton.jit
def _load(pointer, places, inside, mask):
    """Read a tensor in its dtype, as float32; values outside the mask, also NaN, become 0."""
    return tl.where(mask, tl.load(pointer + places, mask=inside, other=0.0).to(tl.float32), 0.0)


@triton.jit
def _k3(d, ratio):
    """Return exp(d) - 1 - d, by its series where d is small, because the difference cancels there."""
    series = d * d * (0.5 + d * (0.16666667 + d * (0.041666668 + d * 0.008333334)))
    return tl.where(tl.abs(d) < 0.06, series, ratio - 1.0 - d)


@triton.jit
def _values(x, is_end, limits, WANTED: tl.constexpr):
    """Compute every channel from the arrays at some tokens; the compiler drops those that are not wanted.

    An array that is not needed is 0, and so is every array outside the mask. There a sum must come out as 0, a
    condition as false and a spread with ``near`` as that number.
    """
    log_ratio = x.log_probs - x.old_log_probs
    ratio = tl.exp(log_ratio)
    above = ratio > 1.0 + limits.clip_high
    below = ratio < 1.0 - limits.clip_low
    high = above & (x.advantages > 0)
    low = below & (x.advantages < 0)
    bound = tl.minimum(tl.maximum(ratio, 1.0 - limits.clip_low), 1.0 + limits.clip_high) * x.advantages
    # By default Triton's minimum drops a NaN, and the loss would look finite.
    gain = tl.minimum(ratio * x.advantages, bound, propagate_nan=tl.PropagateNan.ALL)
    floor = limits.dual_clip * x.advantages
    dual = (x.advantages < 0) & (gain < floor)
    if WANTED.dual:
        gain = tl.where(x.advantages < 0, tl.maximum(gain, floor, propagate_nan=tl.PropagateNan.ALL), gain)
    ref_difference = x.ref_log_probs - x.log_probs
    old_ref_difference = x.ref_log_probs - x.old_log_probs
    mismatch = x.old_log_probs - x.rollout_log_probs
    mismatch_ratio = tl.exp(mismatch)
    mismatch_k3 = _k3(mismatch, mismatch_ratio)
    truncated_weight = tl.minimum(mismatch_ratio, limits.truncate, propagate_nan=tl.PropagateNan.ALL)
    rejects = (mismatch_ratio < limits.reject_low) | (mismatch_ratio > limits.reject_high)
    keeps = (mismatch_ratio >= limits.reject_low) & (mismatch_ratio <= limits.reject_high)
    error = (x.values_ - x.returns) * (x.values_ - x.returns)
    near_old = tl.maximum(x.values_, x.old_values - limits.value_clip, propagate_nan=tl.PropagateNan.ALL)
    near_old = tl.minimum(near_old, x.old_values + limits.value_clip, propagate_nan=tl.PropagateNan.ALL)
    clipped = near_old - x.returns
    larger_error = error
    if WANTED.value_clip:
        larger_error = tl.maximum(error, clipped * clipped, propagate_nan=tl.PropagateNan.ALL)
    return Values(
        ratio=ratio,
        advantages=x.advantages,
        returns=x.returns,
        old_values=x.old_values,
        residual=x.returns - x.old_values,
        mismatch_ratio=mismatch_ratio,
        log_prob_difference=tl.abs(mismatch),
        truncated_weight=truncated_weight,
        probability_difference=tl.abs(tl.exp(x.old_log_probs) - tl.exp(x.rollout_log_probs)),
        highest_logits=x.highest_logits,
        lowest_logits=x.lowest_logits,
        log_ratio=log_ratio,
        kl_k2=0.5 * log_ratio * log_ratio,
        kl_k3=_k3(log_ratio, ratio),
        exact_kl=x.exact_kl,
        exact_ref_kl=x.exact_ref_kl,
        entropy=x.entropy,
        log_probs=x.log_probs,
        ref_k3=_k3(ref_difference, tl.exp(ref_difference)),
        surrogate=-gain,
        positive_advantages=tl.maximum(x.advantages, 0.0, propagate_nan=tl.PropagateNan.ALL),
        negative_advantages=tl.minimum(x.advantages, 0.0, propagate_nan=tl.PropagateNan.ALL),
        old_log_probs=x.old_log_probs,
        ref_log_probs=x.ref_log_probs,
        old_minus_ref=x.old_log_probs - x.ref_log_probs,
        old_ref_k3=_k3(old_ref_difference, tl.exp(old_ref_difference)),
        old_entropy=x.old_entropy,
        rewards=x.rewards,
        rollout_log_probs=x.rollout_log_probs,
        mismatch=mismatch,
        mismatch_k3=mismatch_k3,
        truncated_distance=tl.abs(truncated_weight - 1.0),
        kept_k3=tl.where(rejects, 0.0, mismatch_k3),
        rejected_k3=tl.where(keeps, 0.0, mismatch_k3),
        values_=x.values_,
        error=error,
        value_loss=0.5 * larger_error,
        above=above,
        below=below,
        high=high,
        low=low,
        dual=dual,
        positive_tokens=x.advantages > 0,
        negative_tokens=x.advantages < 0,
        nonzero_advantages=x.advantages != 0,
        ends=is_end,
        truncates=mismatch_ratio > limits.truncate,
        rejects=rejects,
        value_clip=clipped * clipped > error,
    )


@triton.jit
def _read(arrays, base, places, inside, valid, response):
    """Read the arrays at some tokens of the sequence that begins at ``base``; those that are not given are 0."""
    read = ()
    for n in tl.static_range(ARRAY_COUNT):
        if arrays[n] is None:
            read = read + (0.0,)
        else:
            read = read + (_load(arrays[n] + base, places, inside, response if OF_RESPONSE[n] else valid),)
    return Arrays(*read)


@triton.jit
def _ends(actions, eos, eos_count, places, inside, response):
    """Return at which of some tokens a sequence ends."""
    token = tl.load(actions + places, mask=inside, other=-1)
    # False everywhere, in the shape of the tokens.
    is_end = token != token
    for n in range(eos_count):
        is_end = is_end | (token == tl.load(eos + n))
    return response & is_end


@triton.jit
def _shifts(values, mask, WANTED: tl.constexpr):
    """Return the numbers near which the spreads are summed: a known one, or the mean of the sequence's first tokens.

    Sums of distances to it keep a small spread that a large mean would swallow.
    """
    tokens = tl.maximum(tl.sum(mask.to(tl.float32), 0), 1.0)
    shifts = ()
    for n in tl.static_range(SPREADS):
        if NEAR[n] is not None:
            shifts = shifts + (NEAR[n],)
        elif WANTED[n]:
            # An infinity in the shift would make every distance infinite.
            finite = mask & (tl.abs(values[n]) < float("inf"))
            shifts = shifts + (tl.sum(tl.where(finite, values[n], 0.0), 0) / tokens,)
        else:
            shifts = shifts + (0.0,)
    return shifts


@triton.jit
def _repeated(x, COUNT: tl.constexpr):
    """Return a tuple of accumulators that begin at x."""
    repeated = ()
    for _ in tl.static_range(COUNT):
        repeated = repeated + (x,)
    return repeated


@triton.jit
def _fold(x, LANES: tl.constexpr):
    """Add up the values that one lane loaded together, in any order."""
    return tl.sum(tl.reshape(x, [LANES, x.shape[0] // LANES], can_reorder=True), 1)


@triton.jit
def _fold_extremes(x, low, high, LANES: tl.constexpr):
    """Return the extremes of earlier values and of those that one lane loaded together; both pass over NaN."""
    parts = tl.reshape(x, [LANES, x.shape[0] // LANES], can_reorder=True)
    return tl.minimum(low, tl.min(parts, 1)), tl.maximum(high, tl.max(parts, 1))


@triton.jit
def _add_sums(sums, values, shifts, mask, WANTED: tl.constexpr, LANES: tl.constexpr):
    """Add values to the sums, and of spreads their distances to the shift."""
    added = ()
    for n in tl.static_range(SUMMED):
        total = sums[n]
        if WANTED[n]:
            if n < SPREADS:
                total = total + _fold(_distance(values, shifts, mask, n), LANES)
            else:
                total = total + _fold(values[n], LANES)
        added = added + (total,)
    return added


@triton.jit
def _distance(values, shifts, mask, n: tl.constexpr):
    """Return the distances of a spread's values to its shift, 0 outside the mask."""
    distance = values[n] - shifts[n]
    if NEAR[n] is None:
        distance = tl.where(mask, distance, 0.0)
    return distance


@triton.jit
def _add_squares(squares, values, shifts, mask, WANTED: tl.constexpr, LANES: tl.constexpr):
    """Add the squares of the spreads' distances."""
    added = ()
    for n in tl.static_range(SPREADS):
        total = squares[n]
        if WANTED[n]:
            distance = _distance(values, shifts, mask, n)
            total = total + _fold(distance * distance, LANES)
        added = added + (total,)
    return added


@triton.jit
def _widen_extremes(lows, highs, values, mask, WANTED: tl.constexpr, LANES: tl.constexpr):
    """Take values into the extremes of the spreads."""
    lower, higher = (), ()
    for n in tl.static_range(SPREADS):
        low, high = lows[n], highs[n]
        if WANTED[n]:
            # NaN stands for no value: minimum and maximum pass over it.
            low, high = _fold_extremes(tl.where(mask, values[n], float("nan")), low, high, LANES)
        lower, higher = lower + (low,), higher + (high,)
    return lower, higher


@triton.jit
def _add_counts(counts, values, WANTED: tl.constexpr, LANES: tl.constexpr):
    """Add conditions to their counts."""
    added = ()
    for n in tl.static_range(SUMMED, CHANNEL_COUNT):
        count = counts[n - SUMMED]
        if WANTED[n]:
            count = count + _fold(values[n].to(tl.int32), LANES)
        added = added + (count,)
    return added


@triton.jit
def _store(out, sums, squares, shifts, lows, highs, counts, WANTED: tl.constexpr):
    """Combine the lanes and write the row; the counts of values that are not finite begin at 0."""
    for n in tl.static_range(SUMMED):
        if WANTED[n]:
            tl.store(out + COLUMN[n], tl.sum(sums[n], 0))
            if n < SPREADS:
                low, high = lows[n], highs[n]
                tl.store(out + COLUMN[n] + SQUARES, tl.sum(squares[n], 0))
                tl.store(out + COLUMN[n] + SHIFT, shifts[n])
                tl.store(out + COLUMN[n] + LOW, tl.min(tl.where(low == low, low, float("inf")), 0))
                tl.store(out + COLUMN[n] + HIGH, tl.max(tl.where(high == high, high, -float("inf")), 0))
                tl.store(out + COLUMN[n] + SPREAD_BAD, 0.0)
                tl.store(out + COLUMN[n] + SPREAD_NAN, 0.0)
            else:
                tl.store(out + COLUMN[n] + SUM_BAD, 0.0)
                tl.store(out + COLUMN[n] + SUM_NAN, 0.0)
    for n in tl.static_range(SUMMED, CHANNEL_COUNT):
        if WANTED[n]:
            tl.store(out + COLUMN[n], tl.sum(counts[n - SUMMED], 0).to(tl.float32))


@triton.jit
def _not_finite(x):
    return (tl.abs(x) < float("inf")).to(tl.int32) ^ 1


@triton.jit
def _add_bad(bad, values, WANTED: tl.constexpr):
    """Count the values that are not finite, and in the upper half those that are NaN."""
    added = ()
    for n in tl.static_range(SUMMED):
        count = bad[n]
        if WANTED[n]:
            count = count + _not_finite(values[n]) + tl.where(values[n] != values[n], HALF, 0)
        added = added + (count,)
    return added


@triton.jit
def _store_bad(out, bad, WANTED: tl.constexpr):
    """Write how many values were not finite, and how many of them NaN."""
    for n in tl.static_range(SUMMED):
        if WANTED[n]:
            count = tl.sum(bad[n] & 65535, 0).to(tl.float32)
            nan_count = tl.sum(bad[n] >> 16, 0).to(tl.float32)
            if n < SPREADS:
                tl.store(out + COLUMN[n] + SPREAD_BAD, count)
                tl.store(out + COLUMN[n] + SPREAD_NAN, nan_count)
            else:
                tl.store(out + COLUMN[n] + SUM_BAD, count)
                tl.store(out + COLUMN[n] + SUM_NAN, nan_count)


@triton.jit
def _extent(mask, length, SCAN: tl.constexpr):
    """Return the range of a sequence's response tokens, to the nearest SCAN."""
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
    """Return the first token of a sequence, in 64 bits, and its length, in 32 bits."""
    base, length = row * width, width
    if PACKED:
        base = tl.load(bounds + row).to(tl.int64)
        length = (tl.load(bounds + row + 1) - tl.load(bounds + row)).to(tl.int32)
    return base, length


@triton.jit
def _masks(mask, keep, kept, places, inside, KEEP: tl.constexpr):
    """Return which of some tokens belong to the response, and which of those ``keep`` includes."""
    response = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    valid = response
    if KEEP == 1:
        valid = response & kept
    if KEEP == 2:
        valid = response & (tl.load(keep + places, mask=inside, other=0) != 0)
    return response, valid


@triton.jit
def _rows(
    out, arrays, actions, mask, keep, bounds, eos, width, eos_count, limits,
    WANTED: tl.constexpr, KEEP: tl.constexpr, PACKED: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, LANES: tl.constexpr, SCAN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the row of one sequence. KEEP is 0 for none, 1 per sequence, 2 per token."""
    row = tl.program_id(0).to(tl.int64)
    out += row * WIDTH
    base, length = _stretch(bounds, row, width, PACKED)
    mask, actions = mask + base, actions + base
    kept = True
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    start, end = _extent(mask, length, SCAN)
    # The compiler cannot derive this through a loop, and wide loads need the alignment.
    start = tl.multiple_of(start, SCAN)
    lane = tl.arange(0, BLOCK)
    places = start + lane
    inside = places < end
    first = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    # Any number near the values will do as the shift, so ``keep`` is not read here.
    at_first = _values(_read(arrays, base, places, inside, first, first), first, limits, WANTED)
    shifts = _shifts(at_first, first, WANTED)
    zero, none = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.int32)
    sums, squares = _repeated(zero, SUMMED), _repeated(zero, SPREADS)
    lows = _repeated(zero + float("nan"), SPREADS)
    highs = lows
    counts = _repeated(none, CHANNEL_COUNT - SUMMED)
    valid_count, response_count = none, none
    for at in tl.range(start, end, BLOCK, num_stages=STAGES):
        places = at + lane
        inside = places < end
        response, valid = _masks(mask, keep, kept, places, inside, KEEP)
        valid_count += _fold(valid.to(tl.int32), LANES)
        if KEEP > 0:
            response_count += _fold(response.to(tl.int32), LANES)
        is_end = response
        if WANTED.ends:
            is_end = _ends(actions, eos, eos_count, places, inside, response)
        values = _values(_read(arrays, base, places, inside, valid, response), is_end, limits, WANTED)
        sums = _add_sums(sums, values, shifts, valid, WANTED, LANES)
        squares = _add_squares(squares, values, shifts, valid, WANTED, LANES)
        lows, highs = _widen_extremes(lows, highs, values, valid, WANTED, LANES)
        counts = _add_counts(counts, values, WANTED, LANES)
    valid_tokens = tl.sum(valid_count, 0).to(tl.float32)
    tl.store(out + VALID_COLUMN, valid_tokens)
    tl.store(out + RESPONSE_COLUMN, tl.sum(response_count, 0).to(tl.float32) if KEEP > 0 else valid_tokens)
    _store(out, sums, squares, shifts, lows, highs, counts, WANTED)


@triton.jit
def _count_not_finite(
    out, is_sum, COLUMNS_UP: tl.constexpr,
    arrays, actions, mask, keep, bounds, eos, width, eos_count, limits,
    WANTED: tl.constexpr, KEEP: tl.constexpr, PACKED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the values of one sequence that are NaN or infinite, where a sum of the sequence is not finite."""
    row = tl.program_id(0).to(tl.int64)
    out += row * WIDTH
    columns = tl.arange(0, COLUMNS_UP)
    sums = tl.load(out + columns, mask=(columns < WIDTH) & (tl.load(is_sum + columns) != 0), other=0.0)
    if tl.max(_not_finite(sums), 0) == 0:
        return
    base, length = _stretch(bounds, row, width, PACKED)
    mask += base
    kept = True
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    lane = tl.arange(0, BLOCK)
    bad = _repeated(tl.zeros([BLOCK], tl.int32), SUMMED)
    for at in range(0, length, BLOCK):
        places = at + lane
        inside = places < length
        response, valid = _masks(mask, keep, kept, places, inside, KEEP)
        values = _values(_read(arrays, base, places, inside, valid, response), response, limits, WANTED)
        bad = _add_bad(bad, values, WANTED)
    _store_bad(out, bad, WANTED)


@cache
def _sum_columns(device: Any, channels: frozenset[str]) -> Any:
    """Return a mask of the columns that are sums of the channels, padded to a power of two."""
    is_sum = torch.zeros(triton.next_power_of_2(WIDTH), dtype=torch.int8)
    is_sum[[place for (channel, slot), place in COLUMNS.items() if slot == "sum" and channel in channels]] = 1
    return moved_to(device, is_sum)


def rows(
    tensors: dict[str, Any],
    mask: Any,
    keep: Any | None,
    bounds: Any | None,
    eos: Any | None,
    channels: frozenset[str],
    options: Any,
) -> Any:
    """Launch the kernels on the tensors' device; return a float32 matrix with a row for each sequence.

    ``tensors`` are the arrays that ``channels`` need. The columns of other channels are not written.
    """
    sequences = len(mask) if bounds is None else len(bounds) - 1
    out = torch.empty(sequences, WIDTH, dtype=torch.float32, device=mask.device)
    if not sequences:
        return out
    arguments = (
        Arrays(*(tensors.get(name) for name in ARRAYS)),
        tensors.get("actions", mask),  # the mask stands in for pointers that are not used
        mask,
        mask if keep is None else keep,
        mask if bounds is None else bounds,
        mask if eos is None else eos,
        mask.shape[-1],
        0 if eos is None else len(eos),
        Limits.of(options),
    )
    constants = {
        "WANTED": Wanted(*(name in channels for name in Wanted._fields)),
        "KEEP": 0 if keep is None else 1 if keep.shape == (sequences,) else 2,
        "PACKED": bounds is not None,
        "WIDTH": WIDTH,
    }
    shape = LONG if mask.shape[-1] >= LONG_WIDTH and bounds is None else SHORT
    registers = None if "mismatch" in channels else shape.registers  # its exponentials need more
    sums = _sum_columns(mask.device, channels)
    with torch.cuda.device_of(mask):
        _rows[(sequences,)](
            out,
            *arguments,
            **constants,
            BLOCK=shape.block,
            LANES=shape.block // shape.per_lane,
            SCAN=SCAN,
            STAGES=shape.stages,
            num_warps=shape.warps,
            maxnreg=registers,
        )
        # Launched in any case: to ask whether a sum is finite would wait for the device.
        _count_not_finite[(sequences,)](out, sums, len(sums), *arguments, **constants, BLOCK=BAD_BLOCK)
    return out
