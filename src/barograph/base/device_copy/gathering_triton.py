"""The Triton kernel that reads scalars at their addresses, and writes them into memory of the host."""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from barograph.base.device_copy.triton_launcher import Launcher

MOST = 64
"""Scalars that are read at once."""
KINDS = {
    torch.float64: tl.float64, torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16,
    torch.int64: tl.int64, torch.int32: tl.int32, torch.int16: tl.int16, torch.int8: tl.int8,
    torch.uint8: tl.uint8, torch.bool: tl.int8,
}  # fmt: skip


@triton.jit(do_not_specialize=["count"])
def _gather(addresses, out, count, KIND: tl.constexpr, SIZE: tl.constexpr):
    """Write the numbers at some addresses, in double precision."""
    lane = tl.arange(0, SIZE)
    inside = lane < count
    pointers = tl.load(addresses + lane, mask=inside, other=0).to(tl.pointer_type(KIND), bitcast=True)
    tl.store(out + lane, tl.load(pointers, mask=inside, other=0).to(tl.float64), mask=inside)


@cache
def gather_of(kind: Any) -> Launcher:
    """Return the kernel for scalars of a dtype. It takes addresses and results in memory that the device can reach."""
    return Launcher(_gather, {"KIND": KINDS[kind], "SIZE": MOST}, {"num_warps": 1})
