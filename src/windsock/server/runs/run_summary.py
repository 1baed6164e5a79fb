"""What a table shows of a run besides the facts: its config, and single numbers of its series.

A summary is made when the complete run is read. Thousands are kept, so equal parts are stored once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from windsock.catalogue.headline import headline_values
from windsock.catalogue.resolution import RunNames
from windsock.comparison.seeds import seed_of, setting_digest
from windsock.formatting import flatten
from windsock.journal import decoding
from windsock.journal.decoding import list_of, mapping_of, nullable, object_of
from windsock.journal.series import Series
from windsock.server.responses import to_strict_json
from windsock.view import View

STATISTIC = re.compile(
    r"(last|best|max|min|mean(?P<count>[1-9][0-9]{0,6})|at(?P<step>-?[0-9]{1,15})):(?P<name>.+)", re.DOTALL
)
MAX_VALUE_LENGTH = 200  # characters of a config's value
MAX_CONFIG = 5000  # keys
SIGNS = {"higher": 1, "lower": -1}
RECORD = object_of(
    {
        "config": mapping_of(decoding.read_any),
        "setting": nullable(decoding.read_text),
        "names": list_of(decoding.read_text),
        "headlines": mapping_of(list_of(decoding.read_any)),
        "values": mapping_of(nullable(decoding.read_number)),
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
    found = RECORD(record)
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
