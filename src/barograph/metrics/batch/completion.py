"""Batches made complete: arrays that follow from others (log-probs, entropies and exact KLs from logits, lengths from
masks), and batches of context-parallel training, in which each process holds some tokens of every sequence, made
whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from barograph.base.arrays import Ints
from barograph.base.process.distributed import ProcessGroup
from barograph.metrics.batch.arrays import TOKEN_FIELDS, VOCABULARY_FIELDS, Batch, BatchError, shape_of, to_numpy
from barograph.metrics.batch.inputs import Options
from barograph.metrics.formulas.channels import numpy_or_torch
from barograph.metrics.formulas.logits import kl_exact, log_prob_and_entropy

LOGITS = frozenset(("logits", "old_logits"))

SOURCES = {False: LOGITS, True: LOGITS | {"entropy", "prompt_mask"}}
"""The arrays from which others follow, with and without the data part."""


def completed(batch: Batch, options: Options, data: bool = True) -> Batch:
    """Return the batch with the arrays that follow from its own; given arrays stay as they are.

    ``data`` says whether the data part is measured. Only that part uses the prompt lengths and the entropy of the
    sampled policy, for which the current entropy stands in where neither it nor the old logits are given.
    """
    if batch.given.isdisjoint(SOURCES[data]):
        return batch
    found: dict[str, Any] = {}
    if not batch.given.isdisjoint(LOGITS):
        found = _from_all_logits(batch, options)
    if data:
        found |= _for_data(batch, found)
    return batch.completed(**found) if found else batch


def _from_all_logits(batch: Batch, options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for prefix, logits in (("", batch.logits), ("old_", batch.old_logits)):
        if logits is not None:
            found |= _from_logits(batch, logits, prefix, options.temperature)
    if batch.exact_kl is None and batch.logits is not None and batch.old_logits is not None:
        found["exact_kl"] = _divergence(batch, batch.old_logits, batch.logits, options.temperature)
    if batch.exact_ref_kl is None and batch.logits is not None and batch.ref_logits is not None:
        found["exact_ref_kl"] = _divergence(batch, batch.logits, batch.ref_logits, options.temperature)
    return found


def _for_data(batch: Batch, found: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    entropy = batch.entropy if batch.entropy is not None else found.get("entropy")
    if batch.old_entropy is None and "old_entropy" not in found and entropy is not None:
        more["old_entropy"] = entropy
    if batch.prompt_lengths is None and batch.prompt_mask is not None:
        more["prompt_lengths"] = (_computed_array(batch.prompt_mask) != 0).sum(-1)
    return more


def _divergence(batch: Batch, left: Any, right: Any, temperature: float) -> Any:
    left, right = _computed_array(left), _computed_array(right)
    return kl_exact(left, right, temperature, _mask(batch, left))


def _from_logits(batch: Batch, logits: Any, prefix: str, temperature: float) -> dict[str, Any]:
    """Return the log-probs and the entropy, and the extremes of current logits, that the batch does not have."""
    names = (f"{prefix}log_probs", f"{prefix}entropy", *(() if prefix else ("highest_logits", "lowest_logits")))
    wanted = [name for name in names if getattr(batch, name) is None]
    if batch.actions is None:
        wanted = [name for name in wanted if not name.endswith("log_probs")]
    if not wanted:
        return {}
    logits = _computed_array(logits)
    # One pass gives all results. Without actions any token will do, as its log-prob is not used.
    actions = _computed_array(batch.actions) if batch.actions is not None else _zeros_like(logits)
    results = log_prob_and_entropy(logits, actions, temperature, _mask(batch, logits), extremes=not prefix)
    return {name: result for name, result in zip(names, results, strict=True) if name in wanted}


def _computed_array(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else np.asarray(value)


def _zeros_like(logits: Any) -> Any:
    xp = numpy_or_torch(logits)
    return xp.zeros_like(logits[..., 0], dtype=xp.int64)


def _mask(batch: Batch, logits: Any) -> Any:
    mask = _computed_array(batch.response_mask)
    # Padding is masked before the pass: its logits may be anything, and need not be read.
    return mask.bool() if numpy_or_torch(logits) is not np else mask.astype(np.bool_)


Order = Literal["contiguous", "zigzag"]


def gathered(batch: Batch, group: Any, order: Order, temperature: float) -> Batch:
    """Return the batch with the tokens of all processes of a group; every process gets it. Two collectives."""
    if order not in ("contiguous", "zigzag"):
        raise BatchError(f"order: expected contiguous or zigzag, got {order!r}")
    processes = ProcessGroup.find(group)
    if processes is None:
        raise BatchError("gathered: torch.distributed has no process group that this process is in")
    # Numbers of each token first: logits are as many times larger as the vocabulary has entries.
    batch = completed(batch, Options(temperature=temperature), data=False)
    arrays = {name: getattr(batch, name) for name in sorted(batch.given) if name not in VOCABULARY_FIELDS}
    names = [name for name in arrays if name in TOKEN_FIELDS or (name == "keep" and _is_of_tokens(batch))]
    received = _exchanged(batch, {name: arrays[name] for name in names}, processes)
    bounds = [bounds for bounds, _ in received]
    places = _places(bounds, order)
    axis = 1 if batch.cu_seqlens is None else 0
    for name in names:
        arrays[name] = _joined([pieces[name] for _, pieces in received], axis, places)
    if batch.cu_seqlens is not None:
        arrays["cu_seqlens"] = _like(np.sum(bounds, axis=0), batch.cu_seqlens)
    return Batch(**arrays)


def _is_of_tokens(batch: Batch) -> bool:
    return shape_of(batch.keep) != (batch.sequences,)


def _exchanged(batch: Batch, arrays: dict[str, Any], group: ProcessGroup) -> list[tuple[Ints, dict[str, Any]]]:
    """Return the boundaries of the sequences, and the arrays, of all processes."""
    import torch

    packed = batch.cu_seqlens is not None
    bounds = to_numpy(batch.cu_seqlens).astype(np.int64) if packed else np.array([0, shape_of(batch.response_mask)[1]])
    body = torch.cat([_bytes_of(array, group.device) for array in (bounds, *arrays.values())])
    kinds = {name: str(array.dtype) if hasattr(array, "dtype") else "list" for name, array in arrays.items()}
    digest = blake2b(json.dumps([packed, batch.sequences, kinds]).encode(), digest_size=7).digest()
    heads = group.all_heads([int.from_bytes(digest, "little"), len(body)])
    # On every process, so that none waits for another in the second collective.
    if len({head[0] for head in heads}) > 1:
        raise BatchError(
            f"gathered: the processes of the group have different arrays or numbers of sequences; this one has "
            f"{batch.sequences} sequences, with {', '.join(kinds)}"
        )
    rows = group.all_bytes(body, [head[1] for head in heads])
    return [_unpacked(row, len(bounds), arrays, batch) for row in rows]


def _unpacked(data: Any, size: int, arrays: dict[str, Any], batch: Batch) -> tuple[Ints, dict[str, Any]]:
    bounds = _restored(data[: 8 * size], np.empty(0, np.int64), (size,))
    length = int(bounds[-1])
    shape = (batch.sequences, length) if batch.cu_seqlens is None else (length,)
    found, start = {}, 8 * size
    for name, like in arrays.items():
        end = start + int(np.prod(shape)) * _item_size(like)
        found[name] = _restored(data[start:end], like, shape)
        start = end
    return bounds, found


def _places(bounds: Sequence[Ints], order: Order) -> Ints | None:
    """Return the place of each token of the whole among those of all processes; None where they are in order."""
    if order == "contiguous" and len(bounds[0]) == 2:
        return None
    sequences, chunks = [], []
    for rank, of_rank in enumerate(bounds):
        lengths = np.diff(of_rank)
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        sequences.append(sequence)
        chunk = np.full(len(sequence), rank)
        if order == "zigzag":
            # Of 2n chunks, process r of n has r and 2n-1-r, so that causal attention costs all the same.
            place = np.arange(len(sequence)) - of_rank[sequence]
            chunk[place >= (lengths - lengths // 2)[sequence]] = 2 * len(bounds) - 1 - rank
        chunks.append(chunk)
    # Stable: tokens of one chunk keep their order.
    return np.lexsort((np.concatenate(chunks), np.concatenate(sequences)))


def _joined(pieces: list[Any], axis: int, places: Ints | None) -> Any:
    if isinstance(pieces[0], np.ndarray):
        whole = np.concatenate(pieces, axis)
        return whole if places is None else np.take(whole, places, axis)
    import torch

    joined = torch.cat(pieces, axis)
    return joined if places is None else joined.index_select(axis, torch.as_tensor(places, device=joined.device))


def _bytes_of(array: Any, device: Any) -> Any:
    import torch

    if isinstance(array, torch.Tensor):
        return array.detach().contiguous().reshape(-1).view(torch.uint8).to(device)
    flat = np.ascontiguousarray(np.asarray(array)).reshape(-1)
    return torch.from_numpy(flat.view(np.uint8).copy()).to(device)


def _item_size(like: Any) -> int:
    size: int = like.element_size() if hasattr(like, "element_size") else np.asarray(like).itemsize
    return size


def _restored(data: Any, like: Any, shape: tuple[int, ...]) -> Any:
    """Return bytes as an array of the type and on the device of another one."""
    if hasattr(like, "element_size"):
        # A copy begins at an address that fits the type; a slice of bytes may not.
        return data.clone().view(like.dtype).reshape(shape).to(like.device)
    return data.cpu().numpy().copy().view(np.asarray(like).dtype).reshape(shape)


def _like(values: Ints, like: Any) -> Any:
    if hasattr(like, "element_size"):
        import torch

        return torch.as_tensor(values, dtype=like.dtype, device=like.device)
    return values.astype(np.asarray(like).dtype)
