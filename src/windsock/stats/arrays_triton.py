"""The arrays of a batch as the Triton kernels see them: which there are, where a sequence begins, and its masks."""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

import triton
import triton.language as tl

from windsock.device_copy.triton_launcher import named_tuple
from windsock.stats.rows import STORED


def field(name: str) -> str:
    """Return the name of a tuple's field; ``values`` is an attribute of all tuples in Triton."""
    return "values_" if name == "values" else name


ARRAYS = tuple(dict.fromkeys(
    need.name for channel in STORED for need in channel.needs if need.name not in ("actions", "eos_ids")
))  # fmt: skip
"""The arrays of numbers that channels need; token ids are compared and not computed with."""
Arrays = named_tuple("Arrays", [field(name) for name in ARRAYS])


@triton.jit
def stretch(bounds, row, width, PACKED: tl.constexpr):
    """Return the first token of a sequence, in 64 bits, and its length, in 32 bits."""
    base, length = row * width, width
    if PACKED:
        base = tl.load(bounds + row).to(tl.int64)
        length = (tl.load(bounds + row + 1) - tl.load(bounds + row)).to(tl.int32)
    return base, length


@triton.jit
def keep_of(keep, base, row, KEEP: tl.constexpr):
    """Return where a sequence's ``keep`` of tokens begins, and whether the sequence itself is kept."""
    kept = row >= 0  # always
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    return keep, kept


@triton.jit
def masks(mask, keep, kept, places, inside, KEEP: tl.constexpr):
    """Return which of some tokens belong to the response, and which of those ``keep`` includes."""
    response = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    valid = response
    if KEEP == 1:
        valid = response & kept
    if KEEP == 2:
        valid = response & (tl.load(keep + places, mask=inside, other=0) != 0)
    return response, valid
