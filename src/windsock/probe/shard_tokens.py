"""Balance of a step's tokens over the data-parallel shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windsock.probe.names import Value


def shard_values(before: Sequence[float], after: Sequence[float] | None = None) -> Iterator[Value]:
    """Yield statistics of tokens per shard before balancing and, where ``after`` is given, after it."""
    if len(before):
        low, high = float(min(before)), float(max(before))
        yield "system/shard_tokens/min", (), low
        yield "system/shard_tokens/max", (), high
        yield "system/shard_tokens/spread", (), high - low
    if after is not None and len(after):
        yield "system/shard_tokens/balanced_min", (), float(min(after))
        yield "system/shard_tokens/balanced_max", (), float(max(after))
    either = before if len(before) else after
    if either is not None and len(either):
        yield "system/shard_tokens/mean", (), float(sum(either)) / len(either)
