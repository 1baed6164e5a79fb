"""Samples that were offered and are not written yet, step by step."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windsock.journal.samples import decode
from windsock.model import Sample
from windsock.samples.choice import Budget, Choice
from windsock.samples.offered import Refusals, to_sample

MANY_STEPS = 8  # that may wait for their commit; of more than that the first is written as it is
Write = Callable[[int, int, list[bytes]], object]  # step, how many were seen, those that are kept


class Pending:
    """Holds the choice of every step that is under way. Usable from several threads and from a signal handler."""

    def __init__(self, budget: Budget, write: Write) -> None:
        self._budget = budget
        self._write = write
        self._choices: dict[int | None, Choice] = {}
        self._places = itertools.count()
        self._lock = threading.RLock()

    def offer(self, given: Mapping[str, Any] | Sample, step: int | None) -> Refusals:
        """Take in a sample for a step, or for the one that is committed next; return what of it could not be taken."""
        sample, refused = to_sample(given)
        if not self._budget.count or not self._budget.bytes:
            return refused
        if not sample.time:
            sample = replace(sample, time=round(time.time(), 3))
        with self._lock:
            if step not in self._choices:
                self._make_room()
                self._choices[step] = Choice(self._budget)
            place = next(self._places)
            try:
                self._choices[step].offer(sample, place)
            except Exception as problem:  # noqa: BLE001 - what stands in a message may do anything when asked
                refused["messages"] = f"nothing that can be kept ({type(problem).__name__}: {problem})"
                self._choices[step].offer(replace(sample, messages=()), place)
        return refused

    def commit(self, step: int) -> None:
        """Write what belongs to a step, and what came late for earlier ones."""
        with self._lock:
            self._name_open(step)
            for due in sorted(key for key in self._choices if key is not None and key <= step):
                self._write_one(due)

    def finish(self, step: int) -> None:
        """Write all that is left; what has no step yet belongs to ``step``."""
        with self._lock:
            self._name_open(step)
            for due in sorted(key for key in self._choices if key is not None):
                self._write_one(due)

    def _name_open(self, step: int) -> None:
        """Give what waits for a step its number, and one budget together with what came under that number."""
        unnamed = self._choices.pop(None, None)
        if unnamed is None:
            return
        named = self._choices.setdefault(step, unnamed)
        if named is not unnamed:
            kept = unnamed.chosen()
            for text in kept:
                named.offer(decode(text, step), next(self._places))
            named.seen += unnamed.seen - len(kept)

    def _make_room(self) -> None:
        named = sorted(key for key in self._choices if key is not None)
        if len(named) >= MANY_STEPS:
            self._write_one(named[0])

    def _write_one(self, step: int) -> None:
        choice = self._choices.pop(step)
        self._write(step, choice.seen, choice.chosen())
