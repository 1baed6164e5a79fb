"""The table of a family looks as one of Rich does, and takes a fraction of its time."""

import io

import pytest
from rich.padding import Padding

import windsock
from windsock.terminal.output import make_console
from windsock.terminal.show import FamilyTable

NAMES = (
    "loss",
    "系列 名字",
    "[bold]no markup",
    "one-long-name-that-cannot-be-broken-and-is-longer-than-the-others",
    "a\tb",
)


def drawn(table: object, width: int) -> list[str]:
    file = io.StringIO()
    make_console(file=file, width=width, force_terminal=True, color_system="standard").print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_table_is_that_of_rich(width: int):
    """Columns and colours, and names that are folded where the terminal is narrow."""
    run = windsock.init(id="family")
    for step in range(30):
        run.log({f"some/{name}": place * 1e5 - step / 7 for place, name in enumerate(NAMES)}, step=step)
    run.log({"some/odd": float("nan")}, step=12_345)
    run.finish()
    view = windsock.open("family")
    for names in (view.names(), [f"some/{NAMES[0]}"], ["some/odd"]):
        table = FamilyTable(view, "some", names)
        by_rich = drawn(Padding(table.by_rich(), (0, 0, 0, 2)), width)
        assert [_plain(line) for line in drawn(table, width)] == [_plain(line) for line in by_rich]
        assert "\x1b[2m" in drawn(table, width)[0]


def _plain(line: str) -> str:
    return line.replace("\x1b[2m", "").replace("\x1b[0m", "").rstrip()
