"""A user's own metrics: declared in code, or described in ``names.yaml``; and suggestions for unknown names.

The file is beside the runs, or in the user's config directory::

    my/kl: policy/kl_loss            # the id of the metric that it is
    my/score:
      about: share of right answers
      unit: fraction
      better: higher

Suggested are known names that are similar, by the groups of three letters that they share, and a guess of unit and
direction from the form of a name, where that is safe.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from heapq import nlargest
from pathlib import Path
from typing import Any

from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import (
    TAUGHT,
    Band,
    CatalogueError,
    Metric,
    MetricName,
    RelatedMetric,
    Text,
    Trap,
    unknown,
)


def define(
    id: str,
    about: str | Text,
    *,
    unit: str,
    title: str | Text = "",
    formula: str | Text = "",
    family: str = "custom",
    population: str = "steps",
    statistic: str = "other",
    state: str = "none",
    direction: str = "none",
    healthy: Band | None = None,
    look: str | Text = "",
    next: str | Text = "",
    needs: Iterable[str] = (),
    part: str = "",
    estimator: str = "",
    names: Iterable[MetricName] = (),
    traps: Iterable[Trap] = (),
    related: Iterable[RelatedMetric] = (),
) -> Metric:
    """Declare a metric of your own: it is recognised, explained and drawn like the others.

    A plain string serves both languages; ``Text(en, zh)`` gives each its own. Raises when another metric has the id
    or one of the names.
    """
    metric = Metric(
        id,
        family,
        _text(title or id),
        _text(about),
        unit,
        population,
        statistic,
        state,
        _text(formula or _AS_LOGGED),
        look=_text(look) if look else _NO_LOOK,
        next=_text(next) if next else _NO_NEXT,
        direction=direction,
        healthy=healthy,
        needs=tuple(needs),
        part=part,
        estimator=estimator,
        names=tuple(names),
        traps=tuple(traps),
        related=tuple(related),
    )
    REGISTRY.add(metric)
    return metric


# Every metric needs these texts, for the explanations; a user need not write them.
_AS_LOGGED = Text("as logged", "以记录为准")

_NO_LOOK = Text("Not described: what a healthy run looks like.", "尚未说明正常时的表现。")

_NO_NEXT = Text("Not described: where to look next.", "尚未说明接下来看什么。")


def _text(text: str | Text) -> Text:
    return text if isinstance(text, Text) else Text(text, text)


FILE = "names.yaml"

NamesFiles = dict[Path, tuple[int, int]]

_KEYS = ("is", "about", "unit", "better")

_BETTER = ("higher", "lower")


@dataclass(frozen=True, slots=True)
class Taught:
    """The meanings that files give to names, and the entries that could not be used."""

    matches: dict[str, Match] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def config_file() -> Path:
    """Return the file in the user's config directory."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "barograph" / FILE


def names_files(folder: Path) -> NamesFiles:
    """Return the files that describe names of a run in this folder, the nearest last, with their times and sizes."""
    return {**shared_names_files(folder.parent), **own_names_file(folder)}


def shared_names_files(parent: Path) -> NamesFiles:
    """Return those of these files that are not in the folder of a run, but apply to all runs in the same directory."""
    return _states([config_file(), parent.parent / FILE, parent / FILE])


def own_names_file(folder: Path) -> NamesFiles:
    """Return the file in the folder of a run, if there is one."""
    return _states([folder / FILE])


def _states(files: list[Path]) -> NamesFiles:
    found = {}
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        found[file] = state.st_mtime_ns, state.st_size
    return found


def taught_names(folder: Path) -> Taught:
    """Return what the files for a run in this folder teach; the nearest file wins."""
    found = Taught()
    for file, (modified, size) in names_files(folder).items():
        read = _read(file, modified, size)
        found.matches.update(read.matches)
        found.problems.extend(read.problems)
    return found


@lru_cache(maxsize=64)
def _read(file: Path, modified: int, size: int) -> Taught:
    """Read a file; its time and size are part of the cache's key."""
    found = Taught()
    try:
        data = _load(file)
    except CatalogueError as problem:
        found.problems.append(str(problem))
        return found
    for name, value in data.items():
        try:
            metric = _metric(str(name), value)
        except CatalogueError as problem:
            found.problems.append(f"{file}: {name}: {problem}")
            continue
        if metric is not None:
            found.matches[str(name)] = Match(metric, MetricName(str(name), TAUGHT))
    return found


