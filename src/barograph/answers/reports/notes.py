"""Notes of a report: Markdown with fenced blocks that place charts and tables of runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from barograph.catalogue.spec import Text

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)$")
HEADING = re.compile(r" {0,3}#\s+(.*?)(?:\s+#+)?\s*$")
OPTIONS = {
    "chart": ("title", "runs", "by", "against", "points", "y", "scale", "smooth", "size", "steps"),
    "runs": ("by", "columns"),
}
"""What the lines of a block can set, by its kind; other lines are metrics of a chart, or runs."""


@dataclass(frozen=True, slots=True)
class NotesBlock:
    """A part of the notes: Markdown, a chart, or a table of runs, with its text and the number of its first line."""

    kind: Literal["note", "chart", "runs"]
    source: str
    line: int
    items: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


def parse_notes(text: str) -> list[NotesBlock]:
    """Return the blocks of some notes in their order."""
    blocks: list[NotesBlock] = []
    waiting: list[str] = []  # lines of Markdown
    first = 1

    def end_note(at: int) -> None:
        source = "\n".join(waiting).strip("\n")
        if source.strip():
            blocks.append(NotesBlock("note", source, first))
        waiting.clear()

    for number, kind, lines in _pieces(text.splitlines()):
        if kind is None:
            waiting.extend(lines)
            continue
        end_note(number)
        blocks.append(_fenced(kind, lines, number))
        first = number + len(lines)
    end_note(first)
    return blocks


def title_of(blocks: Sequence[NotesBlock]) -> str | None:
    """Return the first heading of the notes."""
    for block in blocks:
        if block.kind == "note":
            for _, kind, lines in _pieces(block.source.splitlines()):
                found = HEADING.match(lines[0]) if kind is None and len(lines) == 1 else None
                if found:
                    return found[1]
    return None


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a list with commas; an item in quotation marks may contain commas."""
    return tuple(item.strip() for item in next(csv.reader([text], skipinitialspace=True), []) if item.strip())


def _pieces(lines: Sequence[str]) -> Iterator[tuple[int, Literal["chart", "runs"] | None, list[str]]]:
    """Yield single lines, whole fenced blocks with their kind, and code of other languages, from their first lines."""
    place = 0
    while place < len(lines):
        opened = FENCE.match(lines[place])
        end = _fence_end(lines, place, opened[1]) if opened else place + 1
        word = opened[2].strip() if opened else ""
        kind: Literal["chart", "runs"] | None = "chart" if word == "chart" else "runs" if word == "runs" else None
        yield place + 1, kind, list(lines[place:end])
        place = end


def _fence_end(lines: Sequence[str], start: int, fence: str) -> int:
    """Return the place after the end of a fenced block; one that is not closed ends with the text."""
    for place in range(start + 1, len(lines)):
        line = lines[place].strip()
        if len(line) >= len(fence) and set(line) == {fence[0]}:
            return place + 1
    return len(lines)


def _fenced(kind: Literal["chart", "runs"], lines: list[str], number: int) -> NotesBlock:
    is_closed = len(lines) > 1 and set(lines[-1].strip()) <= {"`", "~"}
    items: list[str] = []
    options: dict[str, str] = {}
    for line in lines[1 : -1 if is_closed else None]:
        name, colon, value = line.partition(":")
        if colon and name.strip() in OPTIONS[kind]:
            options[name.strip()] = value.strip()
        else:
            items += split_list(line)
    return NotesBlock(kind, "\n".join(lines), number, tuple(items), options)


class OptionError(ValueError):
    """An option of a block that is not understood, with what is expected in both languages."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def range_option(name: str, value: str) -> tuple[float | None, float | None]:
    """Return the ends of ``0 to 1``, ``0 to`` or ``to 1``."""
    low, to, high = (part.strip() for part in f" {value} ".partition(" to "))
    try:
        if to and (low or high):
            return (float(low) if low else None), (float(high) if high else None)
    except ValueError:
        pass
    raise _unexpected(name, value, "0 to 1")


def number_option(name: str, value: str, low: float, high: float) -> float:
    """Return a number within its limits."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise _unexpected(name, value, f"{low:g} … {high:g}")
    return number


def choice_option(name: str, value: str, choices: Sequence[str]) -> str:
    """Return one of several words."""
    if value not in choices:
        raise _unexpected(name, value, ", ".join(choices))
    return value


def _unexpected(name: str, value: str, expected: str) -> OptionError:
    return OptionError(
        Text(f"{name}: expected {expected}; got {value[:60]!r}", f"{name}：应为 {expected}，实为 {value[:60]!r}")
    )
