"""Entries of the text files: from the table of one entry to its metrics with references resolved, and from the names
that a framework logs to the metrics that they mean.

A name that means no declared metric is described in one line, which makes a plain metric: recognised and explained,
but never judged.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from barograph.catalogue.spec import (
    NO_TEXT,
    QUANTILES,
    Band,
    Difference,
    Metric,
    MetricName,
    RelatedMetric,
    Text,
    Trap,
    problems,
    unknown,
)

GROUP_STATES = {
    "mean": "mean", "max": "extrema", "min": "extrema", "std": "moments", **dict.fromkeys(QUANTILES, "quantiles")
}  # fmt: skip
"""The state behind each statistic that ``statistics`` may list."""

Table = dict[str, Any]

Labels = dict[str, dict[str, Text]]

Report = Callable[[str], None]

_TEXTS = ("title", "about", "look", "next")

_WORDS = ("unit", "population", "statistic", "state", "direction", "part", "estimator")

_LIST_KEYS = {
    "names": {"name", "by", "stat", "differs"},
    "traps": {"where", "note", "stat"},
    "related": {"to", "note", "comparable", "fill", "stat"},
}

_TYPES = {
    **dict.fromkeys((*_LIST_KEYS, "needs", "statistics"), list),
    **dict.fromkeys(("healthy", "differences"), dict),
    "crucial": bool,
    "like": str,
}

_TYPE_NAMES = {list: "a list", dict: "a table", bool: "true or false", str: "a string"}

_KEYS = {*_TEXTS, *_WORDS, *_TYPES, "formula"}


@dataclass(slots=True)
class Scope:
    """The named texts and differences that an entry may refer to, and the names that were used."""

    texts: dict[str, Table]
    differences: dict[str, Table]
    used: set[int] = field(default_factory=set)  # ids of the tables that were referred to


@dataclass(slots=True)
class Entry:
    """One entry of a family's file, before references are resolved."""

    file: str
    family: str
    id: str
    values: Table
    scope: Scope


def check_keys(values: Table, known: Iterable[str], report: Report) -> None:
    """Report the keys of a table that are not known."""
    for key in values:
        if key not in known:
            report(unknown("key", key, known))


def metrics_of(entry: Entry, entries: Mapping[str, Entry], labels: Labels, report: Report) -> Iterator[Metric]:
    """Yield the metrics of one entry: one per statistic that it lists, or one."""
    if not isinstance(entry.values, dict):
        report(f'an entry is a table: ["{entry.id}"]')
        entry.values = {}
        return
    entry.values = {key: value for key, value in entry.values.items() if _has_right_type(key, value, report)}
    statistics = entry.values.get("statistics", ())
    check_keys(entry.values, {*_KEYS, *map(str, statistics)}, report)
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


def _has_right_type(key: str, value: object, report: Report) -> bool:
    expected = _TYPES.get(key)
    right = expected is None or isinstance(value, expected)
    if right and key in _LIST_KEYS and isinstance(value, list):
        expected, right = dict, all(isinstance(item, dict) for item in value)
    if not right and expected is not None:
        report(f"{key} must be {_TYPE_NAMES[expected]}; got {value!r}")
    return right


def _with_inherited(entry: Entry, entries: Mapping[str, Entry], report: Report) -> Table:
    """Return the values of an entry with those of the entry that ``like`` names; names are never inherited."""
    like = entry.values.get("like")
    if like is None:
        return entry.values
    if like not in entries or "like" in entries[like].values:
        report(f"like: {like!r} is no entry" if like not in entries else f"like: {like!r} has like itself")
        return entry.values
    # Inherited values refer to shared texts of the other entry's file.
    entry.scope = replace(entry.scope, texts=entries[like].scope.texts | entry.scope.texts)
    inherited = {key: value for key, value in entries[like].values.items() if key not in ("names", "differences")}
    return inherited | entry.values


