"""Conversion of logged values to float64, with a reason where that is impossible.

Python, NumPy and torch scalars of any real dtype, arrays of one element, and objects with ``__float__`` or
``__index__`` are values. A torch scalar on an accelerator is a value too, but fetching it would wait for the device:
its copy to the host is started at once, as a ``Deferred``, and collected later.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barograph.base.device_copy import DeviceCopy
from barograph.base.errors import without_frames
from barograph.base.formatting import describe_error
from barograph.base.model import Histogram

DIRECT: set[type] = {float, int, bool}
"""Types that ``struct`` packs into a float64 exactly. NumPy's scalar types are added when they are first seen."""


class Rejection(str):
    """Reason why a value cannot be logged."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Classified:
    """The values of one ``log`` call by kind."""

    numbers: dict[str, float]
    deferred: dict[str, Any]  # name to a one-element tensor on an accelerator
    histograms: dict[str, Histogram]
    rejected: dict[str, Rejection]


@functools.lru_cache(maxsize=1024)
def _floats(count: int) -> list[type]:
    return [float] * count


def packable(values: Collection[Any]) -> Collection[Any] | None:
    """Return values that ``struct`` packs as they are, the usual case; None where ``classify`` is needed."""
    listed = list(map(type, values))
    if listed == _floats(len(listed)):  # compares by identity: faster than building a set
        return values
    kinds = set(listed)
    if kinds <= DIRECT:
        return values
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if kinds - DIRECT != {tensor}:
        return None
    numbers = []
    for value in values:
        if type(value) is tensor:
            if not value.is_cpu:  # fetching it would wait for the device
                return None
            value = value.item()
        numbers.append(value)
    return numbers


def classify(values: Mapping[str, Any]) -> Classified:
    """Separate numbers, device tensors, histograms and rejected values, each in the order given."""
    result = Classified({}, {}, {}, {})
    numbers = result.numbers
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    for name, value in values.items():
        kind = type(value)
        if type(name) is not str:
            _classify_one(name, value, tensor, result)
        elif kind is float:
            numbers[name] = value
        # The usual device scalar: a call for each property would take longer than the copy of all.
        elif kind is tensor and value.is_cuda and not value.dim() and not value.is_complex():
            result.deferred[name] = value
        else:
            _classify_one(name, value, tensor, result)
    return result


def _classify_one(name: Any, value: Any, tensor: Any, result: Classified) -> None:
    """Classify a value that is not a plain float."""
    if not isinstance(name, str):
        result.rejected[repr(name)] = Rejection(f"name is {_a(type(name))}, not a string")
    elif tensor is not None and isinstance(value, tensor) and not value.is_cpu and _is_deferrable(value):
        result.deferred[name] = value
    elif isinstance(value, Histogram):
        result.histograms[name] = value
    else:
        number = to_float(value)
        if isinstance(number, Rejection):
            result.rejected[name] = number
        else:
            result.numbers[name] = number


def _is_deferrable(tensor: Any) -> bool:
    """Return whether a device tensor is a real scalar, which can be fetched later."""
    return tensor.device.type != "meta" and tensor.numel() == 1 and not tensor.is_complex()


def to_float(value: Any) -> float | Rejection:
    """Convert one value; never raises."""
    kind = type(value)
    if kind in DIRECT:
        return _by_float(value)
    try:
        if _is_tensor(value):
            return _one_element(value, value.numel())
        if _is_array(value):
            return _one_element(value, value.size)
        if _is_numpy_scalar(value):
            return _numpy_scalar(value)
        if value is None or isinstance(value, str | bytes | bytearray | Mapping):
            return _rejection(value)
        if hasattr(value, "__float__") or hasattr(value, "__index__"):
            return _by_float(value)
        if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # arrays of other libraries
            return _by_float(value.item())
    except Exception as error:  # noqa: BLE001 - the value's own methods may raise anything
        return Rejection(f"value is {_a(kind)} that cannot be converted to a float ({describe_error(error)})")
    return _rejection(value)


def _by_float(value: Any) -> float | Rejection:
    try:
        return float(value)
    except OverflowError:
        return Rejection("value is an integer too large for a float64")
    except (TypeError, ValueError):
        return _rejection(value)


def _one_element(value: Any, size: int) -> float | Rejection:
    """Convert the only element of a tensor or array."""
    if size != 1:
        shape = tuple(value.shape)
        return Rejection(f"value is an array of shape {shape}: log its mean, or barograph.histogram(x)")
    element = value.item()
    return element if type(element) is float else to_float(element)


def _numpy_scalar(value: Any) -> float | Rejection:
    if value.dtype.kind in "fiub" or type(value).__module__ == "ml_dtypes":
        DIRECT.add(type(value))
        return float(value)
    return _rejection(value)


def _rejection(value: Any) -> Rejection:
    if value is None:
        return Rejection("value is None")
    if isinstance(value, str):
        return Rejection("value is a string, not a number")
    if isinstance(value, complex) or "complex" in type(value).__name__:
        return Rejection("value is a complex number")
    if isinstance(value, Mapping):
        return Rejection("value is a mapping: log its entries under names like 'actor/lr'")
    return Rejection(f"value is {_a(type(value))}, not a number")


def _a(kind: type) -> str:
    name = kind.__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return False
    if value is numpy.ma.masked:
        raise ValueError("masked")
    return True


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


class Deferred:
    """Device scalars whose copies to the host are under way.

    The copies are queued on the current stream, so later kernels may overwrite the tensors. Nothing waits for the
    device until ``values`` is called.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        alike: dict[Any, tuple[list[int], list[Any]]] = {}
        self._size = 0
        for tensor in tensors:
            key = tensor.dtype, tensor.device
            if (group := alike.get(key)) is None:
                group = alike[key] = [], []
            group[0].append(self._size)
            group[1].append(tensor)
            self._size += 1
        self._parts = [(places, _copy(group)) for places, group in alike.values()]

    def ready(self) -> bool:
        """Return whether the values are on the host, without waiting."""
        return all(copy.ready() for _, copy in self._parts)

    def values(self) -> list[float]:
        """Return the values in the order given, waiting for the device if necessary."""
        result = [0.0] * self._size
        for places, copy in self._parts:
            for place, value in zip(places, copy.values(), strict=True):
                result[place] = float(value)
        return result


