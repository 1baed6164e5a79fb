"""Reading of a large JSON document value by value, so that a cut or damaged end costs only itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class DamagedDocumentError(ValueError):
    """The document ends, or is not JSON, at some line."""


class JsonScanner:
    """A place in the text of a document, which moves as values are read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def take(self, character: str) -> bool:
        """Move behind a character if it comes next; return whether it does."""
        space = SPACE.match(self.text, self.place)
        self.place = space.end() if space else self.place
        if self.text.startswith(character, self.place):
            self.place += len(character)
            return True
        return False

    def expect(self, character: str) -> None:
        """Move behind a character that has to come next."""
        if not self.take(character):
            raise self._damaged(f"expected {character!r}")

    def value(self) -> Any:
        """Read the next value."""
        self.take("")
        try:
            value, self.place = _decode(self.text, self.place)
        except (ValueError, RecursionError) as problem:
            raise self._damaged(getattr(problem, "msg", "") or str(problem)) from None
        return value

    def members(self) -> Iterator[str]:
        """Yield the names of an object; its user reads each value before the next name."""
        self.expect("{")
        is_first = True
        while not self.take("}"):
            if not is_first:
                self.expect(",")
            is_first = False
            name = self.value()
            self.expect(":")
            yield str(name)

    def entries(self) -> Iterator[Any]:
        """Yield the values of an array."""
        self.expect("[")
        if not self.take("]"):
            yield self.value()
            yield from self.more_entries()

    def more_entries(self) -> Iterator[Any]:
        """Yield the values of an array of which one was read last."""
        while not self.take("]"):
            self.expect(",")
            yield self.value()

    def _damaged(self, reason: str) -> DamagedDocumentError:
        line = self.text.count("\n", 0, self.place) + 1
        if not self.text[self.place :].strip():
            return DamagedDocumentError(f"line {line}: the end is missing")
        return DamagedDocumentError(f"line {line}: {reason}")