def _load(file: Path) -> Mapping[Any, Any]:
    from omegaconf import OmegaConf

    try:
        data = OmegaConf.to_container(OmegaConf.load(file))
    except Exception as error:  # of the YAML parser, of OmegaConf, or of the file system
        raise CatalogueError(f"{file}: cannot be read as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(data, Mapping):
        raise CatalogueError(f"{file}: expected names with their meanings, got {type(data).__name__}")
    return data


def _metric(name: str, value: object) -> Metric | None:
    """Return the metric that an entry describes; None for one that is not filled in."""
    entry = {"is": value} if isinstance(value, str) else value
    if entry is None:
        return None
    if not isinstance(entry, Mapping):
        raise CatalogueError(f"expected the id of a metric, or {', '.join(_KEYS)}; got {value!r}")
    given = {str(key): each for key, each in entry.items() if each not in (None, "")}
    for key in given.keys() - set(_KEYS):
        raise CatalogueError(unknown("key", key, _KEYS))
    if "is" in given:
        return REGISTRY.metric(str(given["is"]))
    return _described(name, given) if "about" in given else None


def _described(name: str, given: Mapping[str, Any]) -> Metric:
    about, better = str(given["about"]), str(given.get("better", "none"))
    if better not in (*_BETTER, "none"):
        raise CatalogueError(unknown("direction", better, _BETTER))
    metric = Metric(
        id=f"taught/{name}",
        family="custom",
        title=Text(name, name),
        about=Text(about, about),
        unit=str(given.get("unit", "1")),
        direction=better,
    )
    REGISTRY.teach(metric)
    return metric


def template(unknown_names: Iterable[str], ambiguous: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield the lines of a file to fill in: an entry for each name, with what its form suggests."""
    for name, meanings in ambiguous.items():
        options = " or ".join(f"{id} ({', '.join(sources)})" for id, sources in meanings.items())
        yield f"{_quoted(name)}:\n  is:  # {options}"
    for name in unknown_names:
        found = guess(name)
        similar = ", ".join(nearest(name, 3))
        yield f"{_quoted(name)}:\n  is:  # the id of a metric" + (f"; similar names: {similar}" if similar else "")
        yield "  about:  # or one sentence"
        unit, direction = (found.unit, found.direction) if found else ("", "none")
        yield f"  unit: {unit}  # guessed from the name" if unit else "  unit:"
        known = direction != "none"
        yield f"  better: {direction}  # guessed from the name" if known else "  better:  # higher or lower"


def _quoted(name: str) -> str:
    """Return a name as a key of YAML."""
    if re.fullmatch(r"[A-Za-z][\w./-]*", name, re.ASCII) and name.lower() not in _WORDS_OF_YAML:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


_WORDS_OF_YAML = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


_PLACEHOLDER = re.compile(r"\{\w+\}")

_SEPARATORS = re.compile(r"[^a-z0-9/]")

_ENOUGH = 0.12  # similarity from which on a name is shown


def nearest(name: str, count: int = 5) -> list[str]:
    """Return known names that are similar to a name, the closest first."""
    # The version is part of the caches' keys: ``define`` adds names.
    return list(_nearest(name, count, REGISTRY.version))


@lru_cache(maxsize=1 << 12)
def _nearest(name: str, count: int, version: int) -> tuple[str, ...]:
    index, groups = _index(version), _groups(name)
    total = sum(index.weights.get(group, index.unseen) for group in groups)
    shared: dict[str, float] = defaultdict(float)
    for group in groups & index.weights.keys():
        for known in index.names[group]:
            shared[known] += index.weights[group]
    scores = {known: both / (total + index.totals[known] - both) for known, both in shared.items()}
    # A name that ends with the wanted one was meant, whatever its family.
    best = nlargest(count, scores, key=lambda known: (known.endswith(f"/{name}"), scores[known], -len(known), known))
    return tuple(known for known in best if scores[known] >= _ENOUGH)


@dataclass(frozen=True, slots=True)
class _Index:
    """Known names by their groups of letters. Rare groups say more, so they weigh more."""

    names: dict[str, list[str]]
    weights: dict[str, float]
    unseen: float  # weight of a group that no name has
    totals: dict[str, float]  # weight of all groups of a name


@lru_cache(maxsize=1)
def _index(version: int) -> _Index:
    found = {entry.name.pattern: _groups(entry.name.pattern) for entry in REGISTRY.entries()}
    names: dict[str, list[str]] = defaultdict(list)
    for name, groups in found.items():
        for group in groups:
            names[group].append(name)
    weights = {group: math.log((len(found) + 1) / len(having)) for group, having in names.items()}
    totals = {name: sum(map(weights.__getitem__, groups)) for name, groups in found.items()}
    return _Index(names, weights, math.log(len(found) + 1), totals)


def _groups(name: str) -> set[str]:
    # Without underscores, since one framework's policykl is the policy_kl of another.
    letters = f"/{_SEPARATORS.sub('', _PLACEHOLDER.sub('', name.lower()))}/"
    return {letters[place : place + 3] for place in range(len(letters) - 2)}


_RULES: tuple[tuple[str, str, str, str], ...] = (
    # The first expression that fits decides: family, unit and the better direction.
    (r"(tokens|tok)(_per_|/)(sec(ond)?|s)$|(^|[/_])tps$", "system", "tokens/s", "higher"),
    (r"samples(_per_|/)(sec(ond)?|s)$", "system", "samples/s", "higher"),
    (r"(_per_|/)(sec(ond)?|s)$", "system", "", "higher"),
    (r"(^|[/_.])(ms|milliseconds)$", "time", "ms", "none"),
    (r"^(time|timing|timing_s|timeperf)/|(^|[/_.])(s|sec|secs|seconds|time)$", "time", "seconds", "none"),
    (r"(^|[/_.])(gb|gib)$", "memory", "GiB", "none"),
    (r"(^|[/_.])(mb|mib)$", "memory", "MiB", "none"),
    (r"(^|[/_.])bytes$", "memory", "bytes", "none"),
    (r"(^|[/_.])(frac|fraction)$", "", "fraction", "none"),
    (r"(^|[/_.])(pct|percent)$", "", "percent", "none"),
    (r"(^|[/_.])(count|num|total)$|(^|[/_.])(num|n)_\w+$", "", "count", "none"),
    (r"(^|[/_.])(loss)(/(mean|avg))?$", "", "", "lower"),
    (r"(^|[/_.])(accuracy|acc)(/(mean|avg))?$", "", "fraction", "higher"),
    (r"(^|[/_.])(reward|score|return)(/(mean|avg))?$", "reward", "reward", "higher"),
)


@dataclass(frozen=True, slots=True)
class Guess:
    """What the form of a name suggests; empty where it suggests nothing. It is shown as guessed, and never judged."""

    family: str
    unit: str
    direction: str


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@lru_cache(maxsize=1 << 14)
def guess(name: str) -> Guess | None:
    """Return what the form of a name suggests, or None."""
    for expression, family, unit, direction in _RULES:
        if _compiled(expression).search(name.lower()):
            return Guess(family, unit, direction)
    return None
