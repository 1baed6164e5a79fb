"""Output that fits any terminal: nothing in a run can control it, and any encoding can show it."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from windsock.formatting import ERRORS, printable, substitute

if TYPE_CHECKING:
    from rich.console import Console


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line that may contain text from a run."""
    print(printable(text), file=file)


def make_console(**options: Any) -> Console:
    """Return a console that prints no control character of any text, wherever it comes from."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(printable(segment.text, newlines=True), segment.style)

    return SafeConsole(**options)


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
