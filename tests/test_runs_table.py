"""The table of runs looks as one of Rich does, and takes a fraction of its time."""

import io
import random
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from windsock.diagnosis.health import Health
from windsock.formatting import printable
from windsock.journal.run_facts import Glance
from windsock.model import RunInfo, Status
from windsock.terminal import runs
from windsock.terminal.output import make_console
from windsock.terminal.runs import RunsTable

WORDS = [
    "short",
    "运行 名字",
    "one-long-word-that-cannot-be-broken",
    "two words",
    "x",
    "[bold]no markup",
    "é́",
]


def glance(draw: random.Random) -> Glance:
    info = RunInfo(draw.choice(WORDS)[: draw.choice((8, 40))], draw.choice(WORDS), draw.choice(WORDS), 1.7e9)
    word = draw.choice(list(runs.SYMBOLS))
    return Glance(info, Path(), Status(word), draw.choice((None, 7, 123_456)), 1.7e9, 1.7e9 + 1e4, 10**9, 1, 1)  # type: ignore[arg-type]


def verdict(draw: random.Random) -> Health | None:
    word = draw.choice(list(runs.HEALTH_COLOURS))
    return None if word == "–" else Health(word, 7, 0, None)


def by_rich(glances: list[Glance], health: list[Health | None], now: float) -> object:
    """Return the table with every row in Rich's hands."""
    headings = runs.HEADINGS if any(health) else runs.WITHOUT_HEALTH
    table = runs._empty_table(headings)
    for run, found in zip(glances, health, strict=True):
        word = found.verdict if found else "–"
        ident, name, project, _, _, *numbers = runs._cells(runs.HEADINGS, run, word, now)
        verdicts = [Text(word, style=runs.HEALTH_COLOURS[word])] if any(health) else []
        table.add_row(*map(Text, (ident, name, project)), runs.status_text(run.status), *verdicts, *numbers)
    return table


def drawn(table: object, width: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines, and what is coloured."""
    file = io.StringIO()
    make_console(file=file, width=width, force_terminal=True, color_system="standard").print(table)
    coloured = re.findall(r"\x1b\[(3\d)m(\S[^\x1b]*?) *\x1b", file.getvalue())
    return [line.rstrip() for line in Text.from_ansi(file.getvalue()).plain.splitlines()], coloured


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_the_table_is_that_of_rich(width: int, monkeypatch: pytest.MonkeyPatch):
    """Columns, folded names, cut ids and colours, at any width, with verdicts and without."""
    monkeypatch.setattr(runs.time, "time", lambda: 1.8e9)
    draw = random.Random(width)
    for count in (0, 1, 5, 40):
        glances = [glance(draw) for _ in range(count)]
        for health in ([verdict(draw) for _ in glances], [None] * count):
            assert drawn(RunsTable(glances, health), width) == drawn(by_rich(glances, health, 1.8e9), width)


def test_a_row_that_fits_is_not_given_to_rich(monkeypatch: pytest.MonkeyPatch):
    """The widest cell of each column is, whatever the number of runs."""
    monkeypatch.setattr(runs, "_folded", lambda *_: pytest.fail("folded"))
    table = runs._empty_table(runs.WITHOUT_HEALTH)
    monkeypatch.setattr(runs, "_empty_table", lambda headings: table)
    glances = [Glance(RunInfo("id", "p", printable("n"), 1.7e9), Path(), Status("running"), 1, 1.7e9, 1.7e9, 1, 1, 1)]
    Console(file=io.StringIO(), width=200).print(RunsTable(glances * 500, [None] * 500))
    assert table.row_count == len(runs.WITHOUT_HEALTH)
