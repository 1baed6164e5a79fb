"""Rows about what must be bounded: phases, families, samples, names of phases."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from reading_rows.table import Flat, Linear, Numbers, Row, Subject, Under, resident_mebibytes, wall_seconds

PROJECT = "reading"


def make_families(size: int, folder: Path) -> None:
    """Write a run with one metric in each family, logged on its own."""
    import windsock

    run = windsock.init(dir=folder, project=PROJECT, id="families")
    for step in range(2):
        for n in range(size):
            run.log({f"family{n}/value": float(n)}, step=step)
    run.finish()


def measure_families(size: int, folder: Path) -> Numbers:
    """Measure ``windsock show``."""
    from windsock.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        seconds, _ = wall_seconds(lambda: main(["show", str(folder / PROJECT / "families")]))
    return {"show s": seconds, "printed kB": len(printed.getvalue()) / 1000}


def measure_phase_names(size: int, folder: Path) -> Numbers:
    """Measure the memory of a training process that gives each phase another name."""
    import windsock

    run = windsock.init(dir=folder, project=PROJECT, id="names")
    with run.phase("first"):
        pass
    run.commit(0)
    before = resident_mebibytes()
    for n in range(size):
        with run.phase(f"phase {n}"):
            pass
        if n % 100 == 99:
            run.commit()
    grown = resident_mebibytes() - before
    run.finish()
    return {"grown MiB": grown}


ROWS = [
    Row(
        name="families",
        what="show a run with so many families of one metric",
        unit="families",
        sizes=(1000, 4000, 16_000),
        windsock=Subject(make_families, measure_families),
        should_be=(Under("show s", 2.0), Linear("show s", floor=0.5)),
    ),
    Row(
        name="phase_names",
        what="a training process with so many names of phases",
        unit="names",
        sizes=(5000, 20_000),
        full=(5000, 100_000),
        windsock=Subject(lambda size, folder: None, measure_phase_names),
        should_be=(Under("grown MiB", 32.0), Flat("grown MiB", floor=8.0)),
    ),
]
