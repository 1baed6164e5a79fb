"""Console logs that tests write, and the runs that are read from them."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from barograph.base.errors import LogError
from barograph.importers.opening import ImportedView, open_run


def write(path: Path, lines: list[str], mode: str = "w", age: float = 60.0) -> Path:
    """Write lines to a file whose last change was some seconds ago."""
    with path.open(mode, newline="") as file:
        file.write("".join(f"{line}\n" for line in lines))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def imported(path: Path) -> ImportedView:
    """Open a log."""
    view = open_run(path)
    assert isinstance(view, ImportedView)
    return view


def points(view: ImportedView, name: str, attempt: int | None = None) -> dict[int, float]:
    """Return the values of a metric by step."""
    series = view.series(name, attempt=attempt)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def unread(view: ImportedView) -> list[str]:
    """Return what was not understood, as messages."""
    return [str(one) for one in view.origin.unread] if view.origin is not None else []


def mutated(data: bytes, folder: Path, count: int = 60) -> Iterator[ImportedView]:
    """Yield the runs of logs with changed, removed and added bytes, except those that are refused."""
    chance = random.Random(1)
    for number in range(count):
        other = bytearray(data)
        for _ in range(chance.randint(1, 40)):
            place = chance.randrange(len(other))
            other[place : place + chance.randint(0, 30)] = chance.randbytes(chance.randint(0, 8))
        path = folder / f"{number}.log"
        path.write_bytes(bytes(other[: chance.randint(1, 2 * len(other))]))
        with suppress(LogError):
            yield imported(path)
