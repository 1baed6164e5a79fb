"""How texts fit the terminal: widths of characters, lines that break between words, folded names, and tables that
leave out the columns that a person can do without.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.style import Style

NO_START = "，。；：、）！？”’%,.;:)!?]"
"""Characters that must not start a line."""


def cells(text: str) -> int:
    """Return the width of a text in columns; a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines: between words, or between any two Chinese characters, but not before punctuation."""
    lines, line = [], ""
    for piece in _breakable(text):
        if line and cells(line) + cells(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece if line else piece.lstrip()
    return [*lines, line.rstrip()] if line.strip() else lines


def _breakable(text: str) -> list[str]:
    """Split a text where a line may end."""
    pieces: list[str] = []
    for char in text:
        wide = unicodedata.east_asian_width(char) in "WF"
        fresh = not pieces or pieces[-1].endswith(" ") or wide or unicodedata.east_asian_width(pieces[-1][-1]) in "WF"
        if fresh and char != " " and char not in NO_START and not (pieces and pieces[-1][-1] in "（“‘("):
            pieces.append(char)
        elif pieces:
            pieces[-1] += char
    return pieces


def wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line to the width, after a space where there is one."""
    if line.isascii() and len(line) <= width:
        return [line]
    pieces = []
    while cells(line[: width + 1]) > width:
        cut, remaining = 0, width
        while remaining - (wide := cells(line[cut])) >= 0:
            remaining -= wide
            cut += 1
        blank = line.rfind(" ", cut // 2, cut)
        cut = blank + 1 if blank > 0 else max(cut, 1)
        pieces.append(line[:cut].rstrip())
        line = line[cut:]
    return [*pieces, line]


PIECE = re.compile(r"[^\s/_.:,-]*[\s/_.:,-]+|[^\s/_.:,-]+")


def fold(text: str, width: int) -> list[str]:
    """Return a text in lines that end after spaces, slashes, dashes and the like, and in a word only if it is wider."""
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for piece in PIECE.findall(text):
        if cell_len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
            continue
        *whole, rest = chop_cells(piece, width) if cell_len(piece.rstrip()) > width else [piece]
        lines += [*whole, rest]
    return [line.rstrip() for line in lines if line.strip()] or [""]


GAP = "  "  # between two columns


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a table becomes narrow.

    ``folded`` is the column that gets what the others leave. ``left_out`` are columns that may be missing, in this
    order, each with the width below which the folded column is too narrow to keep it.
    """

    folded: str
    numbers: Collection[str]
    left_out: Sequence[tuple[str, int]]
    at_most: Mapping[str, int] = field(default_factory=dict)  # widths of columns whose texts may be long
    indent: str = ""


class TextTable:
    """Columns of texts under headings; ``colours`` has the colour of each cell of some columns.

    The rows are put together here, since Rich takes half a millisecond for each, which is seconds for thousands.
    """

    def __init__(
        self,
        layout: TableLayout,
        columns: Mapping[str, Sequence[str]],
        colours: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._layout = layout
        self._columns = columns
        self._colours = colours or {}
        self._natural = {heading: _widest((heading, *column)) for heading, column in columns.items()}
        self._natural |= {heading: min(self._natural[heading], most) for heading, most in layout.at_most.items()}

    @property
    def width(self) -> int:
        """The width at which nothing is folded or left out."""
        return self._natural[self._layout.folded] - self._rest(self._natural, 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines of the table."""
        widths = self._widths(options.max_width)
        dim = console.get_style("dim")
        yield from self._row(widths, {heading: heading for heading in widths}, dict.fromkeys(widths, dim))
        for place in range(len(self._columns[self._layout.folded])):
            cells = {heading: self._columns[heading][place] for heading in widths}
            styles = {heading: console.get_style(own[place] or "none") for heading, own in self._colours.items()}
            yield from self._row(widths, cells, styles)

    def _widths(self, width: int) -> dict[str, int]:
        """Return the widths of the columns that are shown, by their headings."""
        folded, widths = self._layout.folded, dict(self._natural)
        for heading, least in self._layout.left_out:
            if heading in widths and self._rest(widths, width) < min(self._natural[folded], least):
                del widths[heading]
        return widths | {folded: max(min(self._natural[folded], self._rest(widths, width)), len(folded))}

    def _rest(self, widths: Mapping[str, int], width: int) -> int:
        """Return the width that the other columns leave to the folded one."""
        others = sum(own + len(GAP) for heading, own in widths.items() if heading != self._layout.folded)
        return width - len(self._layout.indent) - others

    def _row(
        self, widths: Mapping[str, int], cells: Mapping[str, str], styles: Mapping[str, Style]
    ) -> Iterator[Segment]:
        """Yield the lines of a row: several where a name is folded."""
        from rich.cells import cell_len
        from rich.segment import Segment

        for line in zip_longest(*(_lines(cells[heading], width) for heading, width in widths.items()), fillvalue=""):
            yield Segment(self._layout.indent)
            for place, (heading, cell) in enumerate(zip(widths, line, strict=True)):
                space = " " * (widths[heading] - cell_len(cell))
                padded = space + cell if heading in self._layout.numbers else cell + space
                yield Segment((GAP if place else "") + padded, styles.get(heading))
            yield Segment.line()


def _widest(texts: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts))


def _lines(cell: str, width: int) -> list[str]:
    from rich.cells import cell_len

    return [cell] if cell_len(cell) <= width else fold(cell, width)
