"""The Triton kernels behind ``barograph.metrics.formulas.table``: one program reads the tokens of one sequence once.

Each lane has its own sums and extremes; they are combined once, at the end of the sequence. A channel that is not
wanted is compiled out, and tokens before the first and after the last response token are not read. The program adds
some of the tokens to the histograms, compares the last ones with earlier ones, and copies the sequence's numbers from
the arrays of the sequences. Values that are not finite are counted only if a sum came out so, in a second reading.

``_values`` has the formulas of the channels. The rest follows from their declarations
(``barograph.metrics.formulas.channels``): the switches, the arrays to read, the accumulators and the rows. Loops over
channels run at compile time.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# mypy: disable-error-code="assignment"
# ruff: noqa: N803, RUF005 - Triton cannot compile starred items of a tuple
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import triton
import triton.language as tl

from barograph.base.device_copy.triton_kernels import Launcher, named_tuple
from barograph.metrics.formulas.channels import Bound
from barograph.metrics.formulas.sequences import MAX_PERIOD, MIN_STRETCH
from barograph.metrics.formulas.table import REDUCED_SLOTS, SAMPLES, STORED, WEIGHT, SequenceTable
from barograph.metrics.gpu.tokens_triton import (
    ARRAYS,
    COMPLETED_AT_ONCE,
    TOKENS_AT_ONCE,
    Arrays,
    Fill,
    SequenceChoice,
    choose_tokens,
    chosen_before,
    complete_row,
    describe,
    field,
    keep_of,
    masks,
    stretch,
)

SCAN = 1024  # tokens of the mask that are read together, to find where a response begins and ends
BAD_BLOCK = 64  # few, for the sake of registers: it is rarely needed
PERIODS_AT_ONCE = 16
SEQUENCES_AT_ONCE = 512


class ReadShape(NamedTuple):
    """How a sequence is read: tokens at a time, warps, and tokens that a lane adds up before its sums."""

    block: int
    warps: int
    per_lane: int
    stages: int
    registers: int | None


SHAPE = ReadShape(256, 2, 4, 4, 128)  # the fastest of thirty on an H200, for 8k and for 32k tokens
FEW_SEQUENCES = 384  # up to which their programs run all at once with more registers than the shape's, and faster
MASK_WORDS = 4096  # words of the mask that are read together, to find where every token belongs to the response
HALF = tl.constexpr(65536)  # two counts share an integer: of all values, and from here on of NaN


Wanted = named_tuple("Wanted", [channel.name for channel in STORED])
"""Whether each channel is wanted: a constant of the compilation."""
Values = named_tuple("Values", [field(name) for name in Wanted._fields])
"""The channels at some tokens: spreads, then sums, then conditions that are counted."""
Places = named_tuple("Places", Wanted._fields)
"""The place of each channel in the blocks of a table, or that of its histogram; -1 for none."""
MOST_ARRAYS = 8
SequenceArrays = named_tuple("SequenceArrays", [f"array{n}" for n in range(MOST_ARRAYS)])


NO_FILL = Fill(None, None, None)


class Blocks(NamedTuple):
    """The first row of each block of a table; -1 for the repetition that is not wanted."""

    valid: int
    response: int
    repeats: int
    odd: int
    sum: int
    squares: int
    shift: int
    min: int
    max: int
    bad: int
    nan: int
    arrays: int


class FormulaLimits(NamedTuple):
    """The options that formulas use; no wanted channel uses one that is not set."""

    clip_low: float
    clip_high: float
    dual_clip: float
    value_clip: float
    truncate: float
    reject_low: float
    reject_high: float
    above_high: float  # of policy.Bound
    above_low: float
    below_high: float
    below_low: float
    dual_high: float
    dual_low: float

    @classmethod
    def of(cls, options: Any) -> FormulaLimits:
        """Return the limits of some options."""
        # An infinite band clips nothing.
        low, high = options.clip or (math.inf, math.inf)
        cap = options.truncate.cap if options.truncate else math.inf
        kept = (options.reject.low, options.reject.high) if options.reject else (0.0, math.inf)
        bounds = (Bound.of(1.0 + high), Bound.of(1.0 - low), Bound.of(options.dual_clip or math.inf))
        return cls(
            low, high, options.dual_clip or 0.0, options.value_clip or 0.0, cap, *kept,
            *(number for bound in bounds for number in bound),
        )  # fmt: skip


SPREADS = tl.constexpr(sum(channel.statistics == "spread" for channel in STORED))
SUMMED = tl.constexpr(sum(channel.statistics != "count" for channel in STORED))  # spreads and sums
CHANNEL_COUNT = tl.constexpr(len(STORED))
ARRAY_COUNT = tl.constexpr(len(ARRAYS))
NEAR = tl.constexpr(tuple(channel.near for channel in STORED))
OF_RESPONSE = tl.constexpr(tuple(
    all(channel.of_response for channel in STORED if name in {need.name for need in channel.needs}) for name in ARRAYS
))  # fmt: skip
MOST = tl.constexpr(MOST_ARRAYS)
SAMPLE_COUNT, SAMPLE_WEIGHT = tl.constexpr(SAMPLES), tl.constexpr(WEIGHT)
PERIOD_COUNT, LEAST_REPEATED, PERIOD_BLOCK = (
    tl.constexpr(MAX_PERIOD), tl.constexpr(MIN_STRETCH), tl.constexpr(PERIODS_AT_ONCE)
)  # fmt: skip


@triton.jit
def _load(pointer, places, inside, mask, DENSE: tl.constexpr):
    """Read a tensor in its dtype, as float32; values outside the mask, also NaN, become 0.

    DENSE, here and below: all tokens are inside the mask.
    """
    if DENSE:
        return tl.load(pointer + places).to(tl.float32)
    return tl.where(mask, tl.load(pointer + places, mask=inside, other=0.0).to(tl.float32), 0.0)


@triton.jit
def _k3(d, ratio):
    """Return exp(d) - 1 - d, by its series where d is small, because the difference cancels there."""
    series = d * d * (0.5 + d * (0.16666667 + d * (0.041666668 + d * 0.008333334)))
    return tl.where(tl.abs(d) < 0.06, series, ratio - 1.0 - d)


@triton.jit
def _is_beyond(d, lost, high, low):
    """Return where the sum of d and what it lost is larger than the sum of high and low."""
    return (d > high) | ((d == high) & (lost > low))


@triton.jit
def _values(x, is_end, limits, WANTED: tl.constexpr):
    """Compute every channel from the arrays at some tokens; the compiler drops those that are not wanted.

    An array that is not needed is 0, and so is every array outside the mask. There a sum must come out as 0, a
    condition as false and a spread with ``near`` as that number.
    """
    log_ratio = x.log_probs - x.old_log_probs
    ratio = tl.exp(log_ratio)
    # What the difference of the log-probs lost by rounding: with it a tie at a bound is decided as on the host.
    turned = log_ratio - x.log_probs
    lost = (x.log_probs - (log_ratio - turned)) - (x.old_log_probs + turned)
    above = _is_beyond(log_ratio, lost, limits.above_high, limits.above_low)
    below = _is_beyond(-log_ratio, -lost, -limits.below_high, -limits.below_low)
    high = above & (x.advantages > 0)
    low = below & (x.advantages < 0)
    bound = tl.minimum(tl.maximum(ratio, 1.0 - limits.clip_low), 1.0 + limits.clip_high) * x.advantages
    # By default Triton's minimum drops a NaN, and the loss would look finite.
    gain = tl.minimum(ratio * x.advantages, bound, propagate_nan=tl.PropagateNan.ALL)
    floor = limits.dual_clip * x.advantages
    dual = (x.advantages < 0) & _is_beyond(log_ratio, lost, limits.dual_high, limits.dual_low)
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
def _read(arrays, base, places, inside, valid, response, DENSE: tl.constexpr = False):
    """Read the arrays at some tokens of the sequence that begins at ``base``; those that are not given are 0."""
    read = ()
    for n in tl.static_range(ARRAY_COUNT):
        if arrays[n] is None:
            read = read + (0.0,)
        else:
            read = read + (_load(arrays[n] + base, places, inside, response if OF_RESPONSE[n] else valid, DENSE),)
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
    """Add up the values that one lane loaded together."""
    return tl.sum(tl.reshape(x, [LANES, x.shape[0] // LANES]), 1)


@triton.jit
def _fold_extremes(x, low, high, LANES: tl.constexpr):
    """Return the extremes of earlier values and of those that one lane loaded together; both pass over NaN."""
    parts = tl.reshape(x, [LANES, x.shape[0] // LANES])
    return tl.minimum(low, tl.min(parts, 1)), tl.maximum(high, tl.max(parts, 1))


@triton.jit
def _add_sums(sums, values, shifts, mask, WANTED: tl.constexpr, LANES: tl.constexpr, DENSE: tl.constexpr):
    """Add values to the sums, and of spreads their distances to the shift."""
    added = ()
    for n in tl.static_range(SUMMED):
        total = sums[n]
        if WANTED[n]:
            if n < SPREADS:
                total = total + _fold(_distance(values, shifts, mask, n, DENSE), LANES)
            else:
                total = total + _fold(values[n], LANES)
        added = added + (total,)
    return added


@triton.jit
def _distance(values, shifts, mask, n: tl.constexpr, DENSE: tl.constexpr):
    """Return the distances of a spread's values to its shift, 0 outside the mask."""
    distance = values[n] - shifts[n]
    if NEAR[n] is None and not DENSE:
        distance = tl.where(mask, distance, 0.0)
    return distance


