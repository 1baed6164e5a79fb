"""The Triton kernels behind ``barograph.metrics.formulas.logits``: one program reads one position's logits once.

Each lane of a program has a running maximum and sums relative to it. The lanes are combined once, after the last tile:
the loop has no reduction over the program, and the sums are rescaled once per tile and lane.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

# Exponentials are powers of two, which the hardware has; ``scale`` contains this factor and the temperature.
LOG2_E = 1.4426950408889634
VECTOR_BYTES = 16  # the widest load of one lane
WARPS = 8
STEPS = 2  # vectors of each tensor that a lane loads before it uses the first
SINGLE_STEPS = 8  # the same, of single logits

LN_2 = tl.constexpr(0.6931471805599453)

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The first value of a running maximum: finite, so that -inf minus it is -inf and not NaN."""

FLOOR = tl.constexpr(-1024.0)
"""An exponent whose power of two is 0, used instead of -inf, because 0 times this is 0 and not NaN."""

CAP = tl.constexpr(1e30)
"""The largest difference of two logits that is summed: a tile of them does not overflow."""


@triton.jit
def _tile(lanes: tl.constexpr, vector: tl.constexpr, steps: tl.constexpr):
    """Return the offsets of a tile: lane, step, place in the vector that a lane loads at once."""
    # In this order of dimensions a lane is a thread: what a lane sums up never leaves its registers.
    step = tl.arange(0, steps)[None, :, None] * (lanes * vector)
    return tl.arange(0, lanes)[:, None, None] * vector + step + tl.arange(0, vector)[None, None, :]


@triton.jit
def _lane_max(tile):
    return tl.max(tl.max(tile, 2, keep_dims=True), 1, keep_dims=True)


@triton.jit
def _lane_sum(tile):
    return tl.sum(tl.sum(tile, 2, keep_dims=True), 1, keep_dims=True)


@triton.jit
def _lane_min(tile):
    """Return each lane's lowest logit; -inf, a token that cannot be taken, does not count, and neither does NaN."""
    tile = tl.where(tile == -float("inf"), float("inf"), tile)
    return tl.min(tl.min(tile, 2, keep_dims=True), 1, keep_dims=True)


@triton.jit
def _decline(old, new, scale):
    """Return the exponent of two that rescales sums from one maximum to another."""
    return tl.maximum((old - new) * scale, FLOOR)


@triton.jit
def _take(tile, top, total, moment, scale):
    """Update each lane's maximum, sum of 2^d and sum of d · 2^d with a tile, where d = (logit - maximum) · scale."""
    higher = tl.maximum(top, _lane_max(tile))
    decline = _decline(top, higher, scale)
    shrink = tl.exp2(decline)
    distance = (tile - higher) * scale
    power = tl.exp2(distance)  # without the floor, whose maximum would drop a NaN
    moment = (moment + total * decline) * shrink + _lane_sum(power * tl.maximum(distance, FLOOR))
    total = total * shrink + _lane_sum(power)
    return higher, total, moment


