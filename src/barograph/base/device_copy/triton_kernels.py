"""Launches of Triton kernels with little work on the host, and the kernel that reads scalars at their addresses and
writes them into memory of the host.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

named_tuple: Any = namedtuple  # for mypy, which takes literal fields only

_indirect: list[Exception] = []
"""Why a compiled kernel cannot be launched directly; after it none is in this process."""


def _are_launches_watched() -> bool:
    """Return whether a profiler may have hooks that Triton calls at every launch."""
    knobs = getattr(triton, "knobs", None)  # since Triton 3.4
    if knobs is None:
        return True
    before, after = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(before, "calls", before) or getattr(after, "calls", after))


class Launcher:
    """A kernel with its constants.

    Triton's dispatch looks at every argument and every constant, which takes ten times as long as the launch. So the
    first call for tensors of some dtypes and alignments goes through it, and further ones launch what it compiled: on a
    stream that is known, without the hooks if there are none.
    """

    def __init__(self, kernel: Any, constants: dict[str, Any], settings: dict[str, Any]) -> None:
        self._kernel = kernel
        self._constants = constants
        self._settings = settings
        self._values = tuple(constants.values())
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self,
        key: Any,
        grid: tuple[int, int, int],
        stream: int | None,
        addresses: tuple[Any, ...],
        tensors: Callable[[], tuple[Any, ...]],
    ) -> None:
        """Queue the kernel on the current stream: by addresses where one with the same key was compiled."""
        compiled = self._compiled.get(key)
        if compiled is not None and not _indirect:
            try:
                if stream is None or _are_launches_watched():
                    compiled[grid](*addresses, *self._values)
                else:
                    handles = compiled.function, compiled.packed_metadata, None, None, None
                    compiled.run(*grid, stream, *handles, *addresses, *self._values)
                return
            except (AttributeError, TypeError) as problem:  # another version of Triton: its dispatch does it too
                _indirect.append(problem.with_traceback(None))
        kernel = self._kernel[grid](*tensors(), **self._constants, **self._settings)
        if hasattr(kernel, "__getitem__"):  # the interpreter compiles nothing
            self._compiled[key] = kernel


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
