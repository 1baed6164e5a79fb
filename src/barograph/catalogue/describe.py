"""Explanations: everything that the catalogue knows about a name, in one language, for terminal, docs and JSON, and
the labels of units, populations, frameworks and headings in both languages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from barograph.catalogue.names import Match, Recognition, candidates, recognise
from barograph.catalogue.registry import REGISTRY, declared_placeholder, fill, load_compiled
from barograph.catalogue.sources import source_bits, sources_of
from barograph.catalogue.spec import ERAS, PRODUCERS, Band, CatalogueError, Difference, Metric, MetricName, Text, inputs


def label(table: str, key: str, lang: str) -> str:
    """Return the label of a key in a table of ``labels.toml``; an unknown key is its own label."""
    text = load_compiled().labels[table].get(key)
    return key if text is None else text.get(lang)


def eras() -> dict[str, Text]:
    """Return the descriptions of the frameworks' eras, by ``producer/era``."""
    return load_compiled().labels["eras"]


def family_labels() -> dict[str, tuple[Text, Text]]:
    """Return title and introduction of every family, in the order in which families are shown."""
    return load_compiled().families


MENTION = re.compile(r"[a-z_]+(?:/(?:[a-z0-9_@]|\{\w+\})+)+(?:/\*)?")
"""An id, or a prefix of ids with ``/*`` behind it, in a sentence."""


@dataclass(frozen=True, slots=True)
class NameLine:
    """One name of a metric: its mark (``=`` same, ``≈`` comparable, ``≠`` not), its writers and the difference."""

    mark: str
    name: str
    sources: tuple[str, ...]
    difference: str


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """Meaning of a name when a given source writes it."""

    source: str
    id: str
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A metric explained in one language, for one of its names."""

    name: str
    id: str
    title: str
    family: str
    crucial: bool
    about: str
    here: tuple[tuple[str, str], ...]  # values of placeholders in the name, and their meaning
    facts: tuple[tuple[str, str], ...]
    band: str
    band_source: str
    healthy: str
    next: str
    asked: tuple[NameMeaning, ...]  # how the writers of this very name differ
    readings: tuple[NameMeaning, ...]  # all meanings, where there are several
    names: tuple[NameLine, ...]
    traps: tuple[tuple[str, tuple[str, ...]], ...]
    close: tuple[tuple[str, str], ...]


def describe(name: str, lang: str = "en", source: str | None = None) -> Explanation | None:
    """Explain a name or an id; return None for an unknown one.

    Of a name with several meanings the first is explained, barograph's before those of others, and ``readings`` lists
    them all.
    """
    recognition = recognise(name, source)
    if not recognition.matches:
        return None
    match = recognition.matches[0]
    return _explanation(name, match, recognition, lang)


def describe_match(name: str, match: Match, lang: str = "en") -> Explanation:
    """Explain one meaning of a name."""
    return _explanation(name, match, Recognition(name, (match,)), lang)


def list_meanings(name: str, lang: str = "en", source: str | None = None) -> list[NameMeaning]:
    """Return the different meanings of a name, one per metric, those with the shortest definition first."""
    bits = -1 if source is None else source_bits(source)
    found: dict[str, tuple[Match, list[str]]] = {}
    for candidate in candidates(name):
        if candidate.bits & bits:
            _, sources = found.setdefault(candidate.match.metric.id, (candidate.match, []))
            sources.extend(each for each in sources_of(candidate.bits & bits) if each not in sources)
    ordered = sorted(found.values(), key=lambda each: len(each[0].metric.about.get(lang)))
    return [
        NameMeaning(", ".join(sources), match.metric.id, match.metric.title.get(lang), match.metric.about.get(lang))
        for match, sources in ordered
    ]


def _explanation(name: str, match: Match, recognition: Recognition, lang: str) -> Explanation:
    metric = match.metric
    band = metric.healthy
    return Explanation(
        name=name,
        id=match.id,
        title=metric.title.get(lang),
        family=metric.family,
        crucial=metric.crucial,
        about=metric.about.get(lang),
        here=tuple(_placeholder_values(match, lang)),
        facts=tuple(facts(metric, lang)),
        band=band_text(band, lang) if band else "",
        band_source=band.source.get(lang) if band else "",
        healthy=_with_names_of(match, metric.look.get(lang)),
        next=_with_names_of(match, metric.next.get(lang)),
        asked=tuple(_differing_writers(match, recognition, lang)),
        readings=tuple(_meaning(each, lang) for each in _different(recognition)),
        names=tuple(replace(line, name=fill(line.name, match.filled)) for line in name_lines(metric, lang)),
        traps=tuple(_traps(metric, lang).items()),
        close=tuple((", ".join(ids), note) for note, ids in related_notes(metric, lang).items()),
    )


def facts(metric: Metric, lang: str) -> list[tuple[str, str]]:
    """Return headings and values of the metric's facts; empty ones are left out."""
    found = {
        "formula": metric.formula.get(lang),
        "unit": label("units", metric.unit, lang),
        "over": label("populations", metric.population, lang),
        "taken": label("parts", metric.part, lang),
        "estimator": label("estimators", metric.estimator, lang),
        "better": "" if metric.direction == "none" else label("directions", metric.direction, lang),
        "needs": ", ".join(_need(need, lang) for need in metric.needs),
    }
    return [(label("headings", heading, lang), value) for heading, value in found.items() if value]


