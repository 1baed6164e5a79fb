"""Log-probs and entropy of a policy, and the exact KL between two policies, from logits.

Every function reads its logits once, in their dtype, and never has a softmax of more than a few positions in memory.
NumPy arrays and torch tensors both work; tensors on a CUDA device are computed by Triton kernels where Triton is
installed.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

HOST_ENTRIES = 1 << 18
"""The number of logits in a chunk on the host: small enough for its caches."""

DEVICE_ENTRIES = 1 << 23
"""The number of logits in a chunk on a device without Triton: large enough to be worth its kernel launches."""


def log_prob_and_entropy(
    logits: Any, actions: Any, temperature: float = 1.0, mask: Any | None = None, extremes: bool = False
) -> tuple[Any, ...]:
    """Return the log-prob of the action and the full-vocabulary entropy at each position, in nats.

    log p(a) and -Σ p · log p with p = softmax(logits / temperature) over the last dimension, for logits of shape
    (..., V) and integer actions of shape (...). A logit of -inf is a token that cannot be taken: it adds nothing to the
    entropy, and its own log-prob is -inf. Where ``mask``, booleans of shape (...), is False, both results are 0,
    whatever the logits are.

    A position with a NaN or +inf among its logits, or with -inf only, gives NaN; an action outside the vocabulary gives
    a NaN log-prob. Other positions are not affected. Results are float32 for tensors and float64 for arrays and float64
    tensors; they have no gradient.

    With ``extremes`` the highest and the lowest logit of each position are the third and fourth result, from the same
    pass and not divided by the temperature; -inf is left out, and NaN is where the entropy is NaN.
    """
    (logits,) = _checked_logits(temperature, logits=logits)
    actions = _checked_positions(logits, "integers", actions=actions)
    mask = _checked_positions(logits, "booleans", mask=mask)
    kernels = _kernels(logits)
    if kernels is not None:
        results: tuple[Any, ...] = kernels.log_prob_and_entropy(logits, actions, temperature, mask, extremes)
        return results
    compute = functools.partial(_log_prob_and_entropy, temperature, extremes)
    return tuple(_over_positions(compute, 4 if extremes else 2, mask, logits, _taken(logits, actions)))


def kl_exact(old_logits: Any, logits: Any, temperature: float = 1.0, mask: Any | None = None) -> Any:
    """Return KL(old || current) at each position, summed over the vocabulary, in nats.

    Σ p · (log p - log q) with p = softmax(old_logits / temperature) and q = softmax(logits / temperature) over the last
    dimension of two sets of logits of one shape (..., V). A token that the old policy cannot take (-inf) adds nothing;
    one that it can take and the current policy cannot makes the divergence +inf. Equal logits give exactly 0, and
    nearly equal ones may give a negative rounding error. Where ``mask``, booleans of shape (...), is False, the result
    is 0, whatever the logits are.

    A position with a NaN or +inf, or with -inf only, on either side gives NaN, and no other position does. The result
    is float32 for tensors and float64 for arrays and float64 tensors; it has no gradient.
    """
    old_logits, logits = _checked_logits(temperature, old_logits=old_logits, logits=logits)
    mask = _checked_positions(logits, "booleans", mask=mask)
    kernels = _kernels(old_logits, logits)
    if kernels is not None:
        return kernels.kl_exact(old_logits, logits, temperature, mask)
    (divergence,) = _over_positions(functools.partial(_kl_exact, temperature), 1, mask, old_logits, logits)
    return divergence


def _log_prob_and_entropy(temperature: float, extremes: bool, library: Any, rows: Any, taken: Any) -> tuple[Any, ...]:
    top, distance, weights, total = _softmax(temperature, library, rows)
    log_total = library.log(total)
    # A weight of 0 has a distance of -inf, and their product would be NaN.
    moment = (weights * library.where(weights > 0, distance, 0.0)).sum(-1)
    # Both terms of the entropy are at least 0, so that nothing cancels where it is small.
    entropy = log_total - moment / total
    log_probs = (taken - top) / temperature - log_total
    if not extremes:
        return log_probs, entropy
    low = library.amin(library.where(rows > -math.inf, rows, math.inf), axis=-1)
    known = entropy == entropy  # false where it is NaN
    return log_probs, entropy, library.where(known, top, math.nan), library.where(known, low, math.nan)


def _kl_exact(temperature: float, library: Any, old: Any, new: Any) -> tuple[Any]:
    old_top, _, weights, old_total = _softmax(temperature, library, old)
    new_top, _, _, new_total = _softmax(temperature, library, new)
    possible = old > -math.inf
    # -inf on both sides would give NaN, on one side an infinity; ``barred`` accounts for the latter.
    difference = library.where(possible & (new > -math.inf), old - new, 0.0)
    slope = (weights * difference).sum(-1) / old_total
    # The mean difference and the difference of the highest logits are subtracted first: a shift common to all logits
    # of one side is in both and cancels.
    divergence = (slope - (old_top - new_top)) / temperature + library.log(new_total / old_total)
    barred = (possible & (new == -math.inf)).any(-1)
    return (library.where(barred, math.inf * (old_total * new_total), divergence),)  # NaN times infinity stays NaN


def _softmax(temperature: float, library: Any, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Return each row's highest logit, the distances to it, their exponentials, and the sum of those."""
    top = library.amax(rows, axis=-1, keepdims=True)
    distance = (rows - top) / temperature
    weights = library.exp(distance)
    return top[..., 0], distance, weights, weights.sum(-1)


