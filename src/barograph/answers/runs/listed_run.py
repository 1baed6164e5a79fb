"""A run of the list: its facts, the summary of its config and series, its reward with a sparkline, and the index of
what was read.

Thousands are kept, so equal parts are stored once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.open_run import RunLocation
from barograph.answers.responses import to_strict_json
from barograph.base.formatting import flatten
from barograph.base.model import Status
from barograph.catalogue.headline import headline_values
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.user_metrics import NamesFiles
from barograph.diagnosis.health import Health
from barograph.importers.imported import log_info, oldest_file
from barograph.importers.reading.log import Log
from barograph.journal.directory import DirectoryIndex, files_digest
from barograph.journal.format import fields
from barograph.journal.format.fields import DecodingError, list_of, mapping_of, nullable, object_of
from barograph.journal.format.folder import FileStates, RunFiles
from barograph.journal.read.series import Series
from barograph.journal.read.status import Glance, RunFacts, seen_at
from barograph.journal.view import View
from barograph.metrics.comparison import seed_of, setting_digest

STATISTIC = re.compile(
    r"(last|best|max|min|mean(?P<count>[1-9][0-9]{0,6})|at(?P<step>-?[0-9]{1,15})):(?P<name>.+)", re.DOTALL
)

MAX_VALUE_LENGTH = 200  # characters of a config's value

MAX_CONFIG = 5000  # keys

SIGNS = {"higher": 1, "lower": -1}

SUMMARY_RECORD = object_of(
    {
        "config": mapping_of(fields.read_any),
        "setting": nullable(fields.read_text),
        "names": list_of(fields.read_text),
        "headlines": mapping_of(list_of(fields.read_any)),
        "values": mapping_of(nullable(fields.read_number)),
    },
    ("config", "setting", "names", "headlines", "values"),
)

_shared: dict[Any, Any] = {}


def _share(value: Any) -> Any:
    """Return the first value that was equal, so that only that one takes memory."""
    return _shared.setdefault((type(value), value), value)


@dataclass(frozen=True)
class RunSummary:
    """The config of a run, its names, and numbers of its series by column, such as ``best:validation``."""

    config_keys: tuple[str, ...]
    config_values: tuple[Any, ...]
    setting: str | None  # what the config says except for the seed
    names: tuple[str, ...]
    headlines: Mapping[str, tuple[str, int]]  # by key: the logged name, and 1 if higher is better, -1 if lower, else 0
    values: dict[str, float | None] = field(default_factory=dict)

    @cached_property
    def name_set(self) -> frozenset[str]:
        """The names."""
        return _share(frozenset(self.names))  # type: ignore[no-any-return]

    @cached_property
    def config_places(self) -> Mapping[str, int]:
        """Where the value of each key is."""
        return _places(self.config_keys)

    @cached_property
    def seed(self) -> str | None:
        """The seed of the run."""
        return seed_of(dict(zip(self.config_keys, self.config_values, strict=True)))

    def config(self, key: str) -> Any:
        """Return the value of a key; None if there is none."""
        place = self.config_places.get(key)
        return None if place is None else self.config_values[place]

    def lacks(self, column: str) -> bool:
        """Return whether the number of a column is not known, but could be read."""
        if column in self.values:
            return False
        name = STATISTIC.fullmatch(column)
        return name is not None and (name["name"] in self.headlines or name["name"] in self.name_set)

    def record(self) -> dict[str, Any]:
        """Return the summary for the index."""
        return {
            "config": dict(zip(self.config_keys, self.config_values, strict=True)),
            "setting": self.setting,
            "names": list(self.names),
            "headlines": {key: list(pair) for key, pair in self.headlines.items()},
            "values": self.values,
        }


_known_places: dict[tuple[str, ...], Mapping[str, int]] = {}


def _places(keys: tuple[str, ...]) -> Mapping[str, int]:
    if keys not in _known_places:
        _known_places[keys] = dict(zip(keys, count()))
    return _known_places[keys]


def from_record(record: Any) -> RunSummary:
    """Return a summary of the index; raise what decoding raises."""
    found = SUMMARY_RECORD(record)
    headlines = {key: (str(name), int(sign)) for key, (name, sign) in found["headlines"].items()}
    return _summary(found["config"], found["setting"], found["names"], headlines, found["values"])


def read_summary(view: View, names: RunNames, columns: Iterable[str]) -> RunSummary:
    """Return the summary of a run with the numbers of some columns, and the last and best headline values."""
    config = dict(flatten(view.config))
    headlines = {
        key: (value.name, SIGNS.get(value.match.metric.direction, 0)) for key, value in headline_values(names).items()
    }
    known = {key: _config_value(config[key]) for key in list(config)[:MAX_CONFIG]}
    summary = _summary(known, setting_digest(config), view.names(), headlines, {})
    usual = [f"{what}:{key}" for key in headlines for what in ("last", "best")]
    series: dict[str, Series] = {}
    for column in dict.fromkeys([*usual, *columns]):
        if summary.lacks(column):
            summary.values[column] = _number(view, summary, column, series)
    return summary


def _summary(
    config: Mapping[str, Any],
    setting: str | None,
    names: Iterable[str],
    headlines: Mapping[str, tuple[str, int]],
    values: dict[str, float | None],
) -> RunSummary:
    keys = _share(tuple(config))
    shared = tuple(_share(value) if isinstance(value, str | int | float) else value for value in config.values())
    return RunSummary(keys, shared, setting, _share(tuple(names)), headlines, values)


def _config_value(value: Any) -> Any:
    """Return a value of a config as a table shows it: a number, a truth, or a text."""
    if value is None or isinstance(value, bool | int | float):
        return to_strict_json(value)
    text = value if isinstance(value, str) else str(to_strict_json(value))
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"


def _number(view: View, summary: RunSummary, column: str, series: dict[str, Series]) -> float | None:
    found = STATISTIC.fullmatch(column)
    if found is None:
        return None
    name, sign = summary.headlines.get(found["name"], (found["name"], 1))
    if name not in series:
        series[name] = view.series(name)
    return statistic(series[name], found, sign)


def statistic(series: Series, asked: re.Match[str], sign: int) -> float | None:
    """Return one number of a series; None where it has none. The best is the lowest where ``sign`` is negative."""
    what, finite = asked[1], series.values[np.isfinite(series.values)]
    if not len(series):
        return None
    if what == "last":
        return series.last
    if asked["step"]:
        place = np.flatnonzero(series.steps == int(asked["step"]))
        return float(series.values[place[-1]]) if len(place) else None
    if not len(finite):
        return None
    if asked["count"]:
        return float(finite[-int(asked["count"]) :].mean())
    return float(finite.min() if what == "min" or (what == "best" and sign < 0) else finite.max())


ROW_FACTS = ("key", "project", "status", "vocabulary", "last_step", "began", "seconds", "bytes")

MAX_REASON = 500  # characters in a row

MAX_TAGS = 20

HealthBasis = tuple[FileStates, str | None, NamesFiles]
"""The files of a run, the source that a person has chosen, and the files that describe names."""


@dataclass(slots=True)
class ListedRun:
    """A run of the list, and the states of its files when each part was read."""

    location: RunLocation
    number: int = -1  # in the order of appearance, for its colour
    files: RunFiles = field(default_factory=lambda: RunFiles({}, 0))
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    imported: RunFacts | None = None  # of a log that was read
    problem: str = ""  # why a log could not be read
    reward: dict[str, Any] | None = None
    summary: RunSummary | None = None  # read together with the reward
    reward_files: FileStates | None = None
    reward_read_at: float = -1e9
    health: Health | None = None
    health_basis: HealthBasis | None = None  # what it was made of; also where it could not be made
    judged_at: float = -1e9
    changed: int = 0
    search_text: str = ""

    @property
    def name(self) -> str:
        """The name given on the page, else the logged one."""
        return str(self.annotations.get("name") or self.facts["logged_name"])

    @property
    def tags(self) -> list[str]:
        """The tags given on the page, else the logged ones."""
        given = self.annotations.get("tags")
        if given is None:
            return list(self.facts["tags"])
        return [tag for tag in (one.strip() for one in str(given).split(",")) if tag]

    @property
    def began(self) -> float:
        """When the run began."""
        return float(self.facts["began"])

    @property
    def last_heard(self) -> float:
        """When the run was written to last."""
        return float(self.facts["last_heard"])

    @property
    def health_record(self) -> dict[str, Any] | None:
        """The doctor's verdict, and whether it is on the files as they are now; None if it is not known."""
        if self.health is None or self.health_basis is None:
            return None
        return {**self.health.record(), "is_current": self.health_basis[0] == self.files.states}

    def update_search_text(self) -> None:
        """Find the texts that a search looks at."""
        facts = self.facts
        words = (self.name, facts["project"], facts["status"], facts["vocabulary"], *self.tags)
        self.search_text = " ".join((*words, self.annotations["note"])).lower()

    def record(self) -> dict[str, Any]:
        """Return everything about the run."""
        own = {"number": self.number, "reward": self.reward, "health": self.health_record}
        return {**self.facts, **own, **self.annotations, "name": self.name, "tags": self.tags}

    def row(self) -> dict[str, Any]:
        """Return what a row of the list shows."""
        return {
            **{name: self.facts[name] for name in ROW_FACTS},
            **self.annotations,
            "name": self.name,
            "number": self.number,
            "reason": self.facts["reason"][:MAX_REASON],
            "tags": self.tags[:MAX_TAGS],
            "reward": self.reward,
            "health": self.health_record,
        }


