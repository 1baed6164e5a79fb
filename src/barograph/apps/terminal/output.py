"""Output that fits any terminal: nothing in a run can control it, and any encoding can show it.

Records and errors are printed as JSON where that is asked for.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from barograph.answers.records import versioned
from barograph.base.formatting import ERRORS, printable, substitute

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

PROGRESS_SECONDS = 1.0  # before progress is shown

REPEAT_SECONDS = 0.1


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line that may contain text from a run."""
    print(printable(text), file=file)


class Progress:
    """Progress of work that takes more than a second, on a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + PROGRESS_SECONDS if sys.stderr.isatty() else math.inf
        self._is_shown = False

    def over(self, items: Sequence[T]) -> Iterator[T]:
        """Yield items, and show how many of them are done."""
        for done, item in enumerate(items):
            self.show(done, len(items))
            yield item
        self.show(len(items), len(items))

    def show(self, done: int, total: int) -> None:
        """Print the progress now and then, and clear the line at the end."""
        if done == total and self._is_shown:
            self._is_shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif done < total and time.monotonic() > self._next:
            self._is_shown = True
            self._next = time.monotonic() + REPEAT_SECONDS
            print(f"\r{self._what}: {done * 100 // total} %", end="", file=sys.stderr, flush=True)


def make_console(file_width: int | None = None, **options: Any) -> Console:
    """Return a console that prints no control character of any text, wherever it comes from.

    ``file_width`` is its width where it prints to a file or a pipe, unless ``COLUMNS`` is set.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(printable(segment.text, newlines=True), segment.style)

    console = SafeConsole(**options)
    if file_width is not None and not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = file_width
    return console


@contextmanager
def any_encoding() -> Iterator[None]:
    """Substitute or escape characters that standard output cannot encode, instead of raising."""
    codecs.register_error(ERRORS, substitute)
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, TextIOWrapper)]
    before = [stream.errors for stream in streams]
    for stream in streams:
        stream.reconfigure(errors=ERRORS)
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            if not stream.closed:
                stream.reconfigure(errors=errors)


def print_document(kind: str, record: dict[str, Any]) -> None:
    """Print a record as JSON."""
    print_json(versioned(kind, record))


def print_problem(problem: object, is_json: bool) -> None:
    """Print an error: as JSON, or as a line on standard error."""
    if is_json:
        print_document("error", {"error": str(problem)})
    else:
        print(printable(f"barograph: {problem}", newlines=True), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print strict JSON: NaN and infinities, of a config say, are strings."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False, default=str)
    except (ValueError, RecursionError):  # not finite, or nested too deeply
        from barograph.answers.responses import to_strict_json

        text = json.dumps(to_strict_json(value), indent=1, allow_nan=False)
    print(text)
