"""Metrics of the sequences of one domain: a metric of the data part has one for each label that a trainer gives.

Their ids and names are those of the metric, ``/by/`` and the label. They are not declared, as they follow from it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache

from windsock.catalogue.spec import Metric, Text, unchecked_metric

BY = "/by/"
PLACEHOLDER = "{domain}"
MAX_LABEL = 64  # characters
_FIELDS = tuple(field.name for field in fields(Metric))


def has_domains(metric: Metric) -> bool:
    """Return whether windsock computes a metric by domain: of the data part, and not a quantile."""
    return metric.part == "data" and metric.state not in ("none", "quantiles")


def split_domain(name: str) -> tuple[str, str]:
    """Return the id or name of the metric, and the label, which is empty where there is none."""
    base, separator, domain = name.rpartition(BY)
    return (base, domain) if separator else (name, "")


def clean_label(given: object) -> str:
    """Return a label as a part of a name: one segment of a path, printable, and not too long."""
    number = given.item() if hasattr(given, "item") else given
    text = str(int(number) if isinstance(number, float) and number.is_integer() else number)[:MAX_LABEL].strip()
    return "".join(char if char.isprintable() and char not in "/{}" else "_" for char in text) or "_"


@lru_cache(maxsize=1 << 14)  # 64 domains of every metric, in two vocabularies
def of_domain(metric: Metric, domain: str = PLACEHOLDER) -> Metric:
    """Return a metric of one domain, or of any with the placeholder for the label."""
    values = {name: getattr(metric, name) for name in _FIELDS}
    ours = (name for name in metric.names if name.producer.startswith("windsock"))
    values |= {
        "id": f"{metric.id}{BY}{domain}",
        "title": Text(f"{metric.title.en}, by domain", f"{metric.title.zh}（按领域）"),
        "about": Text(f"{metric.about.en} Of the sequences of one domain.", f"{metric.about.zh}只统计某一领域的序列。"),
        "needs": (*metric.needs, "domains"),
        "names": tuple(replace(name, pattern=f"{name.pattern}{BY}{domain}") for name in ours),
        "crucial": False,
        "healthy": None,
        "traps": (),
        "related": (),
    }
    return unchecked_metric(values)
