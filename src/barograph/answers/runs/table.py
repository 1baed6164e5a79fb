"""Which runs a page of the list has, and the table of runs: columns of facts, config keys and single numbers,
conditions, and groups.

A column is a fact (``status``), a number of a metric (``best:validation``, ``at100:loss``), or a config key
(``actor.lr``, or ``config:status``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.responses import bilingual, interval_record
from barograph.answers.runs.listed_run import STATISTIC, ListedRun, RunSummary
from barograph.base.errors import RequestError
from barograph.base.expressions import Condition, Conditions, as_number, parse_conditions
from barograph.base.formatting import json_number
from barograph.catalogue.headline import headlines
from barograph.diagnosis.health import WORDS
from barograph.metrics.comparison import is_label, is_seed, mean_interval

DIGITS = re.compile(r"([0-9]+)")


def _natural(name: str) -> tuple[list[Any], str]:
    """Return a key that sorts names without regard to case, and numbers in them as numbers."""
    parts: list[Any] = DIGITS.split(name.casefold())
    for place in range(1, len(parts), 2):
        number = parts[place].lstrip("0")
        parts[place] = len(number), number  # not as an integer, which may have thousands of digits
    return parts, name


def _last_reward(run: ListedRun) -> float:
    """Return the last reward; a run without one, or with NaN, sorts last."""
    last = run.reward["last"] if run.reward is not None else math.nan
    return math.inf if math.isnan(last) else -last


SORTS: dict[str, Callable[[ListedRun], Any]] = {
    "began": lambda run: -run.began,
    "name": lambda run: _natural(run.name),
    "reward": _last_reward,
    "status": lambda run: (run.facts["status"], -run.began),
    "heard": lambda run: -run.last_heard,
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of the list; ``keys`` are runs that are wanted in any case."""

    q: str = ""
    sort: str = "began"
    hidden: bool = True  # with hidden runs
    offset: int = 0
    limit: int = 100
    keys: tuple[str, ...] = ()

    def select(self, runs: Iterable[ListedRun]) -> list[ListedRun]:
        """Return the runs that contain every word of the query, in order, pinned ones first."""
        words = self.q.lower().split()
        found = [
            run
            for run in runs
            if (self.hidden or not run.annotations["hidden"]) and all(word in run.search_text for word in words)
        ]
        found.sort(key=SORTS[self.sort])
        found.sort(key=lambda run: not run.annotations["pinned"])  # a stable sort: the order stays within each part
        return found


MAX_CHOICES = 3000

MAX_VARYING = 40

FIRST_FACTS = ("status", "health", "steps", "duration")

FIRST_VALUES = {"last:validation": "validation", "best:validation": "validation", "last:reward": "reward"}

FIRST_VARYING = 4

Read = Callable[[ListedRun], Any]


def _health(run: ListedRun) -> Any:
    return WORDS[run.health.verdict] if run.health is not None else None


FACTS: dict[str, Read] = {
    "name": lambda run: run.name,
    "status": lambda run: run.facts["status"],
    "health": _health,
    "finding": lambda run: run.health.first.rule if run.health and run.health.first else None,
    "steps": lambda run: run.facts["last_step"],
    "duration": lambda run: run.facts["seconds"],
    "began": lambda run: run.facts["began"],
    "heard": lambda run: run.facts["last_heard"],
    "project": lambda run: run.facts["project"],
    "tag": lambda run: run.tags,
    "group": lambda run: run.facts["group"],
    "note": lambda run: run.annotations["note"] or None,
    "source": lambda run: run.facts["vocabulary"],
    "bytes": lambda run: run.facts["bytes"],
    "attempts": lambda run: run.facts["attempts"],
    "pinned": lambda run: run.annotations["pinned"],
    "seed": lambda run: run.summary.seed if run.summary else None,
    "key": lambda run: run.location.key,
}

