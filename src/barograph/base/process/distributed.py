"""Exchange between the processes of a ``torch.distributed`` group, with two collectives for any amount of data.

Every process sends a head of fixed size and a body. The first collective gathers the heads, from which all processes
know the size of the largest body; the second one gathers the bodies, padded to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

NO_STEP = -(2**63)


class ProcessGroup:
    """A process group that this process is a member of. Every method with "all" in its name is one collective."""

    def __init__(self, group: Any, rank: int, size: int, device: Any) -> None:
        self._group = group
        self.rank = rank
        self.size = size
        self.device = device

    @classmethod
    def find(cls, group: Any = None) -> ProcessGroup | None:
        """Return a group, by default that of all processes; None without one, or if this process is no member."""
        # A process group exists only where the training has imported torch.
        if "torch" not in sys.modules:
            return None
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            return None
        rank = dist.get_rank(group)
        return cls(group, rank, dist.get_world_size(group), _device(group)) if rank >= 0 else None

    def all_heads(self, head: Sequence[int]) -> list[list[int]]:
        """Return the heads of all processes, in the order of the group: as many integers of 64 bits from each."""
        import torch

        mine = torch.tensor(list(head), dtype=torch.int64, device=self.device)
        found: list[list[int]] = self._all_gather(mine).tolist()
        return found

    def all_bytes(self, body: Any, sizes: Sequence[int]) -> list[Any]:
        """Return the bodies of all processes as tensors of bytes; ``sizes`` are their lengths."""
        import torch

        # At least one byte, so that the number of collectives does not depend on the data.
        mine = torch.zeros(max(1, *sizes), dtype=torch.uint8, device=self.device)
        mine[: len(body)] = body
        return [row[:size] for row, size in zip(self._all_gather(mine), sizes, strict=True)]

    def _all_gather(self, mine: Any) -> Any:
        import torch
        import torch.distributed as dist

        found = torch.empty((self.size, *mine.shape), dtype=mine.dtype, device=self.device)
        # Not all_gather_into_tensor: gloo lacks it before torch 2.6.
        dist.all_gather(list(found.unbind()), mine, group=self._group)
        return found


def _device(group: Any) -> Any:
    """Return the device of the tensors that a group's backend takes; the host's where it takes several."""
    import torch
    import torch.distributed as dist

    # As in "cpu:gloo,cuda:nccl".
    kinds = [entry.partition(":")[0] for entry in dist.get_backend_config(group).split(",")]
    if "cpu" in kinds:
        return torch.device("cpu")
    return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


@dataclass(frozen=True, slots=True)
class Share:
    """What one process contributes to one part of a step.

    ``description`` tells how to read the body. It is the same on most ranks, and sent only where they differ.
    ``error`` is why a process could not contribute.
    """

    description: bytes = b""
    body: bytes = b""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The shares of all processes of a group, by part, in the order of the group."""

    shares: Sequence[Mapping[str, Share]]
    steps: set[int]
    """The steps that the processes commit: one, unless the training is wrong."""
    is_writer: bool
    """Whether this process writes what all have shared: one process does."""

    def of(self, part: str) -> list[Share]:
        """Return the shares of a part."""
        return [shares[part] for shares in self.shares if part in shares]


def exchange(group: ProcessGroup, step: int | None, shares: Mapping[str, Share], can_write: bool) -> Exchanged:
    """Exchange the shares of a step with two collectives; the first process that can write becomes the writer.

    The step is None in a process that records nothing and only takes part.
    """
    described, bodies = _packed(shares)
    size = (len(described), len(bodies))
    heads = group.all_heads([NO_STEP if step is None else step, _hash(described), *size, can_write])
    # A process that has nothing to describe needs the others' descriptions too.
    differ = len({head[1] for head in heads}) > 1
    sizes = [head[3] + (head[2] if differ else 0) for head in heads]
    mine = described + bodies if differ else bodies
    rows = group.all_bytes(_tensor(mine, group.device), sizes)
    received = [bytes(row.cpu().numpy()) for row in rows]
    found = [
        _unpacked(data[: head[2]], data[head[2] :]) if differ else _unpacked(described, data)
        for head, data in zip(heads, received, strict=True)
    ]
    writer = next((rank for rank, head in enumerate(heads) if head[4]), None)
    return Exchanged(found, {head[0] for head in heads} - {NO_STEP}, writer == group.rank)


def _packed(shares: Mapping[str, Share]) -> tuple[bytes, bytes]:
    """Return the descriptions and the bodies of all parts, each with a line of JSON before it that has the sizes."""
    described = {part: len(share.description) for part, share in shares.items() if share.description}
    bodies = {part: [len(share.body), share.error] for part, share in shares.items()}
    head, blobs = _line(described), b"".join(shares[part].description for part in described)
    return head + blobs, _line(bodies) + b"".join(share.body for share in shares.values())


def _unpacked(described: bytes, bodies: bytes) -> dict[str, Share]:
    sizes, description = _split_line(described)
    entries, body = _split_line(bodies)
    descriptions = dict(zip(sizes, _pieces(description, sizes.values()), strict=True))
    parts = zip(entries.items(), _pieces(body, (size for size, _ in entries.values())), strict=True)
    return {part: Share(descriptions.get(part, b""), piece, error) for (part, (_, error)), piece in parts}


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _split_line(data: bytes) -> tuple[dict[str, Any], bytes]:
    line, _, rest = data.partition(b"\n")
    return json.loads(line), rest


def _pieces(data: bytes, sizes: Any) -> list[bytes]:
    found, start = [], 0
    for size in sizes:
        found.append(data[start : start + size])
        start += size
    return found


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def _tensor(data: bytes, device: Any) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
