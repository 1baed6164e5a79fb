"""Metrics of the user's own, under the same checks as ours."""

from __future__ import annotations

from collections.abc import Iterable

from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.spec import Band, Link, Metric, Name, Text, Trap


def define(
    id: str,
    about: str | Text,
    *,
    unit: str,
    title: str | Text = "",
    formula: str = "as logged",
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
    names: Iterable[Name] = (),
    traps: Iterable[Trap] = (),
    links: Iterable[Link] = (),
) -> Metric:
    """Declare a metric of your own, so that it is recognised, explained and drawn like the others.

    A plain string serves both languages; ``Text(en, zh)`` gives each its own. An id or a name that another metric
    has already is refused, naming both.
    """
    metric = Metric(
        id,
        family,
        _text(title or id),
        _text(about),
        formula,
        unit,
        population,
        statistic,
        state,
        look=_text(look) if look else _NO_LOOK,
        next=_text(next) if next else _NO_NEXT,
        direction=direction,
        healthy=healthy,
        needs=tuple(needs),
        part=part,
        estimator=estimator,
        names=tuple(names),
        traps=tuple(traps),
        links=tuple(links),
    )
    REGISTRY.add(metric)
    return metric


_NO_LOOK = Text("Nobody has said yet what healthy looks like.", "尚未说明健康时应是什么样。")
_NO_NEXT = Text("Nothing is named to look at next.", "尚未指明接下来看什么。")


def _text(said: str | Text) -> Text:
    return said if isinstance(said, Text) else Text(said, said)
