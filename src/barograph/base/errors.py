"""The exceptions of barograph.

::

    BarographError
    ├── SettingsError        a wrong setting, in YAML, as keyword or in the environment
    ├── TrackerError         a tracker that is unknown, not installed or has wrong arguments
    ├── JournalError         a file that is not a journal, or one of a newer format
    ├── LogError             a log of another program that cannot be read
    ├── EngineError          an inference engine whose metrics cannot be read
    ├── ExpressionError      a filter or a question that cannot be read or answered
    ├── RunNotFoundError     no run of that name, or several
    └── MetricNotFoundError  no metric of that name in a run

Every message contains what was expected, what was given and what to do. ``init``, ``open``, views and the command line
raise these errors; the calls of a training loop never raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar


class RequestError(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Error = TypeVar("Error", bound=BaseException)


class BarographError(Exception):
    """The base of all errors that barograph raises."""


class SettingsError(BarographError, ValueError):
    """A setting is unknown, has the wrong type or contradicts another."""


class TrackerError(BarographError):
    """A tracker cannot be used as configured."""


class JournalError(BarographError):
    """A file cannot be read as a journal."""


class LogError(BarographError):
    """A log of another program cannot be read as a run."""


class EngineError(BarographError):
    """The metrics of an inference engine cannot be read. It is reported, never raised to a user."""


class ExpressionError(BarographError, ValueError):
    """An expression, such as ``reward < 0.5``, cannot be read or answered."""


class RunNotFoundError(BarographError, LookupError):
    """A reference names no run, or more than one."""


class MetricNotFoundError(BarographError, LookupError):
    """A run has no metric of that name."""


def did_you_mean(
    word: object,
    known: Iterable[str],
    otherwise: str = "",
    *,
    before: str = "",
    also: Iterable[str] = (),
    count: int = 1,
    cutoff: float = 0.6,
    quoted: Callable[[str], str] = repr,
) -> str:
    """Return the question about the known words that are most similar to a word; ``otherwise`` where there is none.

    ``also`` are further words for it, and ``before`` is what comes before the question.
    """
    from difflib import get_close_matches

    near = list(dict.fromkeys([*get_close_matches(str(word), list(known), count, cutoff), *also]))[:count]
    return f"{before}did you mean {' or '.join(map(quoted, near))}?" if near else otherwise


def without_frames(error: Error) -> Error:
    """Remove the traceback and the causes of an exception, whose frames would keep tensors in memory; return it."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
