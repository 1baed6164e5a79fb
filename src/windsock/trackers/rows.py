"""Preparation of rows that several trackers share: merging by step, and the numbers of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from windsock.model import Row


def merge_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Merge consecutive rows of the same step and writer; of a name that repeats, the last value counts."""
    last: Row | None = None
    for row in rows:
        if last is not None and (last.step, last.writer) == (row.step, row.writer):
            last = replace(
                row,
                values={**last.values, **row.values},
                texts={**last.texts, **row.texts},
                histograms={**last.histograms, **row.histograms},
                samples=last.samples + row.samples,
            )
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def numbers(row: Row) -> dict[str, float]:
    """Return a row's values, with the count of non-finite inputs of each histogram."""
    counts = {f"windsock/nonfinite/{name}": float(h.nonfinite) for name, h in row.histograms.items() if h.nonfinite}
    return {**row.values, **counts}