# The width differs from batch to batch, and Triton would compile again for some values of it.
@triton.jit(do_not_specialize=["width"])
def log_prob_and_entropy_kernel(
    logits, stride_0, stride_1, width, vocabulary, actions, mask, log_probs, entropies, highs, lows, scale, rate,
    lanes: tl.constexpr, vector: tl.constexpr, steps: tl.constexpr,
):  # fmt: skip
    """Write the log-prob of the action and the entropy of one position; zeros where the mask is 0, without reading.

    ``highs`` and ``lows``, of the extreme logits, may be None: then nothing is computed for them.
    """
    # 64 bits: 16,384 positions of a vocabulary of 151,936 are more than 2^31 logits.
    row = tl.program_id(0).to(tl.int64)
    valid = tl.load(mask + row) != 0 if mask is not None else True
    length = tl.where(valid, vocabulary, 0)
    logits += row // width * stride_0 + row % width * stride_1
    action = tl.load(actions + row)
    known = (action >= 0) & (action < vocabulary) & valid
    taken = tl.load(logits + action, mask=known, other=float("nan")).to(tl.float32)

    block: tl.constexpr = lanes * vector * steps
    places = _tile(lanes, vector, steps)
    top = tl.full([lanes, 1, 1], LOWEST, tl.float32)
    total = tl.zeros([lanes, 1, 1], tl.float32)
    moment = tl.zeros([lanes, 1, 1], tl.float32)
    low = tl.full([lanes, 1, 1], float("inf"), tl.float32)
    # Only the last, incomplete tile needs a mask in its loads.
    whole = length // block * block
    for start in range(0, whole, block):
        tile = tl.load(logits + start + places).to(tl.float32)
        top, total, moment = _take(tile, top, total, moment, scale)
        if lows is not None:
            low = tl.minimum(low, _lane_min(tile))
    if whole < length:
        inside = whole + places < length
        tile = tl.load(logits + whole + places, mask=inside, other=-float("inf")).to(tl.float32)
        top, total, moment = _take(tile, top, total, moment, scale)
        if lows is not None:
            low = tl.minimum(low, _lane_min(tile))

    highest = tl.max(top)
    decline = _decline(top, highest, scale)
    shrink = tl.exp2(decline)
    moment_all = tl.sum((moment + total * decline) * shrink)
    total_all = tl.sum(total * shrink)
    log_total = tl.log(total_all)
    entropy = log_total - moment_all / total_all * LN_2
    log_prob = (taken - highest) * rate - log_total
    tl.store(log_probs + row, tl.where(valid, log_prob, 0.0))
    tl.store(entropies + row, tl.where(valid, entropy, 0.0))
    if lows is not None:
        # Maxima and minima ignore a NaN among the logits; the entropy does not.
        known = entropy == entropy
        tl.store(highs + row, tl.where(valid, tl.where(known, highest, float("nan")), 0.0))
        tl.store(lows + row, tl.where(valid, tl.where(known, tl.min(low), float("nan")), 0.0))


@triton.jit
def _take_pair(old, new, old_top, old_total, new_top, new_total, slope, gap, scale):
    """Update each lane's maxima, sums of 2^d, sum of 2^d(old) · (old - new) and largest difference with two tiles."""
    old_higher = tl.maximum(old_top, _lane_max(old))
    new_higher = tl.maximum(new_top, _lane_max(new))
    old_shrink = tl.exp2((old_top - old_higher) * scale)
    new_shrink = tl.exp2((new_top - new_higher) * scale)
    power = tl.exp2((old - old_higher) * scale)
    difference = old - new  # NaN where both are -inf: maxima and minima ignore it, and its power is 0
    gap = tl.maximum(gap, _lane_max(difference))
    slope = slope * old_shrink + _lane_sum(power * tl.minimum(tl.maximum(difference, -CAP), CAP))
    old_total = old_total * old_shrink + _lane_sum(power)
    new_total = new_total * new_shrink + _lane_sum(tl.exp2((new - new_higher) * scale))
    return old_higher, old_total, new_higher, new_total, slope, gap


@triton.jit(do_not_specialize=["width"])
def kl_exact_kernel(
    old_logits, old_stride_0, old_stride_1, new_logits, new_stride_0, new_stride_1, width, vocabulary,
    mask, divergences, scale, rate,
    lanes: tl.constexpr, vector: tl.constexpr, steps: tl.constexpr,
):  # fmt: skip
    """Write KL(old || new) of one position; 0 where the mask is 0, without reading."""
    row = tl.program_id(0).to(tl.int64)
    valid = tl.load(mask + row) != 0 if mask is not None else True
    length = tl.where(valid, vocabulary, 0)
    old_logits += row // width * old_stride_0 + row % width * old_stride_1
    new_logits += row // width * new_stride_0 + row % width * new_stride_1

    block: tl.constexpr = lanes * vector * steps
    places = _tile(lanes, vector, steps)
    old_top = tl.full([lanes, 1, 1], LOWEST, tl.float32)
    new_top = tl.full([lanes, 1, 1], LOWEST, tl.float32)
    gap = tl.full([lanes, 1, 1], LOWEST, tl.float32)
    old_total = tl.zeros([lanes, 1, 1], tl.float32)
    new_total = tl.zeros([lanes, 1, 1], tl.float32)
    slope = tl.zeros([lanes, 1, 1], tl.float32)
    whole = length // block * block
    for start in range(0, whole, block):
        old = tl.load(old_logits + start + places).to(tl.float32)
        new = tl.load(new_logits + start + places).to(tl.float32)
        old_top, old_total, new_top, new_total, slope, gap = _take_pair(
            old, new, old_top, old_total, new_top, new_total, slope, gap, scale
        )
    if whole < length:
        inside = whole + places < length
        old = tl.load(old_logits + whole + places, mask=inside, other=-float("inf"))
        new = tl.load(new_logits + whole + places, mask=inside, other=-float("inf"))
        old_top, old_total, new_top, new_total, slope, gap = _take_pair(
            old.to(tl.float32), new.to(tl.float32), old_top, old_total, new_top, new_total, slope, gap, scale
        )

    old_highest = tl.max(old_top)
    new_highest = tl.max(new_top)
    old_shrink = tl.exp2((old_top - old_highest) * scale)
    slope_all = tl.sum(slope * old_shrink)
    old_all = tl.sum(old_total * old_shrink)
    new_all = tl.sum(new_total * tl.exp2((new_top - new_highest) * scale))
    # The highest logits are subtracted here: a shift common to all logits of one side cancels.
    divergence = (slope_all / old_all - (old_highest - new_highest)) * rate
    divergence += tl.log(tl.div_rn(new_all, old_all))  # rounded, so that equal sums divide to exactly 1
    # A token that the old policy can take and the new one cannot; the product is NaN where a sum is not finite.
    divergence = tl.where(tl.max(gap) == float("inf"), float("inf") * (old_all * new_all), divergence)
    tl.store(divergences + row, tl.where(valid, divergence, 0.0))


