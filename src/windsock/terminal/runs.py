"""Table of runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from windsock.diagnosis.health import Health
from windsock.formatting import age, duration, printable, size
from windsock.journal.run_facts import Glance
from windsock.model import Status
from windsock.terminal.folding import fold

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.style import Style
    from rich.text import Text

COLOURS = {
    "running": "green",
    "finished": "",
    "crashed": "red",
    "killed": "red",
    "stalled": "yellow",
    "unreadable": "red",
}
MAX_ID = 18  # characters of an id in a table; commands take a prefix too
HEALTH_COLOURS = {"healthy": "green", "watch": "yellow", "sick": "red", "cannot tell": "", "–": ""}
SYMBOLS = {"running": "●", "finished": "✓", "crashed": "✗", "killed": "✗", "stalled": "◌", "unreadable": "?"}
HEADINGS = ("ID", "NAME", "PROJECT", "STATUS", "HEALTH", "STEP", "TIME", "SIZE", "STARTED")
FOLDED = ("NAME", "PROJECT")
NUMBERS = ("STEP", "TIME", "SIZE", "STARTED")
LEFT_OUT = (
    ("SIZE", 24), ("TIME", 20), ("STARTED", 16), ("PROJECT", 16), ("STEP", 12), ("ID", 12), ("HEALTH", 10),
)  # fmt: skip
"""Columns that a narrow terminal lacks, in this order: each if names would get less than so many characters."""

MAX_PROJECT = 24
GAP = "  "  # between two columns


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

    Name and status are there at any width; other columns are left out where the terminal is too narrow for them. The
    rows are put together here, since Rich takes half a millisecond for each, which is seconds for thousands of runs.
    """

    def __init__(self, glances: Sequence[Glance], health: Sequence[Health | None]) -> None:
        now = time.time()
        verdicts = [_health(found) for found in health]
        rows = [_cells(run, verdict, now) for run, verdict in zip(glances, verdicts, strict=True)]
        self._columns = {heading: column for heading, *column in zip(HEADINGS, *rows, strict=True)}
        if not any(health):
            del self._columns["HEALTH"]
        self._colours = {
            "STATUS": [COLOURS[run.status.word] for run in glances],
            "HEALTH": [HEALTH_COLOURS[verdict] for verdict in verdicts],
        }
        self._natural = {heading: _widest(heading, column) for heading, column in self._columns.items()}

    @property
    def width(self) -> int:
        """The width at which nothing is folded or left out."""
        return sum(self._natural.values()) + len(GAP) * (len(self._natural) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines of the table."""
        from rich.segment import Segment

        widths = self._widths(options.max_width)
        heading_style = console.get_style("dim")
        for segment in _row_segments(widths, {heading: heading for heading in widths}, {}):
            yield Segment(segment.text, heading_style)
        for place in range(len(self._columns["NAME"])):
            cells = {heading: self._columns[heading][place] for heading in widths}
            styles = {heading: console.get_style(own[place] or "none") for heading, own in self._colours.items()}
            yield from _row_segments(widths, cells, styles)

    def _widths(self, width: int) -> dict[str, int]:
        """Return the widths of the columns that are shown, by their headings."""
        widths = self._natural | {"PROJECT": min(self._natural["PROJECT"], MAX_PROJECT)}
        for heading, least in LEFT_OUT:
            if heading in widths and _rest(widths, width) < min(self._natural["NAME"], least):
                del widths[heading]
        return widths | {"NAME": max(min(self._natural["NAME"], _rest(widths, width)), len("NAME"))}


def _rest(widths: Mapping[str, int], width: int) -> int:
    """Return the width that the other columns leave to names."""
    return width - sum(own + len(GAP) for heading, own in widths.items() if heading != "NAME")


def _widest(heading: str, column: Sequence[str]) -> int:
    from rich.cells import cell_len

    widest = max(map(cell_len, (heading, *column)))
    return min(widest, MAX_ID) if heading == "ID" else widest


def _cells(run: Glance, health: str, now: float) -> tuple[str, ...]:
    return (
        *(printable(text) for text in (run.info.id, run.info.name, run.info.project)),
        _status(run.status),
        health,
        "–" if run.last_step is None else f"{run.last_step:,}",
        duration(max(0.0, run.last_heard - run.began)),
        size(run.bytes),
        age(now - run.began),
    )


def _row_segments(
    widths: Mapping[str, int], cells: Mapping[str, str], styles: Mapping[str, Style]
) -> Iterator[Segment]:
    """Yield the lines of a row: several where a name is folded."""
    from rich.cells import cell_len
    from rich.segment import Segment

    folded = [_lines(heading, cells[heading], width) for heading, width in widths.items()]
    for line in zip_longest(*folded, fillvalue=""):
        for place, (heading, cell) in enumerate(zip(widths, line, strict=True)):
            space = " " * (widths[heading] - cell_len(cell))
            padded = space + cell if heading in NUMBERS else cell + space
            yield Segment((GAP if place else "") + padded, styles.get(heading))
        yield Segment.line()


def _lines(heading: str, cell: str, width: int) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    if cell_len(cell) <= width:
        return [cell]
    return fold(cell, width) if heading in FOLDED else [set_cell_size(cell, width - 1) + "…"]
