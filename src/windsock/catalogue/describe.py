"""All that is known about a name, in one language, ready to be drawn, printed or sent as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from windsock.catalogue import words
from windsock.catalogue.formulas import formula
from windsock.catalogue.names import Match, Recognition, recognise
from windsock.catalogue.patterns import PLACEHOLDERS, Placeholder, fill
from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.spec import ERAS, PRODUCERS, Band, CatalogueError, Difference, Metric, Name, inputs
from windsock.catalogue.words import word

MENTION = re.compile(r"[a-z_]+(?:/(?:[a-z0-9_@]|\{\w+\})+)+(?:/\*)?")
"""An id, or the beginning of several, in a sentence."""


@dataclass(frozen=True, slots=True)
class NameLine:
    """One name of the metric: whether it is the same (``=``, ``≈``, ``≠``), who writes it, and how it differs."""

    mark: str
    name: str
    sources: tuple[str, ...]
    difference: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What the asked name means in one writer's hands."""

    source: str
    id: str
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A metric explained, for the name that was asked, in one language."""

    name: str
    id: str
    title: str
    family: str
    crucial: bool
    about: str
    here: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    band: str
    band_source: str
    healthy: str
    next: str
    asked: tuple[Reading, ...]
    readings: tuple[Reading, ...]
    names: tuple[NameLine, ...]
    traps: tuple[tuple[str, tuple[str, ...]], ...]
    close: tuple[tuple[str, str], ...]


def describe(name: str, lang: str = "en", source: str | None = None) -> Explanation | None:
    """Explain a name or an id; None when nobody is known to write it.

    Of a name with several meanings the first is explained, ours before others', and ``readings`` lists them all.
    """
    recognition = recognise(name, source)
    if not recognition.matches:
        return None
    match = recognition.matches[0]
    return _explanation(name, match, recognition, lang)


def _explanation(name: str, match: Match, recognition: Recognition, lang: str) -> Explanation:
    metric = match.metric
    band = metric.healthy
    return Explanation(
        name=name,
        id=match.id,
        title=metric.title.say(lang),
        family=metric.family,
        crucial=metric.crucial,
        about=metric.about.say(lang),
        here=tuple(_held(match, lang)),
        facts=tuple(facts(metric, lang)),
        band=band_text(band, lang) if band else "",
        band_source=band.source.say(lang) if band else "",
        healthy=_in_words_of(match, metric.look.say(lang)),
        next=_in_words_of(match, metric.next.say(lang)),
        asked=tuple(_asked(match, recognition, lang)),
        readings=tuple(_reading(each, lang) for each in _different(recognition)),
        names=tuple(replace(line, name=fill(line.name, match.filled)) for line in name_lines(metric, lang)),
        traps=tuple((word(words.PRODUCER_WORDS, where, lang), texts) for where, texts in _traps(metric, lang).items()),
        close=tuple((", ".join(ids), note) for note, ids in close(metric, lang).items()),
    )


def facts(metric: Metric, lang: str) -> list[tuple[str, str]]:
    """Return the metric's plain facts as headings and values; those it does not have are left out."""
    found = {
        "formula": "" if _is_said(metric) else formula(metric.formula, lang),
        "unit": word(words.UNITS, metric.unit, lang),
        "over": word(words.POPULATION_WORDS, metric.population, lang),
        "taken": word(words.PART_WORDS, metric.part, lang),
        "estimator": word(words.ESTIMATOR_WORDS, metric.estimator, lang),
        "better": word(words.DIRECTION_WORDS, metric.direction, lang),
        "needs": ", ".join(_need(need, lang) for need in metric.needs),
    }
    return [(word(words.HEADINGS, heading, lang), value) for heading, value in found.items() if value]


def _need(need: str, lang: str) -> str:
    either = word(words.HEADINGS, "or", lang).join(inputs(need))
    return f"{either} {word(words.HEADINGS, 'optional', lang)}" if need.endswith("?") else either


def _is_said(metric: Metric) -> bool:
    """Whether the formula only repeats the description."""
    return metric.formula.lower() == metric.about.en.rstrip(".").lower()


def band_text(band: Band, lang: str) -> str:
    """Say a band in words."""
    if band.low is None:
        return f"≤ {band.high:g}"
    if band.high is None:
        return f"≥ {band.low:g}"
    return f"{band.low:g} 到 {band.high:g}" if lang == "zh" else f"{band.low:g} to {band.high:g}"


