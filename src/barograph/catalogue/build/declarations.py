"""Reader of the text files in ``data``, and writer of the compiled file.

It makes records of them and reports every mistake with file and metric.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any

from barograph.catalogue.build.entries import (
    GROUP_STATES,
    Entry,
    Report,
    Scope,
    SourceName,
    Table,
    check_keys,
    metrics_of,
    read_text,
    source_names,
)
from barograph.catalogue.registry import _TEXTS, by_first_segment
from barograph.catalogue.spec import (
    DIRECTIONS,
    ERAS,
    ESTIMATORS,
    FAMILIES,
    KINDS,
    NO_TEXT,
    PARTS,
    PLAIN_LOOK,
    PLAIN_NEXT,
    POPULATIONS,
    PRODUCERS,
    CatalogueError,
    Difference,
    Headline,
    Metric,
    MetricName,
    Placeholder,
    Text,
    missing_languages,
    placeholders,
    unknown,
)

_WORDS = ("family", "unit", "population", "statistic", "state", "direction", "part", "estimator", "crucial", "needs")


def encode(declared: Declarations) -> str:
    """Return the compiled file's text."""
    names = [name for metric in declared.metrics for name in metric.names]
    differences = list(dict.fromkeys(name.difference for name in names if name.difference is not None))
    places = {difference: place for place, difference in enumerate(differences, 1)}
    sections: dict[str, dict[str, Any]] = {
        "families": {f.key: (astuple(f.title), astuple(f.intro)) for f in declared.families},
        "labels": {
            table: {key: astuple(text) for key, text in texts.items()} for table, texts in declared.labels.items()
        },
        "placeholders": {placeholder.name: astuple(placeholder) for placeholder in declared.placeholders},
        "headline": {headline.key: astuple(headline) for headline in declared.headline},
        "crucial": {headline.key: astuple(headline) for headline in declared.crucial},
        "differences": {str(place): astuple(difference) for difference, place in places.items()},
        "metrics": {metric.id: _encoded(metric, places) for metric in declared.metrics},
        "names": {
            head: [(pattern, *key) for pattern, key in patterns]
            for head, patterns in by_first_segment(declared.metrics).items()
        },
    }
    return "{\n" + ",\n".join(starmap(_section, sections.items())) + "\n}\n"


def _section(name: str, values: dict[str, Any]) -> str:
    """Return a section with one line for each key, which ``Compiled`` reads one by one."""
    lines = [f"{json_line(key)}:{json_line(value)}" for key, value in values.items()]
    return f'"{name}": {{\n' + ",\n".join(lines) + "\n}"


def json_line(value: object) -> str:
    """Return JSON on one line."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encoded(metric: Metric, places: dict[Difference, int]) -> dict[str, Any]:
    """Return a metric as JSON; empty fields and the advice of plain metrics are left out."""
    record: dict[str, Any] = {name: getattr(metric, name) for name in _WORDS}
    record |= {name: astuple(getattr(metric, name)) for name in _TEXTS}
    record["healthy"] = None if metric.healthy is None else astuple(metric.healthy)
    record["names"] = [_encoded_name(name, places) for name in metric.names]
    record["traps"] = [astuple(trap) for trap in metric.traps]
    record["related"] = [astuple(related) for related in metric.related]
    if (metric.look, metric.next) == (PLAIN_LOOK, PLAIN_NEXT):
        del record["look"], record["next"]
    if not metric.formula.en:
        del record["formula"]
    return {key: value for key, value in record.items() if value}


def _encoded_name(name: MetricName, places: dict[Difference, int]) -> list[Any]:
    written = [name.pattern, name.producer, name.era, places[name.difference] if name.difference else 0]
    while not written[-1]:
        written.pop()
    return written


DATA = Path(__file__).parents[1] / "data"

COMMON_FILES = (
    "families.toml",
    "labels.toml",
    "placeholders.toml",
    "headline.toml",
    "crucial.toml",
    "shared.toml",
    "coverage.toml",
)

_LABELS: dict[str, Iterable[str]] = {
    "units": (),
    "populations": POPULATIONS,
    "parts": PARTS,
    "directions": DIRECTIONS,
    "estimators": ESTIMATORS,
    "kinds": KINDS,
    "producers": PRODUCERS,
    "eras": [f"{producer}/{era}" for producer, eras in ERAS.items() for era in eras],
    "headings": (),
}
"""The tables of ``labels.toml`` and the words that each must translate."""

_WITHOUT_LABEL = ("", "none")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of metrics, and its introduction."""

    key: str
    title: Text
    intro: Text


@dataclass(slots=True)
class Declarations:
    """Everything that the text files declare, and the mistakes in them."""

    metrics: list[Metric] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    labels: dict[str, dict[str, Text]] = field(default_factory=dict)
    placeholders: list[Placeholder] = field(default_factory=list)
    headline: list[Headline] = field(default_factory=list)
    crucial: list[Headline] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # of the metrics, by id


