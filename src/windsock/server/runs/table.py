"""The table of runs: the columns that are asked for of all runs that fulfil conditions, and groups of runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.comparison.intervals import Interval, mean_interval
from windsock.comparison.seeds import is_label, is_seed
from windsock.conditions import Condition, Conditions, as_number, parse_conditions
from windsock.diagnosis.health import WORDS
from windsock.server.responses import RequestError, bilingual
from windsock.server.runs.listed_run import ListedRun
from windsock.server.runs.table_columns import Choices, Column, column_of, varying_keys

BASE = ("key", "name", "number", "status", "reason", "pinned", "hidden", "note", "tags", "health", "finding")
"""The fields of every row, before the columns that are asked for."""
SEEDS = "seeds"
MAX_REASON = 200
MAX_LABEL = 8  # keys that name a setting


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The columns, conditions and grouping of a table."""

    columns: tuple[Column, ...]
    conditions: Conditions
    compared: Mapping[str, Column]
    """The columns that the conditions are about, by the names in them."""
    group: tuple[str, ...] = ()
    group_columns: tuple[Column, ...] = ()
    hidden: bool = False

    @property
    def statistics(self) -> list[str]:
        """The numbers of series that are needed."""
        needed = [*self.columns, *self.compared.values(), *self.group_columns]
        return list(dict.fromkeys(column.statistic for column in needed if column.statistic is not None))

    def select(self, runs: Iterable[ListedRun]) -> list[ListedRun]:
        """Return the runs that fulfil the conditions, the newest first."""
        found = [run for run in runs if self.hidden or not run.annotations["hidden"]]
        if self.compared:
            found = list(compress(found, self.conditions.evaluate(lambda condition: self._holding(condition, found))))
        found.sort(key=lambda run: -run.began)
        return found

    def _holding(self, condition: Condition, runs: Sequence[ListedRun]) -> NDArray[np.bool_]:
        """Return of each run whether it fulfils a condition."""
        read = self.compared[condition.name].read
        return np.array([condition.holds(read(run)) for run in runs], bool)

    def row(self, run: ListedRun) -> list[Any]:
        """Return the fields of a run."""
        facts, annotations, health = run.facts, run.annotations, run.health
        first = health.first if health is not None else None
        return [
            run.location.key,
            run.name,
            run.number,
            facts["status"],
            facts["reason"][:MAX_REASON],
            annotations["pinned"],
            annotations["hidden"],
            annotations["note"],
            run.tags,
            WORDS[health.verdict] if health is not None else None,
            None if first is None else {"title": bilingual(first.title), "onset": first.onset},
            *(column.read(run) for column in self.columns),
        ]

    def groups(self, runs: Sequence[ListedRun]) -> list[dict[str, Any]]:
        """Return the groups of runs in the order of their newest, each with the means of the columns with numbers."""
        if not self.group:
            return []
        if self.group == (SEEDS,):
            settings = seed_groups(runs)
            labels = setting_labels(settings)
            return [self._group(label, members) for label, members in zip(labels, settings, strict=True)]
        found: dict[tuple[Any, ...], list[ListedRun]] = {}
        for run in runs:
            for key in self._group_keys(run):
                found.setdefault(key, []).append(run)
        return [self._group(list(zip(self.group, key, strict=True)), members) for key, members in found.items()]

    def _group_keys(self, run: ListedRun) -> list[tuple[Any, ...]]:
        """Return the groups of a run: several where it has several tags."""
        keys: list[tuple[Any, ...]] = [()]
        for column in self.group_columns:
            value = column.read(run)
            options = value if isinstance(value, list) else [value]
            keys = [(*key, option) for key in keys for option in options or [None]]
        return keys

    def _group(self, label: Sequence[tuple[str, Any]], members: Sequence[ListedRun]) -> dict[str, Any]:
        return {
            "label": label,
            "keys": [run.location.key for run in members],
            "seeds": seed_count(members),
            "values": [self._joint(column, members) for column in self.columns],
        }

    def _joint(self, column: Column, members: Sequence[ListedRun]) -> dict[str, Any] | None:
        """Return the value that all runs have, or the mean of numbers with its interval; None for other values."""
        values = [column.read(run) for run in members]
        if all(value == values[0] and type(value) is type(values[0]) for value in values):
            return {"same": values[0]}
        if any(isinstance(value, str | list | bool) for value in values):
            return None
        numbers = [number for value in values if (number := as_number(value)) is not None]
        return {"mean": interval_record(mean_interval(numbers))} if numbers else None


def seed_groups(runs: Iterable[ListedRun]) -> list[list[ListedRun]]:
    """Return the runs that differ only in the seed together; a run without a config is alone."""
    found: dict[Hashable, list[ListedRun]] = {}
    for run in runs:
        setting = run.summary.setting if run.summary is not None else None
        key = run.location.key if setting is None else (run.facts["project"], setting)
        found.setdefault(key, []).append(run)
    return list(found.values())


def setting_labels(settings: Sequence[Sequence[ListedRun]]) -> list[list[tuple[str, Any]]]:
    """Return the keys with their values in which settings differ from each other, of each setting."""
    firsts = [members[0].summary for members in settings]
    varying = varying_keys([summary for summary in firsts if summary is not None])
    keys = [key for summary in firsts if summary is not None for key in summary.config_keys if key in varying]
    shown = [key for key in dict.fromkeys(keys) if not is_label(key) and not is_seed(key)][:MAX_LABEL]
    return [
        [(key, summary.config(key)) for key in shown if key in summary.config_places] if summary is not None else []
        for summary in firsts
    ]


def seed_count(members: Iterable[ListedRun]) -> int:
    """Return how many different seeds some runs have."""
    return len({run.summary.seed for run in members if run.summary is not None} - {None})


def interval_record(interval: Interval) -> list[float | int | None]:
    """Return mean, low, high and count; None for an end that is not known."""
    ends = (interval.low, interval.high) if interval.is_known else (None, None)
    return [interval.mean, *ends, interval.count]


def table_query(columns: Sequence[str], where: str, group: Sequence[str], hidden: bool, choices: Choices) -> TableQuery:
    """Return the query of a request; a RequestError reports a bad expression, or a name that no run has."""

    def make(key: str) -> Column:
        return column_of(key, choices.config_keys)

    try:
        conditions = parse_conditions(where)
        compared = {name: make(name) for name in sorted(conditions.names())}
    except ValueError as problem:
        raise RequestError(400, str(problem)) from None
    for name, column in compared.items():
        _check_known(name, column, choices)
    keys = tuple(group)
    by = () if keys == (SEEDS,) else tuple(map(make, keys))
    return TableQuery(tuple(map(make, columns)), conditions, compared, keys, by, hidden)


def _check_known(name: str, column: Column, choices: Choices) -> None:
    """Raise a RequestError for a condition on something that no run has."""
    metric = name.partition(":")[2] or name
    known: Mapping[str, Callable[[], bool]] = {
        "config": lambda: name.removeprefix("config:") in choices.config_keys,
        "statistic": lambda: metric in choices.metrics or metric in choices.headlines,
    }
    kind = "config" if name.startswith("config:") else "statistic" if column.statistic is not None else None
    if kind is not None and (choices.config or choices.metrics) and not known[kind]():
        raise RequestError(400, f"where: no run has {name!r}, neither as a fact, a config key nor a metric")
