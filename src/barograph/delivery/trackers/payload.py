"""What trackers show.

Rows merged by step, their numbers and alerts, samples and phase times as tables, tables as Markdown, and
configurations as flat hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from barograph.base.formatting import flatten, number
from barograph.base.model import Row, Sample
from barograph.journal.findings import TEXT_NAME

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
    counts = {f"barograph/nonfinite/{name}": float(h.nonfinite) for name, h in row.histograms.items() if h.nonfinite}
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


PHASE_TIMES = ("total", "onload", "execute", "offload")

SAMPLE_FIELDS = (
    "task", "run", "group", "prompt", "completion", "reward", "rewards", "advantage", "length", "finish_reason",
    "weight_version",
)  # fmt: skip

TableData = tuple[list[str], list[list[Any]]]
"""Column names and rows of cells."""


def samples_table(samples: Sequence[Sample]) -> TableData:
    """Return samples as a table; fields that no sample has get no column."""
    records = [_sample_record(sample) for sample in samples]
    columns = list(dict.fromkeys(key for record in records for key in record))
    return columns, [[record.get(column) for column in columns] for record in records]


def _sample_record(sample: Sample) -> dict[str, Any]:
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


Param = bool | int | float | str


def flat_params(config: Mapping[str, Any]) -> dict[str, Param]:
    """Return a nested configuration with dotted names (``actor.lr``); lists, None and empty mappings become JSON."""
    return {name: _param(value) for name, value in flatten(config)}


def _param(value: Any) -> Param:
    if isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