def read(folder: Path = DATA) -> Declarations:
    """Read all files; raise when there is a mistake, listing all of them."""
    found = inspect(folder)
    if found.problems:
        raise CatalogueError("\n".join(found.problems))
    return found


def inspect(folder: Path = DATA) -> Declarations:
    """Read all files and collect the mistakes instead of raising."""
    found = Declarations()
    files = dict(_parsed(folder, found.problems))
    for name in COMMON_FILES:
        if name not in files:
            found.problems.append(f"{name}: the file is missing or cannot be read")
    # Without the common files, every metric would be reported too.
    if not found.problems:
        _read_common(files, found)
        _read_metrics(files, found)
        _read_sources(folder / "sources", files["shared.toml"].get("differences", {}), found)
        _check_references(found)
        found.problems = list(dict.fromkeys(found.problems))  # each statistic of a group repeats the group's mistakes
    return found


def _parsed(folder: Path, problems: list[str]) -> Iterator[tuple[str, Table]]:
    for path in sorted(folder.glob("*.toml")):
        try:
            yield path.name, tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{path.name}: not valid TOML: {error}")


def _reporter(problems: list[str], *where: str) -> Report:
    return lambda problem: problems.append(": ".join((*where, problem)))


# the files that all families share
def _read_common(files: Mapping[str, Table], found: Declarations) -> None:
    for key, values in files["families.toml"].items():
        report = _reporter(found.problems, "families.toml", key)
        check_keys(values, {"files", "title", "intro"}, report)
        found.families.append(Family(key, _written(values, "title", report), _written(values, "intro", report)))
    if tuple(family.key for family in found.families) != FAMILIES:
        found.problems.append(f"families.toml: the families must be {', '.join(FAMILIES)}, in this order")
    _read_labels(files["labels.toml"], found)
    for name, values in files["placeholders.toml"].items():
        found.placeholders.append(_placeholder(name, values, _reporter(found.problems, "placeholders.toml", name)))
    for name, headlines in (("headline.toml", found.headline), ("crucial.toml", found.crucial)):
        for key, values in files[name].items():
            report = _reporter(found.problems, name, key)
            check_keys(values, {"title", "metrics", "meaning"}, report)
            meaning = _written(values, "meaning", report) if headlines is found.crucial else NO_TEXT
            metrics = tuple(values.get("metrics", ()))
            headlines.append(Headline(key, _written(values, "title", report), metrics, meaning))


def _read_labels(tables: Table, found: Declarations) -> None:
    for table, words in _LABELS.items():
        report = _reporter(found.problems, "labels.toml", table)
        values = tables.get(table, {})
        found.labels[table] = {key: _written(values, key, report) for key in values}
        for word in words:
            if word not in values and word not in _WITHOUT_LABEL:
                report(f"{word} is missing")
    for statistic in GROUP_STATES:
        report = _reporter(found.problems, "labels.toml", "statistics", statistic)
        values = tables.get("statistics", {}).get(statistic, {})
        check_keys(values, {"title", "formula", "note"}, report)
        found.labels[f"statistics.{statistic}"] = {key: _written(values, key, report) for key in values}
    for table in tables.keys() - _LABELS.keys() - {"statistics"}:
        found.problems.append(f"labels.toml: {unknown('table', table, _LABELS)}")


def _placeholder(name: str, values: Table, report: Report) -> Placeholder:
    check_keys(values, {"kind", "about", "choices"}, report)
    kinds = ("one", "many", "digits", "choice")
    if values.get("kind") not in kinds:
        report(unknown("kind", str(values.get("kind")), kinds))
    choices = []
    for choice in values.get("choices", ()):
        text = _written({"choice": {key: choice[key] for key in choice if key != "value"}}, "choice", report)
        choices.append((str(choice.get("value", "")), text))
    return Placeholder(name, str(values.get("kind")), _written(values, "about", report), tuple(choices))


def _written(values: Table, key: str, report: Report) -> Text:
    """Return a text that is written out in both languages."""
    text = read_text(key, values.get(key, {}), report)
    for problem in missing_languages(key, text) if text is not None else ():
        report(problem)
    return text or NO_TEXT


# the families
def _read_metrics(files: Mapping[str, Table], found: Declarations) -> None:
    listed = {file: key for key, family in files["families.toml"].items() for file in family.get("files", ())}
    for file in files.keys() - listed.keys() - set(COMMON_FILES):
        found.problems.append(f"{file}: no family in families.toml lists this file")
    shared = Scope(files["shared.toml"].get("texts", {}), files["shared.toml"].get("differences", {}))
    entries: dict[str, Entry] = {}
    for file, family in listed.items():
        if file not in files:
            found.problems.append(f"families.toml: {family}: there is no file {file}")
        for entry in _entries(file, family, files.get(file, {}), shared):
            if entry.id in entries:
                found.problems.append(f"{file}: {entry.id}: {entries[entry.id].file} declares this id already")
            entries.setdefault(entry.id, entry)
    for entry in entries.values():
        report = _reporter(found.problems, entry.file, entry.id)
        for metric in metrics_of(entry, entries, found.labels, report):
            if metric.id in found.files:
                report(f"{found.files[metric.id]} declares {metric.id} already")
            found.files.setdefault(metric.id, entry.file)
            found.metrics.append(metric)
    _check_unused(files, shared, entries.values(), found.problems)


