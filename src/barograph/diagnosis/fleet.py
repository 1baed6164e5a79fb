"""Findings over many runs: for each rule in how many it found something, and from which step on; and the configs by
which runs are grouped, with an index of those that were read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from barograph.base.formatting import flatten
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import VERDICTS
from barograph.diagnosis.health import FoundRule, Health
from barograph.diagnosis.rules import RULES
from barograph.importers.cache import list_folder
from barograph.journal.directory import RunIndex
from barograph.journal.format.folder import is_run
from barograph.journal.read.status import Glance


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run of a fleet: its path, the value that it is grouped by, and the verdict on it."""

    path: str
    value: Any
    health: Health


@dataclass(frozen=True, slots=True)
class Onset:
    """The steps at which the findings of a rule began, over runs; ``first_run`` and ``last_run`` are paths."""

    median: float
    first: int
    last: int
    first_run: str
    last_run: str


@dataclass(frozen=True, slots=True)
class RuleSum:
    """What a rule found in a group of runs, from warning on.

    ``runs`` have it in their verdict; in ``causes`` of them no other finding explains it. In ``past`` it is over.
    """

    rule: str
    title: Text
    runs: int
    share: float
    critical: int
    causes: int
    past: int
    onset: Onset | None


@dataclass(frozen=True, slots=True)
class GroupSum:
    """The verdicts on a group of runs, and what the rules found in them, the most frequent first."""

    value: Any
    runs: int
    verdicts: Mapping[str, int]
    rules: tuple[RuleSum, ...]

    def record(self) -> dict[str, Any]:
        """Return the sums as JSON."""
        return {**asdict(self), "verdicts": dict(self.verdicts), "rules": [asdict(rule) for rule in self.rules]}


def group_sums(runs: Iterable[JudgedRun]) -> list[GroupSum]:
    """Return the sums of each group; those whose value is a number first, by value, and that without a value last."""
    groups: dict[Any, list[JudgedRun]] = {}
    for run in runs:
        groups.setdefault(run.value, []).append(run)
    return [_group_sum(value, groups[value]) for value in sorted(groups, key=_place)]


def _place(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (1, 0.0, value) if value is not None else (2, 0.0, "")


def _group_sum(value: Any, runs: Sequence[JudgedRun]) -> GroupSum:
    words = Counter(run.health.verdict for run in runs)
    found: dict[str, list[tuple[JudgedRun, FoundRule]]] = {}
    for run in runs:
        for one in run.health.found or ():
            if one.severity != "info" and one.rule in RULES:
                found.setdefault(one.rule, []).append((run, one))
    rules = [_rule_sum(rule, found[rule], len(runs)) for rule in RULES if rule in found]
    rules.sort(key=lambda one: (-one.runs, -one.critical, -one.past))
    return GroupSum(value, len(runs), {word: words[word] for word in VERDICTS}, tuple(rules))


def _rule_sum(rule: str, found: Sequence[tuple[JudgedRun, FoundRule]], total: int) -> RuleSum:
    now = [(run, one) for run, one in found if one.state != "past"]
    runs = {run.path for run, _ in now}
    return RuleSum(
        rule=rule,
        title=RULES[rule].words.title,
        runs=len(runs),
        share=len(runs) / total,
        critical=len({run.path for run, one in now if one.severity == "critical"}),
        causes=len({run.path for run, one in now if one.state == "open"}),
        past=len({run.path for run, _ in found} - runs),
        onset=_onset(now) if now else None,
    )


def _onset(found: Sequence[tuple[JudgedRun, FoundRule]]) -> Onset:
    first: dict[str, int] = {}
    for run, one in found:
        first[run.path] = min(one.onset, first.get(run.path, one.onset))
    low, high = min(first, key=first.__getitem__), max(first, key=first.__getitem__)
    return Onset(float(median(first.values())), first[low], first[high], low, high)


KIND = "configs"
MAX_KEYS = 5000
MAX_VALUE_LENGTH = 200  # characters; configs are compared here, not shown


class ConfigIndex:
    """The flat configs of the runs below a directory. An entry counts only for the files that it was made of."""

    def __init__(self, dir: Path) -> None:
        # Nothing is written beside logs.
        self._indexes = {True: RunIndex(dir, KIND), False: RunIndex(dir, KIND, list_folder(dir))}

    def known(self, run: Glance) -> dict[str, Any] | None:
        """Return the config of a run, if it was read from its files as they are now."""
        for index in self._indexes.values():
            digest, config = index.get(run.path)
            if run.digest and digest == run.digest and isinstance(config, dict):
                return config
        return None

    def read(self, run: Glance) -> dict[str, Any]:
        """Return the config of a run and keep it; raise what opening the run raises."""
        from barograph.importers.opening import open_run  # imports NumPy, which known configs can do without

        return self.keep(run, open_run(run.path).config)

    def keep(self, run: Glance, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the flat config of a run that was read, and keep it if the run is over."""
        flat = flat_config(config)
        if run.status.ended:
            self._indexes[is_run(run.path)].put(run.path, run.digest, flat)
        return flat

    def save(self) -> None:
        """Write what is new, without the runs that are gone."""
        for index in self._indexes.values():
            index.save()


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a config by their dotted keys: numbers and flags, and all else as text."""
    leaves = dict(flatten(config))
    return {key: _scalar(leaves[key]) for key in list(leaves)[:MAX_KEYS]}


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