def log_glance(run: ListedRun, log: Log) -> Glance:
    """Return the facts about a run in a log: those of its import, or before that, what name and files tell."""
    files = run.files
    if run.imported is not None:
        return seen_at(log.place, run.imported, files.bytes)
    info = log_info(log, oldest_file(files))
    status = Status("unreadable", run.problem) if run.problem else Status("unknown", "the log is not read yet")
    heard = max(modified for _, modified, _ in files.states.values()) / 1e9
    return Glance(info, log.place, status, None, info.created, heard, files.bytes, 1, 1)


def facts_record(location: RunLocation, seen: Glance) -> dict[str, Any]:
    """Return the facts about a run."""
    info = seen.info
    return {
        "key": location.key,
        "id": info.id,
        "logged_name": info.name,
        "project": info.project,
        "kind": location.kind,
        "status": seen.status.word,
        "reason": seen.status.reason,
        "vocabulary": info.vocabulary,
        "producer": info.producer,
        "group": info.group,
        "tags": list(info.tags),
        "notes": info.notes,
        "last_step": seen.last_step,
        "began": seen.began,
        "last_heard": seen.last_heard,
        "seconds": max(0.0, seen.last_heard - seen.began) or None,  # a log without times has none
        "bytes": seen.bytes,
        "writers": seen.writers,
        "attempts": seen.attempts,
    }