def _entries(file: str, family: str, tables: Table, shared: Scope) -> Iterator[Entry]:
    scope = Scope(
        shared.texts | tables.get("texts", {}), shared.differences | tables.get("differences", {}), shared.used
    )
    for id, values in tables.items():
        if id not in ("texts", "differences"):
            yield Entry(file, family, id, values, scope)


# the names by framework
def _read_sources(folder: Path, shared: Mapping[str, Table], found: Declarations) -> None:
    """Add the names of the frameworks' files to the metrics that they mean, and the plain metrics to the others."""
    metrics = {metric.id: metric for metric in found.metrics}
    added: dict[str, list[MetricName]] = {}
    reports: list[tuple[SourceName, Report]] = []
    for file, tables in _parsed(folder, found.problems):
        report = _reporter(found.problems, f"sources/{file}")
        for one in source_names(tables, shared, found.labels["units"], report):
            reports.append((one, report))
            if one.plain is not None and one.metric not in metrics:
                metrics[one.metric] = one.plain
                found.files[one.metric] = f"sources/{file}"
    for one, report in reports:  # after all files: a name may mean a plain metric of another framework's file
        if one.metric in metrics:
            added.setdefault(one.metric, []).append(one.name)
        else:
            report(f"{one.name.pattern}: {unknown('metric', one.metric, metrics)}")
    found.metrics = [_with_names(metric, added.get(metric.id, ())) for metric in metrics.values()]


def _with_names(metric: Metric, names: Iterable[MetricName]) -> Metric:
    """Return a metric with further names; one that it has already stays as it is."""
    known = {(name.pattern, name.producer, name.era): name for name in metric.names}
    for name in names:
        if (name.pattern, name.producer, "") in known and name.difference is None:
            continue
        # In another era of the same framework the number differs in the same way, unless the file says otherwise.
        alike = next((one for one in metric.names if _is_alike(one, name)), None) if name.difference is None else None
        known.setdefault(
            (name.pattern, name.producer, name.era), replace(name, difference=alike.difference) if alike else name
        )
    return replace(metric, names=tuple(known.values())) if len(known) > len(metric.names) else metric


def _is_alike(one: MetricName, other: MetricName) -> bool:
    return one.pattern == other.pattern and one.producer == other.producer and one.difference is not None


# references between entries
def _check_unused(files: Mapping[str, Table], shared: Scope, entries: Iterable[Entry], problems: list[str]) -> None:
    for file, tables in files.items():
        for section in ("texts", "differences"):
            for key in tables.get(section, {}) if file not in COMMON_FILES or file == "shared.toml" else ():
                # By identity, not by name: texts of two families may have the same name.
                if id(tables[section][key]) not in shared.used:
                    problems.append(f"{file}: {section}.{key}: nothing refers to it")
    for entry in entries:
        referred = {item.get("differs") for item in entry.values.get("names", ())}
        for key in entry.values.get("differences", {}):
            if key not in referred:
                problems.append(f"{entry.file}: {entry.id}: differences.{key}: no name refers to it")


def _check_placeholders(pattern: str, metric: Metric, known: set[str], report: Report) -> None:
    used = placeholders(pattern)
    if len(set(used)) < len(used):
        report(f"the name {pattern!r} has a placeholder twice")
    for placeholder in {*used, *metric.placeholders} - known:
        report(unknown("placeholder", placeholder, known))


def _check_references(found: Declarations) -> None:
    """Report names that two metrics have, and ids and placeholders that are used but not declared."""
    owners: dict[tuple[str, str, str], str] = {}
    known = {placeholder.name for placeholder in found.placeholders}
    for metric in found.metrics:
        report = _reporter(found.problems, found.files[metric.id], metric.id)
        for name in metric.names:
            owner = owners.setdefault((name.pattern, name.producer, name.era), metric.id)
            if owner != metric.id:
                report(f"{owner} has the name {name.pattern!r} of {name.source} already")
            _check_placeholders(name.pattern, metric, known, report)
        for related in metric.related:
            if related.to not in found.files:
                report(f"related: {unknown('metric', related.to, found.files)}")
    for file, headlines in (("headline.toml", found.headline), ("crucial.toml", found.crucial)):
        for headline in headlines:
            for id in headline.metrics:
                if id not in found.files:
                    found.problems.append(f"{file}: {headline.key}: {unknown('metric', id, found.files)}")
