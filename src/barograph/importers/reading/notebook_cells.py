"""Cells of a notebook.

Tables in the HTML of their outputs, and trainer and settings in their source code, which is parsed and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from barograph.importers.reading.values import TRL_TRAINERS

MAX_CELLS = 5_000_000  # of one table; more are left out

MAX_CELL = 1000  # characters


@dataclass(slots=True)
class HtmlTable:
    """One table: the texts of its header cells, and of the other cells row by row."""

    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def html_tables(text: str) -> list[HtmlTable]:
    """Return the tables in a text that have a header; one that is cut has its complete rows."""
    parser = _Parser()
    parser.feed(text)
    return [table for table in parser.tables if table.names]


class _Parser(HTMLParser):
    """Collects cells. Tags that are not closed, as browsers accept them, are closed by the next one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[HtmlTable] = []
        self._cell: list[str] | None = None
        self._is_header = False
        self._row: list[str] = []
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append(HtmlTable())
        elif tag == "tr" and self.tables:
            self._end_row()
        elif tag in ("td", "th") and self.tables:
            self._end_cell()
            self._cell, self._is_header = [], tag == "th"

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "thead", "tbody", "table"):
            self._end_row()

    def _end_cell(self) -> None:
        if self._cell is None:
            return
        text = "".join(self._cell).strip()[:MAX_CELL]
        self._cell = None
        self._cells += 1
        if self._is_header and not self.tables[-1].rows:
            self.tables[-1].names.append(text)
        elif self._cells <= MAX_CELLS:
            self._row.append(text)

    def _end_row(self) -> None:
        self._end_cell()
        if self._row:
            self.tables[-1].rows.append(self._row)
            self._row = []


MAX_SOURCE = 200_000  # characters of one cell

MAGIC = re.compile(r"^(\s*)[!%?].*$", re.MULTILINE)


@dataclass(slots=True)
class Setup:
    """The trainer that a notebook uses last, such as "GRPO", and the literal settings of its config."""

    trainer: str = ""
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def producer(self) -> str:
        """The source of the names of metrics; "" for another trainer than TRL's."""
        return f"trl/{TRL_TRAINERS[self.trainer]}" if self.trainer in TRL_TRAINERS else ""

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the trainer; those of transformers where it has no config of its own."""
        return self.configs.get(self.trainer) or self.configs.get("", {})


def setup_in(sources: Iterable[str]) -> Setup:
    """Return the last trainer in some cells, with the settings that were given before it."""
    setup = Setup()
    for source in sources:
        for call, name in _calls(source):
            if name.endswith("Trainer"):
                setup.trainer = name.removesuffix("Trainer")
            elif name.endswith("Config") or name == "TrainingArguments":
                setup.configs[name.removesuffix("Config") if name != "TrainingArguments" else ""] = _literals(call)
    return setup


def _calls(source: str) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls in a cell in their order, with the names of what is called; none if it is no Python."""
    if len(source) > MAX_SOURCE or not ("Config" in source or "Train" in source):
        return
    try:
        tree = ast.parse(MAGIC.sub(r"\1pass", source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield node, name


def _literals(call: ast.Call) -> dict[str, Any]:
    """Return the keyword arguments that are literals."""
    found = {}
    for keyword in call.keywords:
        if keyword.arg is not None:
            try:
                value = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, str | int | float | bool | list | tuple | dict | None):
                found[keyword.arg] = list(value) if isinstance(value, tuple) else value
    return found