def _taken(logits: Any, actions: Any) -> Any:
    """Return the logit of each action, NaN for one outside the vocabulary."""
    # Unknown ids are replaced before the look-up: on CUDA an index out of range fails every later call of the process.
    known = (actions >= 0) & (actions < logits.shape[-1])
    if isinstance(logits, np.ndarray):
        chosen = np.where(known, actions, 0).astype(np.int64)
        return np.where(known, np.take_along_axis(logits, chosen[..., None], -1)[..., 0], math.nan)
    chosen = actions.long().masked_fill(~known, 0)
    return logits.gather(-1, chosen[..., None])[..., 0].masked_fill(~known, math.nan)


def _over_positions(compute: Callable[..., tuple[Any, ...]], count: int, mask: Any | None, *inputs: Any) -> list[Any]:
    """Return the results of ``compute``, run over a few positions at a time, with zeros where the mask is False.

    On the host masked positions are not read. On a device all positions are computed and zeros selected: reading the
    mask on the host would wait for the device.
    """
    first, shape = inputs[0], inputs[0].shape[:-1]
    on_host = isinstance(first, np.ndarray) or first.is_cpu
    library, results = _blank(count, *inputs)
    for positions in _chunks(first, mask if on_host else None, HOST_ENTRIES if on_host else DEVICE_ENTRIES):
        # Indexed by dimension: flattening logits that are a view would copy all of them.
        places = _unravelled(positions, shape)
        with np.errstate(all="ignore"):  # NaN and infinities are results
            values = compute(library, *(_widened(each[places]) for each in inputs))
        for result, value in zip(results, values, strict=True):
            result[positions] = value
    results = [result.reshape(shape) for result in results]
    return results if mask is None or on_host else [library.where(mask, result, 0.0) for result in results]


def _blank(count: int, *inputs: Any) -> tuple[ModuleType, list[Any]]:
    """Return the library of the inputs, and results of zeros for every position."""
    positions = math.prod(inputs[0].shape[:-1])
    if isinstance(inputs[0], np.ndarray):
        return np, [np.zeros(positions) for _ in range(count)]
    torch = sys.modules["torch"]
    dtype = torch.float64 if any(each.dtype == torch.float64 for each in inputs) else torch.float32
    return torch, [torch.zeros(positions, dtype=dtype, device=inputs[0].device) for _ in range(count)]