def read_text(name: str, value: object, report: Report, or_else: str = "") -> Text | None:
    """Return a text that is written out in both languages; None, with a report, for anything else."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        report(f"{name} needs the keys en and zh{or_else}")
        return None
    check_keys(value, {"en", "zh"}, lambda problem: report(f"{name}: {problem}"))
    return Text(value.get("en", ""), value.get("zh", ""))


def writers(by: str | Iterable[str]) -> list[str]:
    """Return the writers that are stated, of which there may be one."""
    return [by] if isinstance(by, str) else list(by)


class _Maker:
    """Makes metrics of one entry: it resolves references and reports the mistakes of the entry."""

    def __init__(self, entry: Entry, report: Report) -> None:
        self._entry = entry
        self._scope = entry.scope
        self._report = report

    def metric(self, values: Table, statistic: str | None, labels: Labels) -> Metric:
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
        return Metric(**fields)

    def _own(self, values: Table, statistic: str) -> Table:
        own: Table = values.get(statistic, {})
        check_keys(own, _KEYS - {*_LIST_KEYS, "differences"}, lambda problem: self._report(f"{statistic}: {problem}"))
        return own

    def _text(self, name: str, value: object) -> Text:
        """Return a text that is written out, or the shared one that a string names."""
        if isinstance(value, str):
            if value not in self._scope.texts:
                self._report(f"{name}: {unknown('text', value, self._scope.texts)}")
                return Text("?", "?")  # here and below not empty, which would be reported once more
            value = self._scope.texts[value]
            self._scope.used.add(id(value))
        return read_text(name, value, self._report, ", or the name of a shared text") or Text("?", "?")

    def _formula(self, value: object) -> Text:
        """Return a formula; one string serves both languages."""
        return Text(value, value) if isinstance(value, str) else self._text("formula", value)

    def _word(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            self._report(f"{name} must be a string; got {value!r}")
            return ""
        return value

    def _band(self, value: Table) -> Band:
        check_keys(value, {"low", "high", "source"}, lambda problem: self._report(f"healthy: {problem}"))
        ends = [None if value.get(end) is None else float(value[end]) for end in ("low", "high")]
        return Band(ends[0], ends[1], self._text("healthy: source", value.get("source", {})))

    def _list(self, values: Table, key: str, statistic: str | None) -> Iterator[Table]:
        """Yield the items of a list that belong to a statistic."""
        for item in values.get(key, ()):
            check_keys(item, _LIST_KEYS[key], lambda problem: self._report(f"{key}: {problem}"))
            only = item.get("stat", statistic)  # without ``stat`` an item is for all statistics
            if statistic is None or statistic in ([only] if isinstance(only, str) else only):
                yield item

    def _names(self, values: Table, statistic: str | None) -> Iterator[MetricName]:
        for item in self._list(values, "names", statistic):
            pattern = str(item.get("name", "")).replace("{stat}", statistic or "{stat}")
            difference = self._difference(values, pattern, item["differs"]) if "differs" in item else None
            for writer in writers(item.get("by", "")):
                producer, _, era = writer.partition("/")
                yield MetricName(pattern, producer, era, difference)

    def _difference(self, values: Table, pattern: str, key: str) -> Difference | None:
        own = values.get("differences", {})
        known = self._scope.differences | own
        if key not in known:
            self._report(f"name {pattern!r}: {unknown('difference', key, known)}")
            return None
        value = known[key]
        self._scope.used.add(id(value))
        where = f"difference {key!r}"
        check_keys(value, {"kinds", "note", "factor", "comparable"}, lambda text: self._report(f"{where}: {text}"))
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
    heading, note = label["title"], label.get("note", NO_TEXT)
    in_formula = label["formula"]
    if formula.en == formula.zh:  # a formula without words is the same in both languages
        in_formula = Text(in_formula.en, in_formula.en)
    return {
        "id": f"{fields['id']}/{statistic}",
        "title": Text(f"{title.en}: {heading.en}", f"{title.zh}：{heading.zh}"),
        "about": Text(f"{about.en} {note.en}".strip(), f"{about.zh}{note.zh}"),
        "formula": Text(formula.en.replace("{stat}", in_formula.en), formula.zh.replace("{stat}", in_formula.zh)),
        "state": fields["state"] if has_state else GROUP_STATES[statistic],
        **({"estimator": "bins"} if statistic in QUANTILES else {}),
    }


_LOG_KEYS = {"by", "from", "version", "family", "names"}

_NAME_KEYS = {"is", "id", "differs", "en", "zh", "unit", "better", "family"}

_CHOICE = re.compile(r"<([^<>]+)>")


@dataclass(frozen=True, slots=True)
class SourceName:
    """One name of a source file: the metric that it means, and the plain metric that it makes, if any."""

    metric: str
    name: MetricName
    plain: Metric | None


def source_names(
    tables: Table, shared: Mapping[str, Table], units: Mapping[str, Text], report: Report
) -> Iterator[SourceName]:
    """Yield the names of one file; ``shared`` are the differences that all files may refer to."""
    check_keys(tables, {"logs", "differences"}, report)
    differences = {**shared, **tables.get("differences", {})}
    used: set[str] = set()
    for log in tables.get("logs", ()):
        check_keys(log, _LOG_KEYS, report)
        for key in ("by", "from", "version", "names"):
            if not log.get(key):
                report(f"{key} is missing in a table of logs")
        reader = _Reader(log, differences, units, used, report)
        for pattern, meaning in log.get("names", {}).items():
            yield from reader.names(pattern, meaning)
    for key in tables.get("differences", {}).keys() - used:
        report(f"differences.{key}: no name refers to it")


def read_versions(folder: Path) -> dict[str, str]:
    """Return the versions of each framework that were read, the newest of each file's tables."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.toml")):
        for log in tomllib.loads(file.read_text(encoding="utf-8")).get("logs", ()):
            for writer in writers(log["by"]):
                versions = found.setdefault(writer.partition("/")[0], [])
                versions += [log["version"]] if log["version"] not in versions else []
    return {producer: ", ".join(versions) for producer, versions in found.items()}


