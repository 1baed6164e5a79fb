"""Problems of a run: the one guard around the calls of a training loop, and the counts of everything that it caught.

A problem is printed once to standard error, counted by call and error, and written to the journal as an event, so that
``barograph show`` lists it. A value that cannot be recorded is skipped and counted in the same way.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

from barograph.base.formatting import describe_error

Method = TypeVar("Method", bound=Callable[..., Any])
Result = TypeVar("Result")

MAX_WARNINGS = 1000  # different texts that are printed
MAX_PROBLEMS = 1000  # different problems that are counted apart; errors may contain a number that changes
MANY_OTHERS = "other problems"


class Problems:
    """Warnings, failed calls and skipped values of one run."""

    def __init__(self, redact: Callable[[str], str], write_event: Callable[..., object]) -> None:
        self._redact = redact
        self._write_event = write_event
        self._warned: set[str] = set()
        self.after_fork()

    def after_fork(self) -> None:
        """Count from zero: a forked child writes its own counts. What was printed is not printed again."""
        self.failures = 0  # of all calls
        self.unreported = 0  # calls that failed so near the recursion limit that nothing could be called
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._counts: Counter[tuple[str, str]] = Counter()
        self._unwritten: Counter[tuple[str, str]] = Counter()
        self._skipped: dict[str, tuple[str, int]] = {}

    def warn(self, text: str) -> None:
        """Print a warning to standard error, once per text."""
        if text in self._warned or len(self._warned) >= MAX_WARNINGS:
            return
        self._warned.add(text)
        with suppress(OSError, ValueError, AttributeError):  # standard error may be closed, or None
            print(f"barograph: {self._redact(text)}", file=sys.stderr)

    def report(self, call: str, error: Exception) -> None:
        """Count a call that failed; the first failure of its kind is printed and written at once."""
        found = call, self._redact(describe_error(error))
        with self._lock:
            if found not in self._counts and len(self._counts) >= MAX_PROBLEMS:
                found = call, MANY_OTHERS
            self._counts[found] += 1
            self.failures += 1
            first = self._counts[found] == 1
            if not first:
                self._unwritten[found] += 1
        if first:
            with suppress(Exception):  # the journal may be what has failed
                self._write(found, 1)
            self.warn(f"{call} failed: {found[1]} (the training goes on; further failures are counted)")

    def attempt(self, call: str, work: Callable[..., Result], *args: Any) -> Result | None:
        """Call a function and return its result; report its exception under the name ``call`` and return None."""
        try:
            return work(*args)
        except Exception as error:  # noqa: BLE001 - see guarded
            self.report(call, error)
            return None

    def by_call(self) -> Counter[str]:
        """Return how often each call has failed so far."""
        with self._lock:
            found: Counter[str] = Counter()
            for (call, _), count in self._counts.items():
                found[call] += count
        return found

    def skip(self, rejected: Mapping[str, str]) -> None:
        """Count values that cannot be recorded, by name; the first of each name is printed and written at once."""
        for name, reason in rejected.items():
            with self._lock:
                count = self._skipped.get(name, ("", 0))[1] + 1
                self._skipped[name] = (reason, count)
            if count == 1:
                self._write_event("skipped", name=name, reason=reason, count=1)
                self.warn(f"skipped {name!r}: {reason} (reported once, counted)")

    def write_counts(self) -> None:
        """Write the failures since the last call; the counts of one problem's events add up to its total."""
        with self._lock:
            unwritten, self._unwritten = self._unwritten, Counter()
            if self.unreported:
                unwritten["run.log", "RecursionError: called near the recursion limit"] += self.unreported
                self.unreported = 0
        for found, count in unwritten.items():
            self._write(found, count)

    def finish(self) -> None:
        """Write the totals."""
        self.write_counts()
        for name, (reason, count) in self._skipped.items():
            if count > 1:
                self._write_event("skipped", name=name, reason=reason, count=count)

    def _write(self, found: tuple[str, str], count: int) -> None:
        self._write_event("problem", call=found[0], error=found[1], count=count)


def guarded(fallback: Callable[..., Any] = lambda *_, **__: None) -> Callable[[Method], Method]:
    """Decorate a call of the training loop so that it never raises.

    The object's ``_problems`` counts the exceptions; where it is None, as in a disabled run, the call does nothing.
    In both cases ``fallback`` is called with the same arguments, and its result is returned.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            problems: Problems | None = self._problems
            if problems is not None:
                try:
                    return method(self, *args, **kwargs)
                except DeprecationWarning:  # only where warnings are errors: then stopping is wanted
                    raise
                except Exception as error:  # noqa: BLE001 - the one guard: nothing may stop the training
                    problems.report(f"{type(self).__name__.lower()}.{method.__name__}", error)
            return fallback(self, *args, **kwargs)

        return cast(Method, call)

    return decorate
