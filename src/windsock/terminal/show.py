"""One run on a terminal: its facts, warnings, crucial values, configuration and last values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.resolution import RunNames
from windsock.diagnosis.diagnose import Diagnosis
from windsock.diagnosis.doctor import Visit
from windsock.diagnosis.signs import Sign
from windsock.formatting import by_family, counted, duration, flatten, number, printable, ranges
from windsock.journal.series import Series
from windsock.model import Status, Writer
from windsock.relay.delivery_state import DeliveryState, read_delivery_states
from windsock.summary import names_sentence, run_names, run_warnings
from windsock.terminal.doctor import SYMBOLS
from windsock.terminal.runs import status_text
from windsock.terminal.sparkline import sparkline
from windsock.view import View

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

SPARK_WIDTH = 24
HEADINGS = ("METRIC", "LAST", "", "MIN", "MAX", "STEP")
NUMBERS = ("LAST", "MIN", "MAX", "STEP")
GAP = "  "  # before a column
MAX_PER_FAMILY = 30  # metrics of a family shown without --all
MAX_FAMILIES = 100  # without --all
MAX_CONFIG_LINES = 30
MAX_WARNINGS = 50  # without --all
MAX_RANKS = 8  # of a role, and open phases, that are listed one by one
MAX_RANGES = 3  # of ranks with the same status
SIGN_SYMBOLS = {"good": ("✓", "green"), "watch": ("!", "yellow"), "bad": ("✗", "red"), "unknown": ("?", "dim")}


def show(console: Console, view: View, names: Sequence[str], everything: bool = False) -> None:
    """Print a run: facts, warnings, crucial values, configuration and last values by family."""
    _heading(console, view)
    _warnings(console, run_warnings(view), everything)
    meanings = run_names(view)
    _names(console, meanings, view.id if view.location == view.path else str(view.location))
    diagnosis = Visit().diagnose(view, meanings)
    _findings(console, diagnosis, view.id if view.origin is None else str(view.location))
    _crucial(console, diagnosis.signs)
    _config(console, view.config, everything)
    _values(console, view, names, everything)


def _warnings(console: Console, warnings: Sequence[str], everything: bool) -> None:
    shown = warnings if everything else warnings[:MAX_WARNINGS]
    for text in shown:
        console.print(_hanging("  ! ", _text(text, "yellow")))
    _print_omitted(console, len(warnings) - len(shown), " warnings")


def _print_omitted(console: Console, count: int, what: str = "", options: str = "--all") -> None:
    """Print how many of something were left out, if any, and the options that show them."""
    if count:
        console.print(f"  … {count} more{what}: windsock show RUN {options}", style="dim", markup=False)


def _heading(console: Console, view: View) -> None:
    info, status = view.info, view.status
    began, heard = view.span
    steps = view.steps
    facts = {
        "id": info.id,
        "project": info.project,
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)),
        "duration": duration(heard - began),
        "steps": f"{steps[0]:,} – {steps[1]:,}" if steps else "none yet",
        "writers": ", ".join(_writers(view)) or "none",
        "path": str(view.location),
        **_origin(view),
    }
    facts |= {f"tracker {state.tracker}": _delivery(state) for state in read_delivery_states(view.path)}
    facts |= {"phase": phase} if (phase := _first_phases(open_phases(view))) else {}
    command = view.environment.get("command")
    if command:
        facts["command"] = " ".join(command[1:])
    git = view.environment.get("git")
    if git:
        facts["commit"] = f"{git['commit'][:12]} ({git['branch']}{'' if git['clean'] else ', uncommitted changes'})"
    facts |= {"tags": ", ".join(info.tags)} if info.tags else {}
    facts |= {"notes": info.notes} if info.notes else {}
    console.print(printable(info.name), style="bold", end="  ", markup=False, highlight=False)
    console.print(
        status_text(status),
        end=f"  {printable(status.reason)}\n" if status.reason else "\n",
        markup=False,
        highlight=False,
    )
    _print_pairs(console, facts.items())


def _origin(view: View) -> dict[str, str]:
    """Return what is known about the log that a run was read from."""
    origin = view.origin
    if origin is None:
        return {}
    facts = {} if view.location != view.path else {"log": origin.path}
    facts["format"] = origin.title
    return facts | ({"reading": "\n".join(origin.notes)} if origin.notes else {})


def _delivery(delivery: DeliveryState) -> str:
    """Describe the state of a tracker's delivery."""
    facts = [delivery.state, f"{counted(delivery.delivered, 'row')} delivered"]
    facts += [f"{delivery.pending} pending"] if delivery.pending else []
    facts += [f"{delivery.dropped:,} rejected"] if delivery.dropped else []
    facts += [f"{counted(delivery.skipped, 'value')} skipped"] if delivery.skipped else []
    error = f": {delivery.error}" if delivery.error and delivery.state != "done" else ""
    return ", ".join(facts) + error + (f"  {delivery.url}" if delivery.url else "")


