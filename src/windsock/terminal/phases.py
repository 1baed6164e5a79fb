"""Phases on a terminal: a table, and a step as a Gantt chart with a line for each phase and a group for each lane."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from windsock.formatting import duration, number, size
from windsock.model import PhaseSpan
from windsock.probe.report import PhaseSummary, Timeline, TimelineRow
from windsock.probe.trace import stages

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SHADES = {"onload": "░", "execute": "█", "offload": "▒", "timer": "━"}
OPEN_MARK, FAILED_MARK = "▶", "✗"
COLOURS = ("cyan", "green", "yellow", "magenta", "blue")
NARROW = 100  # columns, below which names are cut sooner
TICK_EVERY = 9  # columns, about


def show_phases(console: Console, name: str, phases: Sequence[PhaseSummary], laid_out: Timeline) -> None:
    """Print the table and the chart."""
    console.print(name, style="bold", markup=False, highlight=False)
    console.print(_table(phases, console.width))
    console.print()
    for line in chart(laid_out, console.width):
        console.print(line, overflow="crop", no_wrap=True)


def _table(phases: Sequence[PhaseSummary], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2 if width >= NARROW else 1, 0, 0))
    table.add_column("PHASE", overflow="ellipsis", no_wrap=True, max_width=36)
    for heading in ("COUNT", "MEAN", "P95", "MAX", "SHARE", "TOK/S", "PEAK"):
        table.add_column(heading, justify="right", no_wrap=True)
    several = any(phase.writers > 1 for phase in phases)
    for phase in phases:
        table.add_row(
            Text(phase.name, style="italic" if phase.timer else ""),
            Text(f"{phase.count:,}") + Text(f" {phase.failed}{FAILED_MARK}" if phase.failed else "", style="red"),
            duration(phase.mean),
            duration(phase.p95),
            Text(duration(phase.max)) + Text(f" {phase.slowest}" if several else "", style="dim"),
            "–" if phase.share is None else f"{phase.share:.1%}",
            "–" if phase.tokens_per_second is None else number(float(f"{phase.tokens_per_second:.3g}")),
            _memory(phase),
        )
    return table


def _memory(phase: PhaseSummary) -> str:
    held = phase.peak if phase.peak is not None else phase.rss
    return "–" if held is None else size(held)


def chart(laid_out: Timeline, width: int) -> Iterator[Text]:
    """Yield the lines of a step's chart."""
    from rich.text import Text

    label = _label_width(laid_out, width)
    room = width - label - 10
    lasted = laid_out.end - laid_out.start
    heading = f"step {laid_out.step:,}  {duration(lasted)}, {laid_out.unaccounted:.0%} in no phase"
    heading += f", {laid_out.overlap:.0%} overlapping" if laid_out.overlap >= 0.005 else ""
    yield Text(heading, style="bold")
    yield Text(" " * (label + 10) + _axis(lasted, room), style="dim")
    colours: dict[str, str] = {}
    for title, rows in laid_out.groups:
        yield Text(title, style="dim")
        for row in rows:
            if row.depth == 0:
                colours.setdefault(row.name, COLOURS[len(colours) % len(COLOURS)])
                colour = colours[row.name]
            yield _line(row, laid_out, label, room, colour)
    yield Text(_legend(laid_out), style="dim")


def _label_width(laid_out: Timeline, width: int) -> int:
    names = [_label(row) for _, rows in laid_out.groups for row in rows]
    return min(max(map(len, names), default=0), int(width * 0.4))


def _label(row: TimelineRow) -> str:
    return "  " * (row.depth + 1) + row.name + (f" ×{len(row.spans)}" if len(row.spans) > 1 else "")


def _line(row: TimelineRow, laid_out: Timeline, label: int, room: int, colour: str) -> Text:
    from rich.text import Text

    name = _label(row)
    if len(name) > label:
        name = f"{name[: label // 2]}…{name[len(name) - label + label // 2 + 1 :]}"
    failed = any(span.failed for span in row.spans)
    line = Text(name.ljust(label), style="red" if failed else "")
    seconds = row.seconds + sum(laid_out.end - span.start for span in row.spans if span.end is None)
    line.append(duration(seconds).rjust(8) + "  ", style="dim")
    line.append("".join(_cells(row.spans, laid_out, room)), style=colour)
    return line


def _cells(spans: Sequence[PhaseSpan], laid_out: Timeline, room: int) -> list[str]:
    """Return one character a column: the shade of what fills most of it, and a mark where a span failed or goes on."""
    scale = room / max(laid_out.end - laid_out.start, 1e-9)
    filled: list[dict[str, float]] = [{} for _ in range(room)]
    marks: dict[int, str] = {}
    for span in spans:
        for place, cell in _covered(span, laid_out, scale, room):
            for shade, covered in cell.items():
                filled[place][shade] = filled[place].get(shade, 0.0) + covered
        last = min(room - 1, max(0, math.ceil(((span.end or laid_out.end) - laid_out.start) * scale) - 1))
        if span.end is None or span.failed:
            marks[last] = OPEN_MARK if span.end is None else FAILED_MARK
    cells = [max(cell, key=lambda shade: cell[shade]) if cell else " " for cell in filled]
    return [marks.get(place, cell) for place, cell in enumerate(cells)]


def _pieces(span: PhaseSpan, end: float) -> Iterator[tuple[str, float, float]]:
    if span.end is None or span.timer:
        yield SHADES["timer" if span.timer else "execute"], span.start, end if span.end is None else span.end
        return
    for stage, (start, stop) in stages(span).items():
        yield SHADES[stage], start, stop


def _covered(span: PhaseSpan, laid_out: Timeline, scale: float, room: int) -> list[tuple[int, dict[str, float]]]:
    """Return the columns of which a span covers at least half, or most, and how much of each its stages cover."""
    cells: dict[int, dict[str, float]] = {}
    for shade, start, end in _pieces(span, laid_out.end):
        first, last = (start - laid_out.start) * scale, (end - laid_out.start) * scale
        for place in range(min(room - 1, math.floor(first)), max(math.floor(first) + 1, math.ceil(last))):
            covered = max(min(last, place + 1) - max(first, place), 1e-9)
            if 0 <= place < room:
                cells.setdefault(place, {})[shade] = covered
    most = max((sum(cell.values()) for cell in cells.values()), default=0.0)
    return [(place, cell) for place, cell in cells.items() if sum(cell.values()) >= min(0.5, most)]


def _axis(seconds: float, room: int) -> str:
    """Return round times at their places."""
    step = _round_step(seconds * TICK_EVERY / max(room, 1))
    line = [" "] * room
    for tick in range(int(seconds / step) + 1):
        text = "0" if tick == 0 else _tick(tick * step)
        place = round(tick * step / max(seconds, 1e-9) * room)
        if place + len(text) <= room:
            line[place : place + len(text)] = text
    return "".join(line)


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(about, 1e-6)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= about * 0.999)


def _tick(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def _legend(laid_out: Timeline) -> str:
    spans = [span for _, rows in laid_out.groups for row in rows for span in row.spans]
    words = []
    if any(span.onload is not None or span.offload is not None for span in spans):
        words += [f"{SHADES[stage]} {stage}" for stage in ("onload", "execute", "offload")]
    elif any(not span.timer for span in spans):
        words.append(f"{SHADES['execute']} phase")
    words += [f"{SHADES['timer']} timer"] if any(span.timer for span in spans) else []
    words += [f"{FAILED_MARK} failed"] if any(span.failed for span in spans) else []
    words += [f"{OPEN_MARK} still open"] if any(span.end is None for span in spans) else []
    return "  ".join(words)
