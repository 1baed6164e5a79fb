"""The last values of a run's metrics on a terminal, with units, extremes and sparklines that keep spikes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windsock.catalogue.names import Match
from windsock.catalogue.resolution import RunNames
from windsock.formatting import by_family, number, printable
from windsock.terminal.sparkline import sparkline
from windsock.terminal.text_table import Layout, TextTable
from windsock.view import View

if TYPE_CHECKING:
    from rich.console import Console

SPARK_WIDTH = 24
HEADINGS = ("METRIC", "LAST", "UNIT", "", "MIN", "MAX", "STEP")
LAYOUT = Layout(
    "METRIC",
    numbers=("LAST", "MIN", "MAX", "STEP"),
    left_out=(("STEP", 24), ("MIN", 20), ("MAX", 20), ("UNIT", 16), ("", 14)),
    indent="  ",
)
WITHOUT_UNIT = ("1", "as reported", "count", "rank", "reward", "reward²")
SHORT_UNITS = {"seconds": "s", "percent": "%", "nats/sequence": "nats/seq", "seconds/token": "s/token"}


def print_values(console: Console, view: View, names: Sequence[str], meanings: RunNames) -> None:
    """Print the last values of some metrics by family."""
    for family, members in by_family(names):
        console.print(f"\n{printable(family or 'other')}", style="bold", markup=False, highlight=False)
        console.print(values_table(view, family, members, meanings))


def values_table(view: View, family: str, names: Sequence[str], meanings: RunNames) -> TextTable:
    """Return the table of some metrics of one family."""
    rows = [_cells(view, name, family, unit_of(meanings.match(name))) for name in names]
    columns = {heading: column for heading, *column in zip(HEADINGS, *rows, strict=True)}
    if not any(columns["UNIT"]):
        del columns["UNIT"]
    return TextTable(LAYOUT, columns)


def unit_of(match: Match | None) -> str:
    """Return the unit in which a name is logged; empty where it has none or is not known."""
    if match is None or match.metric.unit in WITHOUT_UNIT:
        return ""
    difference = match.name.difference
    if difference is not None and "unit" in difference.kinds:  # the logged number has another one
        return ""
    return SHORT_UNITS.get(match.metric.unit, match.metric.unit)


def _cells(view: View, name: str, family: str, unit: str) -> tuple[str, ...]:
    series = view.series(name)
    extremes = series.zoom(max_points=1)
    return (
        printable(name.removeprefix(f"{family}/") if family else name),
        number(series.last),
        unit,
        sparkline(series, SPARK_WIDTH),
        number(float(extremes.min[0])),
        number(float(extremes.max[0])),
        f"{int(series.steps[-1]):,}",
    )
