"""Table of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from windsock.diagnosis.health import Health
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
HEALTH_COLOURS = {"healthy": "green", "watch": "yellow", "sick": "red", "cannot tell": "", "–": ""}
SYMBOLS = {"running": "●", "finished": "✓", "crashed": "✗", "killed": "✗", "stalled": "◌", "unreadable": "?"}
FOLDED = ("NAME", "PROJECT")
COLOURED = ("STATUS", "HEALTH")
NUMBERS = ("STEP", "TIME", "SIZE", "STARTED")
HEADINGS = ("ID", *FOLDED, *COLOURED, *NUMBERS)
WITHOUT_HEALTH = tuple(heading for heading in HEADINGS if heading != "HEALTH")
STATUS = HEADINGS.index("STATUS")
GAP = "  "  # between two columns of Rich


def status_text(status: Status) -> Text:
    """Return a status with its symbol and colour."""
    from rich.text import Text

    return Text(_status(status), style=COLOURS[status.word])


def _status(status: Status) -> str:
    return f"{SYMBOLS[status.word]} {status.word}"


def _health(health: Health | None) -> str:
    return "–" if health is None else health.verdict


class RunsTable:
    """A table of runs in the order given, with the verdicts on them if any is known.

    Rich computes the widths of the columns. The rows are put together here, since Rich takes half a millisecond for
    each, which is seconds for thousands of runs.
    """

    def __init__(self, glances: Sequence[Glance], health: Sequence[Health | None]) -> None:
        now = time.time()
        verdicts = [_health(found) for found in health]
        self._headings = HEADINGS if any(health) else WITHOUT_HEALTH
        self._rows = [_cells(self._headings, *run, now) for run in zip(glances, verdicts, strict=True)]
        self._colours = [
            (COLOURS[run.status.word], HEALTH_COLOURS[verdict]) for run, verdict in zip(glances, verdicts, strict=True)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines of the table."""
        from rich.segment import Segment

        widths = self._widths(console, options)
        headings = self._headings
        for line in _lines(headings, headings, widths, console):
            yield from (Segment("".join(_line(headings, line, widths)), console.get_style("dim")), Segment.line())
        for cells, (status, health) in zip(self._rows, self._colours, strict=True):
            styles = [console.get_style(colour or "none") for colour in ("", status, "", health, "")]
            for line in _lines(headings, cells, widths, console):
                yield from map(Segment, _line(headings, line, widths), styles)
                yield Segment.line()

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int]:
        """Return the widths of the columns, from the widest cell of each."""
        from rich.cells import cell_len
        from rich.text import Text

        table = _empty_table(self._headings)
        for column in range(len(self._headings)):
            widest = max(self._rows, key=lambda row: cell_len(row[column]), default=self._headings)
            table.add_row(*map(Text, widest))
        widths = table._calculate_column_widths(console, options)  # there is no public way to ask
        # With the gaps: of a column at an edge one character, else one on each side.
        return [max(width - (1 if place in (0, len(widths) - 1) else 2), 0) for place, width in enumerate(widths)]


def _empty_table(headings: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("ID", no_wrap=True, max_width=MAX_ID, overflow="ellipsis")  # commands take a prefix too
    for heading in FOLDED:
        table.add_column(heading, min_width=7, overflow="fold")
    for heading in (heading for heading in COLOURED if heading in headings):
        table.add_column(heading, no_wrap=True)
    for heading in NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(headings: Sequence[str], run: Glance, health: str, now: float) -> tuple[str, ...]:
    return (
        *(printable(text) for text in (run.info.id, run.info.name, run.info.project)),
        _status(run.status),
        *((health,) if "HEALTH" in headings else ()),
        "–" if run.last_step is None else f"{run.last_step:,}",
        duration(max(0.0, run.last_heard - run.began)),
        size(run.bytes),
        age(now - run.began),
    )


def _lines(
    headings: Sequence[str], cells: Sequence[str], widths: list[int], console: Console
) -> Iterable[Sequence[str]]:
    """Return the lines of a row, as cells: several where a name is folded."""
    from rich.cells import cell_len

    if all(cell_len(cell) <= width for cell, width in zip(cells, widths, strict=True)):
        return [cells]
    folded = [_folded(*one, console) if one[-1] else [] for one in zip(headings, cells, widths, strict=True)]
    return zip_longest(*folded, fillvalue="")


def _folded(heading: str, cell: str, width: int, console: Console) -> list[str]:
    from rich.text import Text

    text = Text(cell)
    if heading in FOLDED:
        return [line.plain.rstrip() for line in text.wrap(console, width, overflow="fold")]
    text.truncate(width, overflow="ellipsis")
    return [text.plain]


def _line(headings: Sequence[str], cells: Sequence[str], widths: list[int]) -> tuple[str, str, str, str, str]:
    """Return a line of cells that are not too wide: status and health, and what is before, between and after them."""
    from rich.cells import cell_len

    padded = []
    for heading, cell, width in zip(headings, cells, widths, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if heading in NUMBERS else cell + space)
    # A terminal may be too narrow for all columns: those without a width are left out.
    after = STATUS + (2 if "HEALTH" in headings else 1)
    health = "".join(padded[STATUS + 1 : after])
    before_text = "".join(cell + GAP for cell in padded[:STATUS] if cell)
    after_text = "".join(GAP + cell for cell in padded[after:] if cell)
    return before_text, padded[STATUS], GAP if health else "", health, after_text
