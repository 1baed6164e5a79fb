"""Reader of the text files in ``data``. It makes records of them and reports every mistake with file and metric."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from windsock.catalogue.headline import Headline
from windsock.catalogue.spec import (
    DIRECTIONS,
    ERAS,
    ESTIMATORS,
    FAMILIES,
    KINDS,
    PARTS,
    POPULATIONS,
    PRODUCERS,
    Band,
    CatalogueError,
    Difference,
    Metric,
    MetricName,
    Placeholder,
    RelatedMetric,
    Text,
    Trap,
    placeholders,
    problems,
    unchecked_metric,
    unknown,
)

DATA = Path(__file__).with_name("data")
COMMON_FILES = ("families.toml", "labels.toml", "placeholders.toml", "headline.toml", "shared.toml")
GROUP_STATES = {"mean": "mean", "max": "extrema", "min": "extrema", "std": "moments"}
"""The state behind each statistic that ``statistics`` may list."""

Table = dict[str, Any]
Report = Callable[[str], None]

_TEXTS = ("title", "about", "look", "next")
_WORDS = ("unit", "population", "statistic", "state", "direction", "part", "estimator")
_LISTS = {"names": "name", "traps": "trap", "related": "related metric"}
_KEYS = {*_TEXTS, *_WORDS, *_LISTS, "formula", "healthy", "needs", "crucial", "like", "statistics", "differences"}
_LIST_KEYS = {
    "names": {"name", "by", "stat", "differs"},
    "traps": {"where", "note"},
    "related": {"to", "note", "comparable", "fill", "stat"},
}
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
    problems: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # of the metrics, by id


@dataclass(slots=True)
class _Scope:
    """The named texts and differences that an entry may refer to, and the names that were used."""

    texts: dict[str, Table]
    differences: dict[str, Table]
    used: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True)
class _Entry:
    """One entry of a family's file, before references are resolved."""

    file: str
    family: str
    id: str
    values: Table
    scope: _Scope


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
    if not found.problems:
        _read_common(files, found)
        _read_metrics(files, found)
        _check_references(found)
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
        _check_keys(values, {"files", "title", "intro"}, report)
        found.families.append(Family(key, _written(values, "title", report), _written(values, "intro", report)))
    if tuple(family.key for family in found.families) != FAMILIES:
        found.problems.append(f"families.toml: the families must be {', '.join(FAMILIES)}, in this order")
    _read_labels(files["labels.toml"], found)
    for name, values in files["placeholders.toml"].items():
        found.placeholders.append(_placeholder(name, values, _reporter(found.problems, "placeholders.toml", name)))
    for key, values in files["headline.toml"].items():
        report = _reporter(found.problems, "headline.toml", key)
        _check_keys(values, {"title", "metrics"}, report)
        found.headline.append(Headline(key, _written(values, "title", report), tuple(values.get("metrics", ()))))


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
        _check_keys(values, {"title", "formula", "note"}, report)
        found.labels[f"statistics.{statistic}"] = {key: _written(values, key, report) for key in values}
    for table in tables.keys() - _LABELS.keys() - {"statistics"}:
        found.problems.append(f"labels.toml: {unknown('table', table, _LABELS)}")


def _placeholder(name: str, values: Table, report: Report) -> Placeholder:
    _check_keys(values, {"kind", "about", "choices"}, report)
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
    value = values.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        report(f"{key} needs the keys en and zh")
        return Text("", "")
    _check_keys(value, {"en", "zh"}, lambda problem: report(f"{key}: {problem}"))
    text = Text(value.get("en", ""), value.get("zh", ""))
    for lang, language in (("en", "English"), ("zh", "Chinese")):
        if not text.get(lang).strip():
            report(f"{key} is missing in {language}")
    return text


def _check_keys(values: Table, known: Iterable[str], report: Report) -> None:
    for key in values:
        if key not in known:
            report(unknown("key", key, known))


# the families


def _read_metrics(files: Mapping[str, Table], found: Declarations) -> None:
    listed = {file: key for key, family in files["families.toml"].items() for file in family.get("files", ())}
    for file in files.keys() - listed.keys() - set(COMMON_FILES):
        found.problems.append(f"{file}: no family in families.toml lists this file")
    shared = _Scope(files["shared.toml"].get("texts", {}), files["shared.toml"].get("differences", {}))
    entries: dict[str, _Entry] = {}
    for file, family in listed.items():
        if file not in files:
            found.problems.append(f"families.toml: {family}: there is no file {file}")
        for entry in _entries(file, family, files.get(file, {}), shared):
            if entry.id in entries:
                found.problems.append(f"{file}: {entry.id}: {entries[entry.id].file} declares this id already")
            entries.setdefault(entry.id, entry)
    for entry in entries.values():
        report = _reporter(found.problems, entry.file, entry.id)
        for metric in _metrics(entry, entries, found.labels, report):
            if metric.id in found.files:
                report(f"{found.files[metric.id]} declares {metric.id} already")
            found.files.setdefault(metric.id, entry.file)
            found.metrics.append(metric)
    _check_unused(files, shared, entries.values(), found.problems)


