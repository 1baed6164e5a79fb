"""Preparation of rows that several trackers share: merging by step, the numbers of a row, and its alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from windsock.findings import TEXT_NAME
from windsock.model import Row

MAX_TITLE = 63  # characters; W&B takes no more
ALERT_LEVELS = {"critical": "error", "warning": "warn"}


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


@dataclass(frozen=True, slots=True)
class Alert:
    """A finding of the doctor, for trackers that can alert; ``level`` is error, warn or info."""

    title: str
    text: str
    level: str


def alerts(row: Row) -> list[Alert]:
    """Return the doctor's findings in a row: each is a line of one text."""
    lines = row.texts.get(TEXT_NAME, "").splitlines()
    return [_alert(line) for line in lines if line]


def _alert(line: str) -> Alert:
    title, _, _ = line.partition(". ")
    if len(title) > MAX_TITLE:
        title = f"{title[: MAX_TITLE - 1]}…"
    return Alert(title, line, ALERT_LEVELS.get(line.split(" ", 1)[0], "info"))