def _copy(tensors: list[Any]) -> DeviceCopy:
    """Copy one-element tensors of one device and dtype to the host."""
    import torch

    if not _unable and tensors[0].is_cuda:
        try:
            kernel = _gathering_kernel(tensors)
            if kernel is not None:
                return DeviceCopy.gathered(tensors, kernel)
        except Exception as problem:  # noqa: BLE001 - no Triton, no compiler, …: torch copies them as well
            _unable.append(without_frames(problem))
    # Without gradients as a whole: to detach each tensor takes longer than to stack all.
    with torch.no_grad():
        return DeviceCopy(_stacked(tensors), reused=True)


_unable: list[Exception] = []
"""Why scalars cannot be gathered by a kernel; after it that is not tried again in this process."""


def _gathering_kernel(tensors: list[Any]) -> Any:
    """Return the kernel that reads tensors at their addresses, or None where their memory does not have their value."""
    import torch

    from barograph.base.device_copy.triton_kernels import KINDS, MOST, gather_of

    kind = tensors[0].dtype
    if len(tensors) > MOST or kind not in KINDS:
        return None
    plain = torch.Tensor, torch.nn.Parameter
    if any([type(tensor) not in plain or tensor.is_neg() for tensor in tensors]):  # noqa: C419 - faster than a generator
        return None
    return gather_of(kind)


def _stacked(tensors: list[Any]) -> Any:
    """Return one-element tensors as one, in a dtype that the host can read."""
    import torch

    if any(tensor.dim() for tensor in tensors):
        tensors = [tensor.reshape(()) for tensor in tensors]
    stacked = torch.stack(tensors)
    if stacked.dtype in _readable_dtypes():  # widened on the host: there it costs no kernel
        return stacked
    return stacked.to(torch.float32 if stacked.device.type == "mps" else torch.float64)


@functools.cache
def _readable_dtypes() -> frozenset[Any]:
    """Return the dtypes whose elements become Python numbers on the host, exactly."""
    import torch

    names = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    return frozenset(getattr(torch, name) for name in names)


def histogram(values: Any, bins: int = 64) -> Histogram:
    """Count values into bins of equal width between their smallest and largest finite value.

    ``values`` is anything that NumPy accepts as an array, or a torch tensor (a device tensor is copied, which waits).
    Without a finite value there are no bins.
    """
    import numpy as np

    if _is_tensor(values):
        values = values.detach().to("cpu").double().numpy()
    data = np.asarray(values, dtype=np.float64).ravel()
    finite = data[np.isfinite(data)]
    nonfinite = len(data) - len(finite)
    if not len(finite):
        nan = float("nan")
        return Histogram((), (), nan, nan, 0.0, 0, nonfinite)
    with np.errstate(over="ignore"):
        low, high, total = float(finite.min()), float(finite.max()), float(finite.sum())
    try:
        with np.errstate(over="raise", invalid="raise"):
            counts, edges = np.histogram(finite, bins=bins)
    except (ValueError, FloatingPointError):  # the range is too wide or too narrow to divide
        counts, edges = np.array([len(finite)]), np.array([low, high])
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), low, high, total, len(finite), nonfinite)
