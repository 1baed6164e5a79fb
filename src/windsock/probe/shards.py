"""How evenly the tokens of a step lie on the data-parallel shards, before and after balancing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windsock.probe.names import Value


def shard_values(before: Sequence[float], after: Sequence[float] | None = None) -> Iterator[Value]:
    """Yield the statistics of tokens per shard; without ``after``, only those before balancing."""
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
