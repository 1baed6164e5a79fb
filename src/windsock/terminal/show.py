"""One run, told on a terminal: who it is, how it does, what it last said."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windsock.catalogue.verdicts import Verdict
from windsock.formatting import by_family, duration, number
from windsock.relay.delivery_state import DeliveryState, read_desks
from windsock.summary import flat, notices, verdicts
from windsock.terminal.runs import status_text
from windsock.terminal.spark import sparkline
from windsock.view import View

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SPARK_WIDTH = 24
PER_FAMILY = 30  # metrics of one family shown unless asked for
CONFIG_LINES = 30
VERDICT_MARKS = {"good": ("✓", "green"), "watch": ("!", "yellow"), "bad": ("✗", "red"), "unknown": ("?", "dim")}


def show(console: Console, view: View, names: Sequence[str], everything: bool = False) -> None:
    """Print a run: heading, notices, config and last values by family."""
    _heading(console, view)
    for text in notices(view):
        console.print(f"  ! {text}", style="yellow", markup=False, highlight=False)
    _crucial(console, verdicts(view))
    _config(console, view.config, everything)
    _values(console, view, names, everything)


def _heading(console: Console, view: View) -> None:
    info, status = view.info, view.status
    began, heard = view.span
    steps = view.steps
    facts = {
        "id": info.id,
        "project": info.project,
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)),
        "lasted": duration(heard - began),
        "steps": f"{steps[0]:,} – {steps[1]:,}" if steps else "none yet",
        "writers": ", ".join(_writers(view)) or "none",
        "path": str(view.path),
    }
    facts |= {f"tracker {desk.tracker}": _delivery(desk) for desk in read_desks(view.path)}
    facts |= {"phase": phase} if (phase := "; ".join(open_phases(view))) else {}
    command = view.environment.get("command")
    if command:
        facts["command"] = " ".join(command[1:])
    git = view.environment.get("git")
    if git:
        facts["commit"] = f"{git['commit'][:12]} ({git['branch']}{'' if git['clean'] else ', with changes'})"
    facts |= {"tags": ", ".join(info.tags)} if info.tags else {}
    facts |= {"notes": info.notes} if info.notes else {}
    console.print(info.name, style="bold", end="  ", markup=False, highlight=False)
    console.print(
        status_text(status),
        end=f"  {status.reason}\n" if status.reason else "\n",
        markup=False,
        highlight=False,
    )
    _print_pairs(console, facts.items())


def _delivery(desk: DeliveryState) -> str:
    """Say how a tracker is fed."""
    parts = [desk.state, f"{desk.delivered:,} rows"]
    parts += [f"{desk.lag:,} to come"] if desk.lag else []
    parts += [f"{desk.dropped:,} refused"] if desk.dropped else []
    parts += [f"{desk.skipped:,} values skipped"] if desk.skipped else []
    trouble = f": {desk.error}" if desk.error and desk.state != "done" else ""
    return ", ".join(parts) + trouble + (f"  {desk.url}" if desk.url else "")


def open_phases(view: View) -> list[str]:
    """Say where each writer is, or was when it ended: its innermost open phases, and for how long."""
    found = [span for span in view.phases() if span.end is None]
    outer = {(span.writer, span.parent) for span in found}
    statuses = view.writer_statuses()
    told = []
    for span in (span for span in found if (span.writer, span.id) not in outer and span.writer in statuses):
        since = max(0.0, time.time() - span.start)
        words = "was open when it ended" if statuses[span.writer].ended else f"in for {duration(since)}"
        told.append(f"{span.name} of step {span.step} ({span.writer}, {span.lane}) {words}")
    return told


def _print_pairs(console: Console, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print keys and values below each other, indented."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for key, value in pairs:
        table.add_row(_text(key, "dim"), _text(str(value)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _text(text: str, style: str = "") -> Text:
    """Return text that is never taken for markup."""
    from rich.text import Text

    return Text(text, style=style, overflow="fold")


def _writers(view: View) -> Iterator[str]:
    for writer, status in view.writer_statuses().items():
        attempts = f" (attempt {writer.attempt})" if writer.attempt > 1 else ""
        yield f"{writer}{attempts} {status.word}"


def _crucial(console: Console, judged: Sequence[Verdict]) -> None:
    if not judged:
        return
    from rich.padding import Padding
    from rich.table import Table

    console.print("\ncrucial values", style="bold")
    table = Table.grid(padding=(0, 2))
    for verdict in judged:
        mark, colour = VERDICT_MARKS[verdict.word]
        table.add_row(_text(mark, colour), _text(verdict.title.en), _text(verdict.text.en), _text(verdict.name, "dim"))
    console.print(Padding(table, (0, 0, 0, 2)))


def _config(console: Console, config: Mapping[str, Any], everything: bool) -> None:
    lines = list(flat(config))
    if not lines:
        return
    console.print("\nconfig", style="bold")
    shown = lines if everything else lines[:CONFIG_LINES]
    _print_pairs(console, shown)
    if len(shown) < len(lines):
        console.print(f"  … {len(lines) - len(shown)} more: windsock show RUN --all", style="dim")


def _values(console: Console, view: View, names: Sequence[str], everything: bool) -> None:
    from rich.padding import Padding

    for family, of_family in by_family(names):
        shown = of_family if everything else of_family[:PER_FAMILY]
        console.print(f"\n{family or 'other'}", style="bold", markup=False, highlight=False)
        console.print(Padding(_family_table(view, family, shown), (0, 0, 0, 2)))
        if len(shown) < len(of_family):
            more = len(of_family) - len(shown)
            console.print(f"  … {more} more: windsock show RUN --metrics '{family}/*' --all", style="dim")


def _family_table(view: View, family: str, names: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("METRIC", "LAST"):
        table.add_column(heading, justify="right" if heading == "LAST" else "left", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("MIN", "MAX", "STEP"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in names:
        series = view.series(name)
        whole = series.zoom(max_points=1)
        table.add_row(
            _text(name.removeprefix(f"{family}/") if family else name),
            number(series.last),
            sparkline(series, SPARK_WIDTH),
            number(float(whole.min[0])),
            number(float(whole.max[0])),
            f"{int(series.steps[-1]):,}",
        )
    return table
