"""Table of runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windsock.formatting import age, duration, printable, size
from windsock.journal.glance import Glance
from windsock.model import Status

if TYPE_CHECKING:
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


def status_text(status: Status) -> Text:
    """Return a status with its symbol and colour."""
    from rich.text import Text

    return Text(f"{SYMBOLS[status.word]} {status.word}", style=COLOURS[status.word])


def runs_table(glances: Sequence[Glance]) -> Table:
    """Return a table of runs, in the order given."""
    from rich.table import Table
    from rich.text import Text

    now = time.time()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("ID", no_wrap=True, max_width=MAX_ID, overflow="ellipsis")  # commands take a prefix too
    for heading in ("NAME", "PROJECT"):
        table.add_column(heading, min_width=7, overflow="fold")
    table.add_column("STATUS", no_wrap=True)
    for heading in ("STEP", "TIME", "SIZE", "STARTED"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in glances:
        table.add_row(
            *(Text(printable(text)) for text in (run.info.id, run.info.name, run.info.project)),
            status_text(run.status),
            "–" if run.last_step is None else f"{run.last_step:,}",
            duration(max(0.0, run.last_heard - run.began)),
            size(run.bytes),
            age(now - run.began),
        )
    return table
