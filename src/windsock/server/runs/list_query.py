"""Which runs a page of the list has: search, order and place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from windsock.server.runs.listed_run import ListedRun

DIGITS = re.compile(r"([0-9]+)")


def _natural(name: str) -> tuple[list[Any], str]:
    """Return a key that sorts names without regard to case, and numbers in them as numbers."""
    parts: list[Any] = DIGITS.split(name.casefold())
    for place in range(1, len(parts), 2):
        number = parts[place].lstrip("0")
        parts[place] = len(number), number  # not as an integer, which may have thousands of digits
    return parts, name


def _last_reward(run: ListedRun) -> float:
    """Return the last reward; a run without one, or with NaN, sorts last."""
    last = run.reward["last"] if run.reward is not None else math.nan
    return math.inf if math.isnan(last) else -last


SORTS: dict[str, Callable[[ListedRun], Any]] = {
    "began": lambda run: -run.began,
    "name": lambda run: _natural(run.name),
    "reward": _last_reward,
    "status": lambda run: (run.facts["status"], -run.began),
    "heard": lambda run: -run.last_heard,
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of the list; ``keys`` are runs that are wanted in any case."""

    q: str = ""
    sort: str = "began"
    hidden: bool = True  # with hidden runs
    offset: int = 0
    limit: int = 100
    keys: tuple[str, ...] = ()

    def select(self, runs: Iterable[ListedRun]) -> list[ListedRun]:
        """Return the runs that contain every word of the query, in order, pinned ones first."""
        words = self.q.lower().split()
        found = [
            run
            for run in runs
            if (self.hidden or not run.annotations["hidden"]) and all(word in run.search_text for word in words)
        ]
        found.sort(key=SORTS[self.sort])
        found.sort(key=lambda run: not run.annotations["pinned"])  # a stable sort: the order stays within each part
        return found

    def page(self, found: list[ListedRun]) -> list[ListedRun]:
        """Return the runs of this page."""
        return found[self.offset : self.offset + self.limit]