def _entries(file: str, family: str, tables: Table, shared: _Scope) -> Iterator[_Entry]:
    scope = _Scope(
        shared.texts | tables.get("texts", {}), shared.differences | tables.get("differences", {}), shared.used
    )
    for id, values in tables.items():
        if id not in ("texts", "differences"):
            yield _Entry(file, family, id, values, scope)


def _metrics(
    entry: _Entry, entries: Mapping[str, _Entry], labels: dict[str, dict[str, Text]], report: Report
) -> Iterator[Metric]:
    """Yield the metrics of one entry: one per statistic that it lists, or one."""
    if not isinstance(entry.values, dict):
        report('an entry is a table: ["family/name"]')
        return
    statistics = entry.values.get("statistics", ())
    _check_keys(entry.values, {*_KEYS, *statistics}, report)
    values = _with_inherited(entry, entries, report)
    for statistic in statistics or [None]:
        if statistic is not None and statistic not in GROUP_STATES:
            report(f"statistics: {unknown('statistic', str(statistic), GROUP_STATES)}")
            continue
        metric = _Maker(entry, report).metric(values, statistic, labels)
        if metric.unit not in labels["units"]:
            report(unknown("unit", metric.unit, labels["units"]))
        for problem in problems(metric):
            report(problem)
        yield metric


def _with_inherited(entry: _Entry, entries: Mapping[str, _Entry], report: Report) -> Table:
    """Return the values of an entry with those of the entry that ``like`` names; names are never inherited."""
    like = entry.values.get("like")
    if like is None:
        return entry.values
    if like not in entries or "like" in entries[like].values:
        report(f"like: {like!r} is no entry" if like not in entries else f"like: {like!r} has like itself")
        return entry.values
    entry.scope = replace(entry.scope, texts=entries[like].scope.texts | entry.scope.texts)
    inherited = {key: value for key, value in entries[like].values.items() if key not in ("names", "differences")}
    return inherited | entry.values


