"""Calls of a recorder that are kept until it is known which are new."""

from typing import Any

import pytest

from barograph.importers.formats.notebooks import KeptCalls
from barograph.importers.reading.log import RewrittenError


class Listing:
    """Lists what is recorded."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: self.found.append((name, arguments, keywords))


def kept(*steps: int) -> KeptCalls:
    calls = KeptCalls()
    for step in steps:
        calls.row({"a": float("nan")}, step)
        calls.text("note", "words", step=step)
    calls.status("finished", "why")
    return calls


def test_only_what_is_new_is_recorded():
    """With its arguments; the status is always told."""
    state: dict[str, Any] = {}
    out = Listing()
    kept(1).record_new(out, state)
    kept(1, 2).record_new(out, state)
    assert [call[0] for call in out.found] == ["row", "text", "status"] * 2
    assert [call[1][1] for call in out.found if call[0] == "row"] == [1, 2]
    assert out.found[1] == ("text", ("note", "words"), {"step": 1})


def test_what_is_not_the_same_any_more_is_rewritten():
    """Also when there is less of it."""
    state: dict[str, Any] = {}
    kept(1, 2).record_new(Listing(), state)
    for other in (kept(1), kept(3, 2)):
        with pytest.raises(RewrittenError):
            other.record_new(Listing(), state)


def test_what_a_recorder_does_not_have_is_an_error():
    """So that a mistake shows."""
    with pytest.raises(AttributeError):
        KeptCalls().rows({})
