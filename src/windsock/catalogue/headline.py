"""Headline values: the few metrics of a run that its overview shows first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from windsock.catalogue.compiled import load
from windsock.catalogue.names import Match, recognise
from windsock.catalogue.spec import Text


@dataclass(frozen=True, slots=True)
class Headline:
    """A value that the overview of a run shows first, and the metrics it can be taken from, the best first."""

    key: str
    title: Text
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeadlineValue:
    """A headline value as a run logs it: the name to show, its match, and other names of the same metric."""

    headline: Headline
    name: str
    match: Match
    others: tuple[str, ...] = ()


@cache
def headlines() -> tuple[Headline, ...]:
    """Return the headline values in the order in which they are shown."""
    return tuple(Headline(*each) for each in load().headline)


@cache
def _wanted() -> frozenset[str]:
    return frozenset(id for headline in headlines() for id in headline.metrics)


def headline_values(names: Iterable[str], source: str | None = None) -> dict[str, HeadlineValue]:
    """Return the headline values that a run logs, by key; ``source`` is the writer of the names."""
    logged: dict[str, list[tuple[str, Match]]] = {}
    wanted = _wanted()
    for name in names:
        match = next((match for match in recognise(name, source).matches if match.metric.id in wanted), None)
        if match is not None and not match.evaluated:  # a number of an evaluation set is not the training's
            logged.setdefault(match.metric.id, []).append((name, match))
    found = {}
    for headline in headlines():
        candidates = next((logged[id] for id in headline.metrics if id in logged), None)
        if candidates:
            (name, match), *others = sorted(candidates, key=_runs_per_task, reverse=True)
            found[headline.key] = HeadlineValue(headline, name, match, tuple(other for other, _ in others))
    return found


def _runs_per_task(logged: tuple[str, Match]) -> int:
    """Return k of a statistic such as mean@k: the evaluation over most runs is the least noisy."""
    return int(dict(logged[1].filled).get("k", 0))
