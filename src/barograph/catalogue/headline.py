"""Headline values: the few metrics of a run that its overview shows first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from barograph.catalogue.names import Match, candidates
from barograph.catalogue.registry import load_compiled
from barograph.catalogue.resolution import Resolution, RunNames
from barograph.catalogue.sources import COMMON
from barograph.catalogue.spec import Headline


@dataclass(frozen=True, slots=True)
class HeadlineValue:
    """A headline value as a run logs it: the name to show, its match, and other names of the same metric."""

    headline: Headline
    name: str
    match: Match
    others: tuple[str, ...] = ()


def headlines() -> tuple[Headline, ...]:
    """Return the headline values in the order in which they are shown."""
    return load_compiled().headlines


def crucial_values() -> tuple[Headline, ...]:
    """Return the values that show whether a run is healthy."""
    return load_compiled().crucial


@cache
def _wanted() -> frozenset[str]:
    return frozenset(id for headline in headlines() for id in headline.metrics)


def headline_values(names: RunNames) -> dict[str, HeadlineValue]:
    """Return the headline values that a run logs, by key."""
    logged: dict[str, list[tuple[str, Match]]] = {}
    for name in _relevant(names):
        match = names.match(name)
        # A number of an evaluation set is not the training's.
        if match is not None and match.metric.id in _wanted() and not match.evaluated:
            logged.setdefault(match.metric.id, []).append((name, match))
    found = {}
    for headline in headlines():
        likely = next((logged[id] for id in headline.metrics if id in logged), None)
        if likely:
            (name, match), *others = sorted(likely, key=_preference, reverse=True)
            found[headline.key] = HeadlineValue(headline, name, match, tuple(other for other, _ in others))
    return found


def undecided_values(names: RunNames) -> dict[str, Resolution]:
    """Return the ambiguous names that may be a headline value, by its key."""
    found: dict[str, Resolution] = {}
    for name in _relevant(names):
        resolution = names.resolve(name)
        if resolution.state == "ambiguous":
            for headline in headlines():
                if any(id in headline.metrics for id in resolution.meanings):
                    found.setdefault(headline.key, resolution)
    return found


def _relevant(names: RunNames) -> Iterator[str]:
    """Yield the names that can mean a headline value."""
    wanted = _wanted()
    for name in names.names:
        if names.is_taught(name) or any(one.match.metric.id in wanted for one in candidates(name)):
            yield name


def _preference(logged: tuple[str, Match]) -> tuple[bool, int]:
    """Return what makes a name the better one: a framework's own meaning, then most runs per task."""
    match = logged[1]
    return match.name.producer != COMMON, _runs_per_task(match)


def _runs_per_task(match: Match) -> int:
    """Return k of a statistic such as mean@k: the evaluation over most runs is the least noisy."""
    return int(dict(match.filled).get("k", 0))