def _chunks(logits: Any, mask: Any | None, entries: int) -> Iterator[Any]:
    """Yield the indices of the positions where the mask is True, in chunks of about ``entries`` logits."""
    *shape, vocabulary = logits.shape
    size = max(1, entries // vocabulary)
    total = math.prod(shape)
    positions = np.arange(total) if mask is None else np.flatnonzero(np.asarray(mask))
    if not isinstance(logits, np.ndarray):
        torch = sys.modules["torch"]
        on_device = not logits.is_cpu
        positions = torch.arange(total, device=logits.device) if on_device else torch.from_numpy(positions)
    for start in range(0, len(positions), size):
        yield positions[start : start + size]


def _unravelled(positions: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the indices along each dimension of flat positions."""
    places = []
    for size in reversed(shape):
        places.append(positions % size)
        positions = positions // size
    return tuple(reversed(places))


def _widened(values: Any) -> Any:
    """Return arrays and float64 tensors as float64, other tensors as float32."""
    if isinstance(values, np.ndarray | np.generic):
        return values.astype(np.float64)
    torch = sys.modules["torch"]
    # Half precision is widened chunk by chunk, so that no float32 copy of all logits is in memory.
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def _kernels(*logits: Any) -> Any | None:
    """Return the module of kernels for logits of 32 or 16 bits on a CUDA device, or None where it does not apply."""
    # The kernels compute in float32, which float64 logits would be rounded to.
    if isinstance(logits[0], np.ndarray) or not logits[0].is_cuda or any(each.element_size() > 4 for each in logits):
        return None
    return _load_kernels()


@functools.cache
def _load_kernels() -> Any | None:
    try:
        return importlib.import_module("barograph.metrics.formulas.logits_triton")
    except ImportError:
        return None


def _checked_logits(temperature: float, **logits: Any) -> list[Any]:
    """Return the logits without their gradients; raise if they or the temperature are wrong."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature: expected a positive number, got {temperature}")
    first_name, first = next(iter(logits.items()))
    for name, each in logits.items():
        _check_dtype_and_layout(name, each)
        if each.shape != first.shape or _place(each) != _place(first):
            raise ValueError(f"{name}: expected {_described(first)}, as {first_name} is, got {_described(each)}")
    return [each if isinstance(each, np.ndarray) else each.detach() for each in logits.values()]


def _check_dtype_and_layout(name: str, logits: Any) -> None:
    if _place(logits) is None:
        raise TypeError(f"{name}: expected a NumPy array or a torch tensor, got {type(logits).__name__}")
    if _dtype(logits) not in ("float64", "float32", "bfloat16", "float16"):
        raise TypeError(f"{name}: expected float64, float32, bfloat16 or float16, got {_dtype(logits)}")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"{name}: expected the shape (..., V) with V of at least 1, got {tuple(logits.shape)}")
    stride = logits.strides[-1] // logits.itemsize if isinstance(logits, np.ndarray) else logits.stride(-1)
    if stride != 1 and logits.shape[-1] > 1 and 0 not in logits.shape:  # an empty tensor has any strides
        raise ValueError(f"{name}: expected a contiguous last dimension, got stride {stride}; pass a contiguous copy")


def _checked_positions(logits: Any, kind: str, **named: Any) -> Any:
    """Return the actions or the mask of some logits; raise if they are wrong."""
    ((name, values),) = named.items()
    if values is None:
        return None
    if isinstance(logits, np.ndarray):
        values = np.asarray(values)
    if _place(values) != _place(logits) or values.shape != logits.shape[:-1]:
        raise ValueError(f"{name}: expected one for each position of {_described(logits)}, got {_described(values)}")
    if _dtype(values).startswith(("int", "uint")) if kind == "integers" else _dtype(values) == "bool":
        return values
    raise TypeError(f"{name}: expected {kind}, got {_dtype(values)}")


def _dtype(values: Any) -> str:
    return str(values.dtype).removeprefix("torch.")


def _place(values: Any) -> str | None:
    """Return the type and device of an array or a tensor in words, or None for other types."""
    if isinstance(values, np.ndarray):
        return "a NumPy array"
    torch = sys.modules.get("torch")
    return f"a tensor on {values.device}" if torch is not None and isinstance(values, torch.Tensor) else None


def _described(values: Any) -> str:
    place = _place(values)
    return type(values).__name__ if place is None else f"{place} of shape {tuple(values.shape)}"
