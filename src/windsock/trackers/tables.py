"""Samples and phase times as tables, and tables as Markdown, for trackers that show them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from windsock.formatting import number
from windsock.model import Sample

PHASE_TIMES = ("total", "onload", "execute", "offload")
SAMPLE_FIELDS = (
    "task", "run", "group", "prompt", "completion", "reward", "rewards", "advantage", "length", "finish_reason",
    "weight_version",
)  # fmt: skip

TableData = tuple[list[str], list[list[Any]]]
"""Column names and rows of cells."""


def samples_table(samples: Sequence[Sample]) -> TableData:
    """Return samples as a table; fields that no sample has get no column."""
    records = [_record(sample) for sample in samples]
    columns = list(dict.fromkeys(key for record in records for key in record))
    return columns, [[record.get(column) for column in columns] for record in records]


def _record(sample: Sample) -> dict[str, Any]:
    fields = {name: getattr(sample, name) for name in SAMPLE_FIELDS}
    if sample.messages:
        chat = (f"{message.get('role', '')}: {message.get('content', '')}" for message in sample.messages)
        fields["completion"] = "\n".join([*chat, *filter(None, [sample.completion])])
    rewards = fields.pop("rewards")
    fields |= {f"reward/{name}": value for name, value in rewards.items()}
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def phase_times(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the seconds of each phase (total, onload, execute, offload), from ``time/{phase}/total`` and the like."""
    found: dict[str, dict[str, float]] = {}
    for name, phase, which in _time_names(tuple(values)):
        found.setdefault(phase, {})[which] = values[name]
    # Only phases have a total: a timer may be called ``load/execute``.
    return {phase: times for phase, times in found.items() if "total" in times}


@lru_cache(maxsize=64)  # the rows of a run have a few sets of names, and are many
def _time_names(names: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Return name, phase and kind of time of the names that are times of phases."""
    split = [(name, *name.removeprefix("time/").rpartition("/")[::2]) for name in names if name.startswith("time/")]
    return [(name, phase, which) for name, phase, which in split if phase and which in PHASE_TIMES]


def phases_table(values: Mapping[str, float]) -> TableData:
    """Return a step's phases as a table in seconds, longest first."""
    found = sorted(phase_times(values).items(), key=lambda item: -item[1]["total"])
    columns = [which for which in PHASE_TIMES if any(which in times for _, times in found)]
    rows = [[phase, *(number(times[which]) if which in times else "" for which in columns)] for phase, times in found]
    return ["phase", *columns], rows


def markdown(table: TableData) -> str:
    """Format a table as Markdown; line breaks and bars in cells are escaped."""
    columns, rows = table
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = "" if value is None else number(value) if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "\n").replace("\n", "<br>")
