"""A row of the benchmark ``reading``: what is measured, at which sizes, and what should hold."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Numbers = dict[str, float]
"""Measured numbers by name; a name ends with its unit, as in ``overview s`` or ``RSS MiB``."""

BySize = Mapping[int, Numbers]
Make = Callable[[int, Path], Any]
Measure = Callable[[int, Path], Numbers]

PEAK = "peak MiB"  # of the process that measures; added to the numbers of rows that limit it


@dataclass(frozen=True, slots=True)
class Under:
    """A number stays under a limit, at the largest size."""

    number: str
    limit: float

    def __str__(self) -> str:
        return f"under {self.limit:g}"

    def holds(self, measured: BySize) -> bool:
        """Return whether it does."""
        return measured[max(measured)][self.number] < self.limit


@dataclass(frozen=True, slots=True)
class Flat:
    """A number does not grow with the size: it is at most ``factor`` times that of the smallest size."""

    number: str
    factor: float = 2.0
    floor: float = 0.0  # a number below this is noise, and counts as this

    def __str__(self) -> str:
        return "flat"

    def holds(self, measured: BySize) -> bool:
        """Return whether it does."""
        small, large = (max(measured[size][self.number], self.floor) for size in (min(measured), max(measured)))
        return large <= self.factor * small


@dataclass(frozen=True, slots=True)
class Linear:
    """A number grows at most as the size does, times ``factor``."""

    number: str
    factor: float = 1.5
    floor: float = 0.0

    def __str__(self) -> str:
        return "linear"

    def holds(self, measured: BySize) -> bool:
        """Return whether it does."""
        return Flat(self.number, self.factor * max(measured) / min(measured), self.floor).holds(measured)


Bar = Under | Flat | Linear


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured of barograph or of another tracker: ``make`` writes the data, ``measure`` reads it.

    Each is called in a process of its own, with the size and a folder for it. ``measure`` returns its numbers.
    """

    make: Make
    measure: Measure


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. ``full`` are the sizes with ``--full``, for a row that takes minutes at them."""

    name: str  # for --only
    what: str
    unit: str  # of the sizes
    sizes: tuple[int, ...]
    barograph: Subject
    should_be: tuple[Bar, ...]
    full: tuple[int, ...] = ()
    peers: Mapping[str, Subject] = field(default_factory=dict)


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call in this process, all threads together, and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def wall_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def resident_mebibytes() -> float:
    """Return the memory of this process that is resident now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def peak_mebibytes() -> float:
    """Return the most memory that was resident in this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 20)
