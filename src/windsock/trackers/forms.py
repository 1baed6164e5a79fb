"""Rows and configurations in the forms that several trackers share: tables, Markdown, flat settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windsock.formatting import number
from windsock.model import Row, Sample

PHASE_PARTS = ("total", "onload", "execute", "offload")
SAMPLE_FIELDS = (
    "task", "run", "group", "prompt", "completion", "reward", "rewards", "advantage", "length", "finish_reason",
    "weight_version",
)  # fmt: skip

Table = tuple[list[str], list[list[Any]]]


def united(rows: Iterable[Row]) -> Iterator[Row]:
    """Make one of rows that follow each other and speak of the same step."""
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
    """Return the values of a row, and beside each histogram how many of its values were not finite."""
    counts = {f"windsock/nonfinite/{name}": float(h.nonfinite) for name, h in row.histograms.items() if h.nonfinite}
    return {**row.values, **counts}


def samples_table(samples: Sequence[Sample]) -> Table:
    """Return samples as columns and rows; a field that no sample has is no column."""
    records = [_record(sample) for sample in samples]
    columns = list(dict.fromkeys(key for record in records for key in record))
    return columns, [[record.get(column) for column in columns] for record in records]


def _record(sample: Sample) -> dict[str, Any]:
    fields = {name: getattr(sample, name) for name in SAMPLE_FIELDS}
    if sample.messages:
        said = (f"{message.get('role', '')}: {message.get('content', '')}" for message in sample.messages)
        fields["completion"] = "\n".join([*said, *filter(None, [sample.completion])])
    rewards = fields.pop("rewards")
    fields |= {f"reward/{name}": value for name, value in rewards.items()}
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def phases(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the seconds of each phase by part, from ``time/{phase}/total`` and its like."""
    found: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        if name.startswith("time/"):
            phase, _, part = name.removeprefix("time/").rpartition("/")
            if phase and part in PHASE_PARTS:
                found.setdefault(phase, {})[part] = value
    return {phase: parts for phase, parts in found.items() if "total" in parts}


def phases_table(values: Mapping[str, float]) -> Table:
    """Return the phases of a step as columns and rows, longest first, in seconds."""
    found = sorted(phases(values).items(), key=lambda item: -item[1]["total"])
    parts = [part for part in PHASE_PARTS if any(part in times for _, times in found)]
    rows = [[phase, *(number(times[part]) if part in times else "" for part in parts)] for phase, times in found]
    return ["phase", *parts], rows


def markdown(table: Table) -> str:
    """Write a table in Markdown; line breaks and bars in a cell stay in it."""
    columns, rows = table
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = "" if value is None else number(value) if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "\n").replace("\n", "<br>")


def flat(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return a nested configuration as ``actor.lr: 1e-06``; lists stand as JSON."""
    return dict(_leaves(config, ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, bool | int | float | str]]:
    if isinstance(value, Mapping) and (value or not name):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, bool | int | float | str):
        yield name, value
    else:
        yield name, json.dumps(value, ensure_ascii=False, default=str)
