"""What a reader records, kept until it is known which of it is new."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from windsock.importers.formats import RewrittenError
from windsock.importers.recorder import Recorder


class Call(NamedTuple):
    """One call of a method of a recorder."""

    method: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}


class KeptCalls:
    """Takes the calls that a recorder takes, and keeps them, for documents that are always read as a whole."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.end: tuple[str | None, str] = (None, "")

    def row(
        self,
        values: Mapping[str, float | None],
        step: int | None = None,
        at: float | None = None,
        repeats: bool = False,
    ) -> None:
        """Keep a row."""
        self.calls.append(Call("row", (dict(values), step, at, repeats)))

    def status(self, word: str | None, reason: str = "") -> None:
        """Keep how it ended: the last word counts."""
        self.end = word, reason

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that keeps calls of another method."""
        if name.startswith("_") or not hasattr(Recorder, name):
            raise AttributeError(name)
        return lambda *arguments, **keywords: self.calls.append(Call(name, arguments, keywords))

    def steps(self) -> list[int | None]:
        """Return the steps of the rows."""
        return [call.arguments[1] for call in self.calls if call.method == "row"]

    def record_new(self, out: Recorder, state: dict[str, Any]) -> None:
        """Record what comes after the calls of an earlier state; raise RewrittenError if those are not the same."""
        known = state.get("calls", 0)
        if known > len(self.calls) or (known and _digest(self.calls[:known]) != state["digest"]):
            raise RewrittenError
        for call in self.calls[known:]:
            getattr(out, call.method)(*call.arguments, **call.keywords)
        out.status(*self.end)
        state["calls"], state["digest"] = len(self.calls), _digest(self.calls)


def _digest(calls: list[Call]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for call in calls:
        digest.update(repr(call).encode("utf-8", "replace"))
    return digest.hexdigest()