class _Reader:
    """Makes the names of one table of ``logs``."""

    def __init__(
        self, log: Table, differences: Mapping[str, Table], units: Mapping[str, Text], used: set[str], report: Report
    ) -> None:
        self._writers = writers(log.get("by", ""))
        self._family = log.get("family", "system")
        self._differences = differences
        self._units = units
        self._used = used
        self._report = report

    def names(self, pattern: str, meaning: object) -> Iterator[SourceName]:
        """Yield the names of one entry: one per writer and per choice between ``<`` and ``>``."""
        values = {"is": meaning} if isinstance(meaning, str) else meaning
        if not isinstance(values, dict):
            self._report(f"{pattern}: expected the id of a metric or a table; got {meaning!r}")
            return
        say: Report = lambda problem: self._report(f"{pattern}: {problem}")  # noqa: E731
        check_keys(values, _NAME_KEYS, say)
        difference = self._difference(values["differs"], say) if "differs" in values else None
        for name, id, choice in self._spelled(pattern, str(values.get("is") or values.get("id", "")), say):
            plain = None if "is" in values else self._plain(id, name, values, choice, say)
            for writer in self._writers:
                producer, _, era = writer.partition("/")
                yield SourceName(plain.id if plain else id, MetricName(name, producer, era, difference), plain)

    def _spelled(self, pattern: str, id: str, say: Report) -> Iterator[tuple[str, str, str]]:
        """Yield name, id and choice for every combination of the choices; those of the id are the name's last ones."""
        choices = [found.split("|") for found in _CHOICE.findall(pattern)]
        targets = [found.split("|") for found in _CHOICE.findall(id)]
        skipped = len(choices) - len(targets)
        if [len(each) for each in targets] != [len(each) for each in choices[max(skipped, 0) :]][: len(targets)]:
            say("the choices of the id must be the last ones of the name")
            return
        for places in itertools.product(*(range(len(each)) for each in choices)):
            chosen = [each[place] for each, place in zip(choices, places, strict=True)]
            wanted = [each[place] for each, place in zip(targets, places[skipped:], strict=True)]
            yield (
                _filled(pattern, chosen),
                _filled(id, wanted),
                ", ".join(each for each in chosen if each and not each.endswith(("/", "_"))),
            )

    def _difference(self, key: str, say: Report) -> Difference | None:
        if key not in self._differences:
            say(unknown("difference", key, self._differences))
            return None
        self._used.add(key)
        value = self._differences[key]
        note = Text(value["note"]["en"], value["note"]["zh"])
        return Difference(tuple(value["kinds"]), note, value.get("factor"), value.get("comparable", True))

    def _plain(self, id: str, name: str, values: Table, choice: str, say: Report) -> Metric:
        """Return the metric that a line describes."""
        en, zh, unit = (str(values.get(key, "")) for key in ("en", "zh", "unit"))
        title, _, rest = en.partition(". ")
        title_zh, _, rest_zh = zh.partition("。")
        if unit not in self._units:
            say(unknown("unit", unit, self._units))
        own = choice if "id" not in values or "<" in values["id"] else ""  # with an id of its own a name is a spelling
        added, added_zh = (f" ({own})", f"（{own}）") if own else ("", "")
        metric = Metric(
            id=id or _plain_id(self._writers[0].partition("/")[0], name),
            family=str(values.get("family", self._family)),
            title=Text(title.rstrip(".") + added, title_zh + added_zh),
            about=Text(rest or f"{title.rstrip('.')}.", rest_zh or f"{title_zh}。"),
            unit=unit,
            direction=values.get("better", "none"),
        )
        for problem in problems(metric):
            say(problem)
        return metric


def _filled(text: str, chosen: list[str]) -> str:
    left = iter(chosen)
    return _CHOICE.sub(lambda _: next(left), text)


def _plain_id(producer: str, name: str) -> str:
    """Return the id of a plain metric: the framework and the name, in lower case."""
    place = re.sub(r"\{[^}]*\}|[^a-z0-9_@^/]", lambda found: found[0] if found[0][0] == "{" else "_", name.lower())
    return f"{producer.replace('-', '_')}/{place}"