@triton.jit
def _add_squares(squares, values, shifts, mask, WANTED: tl.constexpr, LANES: tl.constexpr, DENSE: tl.constexpr):
    """Add the squares of the spreads' distances."""
    added = ()
    for n in tl.static_range(SPREADS):
        total = squares[n]
        if WANTED[n]:
            distance = _distance(values, shifts, mask, n, DENSE)
            total = total + _fold(distance * distance, LANES)
        added = added + (total,)
    return added


@triton.jit
def _widen_extremes(lows, highs, values, mask, WANTED: tl.constexpr, LANES: tl.constexpr, DENSE: tl.constexpr):
    """Take values into the extremes of the spreads."""
    lower, higher = (), ()
    for n in tl.static_range(SPREADS):
        low, high = lows[n], highs[n]
        if WANTED[n]:
            # NaN stands for no value: minimum and maximum pass over it.
            some = values[n] if DENSE else tl.where(mask, values[n], float("nan"))
            low, high = _fold_extremes(some, low, high, LANES)
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
def _not_finite(x):
    return (tl.abs(x) < float("inf")).to(tl.int32) ^ 1


@triton.jit
def _store(
    out, sequences, sums, squares, shifts, lows, highs, counts,
    WANTED: tl.constexpr, PLACE: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Combine the lanes and write the column of the sequence; return whether a sum is not finite."""
    bad = 0
    for n in tl.static_range(SUMMED):
        if WANTED[n]:
            total = tl.sum(sums[n], 0)
            bad = bad | _not_finite(total)
            tl.store(out + (BLOCKS.sum + PLACE[n]) * sequences, total)
            if n < SPREADS:
                low, high = lows[n], highs[n]
                low = tl.min(tl.where(low == low, low, float("inf")), 0)
                high = tl.max(tl.where(high == high, high, -float("inf")), 0)
                tl.store(out + (BLOCKS.squares + PLACE[n]) * sequences, tl.sum(squares[n], 0))
                tl.store(out + (BLOCKS.shift + PLACE[n]) * sequences, shifts[n])
                tl.store(out + (BLOCKS.min + PLACE[n]) * sequences, low)
                tl.store(out + (BLOCKS.max + PLACE[n]) * sequences, high)
    for n in tl.static_range(SUMMED, CHANNEL_COUNT):
        if WANTED[n]:
            tl.store(out + (BLOCKS.sum + PLACE[n]) * sequences, tl.sum(counts[n - SUMMED], 0).to(tl.float32))
    return bad


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
def _store_bad(out, sequences, bad, WANTED: tl.constexpr, PLACE: tl.constexpr, BLOCKS: tl.constexpr):
    """Write how many values were not finite, and how many of them NaN."""
    for n in tl.static_range(SUMMED):
        if WANTED[n]:
            tl.store(out + (BLOCKS.bad + PLACE[n]) * sequences, tl.sum(bad[n] & 65535, 0).to(tl.float32))
            tl.store(out + (BLOCKS.nan + PLACE[n]) * sequences, tl.sum(bad[n] >> 16, 0).to(tl.float32))


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
def _dense_part(mask, start, end, WORDS: tl.constexpr, SCAN: tl.constexpr, BLOCK: tl.constexpr):
    """Return a range of complete blocks all of whose tokens belong to the response: the first such range, or none."""
    lane = tl.arange(0, WORDS)
    # Where the response begins within the first tokens, from the next ones on.
    first = tl.where(tl.load(mask + start, mask=start < end, other=0) != 0, start, start + SCAN)
    words = (mask + first).to(tl.pointer_type(tl.int32), bitcast=True)
    count = tl.maximum(end - first, 0) // 4
    # Words at odd addresses cannot be read.
    count = tl.where((mask + first).to(tl.int64) % 4 == 0, count, 0)
    seen, found = 0, 0
    while seen < count:
        word = tl.load(words + seen + lane, mask=seen + lane < count, other=0)
        length = tl.min(tl.where(word == 0x01010101, WORDS, lane), 0)
        found = seen + length
        seen = tl.where(length == WORDS, seen + WORDS, count)
    return first, first + found * 4 // BLOCK * BLOCK


@triton.jit
def _ends_of_response(mask, start, end, SCAN: tl.constexpr):
    """Return the places of the first and the last response token; of none, a first one after the last."""
    lane = tl.arange(0, SCAN)
    before = tl.maximum(end - 1, 0) // SCAN * SCAN
    at_start = (tl.load(mask + start + lane, mask=start + lane < end, other=0) != 0) & (start + lane < end)
    at_end = (tl.load(mask + before + lane, mask=before + lane < end, other=0) != 0) & (before + lane < end)
    first = tl.min(tl.where(at_start, start + lane, end), 0)
    return first, tl.max(tl.where(at_end, before + lane, -1), 0)


@triton.jit
def _add_samples(
    histograms, arrays, mask, keep, kept, base, first, last, limits,
    WANTED: tl.constexpr, HISTOGRAM: tl.constexpr, BINS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Add some tokens of a sequence to the histograms: all of a short one, else one of each stretch of equal length."""
    span = tl.maximum(last - first + 1, 0).to(tl.int64)
    number = tl.arange(0, SAMPLE_COUNT).to(tl.int64)
    low = number * span // SAMPLE_COUNT
    high = (number + 1) * span // SAMPLE_COUNT
    # A fixed place of each stretch that looks random: equal distances would see every pattern of that period.
    jitter = ((number * 2654435761) & 4294967295) >> 8
    offset = tl.where(span <= SAMPLE_COUNT, number, low + jitter % tl.maximum(high - low, 1))
    inside = offset < span
    places = (first + offset).to(tl.int32)
    response, valid = masks(mask, keep, kept, places, inside, KEEP)
    values = _values(_read(arrays, base, places, inside, valid, response), response, limits, WANTED)
    # Each stands for the tokens of its stretch.
    weight = tl.maximum((span * SAMPLE_WEIGHT + SAMPLE_COUNT // 2) // SAMPLE_COUNT, SAMPLE_WEIGHT).to(tl.int32)
    weights = tl.zeros([SAMPLE_COUNT], tl.int32) + weight
    for n in tl.static_range(SUMMED):
        if HISTOGRAM[n] >= 0:
            x = values[n]
            steps = tl.log(tl.abs(x) if BINS[n][3] else tl.maximum(x, 0.0)) * BINS[n][0] + BINS[n][1]
            steps = tl.minimum(tl.maximum(steps, 0.0), BINS[n][2]).to(tl.int32)
            if BINS[n][3]:
                steps = tl.where(x < 0, -steps, steps) + BINS[n][2]
            usable = valid & (tl.abs(x) < float("inf"))
            tl.atomic_add(histograms + HISTOGRAM[n] + steps, weights, mask=usable, sem="relaxed")


@triton.jit
def _is_repeated(actions, mask, last):
    """Return whether the tokens before a sequence's last one repeat with some period."""
    place = tl.arange(0, 2 * PERIOD_COUNT)
    inside = place <= last
    answered = (tl.load(mask + last - place, mask=inside, other=0) != 0) & inside
    run = tl.min(tl.where(answered, 2 * PERIOD_COUNT, place), 0)
    found = 0
    if run >= LEAST_REPEATED:
        # Few periods fit the last tokens, mostly none: only then are all tokens compared.
        period = 1 + tl.arange(0, PERIOD_COUNT)
        fits = tl.maximum(2 * period, LEAST_REPEATED) <= run
        for back in tl.static_range(4):
            token = tl.load(actions + last - 7 * back)
            fits = fits & (tl.load(actions + last - 7 * back - period, mask=fits, other=-1) == token)
        if tl.max(fits.to(tl.int32), 0) > 0:
            near = tl.arange(0, PERIOD_COUNT)
            tokens = tl.load(actions + last - near, mask=near < run, other=0)
            for at in range(1, PERIOD_COUNT + 1, PERIOD_BLOCK):
                some = at + tl.arange(0, PERIOD_BLOCK)
                stretch = tl.maximum(2 * some, LEAST_REPEATED)
                earlier_place = last - near[None, :] - some[:, None]
                compared = near[None, :] < (stretch - some)[:, None]
                earlier = tl.load(actions + earlier_place, mask=compared & (earlier_place >= 0), other=-1)
                differs = tl.max((compared & (tokens[None, :] != earlier)).to(tl.int32), 1)
                found = tl.maximum(found, tl.max(((stretch <= run) & (differs == 0)).to(tl.int32), 0))
    return found


@triton.jit
def _copy_arrays(out, of_sequences, row, sequences, FIRST: tl.constexpr):
    """Copy a sequence's numbers of the arrays, each as the two halves of 64 bits."""
    words = out.to(tl.pointer_type(tl.int32), bitcast=True)
    for n in tl.static_range(MOST):
        if of_sequences[n] is not None:
            number = tl.load(of_sequences[n] + row)
            if number.dtype.is_floating():
                bits = number.to(tl.float32).to(tl.float64) if number.dtype != tl.float64 else number
                bits = bits.to(tl.int64, bitcast=True)
            else:
                bits = number.to(tl.int64)
            tl.store(words + (FIRST + 2 * n) * sequences, (bits & 4294967295).to(tl.int32))
            tl.store(words + (FIRST + 2 * n + 1) * sequences, (bits >> 32).to(tl.int32))


@triton.jit
def _count_not_finite(
    out, sequences, arrays, base, mask, keep, kept, start, end, limits,
    WANTED: tl.constexpr, PLACE: tl.constexpr, BLOCKS: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the values of a sequence that are NaN or infinite."""
    lane = tl.arange(0, BLOCK)
    bad = _repeated(tl.zeros([BLOCK], tl.int32), SUMMED)
    for at in range(start, end, BLOCK):
        places = at + lane
        inside = places < end
        response, valid = masks(mask, keep, kept, places, inside, KEEP)
        values = _values(_read(arrays, base, places, inside, valid, response), response, limits, WANTED)
        bad = _add_bad(bad, values, WANTED)
    _store_bad(out, sequences, bad, WANTED, PLACE, BLOCKS)


@triton.jit
def _few_tokens(
    out, histograms, arrays, actions, mask, keep, bounds, width, sequences, row, limits,
    WANTED: tl.constexpr, BLOCKS: tl.constexpr, HISTOGRAM: tl.constexpr, BINS: tl.constexpr, SAMPLED: tl.constexpr,
    KEEP: tl.constexpr, PACKED: tl.constexpr, SCAN: tl.constexpr,
):  # fmt: skip
    """Do what needs few tokens of one sequence: the histograms and the repetition."""
    base, length = stretch(bounds, row, width, PACKED)
    mask, actions = mask + base, actions + base
    keep, kept = keep_of(keep, base, row, KEEP)
    start, end = _extent(mask, length, SCAN)
    first, last = _ends_of_response(mask, start, end, SCAN)
    if SAMPLED:
        _add_samples(histograms, arrays, mask, keep, kept, base, first, last, limits, WANTED, HISTOGRAM, BINS, KEEP)
    if BLOCKS.repeats >= 0:
        tl.store(out + BLOCKS.repeats * sequences, _is_repeated(actions, mask, last).to(tl.float32))


@triton.jit
def _all_tokens(
    out, of_sequences, arrays, actions, mask, keep, bounds, eos, eos_count, width, sequences, row, limits,
    WANTED: tl.constexpr, PLACE: tl.constexpr, BLOCKS: tl.constexpr, KEEP: tl.constexpr, PACKED: tl.constexpr,
    BLOCK: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr, SCAN: tl.constexpr, BAD: tl.constexpr,
    DENSE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Read all tokens of one sequence, and write their statistics.

    Blocks of tokens that all belong to the response, which most do, need no masks: they are found first (DENSE).
    """
    base, length = stretch(bounds, row, width, PACKED)
    mask, actions = mask + base, actions + base
    keep, kept = keep_of(keep, base, row, KEEP)
    start, end = _extent(mask, length, SCAN)
    # The compiler cannot derive this through a loop, and wide loads need the alignment.
    start = tl.multiple_of(start, SCAN)
    _copy_arrays(out, of_sequences, row, sequences, BLOCKS.arrays)
    lane = tl.arange(0, BLOCK)
    places = start + lane
    inside = places < end
    at_start = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    # Any number near the values will do as the shift, so ``keep`` is not read here.
    at_first = _values(_read(arrays, base, places, inside, at_start, at_start), at_start, limits, WANTED)
    shifts = _shifts(at_first, at_start, WANTED)
    zero, none = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.int32)
    sums, squares = _repeated(zero, SUMMED), _repeated(zero, SPREADS)
    lows = _repeated(zero + float("nan"), SPREADS)
    highs = lows
    counts = _repeated(none, CHANNEL_COUNT - SUMMED)
    valid_count, response_count = none, none
    dense_start, dense_end = end, end
    if DENSE:
        dense_start, dense_end = _dense_part(mask, start, end, WORDS, SCAN, BLOCK)
        dense_start, dense_end = tl.minimum(dense_start, end), tl.minimum(dense_end, end)
        for at in tl.range(dense_start, dense_end, BLOCK, num_stages=STAGES):
            places = tl.multiple_of(at, BLOCK) + lane
            every = places < end
            is_end = every
            if WANTED.ends:
                is_end = _ends(actions, eos, eos_count, places, every, every)
            values = _values(_read(arrays, base, places, every, every, every, True), is_end, limits, WANTED)
            sums = _add_sums(sums, values, shifts, every, WANTED, LANES, True)
            squares = _add_squares(squares, values, shifts, every, WANTED, LANES, True)
            lows, highs = _widen_extremes(lows, highs, values, every, WANTED, LANES, True)
            counts = _add_counts(counts, values, WANTED, LANES)
    # The blocks before and after the dense ones.
    for n in tl.range(start, end - (dense_end - dense_start), BLOCK, num_stages=STAGES):
        at = tl.where(n < dense_start, n, n + (dense_end - dense_start))
        places = tl.multiple_of(at, BLOCK) + lane
        inside = places < end
        response, valid = masks(mask, keep, kept, places, inside, KEEP)
        valid_count += _fold(valid.to(tl.int32), LANES)
        if KEEP > 0:
            response_count += _fold(response.to(tl.int32), LANES)
        is_end = response
        if WANTED.ends:
            is_end = _ends(actions, eos, eos_count, places, inside, response)
        values = _values(_read(arrays, base, places, inside, valid, response), is_end, limits, WANTED)
        sums = _add_sums(sums, values, shifts, valid, WANTED, LANES, False)
        squares = _add_squares(squares, values, shifts, valid, WANTED, LANES, False)
        lows, highs = _widen_extremes(lows, highs, values, valid, WANTED, LANES, False)
        counts = _add_counts(counts, values, WANTED, LANES)
    valid_tokens = (tl.sum(valid_count, 0) + dense_end - dense_start).to(tl.float32)
    response_tokens = tl.sum(response_count, 0).to(tl.float32) if KEEP > 0 else valid_tokens
    tl.store(out + BLOCKS.valid * sequences, valid_tokens)
    tl.store(out + BLOCKS.response * sequences, response_tokens)
    bad = _store(out, sequences, sums, squares, shifts, lows, highs, counts, WANTED, PLACE, BLOCKS)
    tl.store(out + BLOCKS.odd * sequences, tl.where(bad > 0, 1.0, 0.0))
    if bad > 0:
        _count_not_finite(
            out, sequences, arrays, base, mask, keep, kept, start, end, limits, WANTED, PLACE, BLOCKS, KEEP, BAD
        )


@triton.jit(do_not_specialize=["sequences", "column", "programs", "first", "room", "seed"])
def _rows(
    out, histograms, of_sequences, arrays, actions, mask, keep, bounds, eos, fill,
    width, sequences, column, programs, eos_count, first, room, seed, limits,
    WANTED: tl.constexpr, PLACE: tl.constexpr, BLOCKS: tl.constexpr, HISTOGRAM: tl.constexpr, BINS: tl.constexpr,
    SAMPLED: tl.constexpr, SECOND: tl.constexpr, KEEP: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, STAGES: tl.constexpr, SCAN: tl.constexpr, BAD: tl.constexpr, DENSE: tl.constexpr,
    WORDS: tl.constexpr, TOKENS: tl.constexpr, COMPLETED: tl.constexpr, FILL: tl.constexpr, CHOICE: tl.constexpr,
    CRITERIA: tl.constexpr, DESCRIBES: tl.constexpr,
):  # fmt: skip
    """Write the column of one sequence, after those of other batches; a row has room for ``sequences`` columns.

    KEEP is 0 for none, 1 per sequence, 2 per token. What needs few tokens is done by a second program for each
    sequence (SECOND), while the others are waiting for memory.

    FILL is the number of rows of chosen sequences that are completed, and of their columns: further programs, which
    come last, do that, and with a seed they make the CHOICE before. DESCRIBES: the second program of the first
    sequence describes this batch for a choice, as the last program would delay the end of the pass. Without second
    programs the last one does it.

    The code of the programs that take longest is the first, and they use no argument of the others: one that jumps over
    other code waits for its own, and for every argument that is read.
    """
    number = tl.program_id(0)
    row = number.to(tl.int64)
    if number < programs:
        _all_tokens(
            out + column + row, of_sequences, arrays, actions, mask, keep, bounds, eos, eos_count, width, sequences,
            row, limits, WANTED, PLACE, BLOCKS, KEEP, PACKED, BLOCK, LANES, STAGES, SCAN, BAD, DENSE, WORDS,
        )  # fmt: skip
        return
    if SECOND:  # noqa: SIM102 - known when the kernel is compiled
        if number < 2 * programs:
            row -= programs
            _few_tokens(
                out + column + row, histograms, arrays, actions, mask, keep, bounds, width, sequences, row, limits,
                WANTED, BLOCKS, HISTOGRAM, BINS, SAMPLED, KEEP, PACKED, SCAN,
            )  # fmt: skip
            if DESCRIBES:  # noqa: SIM102 - as SECOND
                if row == 0:
                    describe(fill.choice, arrays, actions, mask, keep, bounds, out + column, width, sequences, programs)
            return
    if DESCRIBES and not SECOND:
        describe(fill.choice, arrays, actions, mask, keep, bounds, out + column, width, sequences, programs)
    elif FILL is not None:
        number -= programs * (2 if SECOND else 1)
        if seed < 0:
            slot = number
            complete_row(
                fill, arrays, bounds, width, chosen_before(fill, slot), slot, 0, room, programs, first, room, FILL[1],
                PACKED, COMPLETED,
            )  # fmt: skip
        else:
            slot, block = number % FILL[0], number // FILL[0]
            place = choose_tokens(fill, slot, block, room, seed, CHOICE, CRITERIA, TOKENS)
            tl.debug_barrier()  # what other threads of the program have copied is overwritten
            complete_row(
                fill, arrays, bounds, width, place, slot, (block - 1) * TOKENS, block * TOKENS, programs, first, room,
                FILL[1], PACKED, TOKENS,
            )  # fmt: skip


@triton.jit
def _cells_of(cells, row, columns, places, end):
    """Read some cells of a row that are before its end, in double precision; the others are 0."""
    return tl.load(cells + row * columns + places, mask=places < end, other=0.0).to(tl.float64)


@triton.jit
def _count_lengths(cells, lengths, columns, sequences, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Write how many response lengths, which are the second row of the table, are in each bin."""
    lane = tl.arange(0, BLOCK)
    for at in range(0, BINS[2] + 2, BLOCK):  # the word behind the bins too
        tl.store(lengths + at + lane, tl.zeros([BLOCK], tl.int32), mask=at + lane < BINS[2] + 2)
    tl.debug_barrier()
    weights = tl.zeros([BLOCK], tl.int32) + SAMPLE_WEIGHT
    for at in range(0, sequences, BLOCK):
        length = _cells_of(cells, 1, columns, at + lane, sequences)
        steps = tl.log(length) * BINS[0] + BINS[1]
        steps = tl.minimum(tl.maximum(steps, 0.0), BINS[2]).to(tl.int32)
        tl.atomic_add(lengths + steps, weights, mask=at + lane < sequences, sem="relaxed")


@triton.jit
def _reduce_numbers(cells, out, columns, sequences, number, BLOCK: tl.constexpr):
    """Write the statistics of a number of each sequence: of all sequences, or of those where it is above 0.

    The numbers are the first rows of the table, and each has both in turn.
    """
    row = number // 2
    least = tl.where(number % 2 == 0, -1.0, 0.0)
    lane = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.float64)
    total, count, low, high = zero, zero, zero + float("inf"), zero - float("inf")
    for at in range(0, sequences, BLOCK):
        places = at + lane
        value = _cells_of(cells, row, columns, places, sequences)
        counts = (places < sequences) & (value > least)
        total += value
        count += tl.where(counts, 1.0, 0.0)
        low = tl.where(counts, tl.minimum(low, value), low)
        high = tl.where(counts, tl.maximum(high, value), high)
    sums, counted = tl.sum(total, 0), tl.sum(count, 0)
    mean = sums / tl.maximum(counted, 1.0)
    squares = zero
    for at in range(0, sequences, BLOCK):
        places = at + lane
        value = _cells_of(cells, row, columns, places, sequences)
        counts = (places < sequences) & (value > least)
        squares += tl.where(counts, (value - mean) * (value - mean), 0.0)
    tl.store(out, sums)
    tl.store(out + 1, tl.sum(squares, 0))
    tl.store(out + 2, tl.min(low, 0))
    tl.store(out + 3, tl.max(high, 0))
    tl.store(out + 4, 0.0)
    tl.store(out + 5, counted)
    tl.store(out + 6, 0.0)


@triton.jit(do_not_specialize=["columns", "sequences"])
def _reduce(
    cells, histograms, reduced, counts_out, columns, sequences,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WITH_SPREAD: tl.constexpr,
    SAMPLED: tl.constexpr, BINS: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the statistics of one channel over all sequences, in double precision; after those, of sequences.

    Then the counts of the histograms are moved to the results, so that their memory is 0 for the next step, and the
    response lengths are counted.
    """
    channel = tl.program_id(0).to(tl.int64)
    if channel >= ROWS:
        at = (channel - ROWS) * BLOCK
        if at < SAMPLED:
            places = at + tl.arange(0, BLOCK)
            inside = places < SAMPLED
            moved = tl.atomic_xchg(histograms + places, tl.zeros([BLOCK], tl.int32), mask=inside, sem="relaxed")
            tl.store(counts_out + places, moved, mask=inside)
        elif BINS is not None:
            _count_lengths(cells, counts_out + SAMPLED, columns, sequences, BLOCK, BINS)
        return
    if channel >= CHANNELS:
        _reduce_numbers(cells, reduced + channel * SLOTS, columns, sequences, channel - CHANNELS, BLOCK)
        return
    # Other channels have no such rows.
    of_spreads = tl.where(channel < WITH_SPREAD, sequences, 0)
    lane = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.float64)
    total, tokens, low, high = zero, zero, zero + float("inf"), zero - float("inf")
    for at in range(0, sequences, BLOCK):
        places = at + lane
        count = _cells_of(cells, BLOCKS.valid, columns, places, sequences)
        # The kernel sums distances to the shift: add it again for every token.
        shift = _cells_of(cells, BLOCKS.shift + channel, columns, places, of_spreads)
        total += _cells_of(cells, BLOCKS.sum + channel, columns, places, sequences) + shift * count
        tokens += count
        lowest = _cells_of(cells, BLOCKS.min + channel, columns, places, of_spreads)
        highest = _cells_of(cells, BLOCKS.max + channel, columns, places, of_spreads)
        low = tl.where(count > 0, tl.minimum(low, lowest), low)
        high = tl.where(count > 0, tl.maximum(high, highest), high)
    sums, counts = tl.sum(total, 0), tl.sum(tokens, 0)
    mean = sums / tl.maximum(counts, 1.0)
    squares, means = zero, zero
    for at in range(0, sequences, BLOCK):
        places = at + lane
        count = _cells_of(cells, BLOCKS.valid, columns, places, sequences)
        around = _cells_of(cells, BLOCKS.sum + channel, columns, places, sequences)
        shift = _cells_of(cells, BLOCKS.shift + channel, columns, places, of_spreads)
        inner = _cells_of(cells, BLOCKS.squares + channel, columns, places, of_spreads)
        # The squares within a sequence, which may round to below 0, and between the means of sequences.
        near = around / tl.maximum(count, 1.0)
        inner = tl.maximum(inner - around * near, 0.0)
        between = near + shift - mean
        means += tl.where(count > 0, near + shift, 0.0)
        squares += tl.where(count > 0, inner + between * between * count, 0.0)
    squared, mean_sum = tl.sum(squares, 0), tl.sum(means, 0)
    finite = (tl.abs(sums) < float("inf")) & (squared < float("inf")) & (tl.abs(mean_sum) < float("inf"))
    out = reduced + channel * SLOTS
    tl.store(out, sums)
    tl.store(out + 1, squared)
    tl.store(out + 2, tl.min(low, 0))
    tl.store(out + 3, tl.max(high, 0))
    tl.store(out + 4, mean_sum)
    tl.store(out + 5, counts)
    tl.store(out + 6, tl.where(finite, 0.0, 1.0))


class Pass:
    """The kernel for batches of one kind: one table, and one way to exclude tokens."""

    def __init__(
        self,
        table: SequenceTable,
        keep: int,
        packed: bool,
        byte_mask: bool,
        choice: SequenceChoice | None = None,
        describes: bool = False,
    ) -> None:
        wanted = {channel.name for channel in table.channels}
        sampled = not wanted.isdisjoint(table.bins or {})
        constants = {
            "WANTED": Wanted(*(name in wanted for name in Wanted._fields)),
            "PLACE": Places(*(table.places.get(name, -1) for name in Places._fields)),
            "BLOCKS": _blocks(table),
            "HISTOGRAM": Places(*(
                table.histograms[name].start if name in table.histograms else -1 for name in Places._fields
            )),
            "BINS": Places(*(
                tuple((table.bins or {}).get(name, (0.0, 0.0, 0, False))) for name in Places._fields
            )),
            "SAMPLED": sampled,
            "SECOND": sampled or table.repeats,
            "KEEP": keep,
            "PACKED": packed,
        }  # fmt: skip
        shape = SHAPE
        constants |= {
            "BLOCK": shape.block, "LANES": shape.block // shape.per_lane, "STAGES": shape.stages,
            "SCAN": SCAN, "BAD": BAD_BLOCK, "DENSE": byte_mask and not packed and not keep, "WORDS": MASK_WORDS,
            "TOKENS": TOKENS_AT_ONCE, "COMPLETED": COMPLETED_AT_ONCE,
            "FILL": (choice.count, choice.columns) if choice else None,
            **(choice.constants if choice else {"CHOICE": None, "CRITERIA": None}), "DESCRIBES": describes,
        }  # fmt: skip
        self._launch_few = self._launch = Launcher(_rows, constants, {"num_warps": shape.warps, "maxnreg": None})
        if "mismatch" not in wanted:  # its exponentials need more registers
            self._launch = Launcher(_rows, constants, {"num_warps": shape.warps, "maxnreg": shape.registers})
        self._programs = 1 + constants["SECOND"]  # for each sequence
        self._further = choice.count if choice else int(describes and not constants["SECOND"])
        self._choosing = choice.count * (1 + choice.blocks) if choice else 0

    def launch(
        self,
        key: Any,
        stream: int | None,
        addresses: tuple[Any, ...],
        tensors: Callable[[], tuple[Any, ...]],
        numbers: tuple[int, int, int, int, int, int, int, int],
        limits: FormulaLimits,
        fill: Fill,
        fill_tensors: Callable[[], Fill],
    ) -> None:
        """Queue the kernel on the current stream, whose number is given where it is known.

        ``key`` stands for the dtypes and alignments of the tensors, the width and the number of ids. The addresses and
        the tensors are in the same order: of the results, the histograms, the MOST_ARRAYS of the sequences, the ARRAYS
        of the tokens, and the actions, mask, keep, bounds and ids of the ends. The numbers are the width, the columns
        of the results, the first one of this batch, its sequences, the number of ids, and for ``fill`` the first place,
        the length of a row, and the seed of a choice to be made, else -1.
        """
        sequences, seed = numbers[3], numbers[7]
        # A choice needs more registers too, and is made by one pass of a step.
        launch = self._launch if sequences > FEW_SEQUENCES and seed < 0 else self._launch_few
        launch(
            key,
            (self._programs * sequences + (self._further if seed < 0 else self._choosing), 1, 1),
            stream,
            (*addresses, fill, *numbers, limits),
            lambda: (*_named(tensors()), fill_tensors(), *numbers, limits),
        )


def _named(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments as the kernel's code names them, which a compiled one does not need."""
    results, histograms, of_sequences, arrays, *others = given
    return results, histograms, SequenceArrays._make(of_sequences), Arrays._make(arrays), *others


class TableReduction:
    """The kernel that reduces the results of a table's passes over all sequences."""

    def __init__(self, table: SequenceTable) -> None:
        self.spare: dict[Any, Any] = {}
        """Memory of histograms that is 0, by device, for the next step."""
        lengths = (table.bins or {}).get("response")
        sampled = table.histogram_size - (lengths.size + 1 if lengths else 0)
        programs = len(table.reduced) + -(-sampled // SEQUENCES_AT_ONCE) + (lengths is not None)
        self._grid = (programs, 1, 1)
        constants = {
            "CHANNELS": len(table.channels),
            "ROWS": len(table.reduced),
            "BLOCKS": _blocks(table),
            "WITH_SPREAD": table.spreads,
            "SAMPLED": sampled,
            "BINS": None if lengths is None else tuple(lengths),
            "SLOTS": len(REDUCED_SLOTS),
            "BLOCK": SEQUENCES_AT_ONCE,
        }
        self._launch = Launcher(_reduce, constants, {"num_warps": 4})

    def launch(
        self,
        device: int | None,
        stream: int | None,
        addresses: tuple[int, int, int, int],
        tensors: Callable[[], tuple[Any, Any, Any, Any]],
        *numbers: int,
    ) -> None:
        """Queue the kernel on the current stream, whose number is given where it is known.

        It reads the cells and the histograms, and writes the statistics and the counts; these are given as addresses
        and as tensors. The numbers are the columns of a row, and those in use.
        """
        self._launch(device, self._grid, stream, (*addresses, *numbers), lambda: (*tensors(), *numbers))


def _blocks(table: SequenceTable) -> Blocks:
    starts = {slot: rows.start for slot, rows in table.blocks.items()}
    return Blocks(**{**starts, "repeats": starts["repeats"] if table.repeats else -1})
