"""Reader of the text files in ``data/sources``: the names that one framework logs, with the file that writes them.

Each entry gives a name the metric that it means. A name that means no declared metric is described in one line, which
makes a plain metric: recognised and explained, but never judged.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windsock.catalogue.entries import Report, check_keys
from windsock.catalogue.spec import (
    PLAIN_LOOK,
    PLAIN_NEXT,
    Difference,
    Metric,
    MetricName,
    Text,
    problems,
    unchecked_metric,
    unknown,
)

Table = dict[str, Any]
_KEYS = {"by", "from", "version", "family", "names"}
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
        check_keys(log, _KEYS, report)
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
            for writer in [log["by"]] if isinstance(log["by"], str) else log["by"]:
                versions = found.setdefault(writer.partition("/")[0], [])
                versions += [log["version"]] if log["version"] not in versions else []
    return {producer: ", ".join(versions) for producer, versions in found.items()}


class _Reader:
    """Makes the names of one table of ``logs``."""

    def __init__(
        self, log: Table, differences: Mapping[str, Table], units: Mapping[str, Text], used: set[str], report: Report
    ) -> None:
        by = log.get("by", "")
        self._writers = [by] if isinstance(by, str) else list(by)
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
        metric = unchecked_metric({
            "id": id or _plain_id(self._writers[0].partition("/")[0], name),
            "family": values.get("family", self._family),
            "title": Text(title.rstrip(".") + added, title_zh + added_zh),
            "about": Text(rest or f"{title.rstrip('.')}.", rest_zh or f"{title_zh}。"),
            "formula": Text("", ""),
            "unit": unit,
            "population": "steps",
            "statistic": "other",
            "state": "none",
            "look": PLAIN_LOOK,
            "next": PLAIN_NEXT,
            "direction": values.get("better", "none"),
        })  # fmt: skip
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