SPARK_POINTS = 48

KIND = "rewards"

SPARK = object_of(
    {
        "min": list_of(nullable(fields.read_number)),
        "max": list_of(nullable(fields.read_number)),
        "nonfinite": list_of(fields.read_count),
    },
    ("min",),
)

REWARD = nullable(
    object_of({"name": fields.read_text, "last": fields.read_number, "spark": SPARK}, ("name", "last", "spark"))
)

INDEX_RECORD = object_of({"reward": REWARD, "summary": fields.read_any}, ("reward", "summary"))


class RewardIndex:
    """The rewards that were read, by the folder of the run, for the next server."""

    def __init__(self, dir: Path, folder: Path | None = None) -> None:
        self._dir = dir
        self._index = DirectoryIndex(folder or dir, KIND)
        self._loaded = self._index.load()

    def take(self, run: ListedRun) -> bool:
        """Use an earlier server's result if the files are the same; return whether there was one."""
        digest, record = self._loaded.pop(self._path_of(run), ("", None))
        if digest != _digest(run, run.files.states):
            return False
        try:
            found = INDEX_RECORD(record)
            run.summary = None if found["summary"] is None else from_record(found["summary"])
        except (DecodingError, TypeError, ValueError):
            return False
        run.reward = found["reward"]
        run.reward_files = run.files.states
        return True

    def save(self, runs: Iterable[ListedRun]) -> None:
        """Store the results of runs that have ended: one that goes on has other files when the next server starts."""
        self._index.save(
            {
                self._path_of(run): (_digest(run, run.reward_files), _record(run))
                for run in runs
                if run.ended and run.reward_files
            }
        )

    def _path_of(self, run: ListedRun) -> str:
        return run.location.path.relative_to(self._dir).as_posix()


def _record(run: ListedRun) -> dict[str, Any]:
    return {"reward": run.reward, "summary": None if run.summary is None else run.summary.record()}


def _digest(run: ListedRun, states: FileStates) -> str:
    """Return the digest of what the reward was read from: the files, and the source that a person has chosen."""
    source = run.annotations.get("source")
    return files_digest(states) + (f" {source}" if source else "")


def reward_summary(view: View, names: RunNames) -> dict[str, Any] | None:
    """Return the reward of a run with its sparkline, or None where it logs none."""
    value = headline_values(names).get("reward")
    if value is None:
        return None
    series = view.series(value.name)
    buckets = series.zoom(max_points=SPARK_POINTS)
    low, high = _rounded(buckets.min), _rounded(buckets.max)
    spark: dict[str, Any] = {"min": low}
    if high != low:
        spark["max"] = high
    if buckets.nonfinite.any():
        spark["nonfinite"] = buckets.nonfinite.tolist()
    return {"name": value.name, "last": float(series.last), "spark": spark}


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Round values to five digits: a sparkline shows no more, and the list is half as large."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
