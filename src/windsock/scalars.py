"""Whatever a user logs, as a float64, or a reason why not.

Python, NumPy and torch scalars of any real dtype, arrays of one element, and anything that knows how to become a
float are values. A torch scalar on an accelerator is a value too, but fetching it would wait for the device: it
becomes a ``Deferred`` whose copy is started here and collected later.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windsock.model import Histogram

DIRECT: set[type] = {float, int, bool}
"""Types that ``struct`` turns into a float64 by itself, exactly; NumPy's join when they are first seen."""


class Refused(str):
    """Why a value cannot be logged, in words."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Classified:
    """The values of one ``log`` call, told apart."""

    numbers: dict[str, float]
    deferred: dict[str, Any]  # name to a one-element tensor on an accelerator
    histograms: dict[str, Histogram]
    refused: dict[str, Refused]


@functools.lru_cache(maxsize=1024)
def _floats(count: int) -> list[type]:
    return [float] * count


def packable(values: Collection[Any]) -> Collection[Any] | None:
    """Return values that ``struct`` packs as they are, the everyday case; None where ``sort`` has to look closer."""
    listed = list(map(type, values))
    if listed == _floats(len(listed)):  # by identity: faster than any set
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
    """Tell numbers, device tensors, histograms and what cannot be logged apart, keeping each in order."""
    result = Classified({}, {}, {}, {})
    numbers = result.numbers
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    for name, value in values.items():
        if type(value) is float and type(name) is str:
            numbers[name] = value
        else:
            _classify_one(name, value, tensor, result)
    return result


def _classify_one(name: Any, value: Any, tensor: Any, result: Classified) -> None:
    """Find the place of a value that is not an everyday one."""
    if not isinstance(name, str):
        result.refused[repr(name)] = Refused(f"its name is {_a(type(name))}, not a string")
    elif tensor is not None and isinstance(value, tensor) and not value.is_cpu and _may_wait(value):
        result.deferred[name] = value
    elif isinstance(value, Histogram):
        result.histograms[name] = value
    else:
        number = to_float(value)
        if isinstance(number, Refused):
            result.refused[name] = number
        else:
            result.numbers[name] = number


def _may_wait(tensor: Any) -> bool:
    """Tell whether a tensor that is not on the host is a real scalar, to be fetched later."""
    return tensor.device.type != "meta" and tensor.numel() == 1 and not tensor.is_complex()


def to_float(value: Any) -> float | Refused:
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
            return _refusal(value)
        if hasattr(value, "__float__") or hasattr(value, "__index__"):
            return _by_float(value)
        if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # arrays of other libraries
            return _by_float(value.item())
    except Exception as problem:  # noqa: BLE001 - a value may do anything when asked
        return Refused(f"{_a(kind)} that cannot become a float ({problem})")
    return _refusal(value)


def _by_float(value: Any) -> float | Refused:
    try:
        return float(value)
    except OverflowError:
        return Refused("an integer too large for a float64")
    except (TypeError, ValueError):
        return _refusal(value)


def _one_element(value: Any, size: int) -> float | Refused:
    """Take the only element of a tensor or array."""
    if size != 1:
        shape = tuple(value.shape)
        return Refused(f"an array of shape {shape}: log its mean, or windsock.histogram(x)")
    element = value.item()
    return element if type(element) is float else to_float(element)


def _numpy_scalar(value: Any) -> float | Refused:
    if value.dtype.kind in "fiub" or type(value).__module__ == "ml_dtypes":
        DIRECT.add(type(value))
        return float(value)
    return _refusal(value)


def _refusal(value: Any) -> Refused:
    if value is None:
        return Refused("None")
    if isinstance(value, str):
        return Refused("a string, not a number")
    if isinstance(value, complex) or "complex" in type(value).__name__:
        return Refused("a complex number")
    if isinstance(value, Mapping):
        return Refused("a mapping: log its entries under names like 'actor/lr'")
    return Refused(f"{_a(type(value))}, not a number")


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
    """Device scalars on their way to the host: copied in stream order now, ready when the device gets there.

    Nothing here waits before ``values`` is called. The copy takes the values as they are at this point of the
    stream; what later kernels do to the tensors does not matter.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        import torch

        alike: dict[Any, list[tuple[int, Any]]] = {}
        for place, tensor in enumerate(tensors):
            alike.setdefault((tensor.device, tensor.dtype), []).append((place, tensor.detach().reshape(())))
        self._parts: list[tuple[list[int], Any, Any]] = []
        self._size = 0
        for (device, _), numbered in alike.items():
            stacked = _widened(torch.stack([tensor for _, tensor in numbered]))
            host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=device.type == "cuda")
            host.copy_(stacked, non_blocking=True)
            arrived = None
            if device.type == "cuda":
                arrived = torch.cuda.Event()
                arrived.record(torch.cuda.current_stream(device))
            self._parts.append(([place for place, _ in numbered], host, arrived))
            self._size += len(numbered)

    def ready(self) -> bool:
        """Tell whether the values are on the host, without waiting."""
        return all(arrived is None or arrived.query() for _, _, arrived in self._parts)

    def values(self) -> list[float]:
        """Return the values in the order they were given, waiting for the device where they are not here yet."""
        result = [0.0] * self._size
        for places, host, arrived in self._parts:
            if arrived is not None:
                arrived.synchronize()
            for place, value in zip(places, host.tolist(), strict=True):
                result[place] = float(value)
        return result


def _widened(tensor: Any) -> Any:
    """Return the tensor as float64, or as float32 on devices that have no wider one."""
    import torch

    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    return tensor.to(wide)


def histogram(values: Any, bins: int = 64) -> Histogram:
    """Count values into bins of equal width between their smallest and largest finite one.

    ``values`` is anything that NumPy takes for an array, or a torch tensor (one on an accelerator is waited for).
    No finite value at all gives no bins.
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
    except (ValueError, FloatingPointError):  # a range too wide or too narrow for a float64 to divide
        counts, edges = np.array([len(finite)]), np.array([low, high])
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), low, high, total, len(finite), nonfinite)
