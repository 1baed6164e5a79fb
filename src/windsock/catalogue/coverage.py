"""Share of the names of real training logs that the catalogue knows, by framework, for docs/metrics.md.

``python -m windsock.catalogue coverage FOLDER`` measures it on a folder of ``RUN/series.csv`` files and writes
``data/coverage.toml``, from which the page is made.
"""

from __future__ import annotations

import csv
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from windsock.catalogue.declarations import DATA
from windsock.catalogue.resolution import RunNames

FILE = DATA / "coverage.toml"


@dataclass(slots=True)
class Coverage:
    """The logs of one framework: runs, different names, the known ones, and those that are missing or undecided."""

    framework: str
    runs: int = 0
    names: int = 0
    known: int = 0
    missing: list[str] = field(default_factory=list)


def measure(folder: Path) -> list[Coverage]:
    """Measure the share of known names on the logs of a folder; ``truth.json`` beside them names their frameworks."""
    truth = folder / "truth.json"
    frameworks = {one["id"]: one["framework"] for one in json.loads(truth.read_text())} if truth.is_file() else {}
    found: dict[str, Coverage] = {}
    seen: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*/series.csv")):
        names = _names(file)
        framework = str(frameworks.get(file.parent.name) or names.producer or "other").partition(" (")[0]
        coverage, known = found.setdefault(framework, Coverage(framework)), seen.setdefault(framework, set())
        coverage.runs += 1
        missing = {*names.unknown, *names.ambiguous}
        for name in (name for name in names.names if name not in known):
            coverage.names += 1
            coverage.known += name not in missing
            coverage.missing += [name] if name in missing else []
        known.update(names.names)
    return sorted(found.values(), key=lambda one: one.framework.lower())


def _names(file: Path) -> RunNames:
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    series = {name: [float(row[name]) for row in rows if row[name]] for name in rows[0]}
    return RunNames(series, series=lambda name: series[name])


def write(found: list[Coverage]) -> Path:
    """Write what was measured."""
    lines = ["# Names of real logs that are known; written by python -m windsock.catalogue coverage.\n"]
    for one in found:
        counts = f"runs = {one.runs}\nnames = {one.names}\nknown = {one.known}"
        lines.append(f"[{json.dumps(one.framework)}]\n{counts}\nmissing = {json.dumps(one.missing)}\n")
    FILE.write_text("\n".join(lines), encoding="utf-8")
    return FILE


def read() -> list[Coverage]:
    """Return what was measured last."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return [Coverage(framework, **values) for framework, values in tables.items()]
