"""Batches of context-parallel training, in which each process holds some tokens of every sequence, made whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from windsock.distributed import Group
from windsock.measurement.batch import TOKEN_FIELDS, VOCABULARY_FIELDS, Batch, BatchError, shape_of, to_numpy
from windsock.measurement.completion import completed
from windsock.measurement.options import Options

Ints = NDArray[np.int64]
Order = Literal["contiguous", "zigzag"]


def gathered(batch: Batch, group: Any, order: Order, temperature: float) -> Batch:
    """Return the batch with the tokens of all processes of a group; every process gets it. Two collectives."""
    if order not in ("contiguous", "zigzag"):
        raise BatchError(f"order: expected contiguous or zigzag, got {order!r}")
    processes = Group.find(group)
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


def _exchanged(batch: Batch, arrays: dict[str, Any], group: Group) -> list[tuple[Ints, dict[str, Any]]]:
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