def _need(need: str, lang: str) -> str:
    either = label("headings", "or", lang).join(inputs(need))
    return f"{either} {label('headings', 'optional', lang)}" if need.endswith("?") else either


def band_text(band: Band, lang: str) -> str:
    """Format a band."""
    if band.low is None:
        return f"≤ {band.high:g}"
    if band.high is None:
        return f"≥ {band.low:g}"
    return f"{band.low:g} 到 {band.high:g}" if lang == "zh" else f"{band.low:g} to {band.high:g}"


def name_lines(metric: Metric, lang: str) -> list[NameLine]:
    """Return the metric's names, barograph's first; writers of one name with the same meaning share a line."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for name in sorted(metric.names, key=lambda name: PRODUCERS.index(name.producer)):
        key = (_mark(name), name.pattern, _difference(name.difference, lang))
        lines.setdefault(key, []).append(name.source)
    return [NameLine(mark, pattern, tuple(sources), note) for (mark, pattern, note), sources in lines.items()]


def _traps(metric: Metric, lang: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for trap in metric.traps:
        where = label("producers", trap.where, lang) if trap.where else label("headings", "everywhere", lang)
        found[where] = (*found.get(where, ()), trap.note.get(lang))
    return found


def _mark(name: MetricName) -> str:
    difference = name.difference
    if difference is None:
        return "="
    if not difference.comparable:
        return "≠"
    # With a factor, another unit is the same number.
    return "=" if difference.kinds == ("unit",) and difference.factor is not None else "≈"


def _difference(difference: Difference | None, lang: str) -> str:
    if difference is None:
        return ""
    kinds = (", " if lang == "en" else "、").join(label("kinds", kind, lang) for kind in difference.kinds)
    factor = difference.factor
    tail = ""
    if factor is not None and factor != 1.0:
        tail = label("headings", "factor", lang).format(factor=f"{factor:g}")
        tail = f" ({tail})" if lang == "en" else f"（{tail}）"
    return f"{kinds}: {difference.note.en}{tail}" if lang == "en" else f"{kinds}：{difference.note.zh}{tail}"


def _placeholder_values(match: Match, lang: str) -> list[tuple[str, str]]:
    lines = [(value, _placeholder_meaning(name, value, lang)) for name, value in match.filled]
    if match.suffix:
        lines.append((match.suffix, label("headings", "suffix", lang)))
    if match.prefix:
        lines.append((match.prefix, label("headings", "prefix", lang)))
    return lines


def _placeholder_meaning(name: str, value: str, lang: str) -> str:
    placeholder = declared_placeholder(name)
    if placeholder is None:
        return name
    return dict(placeholder.choices).get(value, placeholder.about).get(lang)


def _different(recognition: Recognition) -> list[Match]:
    """Return one match per metric, when there are several metrics."""
    if not recognition.ambiguous:
        return []
    # Reversed, since a dict keeps the last value of a key: the first match of each metric is the best one.
    return list({match.metric.id: match for match in reversed(recognition.matches)}.values())[::-1]


def _differing_writers(match: Match, recognition: Recognition, lang: str) -> list[NameMeaning]:
    """Return how the writers of this name differ from the metric, unless ``readings`` lists them already."""
    if recognition.ambiguous:
        return []
    return [
        _meaning(each, lang)
        for each in recognition.matches
        if each.metric is match.metric and each.name.difference is not None
    ]


def _meaning(match: Match, lang: str) -> NameMeaning:
    note = _difference(match.name.difference, lang)
    return NameMeaning(match.source, match.metric.id, match.metric.title.get(lang), note)


def related_notes(metric: Metric, lang: str) -> dict[str, list[str]]:
    """Return the notes on related metrics, each with the ids that it is about."""
    notes: dict[str, list[str]] = {}
    for related in metric.related:
        ids = notes.setdefault(related.note.get(lang), [])
        if related.to not in ids:
            ids.append(related.to)
    return notes


def _with_names_of(match: Match, text: str) -> str:
    """Replace the ids in a sentence with the names that the same producer writes, which its user knows."""

    def producer_name(found: re.Match[str]) -> str:
        try:
            metric = REGISTRY.metric(found[0])
        except CatalogueError:
            return found[0]
        eras = {name.era: name.pattern for name in reversed(metric.names) if name.producer == match.name.producer}
        # A sentence must not mix names of two versions of a framework. Without an era, the likeliest comes first.
        likely = (match.name.era, "") if match.name.era else ("", *ERAS.get(match.name.producer, ()))
        pattern = next((eras[era] for era in likely if era in eras), found[0])
        return found[0] if "{" in pattern else pattern  # the sentence cannot fill a placeholder

    return fill(MENTION.sub(producer_name, text), match.filled)


def families(lang: str = "en") -> list[tuple[str, str, str, list[Metric]]]:
    """Return key, title, introduction and metrics of every family that has metrics."""
    return [
        (family, title.get(lang), intro.get(lang), found)
        for family, (title, intro) in family_labels().items()
        if (found := REGISTRY.metrics(family))
    ]
