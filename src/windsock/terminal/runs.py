"""Table of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from windsock.formatting import age, duration, printable, size
from windsock.journal.run_facts import Glance
from windsock.model import Status

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

COLOURS = {
    "running": "green",
    "finished": "",
    "crashed": "red",
    "killed": "red",
    "stalled": "yellow",
    "unreadable": "red",
}
MAX_ID = 18  # characters of an id in a table
SYMBOLS = {"running": "●", "finished": "✓", "crashed": "✗", "killed": "✗", "stalled": "◌", "unreadable": "?"}
FOLDED = ("NAME", "PROJECT")
NUMBERS = ("STEP", "TIME", "SIZE", "STARTED")
HEADINGS = ("ID", *FOLDED, "STATUS", *NUMBERS)
STATUS = HEADINGS.index("STATUS")
GAP = "  "  # between two columns of Rich


def status_text(status: Status) -> Text:
    """Return a status with its symbol and colour."""
    from rich.text import Text

    return Text(_status(status), style=COLOURS[status.word])


def _status(status: Status) -> str:
    return f"{SYMBOLS[status.word]} {status.word}"


class RunsTable:
    """A table of runs, in the order given.

    Rich computes the widths of the columns. The rows are put together here, since Rich takes half a millisecond for
    each, which is seconds for thousands of runs.
    """

    def __init__(self, glances: Sequence[Glance]) -> None:
        now = time.time()
        self._rows = [_cells(run, now) for run in glances]
        self._colours = [COLOURS[run.status.word] for run in glances]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines of the table."""
        from rich.segment import Segment

        widths = self._widths(console, options)
        for line in _lines(HEADINGS, widths, console):
            yield from (Segment("".join(_line(line, widths)), console.get_style("dim")), Segment.line())
        for cells, colour in zip(self._rows, self._colours, strict=True):
            style = console.get_style(colour or "none")
            for line in _lines(cells, widths, console):
                before, status, after = _line(line, widths)
                yield from (Segment(before), Segment(status, style), Segment(after), Segment.line())

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int]:
        """Return the widths of the columns, from the widest cell of each."""
        from rich.cells import cell_len
        from rich.text import Text

        table = _empty_table()
        for column in range(len(HEADINGS)):
            widest = max(self._rows, key=lambda row: cell_len(row[column]), default=HEADINGS)
            table.add_row(*map(Text, widest))
        widths = table._calculate_column_widths(console, options)  # there is no public way to ask
        # With the gaps: of a column at an edge one character, else one on each side.
        return [max(width - (1 if place in (0, len(widths) - 1) else 2), 0) for place, width in enumerate(widths)]


def _empty_table() -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("ID", no_wrap=True, max_width=MAX_ID, overflow="ellipsis")  # commands take a prefix too
    for heading in FOLDED:
        table.add_column(heading, min_width=7, overflow="fold")
    table.add_column("STATUS", no_wrap=True)
    for heading in NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(run: Glance, now: float) -> tuple[str, ...]:
    return (
        *(printable(text) for text in (run.info.id, run.info.name, run.info.project)),
        _status(run.status),
        "–" if run.last_step is None else f"{run.last_step:,}",
        duration(max(0.0, run.last_heard - run.began)),
        size(run.bytes),
        age(now - run.began),
    )


def _lines(cells: Sequence[str], widths: list[int], console: Console) -> Iterable[Sequence[str]]:
    """Return the lines of a row, as cells: several where a name is folded."""
    from rich.cells import cell_len

    if all(cell_len(cell) <= width for cell, width in zip(cells, widths, strict=True)):
        return [cells]
    folded = [_folded(*one, console) if one[-1] else [] for one in zip(HEADINGS, cells, widths, strict=True)]
    return zip_longest(*folded, fillvalue="")


def _folded(heading: str, cell: str, width: int, console: Console) -> list[str]:
    from rich.text import Text

    text = Text(cell)
    if heading in FOLDED:
        return [line.plain.rstrip() for line in text.wrap(console, width, overflow="fold")]
    text.truncate(width, overflow="ellipsis")
    return [text.plain]


def _line(cells: Sequence[str], widths: list[int]) -> tuple[str, str, str]:
    """Return a line of cells that are not too wide: what is before the status, the status, and what is after it."""
    from rich.cells import cell_len

    padded = []
    for heading, cell, width in zip(HEADINGS, cells, widths, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if heading in NUMBERS else cell + space)
    # A terminal may be too narrow for all columns: those without a width are left out.
    before, after = padded[:STATUS], padded[STATUS + 1 :]
    return "".join(cell + GAP for cell in before if cell), padded[STATUS], "".join(GAP + c for c in after if c)
