"""The compiled catalogue: one JSON file made of the text files, which loads in a few milliseconds.

``python -m windsock.catalogue build`` writes it. It has one metric per line, so that a change of one metric changes
one line.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from windsock.catalogue.spec import (
    PLAIN_LOOK,
    PLAIN_NEXT,
    Band,
    Difference,
    Metric,
    MetricName,
    Placeholder,
    RelatedMetric,
    Text,
    Trap,
    unchecked_metric,
)

if TYPE_CHECKING:
    from windsock.catalogue.declarations import Declarations

# json and pathlib are imported where they are used: they would double the time of importing the catalogue.
FILE = os.path.join(os.path.dirname(__file__), "compiled.json")

_TEXTS = ("title", "about", "formula", "look", "next")
_WORDS = ("id", "family", "unit", "population", "statistic", "state", "direction", "part", "estimator", "crucial")


class Compiled:
    """Everything that the catalogue declares."""

    def __init__(self, found: dict[str, Any]) -> None:
        differences = [None, *(_difference(*each) for each in found["differences"])]
        self.metrics = tuple([_metric(record, differences) for record in found["metrics"]])
        self.families = {key: (Text(*texts[:2]), Text(*texts[2:])) for key, *texts in found["families"]}
        self.labels = {table: {key: Text(*text) for key, text in texts.items()} for table, texts in found["labels"]}
        self.placeholders = {
            name: Placeholder(name, kind, Text(en, zh), tuple((value, Text(*text)) for value, *text in choices))
            for name, kind, en, zh, choices in found["placeholders"]
        }
        self.headline = [(key, Text(en, zh), tuple(metrics)) for key, en, zh, metrics in found["headline"]]


def encode(declared: Declarations) -> str:
    """Return the compiled file's text."""
    names = [name for metric in declared.metrics for name in metric.names]
    differences = list(dict.fromkeys(name.difference for name in names if name.difference is not None))
    places = {difference: place for place, difference in enumerate(differences, 1)}
    parts = {
        "families": [json_line([f.key, *_pair(f.title), *_pair(f.intro)]) for f in declared.families],
        "labels": [
            json_line([table, {key: _pair(text) for key, text in texts.items()}])
            for table, texts in declared.labels.items()
        ],
        "placeholders": [
            json_line([p.name, p.kind, *_pair(p.about), [[value, *_pair(text)] for value, text in p.choices]])
            for p in declared.placeholders
        ],
        "headline": [json_line([h.key, *_pair(h.title), h.metrics]) for h in declared.headline],
        "differences": [json_line(_encoded_difference(difference)) for difference in differences],
        "metrics": [json_line(_encoded(metric, places)) for metric in declared.metrics],
    }
    sections = [f'"{key}": [\n' + ",\n".join(lines) + "\n]" for key, lines in parts.items()]
    return "{\n" + ",\n".join(sections) + "\n}\n"


def json_line(value: object) -> str:
    """Return JSON on one line."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pair(text: Text) -> list[str]:
    return [text.en, text.zh]


def _encoded(metric: Metric, places: dict[Difference, int]) -> dict[str, Any]:
    """Return a metric as JSON; empty fields and the advice of plain metrics are left out."""
    band = metric.healthy
    record: dict[str, Any] = {name: getattr(metric, name) for name in _WORDS}
    record |= {name: _pair(getattr(metric, name)) for name in _TEXTS}
    record["healthy"] = None if band is None else [band.low, band.high, *_pair(band.source)]
    record["needs"] = metric.needs
    record["names"] = [_encoded_name(name, places) for name in metric.names]
    record["traps"] = [[trap.where, *_pair(trap.note)] for trap in metric.traps]
    record["related"] = [[r.to, *_pair(r.note), r.comparable, r.fill] for r in metric.related]
    if (metric.look, metric.next) == (PLAIN_LOOK, PLAIN_NEXT):
        del record["look"], record["next"]
    if not metric.formula.en:
        del record["formula"]
    return {key: value for key, value in record.items() if value}  # ``unchecked_metric`` fills in the defaults


def _encoded_name(name: MetricName, places: dict[Difference, int]) -> list[Any]:
    written = [name.pattern, name.producer, name.era, places[name.difference] if name.difference else 0]
    while not written[-1]:
        written.pop()
    return written


def _encoded_difference(difference: Difference) -> list[Any]:
    return [difference.kinds, *_pair(difference.note), difference.factor, difference.comparable]


@cache
def load() -> Compiled:
    """Load the compiled file."""
    import json

    with open(FILE, "rb") as file:
        return Compiled(json.loads(file.read()))


_DEFAULTS = {"formula": Text("", ""), "look": PLAIN_LOOK, "next": PLAIN_NEXT}


def _metric(record: dict[str, Any], differences: list[Difference | None]) -> Metric:
    for name in _TEXTS:
        record[name] = Text(*record[name]) if name in record else _DEFAULTS[name]
    if "healthy" in record:
        low, high, *source = record["healthy"]
        record["healthy"] = Band(low, high, Text(*source))
    record["needs"] = tuple(record.get("needs", ()))
    record["names"] = tuple([_name(differences, *name) for name in record.get("names", ())])
    record["traps"] = tuple([Trap(where, Text(*note)) for where, *note in record.get("traps", ())])
    record["related"] = tuple([
        RelatedMetric(to, Text(en, zh), comparable, tuple([(name, value) for name, value in fill]))
        for to, en, zh, comparable, fill in record.get("related", ())
    ])  # fmt: skip
    # The text files were checked when this file was built.
    return unchecked_metric(record)


def _name(
    differences: list[Difference | None], pattern: str, producer: str, era: str = "", place: int = 0
) -> MetricName:
    return MetricName(pattern, producer, era, differences[place])


def _difference(kinds: list[str], en: str, zh: str, factor: float | None, comparable: bool) -> Difference:
    return Difference(tuple(kinds), Text(en, zh), factor, comparable)