def _first_phases(phases: Sequence[str]) -> str:
    more = [f"and {len(phases) - MAX_RANKS:,} more"] if len(phases) > MAX_RANKS else []
    return "; ".join([*phases[:MAX_RANKS], *more])


def open_phases(view: View) -> list[str]:
    """Describe each writer's innermost open phases: how long they are open, or that they were when it ended."""
    table = view.span_table()
    found = table.spans(np.flatnonzero(~table.closed))
    outer = {(span.writer, span.parent) for span in found}  # spans with an open child are not innermost
    statuses = view.writer_statuses()
    lines = []
    for span in (span for span in found if (span.writer, span.id) not in outer and span.writer in statuses):
        since = max(0.0, time.time() - span.start)
        state = "open at the end" if statuses[span.writer].ended else f"open for {duration(since)}"
        lines.append(f"{span.name} of step {span.step} ({span.writer}, {span.lane}) {state}")
    return lines


def _print_pairs(console: Console, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print keys and values as an indented table."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for key, value in pairs:
        table.add_row(_text(key, "dim"), _text(str(value)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _hanging(mark: str, text: Text) -> Table:
    """Return a text after a mark, of which further lines are indented like the first."""
    from rich.table import Table

    table = Table.grid()
    table.add_row(_text(mark, "yellow"), text)
    return table


def _text(text: str, style: str = "") -> Text:
    """Return text without interpreting markup; newlines stay in their column."""
    from rich.text import Text

    return Text(printable(text, newlines=True), style=style, overflow="fold")


def _writers(view: View) -> Iterator[str]:
    by_role: dict[str, dict[Writer, Status]] = {}
    for writer, status in view.writer_statuses().items():
        by_role.setdefault(writer.role, {})[writer] = status
    for role, statuses in by_role.items():
        if len(statuses) > MAX_RANKS:
            yield _many_ranks(role, statuses)
            continue
        for writer, status in statuses.items():
            attempts = f" (attempt {writer.attempt})" if writer.attempt > 1 else ""
            yield f"{writer}{attempts} {status.word}"


def _many_ranks(role: str, statuses: Mapping[Writer, Status]) -> str:
    """Return the number of ranks with each status; of the rarer ones, which ranks have it."""
    by_word: dict[str, list[int]] = {}
    for writer, status in statuses.items():
        by_word.setdefault(status.word, []).append(writer.rank)
    (most, common), *others = sorted(by_word.items(), key=lambda entry: -len(entry[1]))
    counts = [f"{len(common):,} {most}"] if others else [most]
    counts += [f"{len(ranks):,} {word} ({ranges(ranks, MAX_RANGES)})" for word, ranks in others]
    restarted = sum(writer.attempt > 1 for writer in statuses)
    counts += [f"{restarted:,} restarted"] if restarted else []
    return f"{len(statuses):,} ranks of {role} {', '.join(counts)}"


def _findings(console: Console, diagnosis: Diagnosis, run: str) -> None:
    """Print what the doctor has found: nothing where it is not worth a look."""
    found = [finding for finding in diagnosis.findings if finding.severity != "info"]
    if not found:
        return
    symbol, colour = SYMBOLS[diagnosis.verdict]
    console.print(f"\n{symbol} {diagnosis.verdict}", style=colour, end="  ", markup=False, highlight=False)
    console.print(f"windsock doctor {run} says more", style="dim", markup=False, highlight=False)
    for finding in found:
        text = _text(f"{finding.title.en}, since step {finding.onset}: {finding.text.en}")
        console.print(_hanging("  ! ", text))


def _crucial(console: Console, signs: Sequence[Sign]) -> None:
    if not signs:
        return
    from rich.padding import Padding
    from rich.table import Table

    console.print("\ncrucial values", style="bold")
    table = Table.grid(padding=(0, 2))
    for sign in signs:
        symbol = _text(*SIGN_SYMBOLS[sign.word])
        table.add_row(symbol, _text(sign.title.en), _text(sign.text.en), _text(sign.name, "dim"))
    console.print(Padding(table, (0, 0, 0, 2)))


def _names(console: Console, names: RunNames, run: str) -> None:
    """Print how many names are unknown or undecided; nothing where all have one meaning."""
    if not names.unknown and not names.ambiguous:
        return
    console.print(_hanging("  ? ", _text(f"{names_sentence(names)}. windsock names {run} lists the others", "dim")))
    for name in names.ambiguous:
        meanings = names.resolve(name).meanings
        options = " or ".join(f"{REGISTRY.metric(id).title.en} ({sources[0]})" for id, sources in meanings.items())
        console.print(_hanging("    ", _text(f"{name}: {options}; --source decides, and it is not judged", "dim")))


def _config(console: Console, config: Mapping[str, Any], everything: bool) -> None:
    lines = list(flatten(config))
    if not lines:
        return
    console.print("\nconfig", style="bold")
    shown = lines if everything else lines[:MAX_CONFIG_LINES]
    _print_pairs(console, shown)
    _print_omitted(console, len(lines) - len(shown))


def _values(console: Console, view: View, names: Sequence[str], everything: bool) -> None:
    families = by_family(names)
    listed = families if everything else families[:MAX_FAMILIES]
    for family, members in listed:
        shown = members if everything else members[:MAX_PER_FAMILY]
        console.print(f"\n{printable(family or 'other')}", style="bold", markup=False, highlight=False)
        console.print(FamilyTable(view, family, shown))
        _print_omitted(console, len(members) - len(shown), options=f"--metrics '{printable(family)}/*' --all")
    _print_omitted(console, len(families) - len(listed), " families", "--metrics 'FAMILY/*', or --all")


class FamilyTable:
    """The last values of some metrics of one family.

    The lines are put together here, since Rich takes two milliseconds for a table and a run may have thousands. Rich
    draws a table that is too wide for the terminal.
    """

    def __init__(self, view: View, family: str, names: Sequence[str]) -> None:
        self.rows = [_cells(view.series(name), name.removeprefix(f"{family}/") if family else name) for name in names]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the table."""
        from rich.cells import cell_len
        from rich.padding import Padding
        from rich.segment import Segment

        widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *self.rows, strict=True)]
        if sum(widths) + len(GAP) * len(widths) > options.max_width:
            yield Padding(self.by_rich(), (0, 0, 0, len(GAP)))
            return
        style = console.get_style("dim")
        for cells in (HEADINGS, *self.rows):
            line = ""
            for heading, cell, width in zip(HEADINGS, cells, widths, strict=True):
                space = " " * (width - cell_len(cell))
                line += GAP + (space + cell if heading in NUMBERS else cell + space)
            yield from (Segment(line, style if cells is HEADINGS else None), Segment.line())

    def by_rich(self) -> Table:
        """Return the table as one of Rich."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, len(GAP), 0, 0))
        for heading in HEADINGS:
            justify: Literal["left", "right"] = "right" if heading in NUMBERS else "left"
            is_folded = heading in ("METRIC", "LAST")
            table.add_column(
                heading, justify=justify, overflow="fold" if is_folded else "ellipsis", no_wrap=not is_folded
            )
        for name, *others in self.rows:
            table.add_row(_text(name), *others)
        return table


def _cells(series: Series, name: str) -> tuple[str, ...]:
    extremes = series.zoom(max_points=1)
    return (
        printable(name),
        number(series.last),
        sparkline(series, SPARK_WIDTH),
        number(float(extremes.min[0])),
        number(float(extremes.max[0])),
        f"{int(series.steps[-1]):,}",
    )
