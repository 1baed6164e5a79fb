"""Tables in HTML, as rows of cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

MAX_CELLS = 5_000_000  # of one table; more are left out
MAX_CELL = 1000  # characters


@dataclass(slots=True)
class Table:
    """One table: the texts of its header cells, and of the other cells row by row."""

    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def html_tables(text: str) -> list[Table]:
    """Return the tables in a text that have a header; one that is cut has its complete rows."""
    parser = _Parser()
    parser.feed(text)
    return [table for table in parser.tables if table.names]


class _Parser(HTMLParser):
    """Collects cells. Tags that are not closed, as browsers accept them, are closed by the next one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self._cell: list[str] | None = None
        self._is_header = False
        self._row: list[str] = []
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append(Table())
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
