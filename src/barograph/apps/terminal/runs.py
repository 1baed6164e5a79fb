"""Table of runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text

from barograph.answers.records import STATUS_SYMBOLS
from barograph.apps.terminal.layout import TableLayout, TextTable
from barograph.base.formatting import age, lasted, printable, size
from barograph.base.model import Status
from barograph.diagnosis.health import Health
from barograph.journal.read.status import Glance

COLOURS = {
    "running": "green",
    "finished": "",
    "crashed": "red",
    "killed": "red",
    "stalled": "yellow",
    "unreadable": "red",
}

HEALTH_COLOURS = {"healthy": "green", "watch": "yellow", "sick": "red", "cannot tell": "", "–": ""}

HEADINGS = ("ID", "NAME", "PROJECT", "STATUS", "HEALTH", "STEP", "TIME", "SIZE", "STARTED")

LAYOUT = TableLayout(
    "NAME",
    numbers=("STEP", "TIME", "SIZE", "STARTED"),
    left_out=(
        ("SIZE", 24), ("TIME", 20), ("STARTED", 16), ("PROJECT", 16), ("STEP", 12), ("ID", 12), ("HEALTH", 10),
    ),
    at_most={"ID": 18, "PROJECT": 24},
)  # fmt: skip


def status_text(status: Status) -> Text:
    """Return a status with its symbol and colour."""
    return Text(_status(status), style=COLOURS[status.word])


def _status(status: Status) -> str:
    return f"{STATUS_SYMBOLS[status.word]} {status.word}"


def _health(health: Health | None) -> str:
    return "–" if health is None else health.verdict


def runs_table(glances: Sequence[Glance], health: Sequence[Health | None]) -> TextTable:
    """Return a table of runs in the order given, with the verdicts on them if any is known."""
    now = time.time()
    verdicts = [_health(found) for found in health]
    rows = [_cells(run, verdict, now) for run, verdict in zip(glances, verdicts, strict=True)]
    columns = {heading: column for heading, *column in zip(HEADINGS, *rows, strict=True)}
    if not any(health):
        del columns["HEALTH"]
    colours = {
        "STATUS": [COLOURS[run.status.word] for run in glances],
        "HEALTH": [HEALTH_COLOURS[verdict] for verdict in verdicts],
    }
    return TextTable(LAYOUT, columns, colours)


def _cells(run: Glance, health: str, now: float) -> tuple[str, ...]:
    return (
        *(printable(text) for text in (run.info.id, run.info.name, run.info.project)),
        _status(run.status),
        health,
        "–" if run.last_step is None else f"{run.last_step:,}",
        lasted(run.began, run.last_heard),
        size(run.bytes),
        age(now - run.began),
    )