ALIASES = {"step": "steps", "seconds": "duration", "tags": "tag", "verdict": "health", "id": "key"}


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column of the table: how it is asked for, the number that must be read for it, and how it is read."""

    key: str
    statistic: str | None
    read: Read


def column_of(key: str, config_keys: frozenset[str]) -> RunColumn:
    """Return the column of a name; a name that no config has is that of a metric, whose last value is meant."""
    fact = FACTS.get(ALIASES.get(key, key))
    if key.startswith("config:"):
        return RunColumn(key, None, _config_reader(key.removeprefix("config:")))
    if STATISTIC.fullmatch(key):
        return RunColumn(key, key, _statistic_reader(key))
    if key in _headline_keys():
        return RunColumn(key, f"last:{key}", _statistic_reader(f"last:{key}"))
    if fact is not None:
        return RunColumn(key, None, fact)
    if key in config_keys:
        return RunColumn(key, None, _config_reader(key))
    return RunColumn(key, f"last:{key}", _statistic_reader(f"last:{key}"))


def _headline_keys() -> set[str]:
    return {headline.key for headline in headlines()}


def _config_reader(key: str) -> Read:
    return lambda run: run.summary.config(key) if run.summary is not None else None


def _statistic_reader(column: str) -> Read:
    def read(run: ListedRun) -> Any:
        value = run.summary.values.get(column) if run.summary is not None else None
        # A response with a NaN in it would be copied before it is encoded.
        return value if value is None or math.isfinite(value) else json_number(value)

    return read


@dataclass(frozen=True, slots=True)
class Choices:
    """The columns that the runs have: keys of configs, those that differ between runs, and metrics."""

    config: tuple[str, ...]
    varying: tuple[str, ...]
    metrics: tuple[str, ...]
    headlines: tuple[str, ...]
    config_keys: frozenset[str]


def default_columns(choices: Choices) -> list[str]:
    """Return the columns of a table where none are asked for: facts, validation, reward, config keys that differ."""
    values = [column for column, headline in FIRST_VALUES.items() if headline in choices.headlines]
    return [*FIRST_FACTS, *values, *choices.varying[:FIRST_VARYING]]


def choices_of(runs: Iterable[ListedRun]) -> Choices:
    """Return the columns that some runs have."""
    summaries = [run.summary for run in runs if run.summary is not None]
    keys = dict.fromkeys(key for one in dict.fromkeys(summary.config_keys for summary in summaries) for key in one)
    names = Counter(name for one in dict.fromkeys(summary.names for summary in summaries) for name in one)
    found = {key for summary in summaries for key in summary.headlines}
    varying = varying_keys(summaries)
    return Choices(
        tuple(list(keys)[:MAX_CHOICES]),
        tuple(key for key in keys if key in varying and not is_label(key))[:MAX_VARYING],
        tuple(sorted(names)[:MAX_CHOICES]),
        tuple(headline.key for headline in headlines() if headline.key in found),
        frozenset(keys),
    )


def varying_keys(summaries: list[RunSummary]) -> set[str]:
    """Return the keys that have two values among the runs, or that only some runs have."""
    by_keys: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for summary in summaries:
        if summary.config_keys:
            by_keys.setdefault(summary.config_keys, []).append(summary.config_values)
    values: dict[str, set[int]] = {}
    present: Counter[str] = Counter()
    for keys, rows in by_keys.items():
        # Equal values of summaries are one object, and objects are compared much faster than values.
        for key, column in zip(keys, zip(*rows, strict=True), strict=True):
            values.setdefault(key, set()).update(map(id, column))
            present[key] += len(rows)
    configured = sum(map(len, by_keys.values()))
    return {key for key, found in values.items() if len(found) > 1 or present[key] < configured}


BASE = ("key", "name", "number", "status", "reason", "pinned", "hidden", "note", "tags", "health", "finding")
"""The fields of every row, before the columns that are asked for."""

SEEDS = "seeds"

MAX_REASON = 200

MAX_LABEL = 8  # keys that name a setting


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The columns, conditions and grouping of a table."""

    columns: tuple[RunColumn, ...]
    conditions: Conditions
    compared: Mapping[str, RunColumn]
    """The columns that the conditions are about, by the names in them."""
    group: tuple[str, ...] = ()
    group_columns: tuple[RunColumn, ...] = ()
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

    def _joint(self, column: RunColumn, members: Sequence[ListedRun]) -> dict[str, Any] | None:
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


def table_query(columns: Sequence[str], where: str, group: Sequence[str], hidden: bool, choices: Choices) -> TableQuery:
    """Return the query of a request; a RequestError reports a bad expression, or a name that no run has."""

    def make(key: str) -> RunColumn:
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


def _check_known(name: str, column: RunColumn, choices: Choices) -> None:
    """Raise a RequestError for a condition on something that no run has."""
    metric = name.partition(":")[2] or name
    known: Mapping[str, Callable[[], bool]] = {
        "config": lambda: name.removeprefix("config:") in choices.config_keys,
        "statistic": lambda: metric in choices.metrics or metric in choices.headlines,
    }
    kind = "config" if name.startswith("config:") else "statistic" if column.statistic is not None else None
    if kind is not None and (choices.config or choices.metrics) and not known[kind]():
        raise RequestError(400, f"where: no run has {name!r}, neither as a fact, a config key nor a metric")