def name_lines(metric: Metric, lang: str) -> list[NameLine]:
    """Return the metric's names, ours first; writers of one name who mean the same share a line."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for name in sorted(metric.names, key=lambda name: PRODUCERS.index(name.producer)):
        key = (_mark(name), name.pattern, _difference(name.difference, lang))
        lines.setdefault(key, []).append(source_of(name))
    return [NameLine(mark, pattern, tuple(who), note) for (mark, pattern, note), who in lines.items()]


def source_of(name: Name) -> str:
    """Return who writes a name, as ``--source`` takes it."""
    return f"{name.producer}/{name.era}" if name.era else name.producer


def _traps(metric: Metric, lang: str) -> dict[str, tuple[str, ...]]:
    wheres = dict.fromkeys(trap.where for trap in metric.traps)
    return {where: tuple(trap.text.say(lang) for trap in metric.traps if trap.where == where) for where in wheres}


def _mark(name: Name) -> str:
    difference = name.difference
    if difference is None:
        return "="
    if difference.refuse:
        return "≠"
    return "=" if difference.kinds == ("unit",) and difference.factor is not None else "≈"


def _difference(difference: Difference | None, lang: str) -> str:
    if difference is None:
        return ""
    kinds = (", " if lang == "en" else "、").join(word(words.KIND_WORDS, kind, lang) for kind in difference.kinds)
    factor = difference.factor
    tail = ""
    if factor is not None and factor != 1.0:
        tail = words.EXACT_BY.say(lang).format(factor=f"{factor:g}")
        tail = f" ({tail})" if lang == "en" else f"（{tail}）"
    return f"{kinds}: {difference.note.en}{tail}" if lang == "en" else f"{kinds}：{difference.note.zh}{tail}"


def _held(match: Match, lang: str) -> list[tuple[str, str]]:
    lines = [(f"{value}", _meaning(PLACEHOLDERS.get(name), name, value, lang)) for name, value in match.filled]
    if match.suffix:
        note = "the reducer that the framework keeps in the key" if lang == "en" else "框架保留在键名中的归约方式"
        lines.append((match.suffix, note))
    if match.prefix:
        note = "the prefix of the tracker integration" if lang == "en" else "追踪器集成所加的前缀"
        lines.append((match.prefix, note))
    return lines


def _meaning(placeholder: Placeholder | None, name: str, value: str, lang: str) -> str:
    if placeholder is None:
        return name
    chosen = dict(placeholder.choices).get(value)
    return (chosen or placeholder.about).say(lang)


def _different(recognition: Recognition) -> list[Match]:
    """Return one reading per metric, when there are several."""
    if not recognition.ambiguous:
        return []
    return list({match.metric.id: match for match in reversed(recognition.matches)}.values())[::-1]


def _asked(match: Match, recognition: Recognition, lang: str) -> list[Reading]:
    """Return how those who write this very name differ from the metric, unless the readings say so already."""
    if recognition.ambiguous:
        return []
    return [
        _reading(each, lang)
        for each in recognition.matches
        if each.metric is match.metric and each.name.difference is not None
    ]


def _reading(match: Match, lang: str) -> Reading:
    return Reading(
        match.source, match.metric.id, match.metric.title.say(lang), _difference(match.name.difference, lang)
    )


def close(metric: Metric, lang: str) -> dict[str, list[str]]:
    """Return the notes about close metrics, each with the metrics it speaks of."""
    notes: dict[str, list[str]] = {}
    for link in metric.links:
        ids = notes.setdefault(link.note.say(lang), [])
        if link.to not in ids:
            ids.append(link.to)
    return notes


def _in_words_of(match: Match, text: str) -> str:
    """Put the writer's own names in for ids, so that a reader finds the curves that a sentence speaks of."""

    def spoken(found: re.Match[str]) -> str:
        try:
            metric = REGISTRY.metric(found[0])
        except CatalogueError:
            return found[0]
        eras = {name.era: name.pattern for name in reversed(metric.names) if name.producer == match.name.producer}
        likely = (match.name.era, "") if match.name.era else ("", *ERAS.get(match.name.producer, ()))
        pattern = next((eras[era] for era in likely if era in eras), found[0])
        return found[0] if "{" in pattern else pattern

    return fill(MENTION.sub(spoken, text), match.filled)


def families(lang: str = "en") -> list[tuple[str, str, str, list[Metric]]]:
    """Return every family that has metrics: its key, title, introduction and metrics."""
    return [
        (family, title.say(lang), words.FAMILY_INTROS[family].say(lang), found)
        for family, title in words.FAMILY_TITLES.items()
        if (found := REGISTRY.metrics(family))
    ]
