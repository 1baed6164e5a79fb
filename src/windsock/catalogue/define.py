"""Declaration of a user's own metrics, with the checks of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.spec import Band, Metric, MetricName, RelatedMetric, Text, Trap


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
        _text(formula or _AS_LOGGED),
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
