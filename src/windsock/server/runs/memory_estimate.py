"""The memory that an object holds, by an estimate, and giving back what is free."""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

MAX_SAMPLED = 64  # entries of a container that are looked at
MAX_VISITED = 30_000  # objects; the others are taken to be like these
PLAIN = (str, bytes, bytearray, int, float, complex, type(None))
# Not the object's own. The pages of a mapped file are the system's, which takes them back when it needs them.
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, mmap.mmap)


def held_bytes(root: Any) -> int:
    """Return about how many bytes an object and all that it refers to take.

    Of large containers some entries stand for all, so that it takes milliseconds for any size.
    """
    seen: set[int] = set()
    left = deque([(root, 1.0)])  # level by level: those that are left at the end are then like the last ones
    total = 0.0
    while left and len(seen) < MAX_VISITED:
        one, weight = left.popleft()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        total += weight * sys.getsizeof(one)
        if isinstance(one, np.ndarray):
            # Many arrays may be parts of one, which counts once.
            left += [] if one.base is None else [(one.base, 1.0)]
        elif not isinstance(one, PLAIN):
            entries, factor = _entries(one)
            left += [(entry, weight * factor) for entry in entries]
    return int(total * (len(seen) + len(left)) / max(len(seen), 1))


def _entries(one: Any) -> tuple[Iterable[Any], float]:
    """Return objects that another one refers to, and how many each of them stands for."""
    if isinstance(one, list | tuple | dict | set | frozenset | deque | OrderedDict) and len(one) > MAX_SAMPLED:
        step = len(one) // MAX_SAMPLED
        try:
            found = list(islice(one, 0, None, step))
        except RuntimeError:  # another thread changes it
            return (), 1.0
        values = [one.get(key) for key in found] if isinstance(one, dict) else []
        return chain(found, values), len(one) / len(found)
    return gc.get_referents(one), 1.0


def give_back_memory() -> None:
    """Give memory that is no longer used back to the system, which the allocator would keep."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
