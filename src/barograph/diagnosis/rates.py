"""How often the rules are right, as ``benchmarks/doctor.py`` has measured it and written to ``rates.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from barograph.catalogue.spec import Text

ORIGINS = {"real": Text("real runs", "真实实验"), "demo": Text("the demo", "演示实验")}
NOT_MEASURED = Text("not measured yet", "尚未测量")
FOUND = Text("found in {hits} of {expected} that have it", "{expected} 个有此问题的实验中发现 {hits} 个")
NOT_EXPECTED = Text("no run has it", "没有实验有此问题")
ALARMS = Text("a false alarm on {alarms} of {healthy}", "{healthy} 个没有此问题的实验中误报 {alarms} 个")
NOT_JUDGED = Text("no run without it logs what it needs", "没有此问题的实验都没有记录它所需要的值")


@cache
def measured() -> Mapping[str, Any]:
    """Return the figures: ``runs``, ``overall``, ``rlwatch``, ``left_out`` and ``rules``."""
    return tomllib.loads((resources.files("barograph.diagnosis") / "rates.toml").read_text("utf-8"))


def rate_of(rule: str) -> Text:
    """Return how often a rule is right, in a sentence."""
    known = measured()["rules"].get(rule)
    if known is None:
        return NOT_MEASURED
    return Text(
        "; ".join(_sentence(origin, known[origin], "en", "{}: {}, {}") for origin in ORIGINS),
        "；".join(_sentence(origin, known[origin], "zh", "{}：{}，{}") for origin in ORIGINS),
    )


def _sentence(origin: str, counts: Mapping[str, int], lang: str, form: str) -> str:
    hits, alarms = counts["hits"], counts["false_alarms"]
    facts = {"hits": hits, "expected": hits + counts["misses"], "alarms": alarms, "healthy": alarms + counts["silent"]}
    found = FOUND if facts["expected"] else NOT_EXPECTED
    silent = ALARMS if facts["healthy"] else NOT_JUDGED
    said = (text.get(lang).format(**facts) for text in (ORIGINS[origin], found, silent))
    return form.format(*said)
