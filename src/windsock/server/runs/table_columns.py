"""The columns of the table of runs: facts, keys of configs, and single numbers of series.

A column is a fact (``status``), a number of a headline value or metric (``best:validation``, ``mean10:critic/kl``,
``at100:loss``), or the key of a config (``actor.lr``, or ``config:status`` where it has the name of another).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from windsock.catalogue.headline import headlines
from windsock.comparison.seeds import is_label
from windsock.diagnosis.health import WORDS
from windsock.formatting import json_number
from windsock.server.runs.listed_run import ListedRun
from windsock.server.runs.run_summary import STATISTIC, RunSummary

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
class Column:
    """A column of the table: how it is asked for, the number that must be read for it, and how it is read."""

    key: str
    statistic: str | None
    read: Read


def column_of(key: str, config_keys: frozenset[str]) -> Column:
    """Return the column of a name; a name that no config has is that of a metric, whose last value is meant."""
    fact = FACTS.get(ALIASES.get(key, key))
    if key.startswith("config:"):
        return Column(key, None, _config_reader(key.removeprefix("config:")))
    if STATISTIC.fullmatch(key):
        return Column(key, key, _statistic_reader(key))
    if key in _headline_keys():
        return Column(key, f"last:{key}", _statistic_reader(f"last:{key}"))
    if fact is not None:
        return Column(key, None, fact)
    if key in config_keys:
        return Column(key, None, _config_reader(key))
    return Column(key, f"last:{key}", _statistic_reader(f"last:{key}"))


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
