"""The few words in which the families are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windsock.catalogue.spec import Difference, Link, Metric, Name, Text, Trap

Names = tuple[Name, ...]


def ours(pattern: str, *vocabularies: str, difference: Difference | None = None) -> Names:
    """Name what windsock itself writes in some vocabularies."""
    return tuple(Name(pattern, f"windsock:{vocabulary}", "", difference) for vocabulary in vocabularies)


def same(pattern: str, *producers: str, era: str = "") -> Names:
    """Name what frameworks log under the same definition as ours."""
    return tuple(Name(pattern, producer, era) for producer in producers)


def differs(pattern: str, *producers: str, by: Difference, era: str = "") -> Names:
    """Name what frameworks log under a definition that differs."""
    return tuple(Name(pattern, producer, era, by) for producer in producers)


def difference(kinds: str, en: str, zh: str, *, factor: float | None = None, refuse: bool = False) -> Difference:
    """State a difference; several kinds are separated by spaces. Without ``factor`` no arithmetic bridges it."""
    return Difference(tuple(kinds.split()), Text(en, zh), factor, refuse)


def trap(where: str, en: str, zh: str) -> Trap:
    """State a trap of one framework, or of all (``""``)."""
    return Trap(where, Text(en, zh))


def link(to: str, en: str, zh: str, *, refuse: bool = True, **fill: str) -> Link:
    """Point at a close metric; ``refuse=False`` lets it stand in, with the note. Keywords fill placeholders."""
    return Link(to, Text(en, zh), refuse, tuple(fill.items()))


MILLISECONDS = difference("unit", "Written in milliseconds.", "以毫秒为单位。", factor=0.001)

_STATISTIC_TITLES = {
    "mean": Text("mean", "均值"),
    "max": Text("maximum", "最大值"),
    "min": Text("minimum", "最小值"),
    "std": Text("standard deviation", "标准差"),
}
_STATISTIC_NOTES = {
    "mean": Text("", ""),
    "max": Text(
        "The largest single one of the step, over all micro-batches and ranks: a true maximum, never a mean of maxima.",
        "取整个步（所有微批次、所有 rank）中最大的一个：是真正的最大值，而不是各处最大值的平均。",
    ),
    "min": Text(
        "The smallest single one of the step, over all micro-batches and ranks: a true minimum, never a "
        "mean of minima.",
        "取整个步（所有微批次、所有 rank）中最小的一个：是真正的最小值，而不是各处最小值的平均。",
    ),
    "std": Text(
        "The population standard deviation (ddof 0) of the pooled values.",
        "对汇总后的全部取值求总体标准差（ddof 0）。",
    ),
}
_STATES = {"mean": "mean", "max": "extrema", "min": "extrema", "std": "moments"}


def spread(
    id: str,
    family: str,
    title: Text,
    about: Text,
    formula: str,
    *,
    stats: Sequence[str] = ("mean", "max", "min"),
    names: Iterable[Name] = (),
    special: Mapping[str, Mapping[str, Any]] | None = None,
    **common: Any,
) -> tuple[Metric, ...]:
    """Declare the same quantity's mean, maximum, minimum, … as metrics ``id/mean``, ``id/max``, ….

    ``{stat}`` in the names and the formula stands for the statistic; a name without it belongs to the first one.
    ``special`` overrides fields of single statistics; ``extra_names`` there adds names.
    """
    template = Metric(
        f"{id}/{stats[0]}", family, title, about, formula, statistic=stats[0], state=_STATES[stats[0]], **common
    )
    declared = list(names)
    return tuple(_one(template, id, stat, stats[0], declared, dict((special or {}).get(stat, {}))) for stat in stats)


def _one(template: Metric, id: str, stat: str, first: str, names: list[Name], own: dict[str, Any]) -> Metric:
    heading, note = _STATISTIC_TITLES[stat], _STATISTIC_NOTES[stat]
    about = template.about
    extra: Names = own.pop("extra_names", ())
    fields: dict[str, Any] = {
        "id": f"{id}/{stat}",
        "title": Text(f"{template.title.en}: {heading.en}", f"{template.title.zh}：{heading.zh}"),
        "about": Text(f"{about.en} {note.en}".strip(), f"{about.zh}{note.zh}"),
        "formula": template.formula.replace("{stat}", stat),
        "statistic": stat,
        "state": _STATES[stat] if template.state != "none" else "none",
        "healthy": template.healthy if stat == first else None,
        "crucial": template.crucial and stat == first,
        "names": (*_for_statistic(names, stat, first), *extra),
    }
    return replace(template, **(fields | own))


def _for_statistic(names: Iterable[Name], stat: str, first: str) -> Names:
    return tuple(
        replace(name, pattern=name.pattern.replace("{stat}", stat))
        for name in names
        if "{stat}" in name.pattern or stat == first
    )