class _Maker:
    """Makes metrics of one entry: it resolves references and reports the mistakes of the entry."""

    def __init__(self, entry: _Entry, report: Report) -> None:
        self._entry = entry
        self._scope = entry.scope
        self._report = report

    def metric(self, values: Table, statistic: str | None, labels: dict[str, dict[str, Text]]) -> Metric:
        """Return the metric of an entry, or of one of its statistics."""
        fields: dict[str, Any] = {"id": self._entry.id, "family": self._entry.family, "state": "none"}
        if statistic is not None:
            values = values | self._own(values, statistic) | {"statistic": statistic}
        fields |= {name: self._text(name, values.get(name, {})) for name in _TEXTS}
        fields["formula"] = self._formula(values.get("formula", ""))
        fields |= {name: self._word(name, values.get(name, "")) for name in _WORDS if name in values}
        fields |= {name: "" for name in ("unit", "population", "statistic") if name not in values}
        fields["needs"] = tuple(values.get("needs", ()))
        fields["crucial"] = values.get("crucial", False)
        fields["healthy"] = self._band(values["healthy"]) if "healthy" in values else None
        fields["names"] = tuple(self._names(values, statistic))
        fields["traps"] = tuple(
            Trap(trap.get("where", ""), self._text("traps: note", trap.get("note", {})))
            for trap in self._list(values, "traps", statistic)
        )
        fields["related"] = tuple(self._related(values, statistic))
        if statistic is not None:
            fields |= _of_statistic(fields, statistic, labels[f"statistics.{statistic}"], "state" in values)
        return unchecked_metric(fields)

    def _own(self, values: Table, statistic: str) -> Table:
        own: Table = values.get(statistic, {})
        _check_keys(own, _KEYS - {*_LISTS, "differences"}, lambda problem: self._report(f"{statistic}: {problem}"))
        return own

    def _text(self, name: str, value: object) -> Text:
        """Return a text that is written out, or the shared one that a string names."""
        if isinstance(value, str):
            if value not in self._scope.texts:
                self._report(f"{name}: {unknown('text', value, self._scope.texts)}")
                return Text("?", "?")
            self._scope.used.add(("texts", value))
            value = self._scope.texts[value]
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            self._report(f"{name} needs the keys en and zh, or the name of a shared text")
            return Text("?", "?")
        _check_keys(value, {"en", "zh"}, lambda problem: self._report(f"{name}: {problem}"))
        return Text(value.get("en", ""), value.get("zh", ""))

    def _formula(self, value: object) -> Text:
        """Return a formula; one string serves both languages."""
        return Text(value, value) if isinstance(value, str) else self._text("formula", value)

    def _word(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            self._report(f"{name} must be a string; got {value!r}")
            return ""
        return value

    def _band(self, value: Table) -> Band:
        _check_keys(value, {"low", "high", "source"}, lambda problem: self._report(f"healthy: {problem}"))
        ends = [None if value.get(end) is None else float(value[end]) for end in ("low", "high")]
        return Band(ends[0], ends[1], self._text("healthy: source", value.get("source", {})))

    def _list(self, values: Table, key: str, statistic: str | None) -> Iterator[Table]:
        """Yield the items of a list that belong to a statistic."""
        for item in values.get(key, ()):
            _check_keys(item, _LIST_KEYS[key], lambda problem: self._report(f"{key}: {problem}"))
            only = item.get("stat", statistic)
            if statistic is None or statistic in ([only] if isinstance(only, str) else only):
                yield item

    def _names(self, values: Table, statistic: str | None) -> Iterator[MetricName]:
        for item in self._list(values, "names", statistic):
            pattern = str(item.get("name", "")).replace("{stat}", statistic or "{stat}")
            difference = self._difference(values, pattern, item["differs"]) if "differs" in item else None
            by = item.get("by", "")
            for writer in [by] if isinstance(by, str) else by:
                producer, _, era = writer.partition("/")
                yield MetricName(pattern, producer, era, difference)

    def _difference(self, values: Table, pattern: str, key: str) -> Difference | None:
        own = values.get("differences", {})
        known = self._scope.differences | own
        if key not in known:
            self._report(f"name {pattern!r}: {unknown('difference', key, known)}")
            return None
        if key not in own:
            self._scope.used.add(("differences", key))
        value = known[key]
        where = f"difference {key!r}"
        _check_keys(value, {"kinds", "note", "factor", "comparable"}, lambda text: self._report(f"{where}: {text}"))
        note = self._text(f"{where}: note", value.get("note", {}))
        return Difference(tuple(value.get("kinds", ())), note, value.get("factor"), value.get("comparable", True))

    def _related(self, values: Table, statistic: str | None) -> Iterator[RelatedMetric]:
        for item in self._list(values, "related", statistic):
            to = str(item.get("to", "")).replace("{stat}", statistic or "{stat}")
            note = self._text(f"related {to!r}: note", item.get("note", {}))
            yield RelatedMetric(to, note, item.get("comparable", False), tuple(item.get("fill", {}).items()))


def _of_statistic(fields: Table, statistic: str, label: dict[str, Text], has_state: bool) -> Table:
    """Return the fields of a group's metric that follow from its statistic."""
    title, about, formula = fields["title"], fields["about"], fields["formula"]
    heading, note = label["title"], label.get("note", Text("", ""))
    in_formula = label["formula"]
    if formula.en == formula.zh:  # a formula without words is the same in both languages
        in_formula = Text(in_formula.en, in_formula.en)
    return {
        "id": f"{fields['id']}/{statistic}",
        "title": Text(f"{title.en}: {heading.en}", f"{title.zh}：{heading.zh}"),
        "about": Text(f"{about.en} {note.en}".strip(), f"{about.zh}{note.zh}"),
        "formula": Text(formula.en.replace("{stat}", in_formula.en), formula.zh.replace("{stat}", in_formula.zh)),
        "state": fields["state"] if has_state else GROUP_STATES[statistic],
    }


# references between entries


def _check_unused(files: Mapping[str, Table], shared: _Scope, entries: Iterable[_Entry], problems: list[str]) -> None:
    for file, tables in files.items():
        for section in ("texts", "differences"):
            for key in tables.get(section, {}) if file not in COMMON_FILES or file == "shared.toml" else ():
                if (section, key) not in shared.used:
                    problems.append(f"{file}: {section}.{key}: nothing refers to it")
    for entry in entries:
        names = entry.values.get("names", ()) if isinstance(entry.values, dict) else ()
        referred = {item.get("differs") for item in names}
        for key in entry.values.get("differences", {}) if isinstance(entry.values, dict) else ():
            if key not in referred:
                problems.append(f"{entry.file}: {entry.id}: differences.{key}: no name refers to it")


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
            for placeholder in {*placeholders(name.pattern), *metric.placeholders} - known:
                report(unknown("placeholder", placeholder, known))
        for related in metric.related:
            if related.to not in found.files:
                report(f"related: {unknown('metric', related.to, found.files)}")
    for headline in found.headline:
        for id in headline.metrics:
            if id not in found.files:
                found.problems.append(f"headline.toml: {headline.key}: {unknown('metric', id, found.files)}")
