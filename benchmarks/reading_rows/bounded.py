"""Rows about what must be bounded: phases, families, samples, names of phases."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from reading_rows.table import Linear, Numbers, Row, Subject, Under, wall_seconds

PROJECT = "reading"


def make_families(size: int, folder: Path) -> None:
    """Write a run with one metric in each family."""
    import windsock

    run = windsock.init(dir=folder, project=PROJECT, id="families")
    for step in range(2):
        run.log({f"family{n}/value": float(n) for n in range(size)}, step=step)
    run.finish()


def measure_families(size: int, folder: Path) -> Numbers:
    """Measure ``windsock show``."""
    from windsock.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        seconds, _ = wall_seconds(lambda: main(["show", str(folder / PROJECT / "families")]))
    return {"show s": seconds, "printed kB": len(printed.getvalue()) / 1000}


ROWS = [
    Row(
        name="families",
        what="show a run with so many families of one metric",
        unit="families",
        sizes=(1000, 4000),
        full=(1000, 4000, 16_000),
        windsock=Subject(make_families, measure_families),
        should_be=(Under("show s", 2.0), Linear("show s", floor=0.5)),
    ),
]