def log_prob_and_entropy(
    logits: Any, actions: Any, temperature: float, mask: Any | None, extremes: bool = False
) -> tuple[Any, ...]:
    """Launch the kernel over every position. ``barograph.metrics.formulas.logits`` has checked the arguments."""
    found = [torch.empty(actions.shape, dtype=torch.float32, device=logits.device) for _ in range(4 if extremes else 2)]
    outputs = found if extremes else [*found, None, None]
    flat = [actions.contiguous(), mask if mask is None else mask.contiguous(), *outputs]
    with torch.cuda.device_of(logits):
        for (view,), (actions, mask, *results) in _planes([logits], flat):
            height, width, vocabulary = view.shape
            log_prob_and_entropy_kernel[(height * width,)](
                view, *_strides(view), width, vocabulary, actions, mask, *results,
                LOG2_E / temperature, 1.0 / temperature, **_shape(view),
            )  # fmt: skip
    return tuple(found)


def kl_exact(old_logits: Any, logits: Any, temperature: float, mask: Any | None) -> Any:
    """Launch the kernel over every position. ``barograph.metrics.formulas.logits`` has checked the arguments."""
    divergence = torch.empty(logits.shape[:-1], dtype=torch.float32, device=logits.device)
    flat = [mask if mask is None else mask.contiguous(), divergence]
    with torch.cuda.device_of(logits):
        for (old, new), (mask, result) in _planes([old_logits, logits], flat):
            height, width, vocabulary = new.shape
            kl_exact_kernel[(height * width,)](
                old, *_strides(old), new, *_strides(new), width, vocabulary, mask, result,
                LOG2_E / temperature, 1.0 / temperature, **_shape(old, new),
            )  # fmt: skip
    return divergence


def _planes(logits: Sequence[Any], flat: Sequence[Any]) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yield views for one launch each: of the logits with two leading dimensions, and of the other tensors."""
    if logits[0].numel() == 0:
        return
    if all(each.is_contiguous() for each in logits):
        logits = [each.view(1, -1, each.shape[-1]) for each in logits]
    while logits[0].dim() < 3:
        logits = [each.unsqueeze(0) for each in logits]
    if logits[0].dim() == 3:
        yield logits, flat
        return
    # The kernels take two strides: of views with more leading dimensions each plane is a launch.
    for place in range(logits[0].shape[0]):
        yield from _planes([each[place] for each in logits], [each if each is None else each[place] for each in flat])


def _strides(view: Any) -> tuple[int, int]:
    """Return the strides of the leading dimensions; 0, a multiple of any vector, for a dimension of size 1."""
    first, second = (view.stride(place) if view.shape[place] > 1 else 0 for place in (0, 1))
    return first, second


def _shape(*views: Any) -> dict[str, int]:
    """Return the constants of a launch: vector loads where every row is aligned to a vector, else single loads.

    With single loads neighbouring lanes load neighbouring logits. A lane that loads a vector in pieces is several
    times slower.
    """
    vector = VECTOR_BYTES // max(view.element_size() for view in views)
    if all(number % 16 == 0 for view in views for number in (view.data_ptr(), *_strides(view))):
        return {"lanes": 32 * WARPS, "vector": vector, "steps": STEPS, "num_warps": WARPS}
    return {"lanes": 32 * WARPS, "vector": 1, "steps": SINGLE_STEPS, "num_warps": WARPS}
