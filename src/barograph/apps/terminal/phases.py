"""Phases on a terminal: a table, and a Gantt chart of one step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from barograph.answers.export import stages
from barograph.answers.phases import PhaseSummary, Timeline, TimelineRow
from barograph.base.formatting import counted, duration, number, printable, size
from barograph.base.model import PhaseSpan

SHADES = {"onload": "░", "execute": "█", "offload": "▒", "timer": "━"}
OPEN_SYMBOL, FAILED_SYMBOL = "▶", "✗"
COLOURS = ("cyan", "green", "yellow", "magenta", "blue")
NARROW = 100  # columns; below this, columns are closer
MAX_ROWS = 500  # of the table and of the chart
COLUMNS_PER_TICK = 9


def show_phases(console: Console, name: str, phases: Sequence[PhaseSummary], timeline: Timeline) -> None:
    """Print the table and the chart."""
    console.print(printable(name), style="bold", markup=False, highlight=False)
    console.print(_table(phases[:MAX_ROWS], console.width))
    if len(phases) > MAX_ROWS:
        console.print(f"  … {len(phases) - MAX_ROWS:,} more: barograph phases RUN --json", style="dim")
    console.print()
    for line in chart(timeline, console.width):
        console.print(line, overflow="crop", no_wrap=True)


def _table(phases: Sequence[PhaseSummary], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2 if width >= NARROW else 1, 0, 0))
    table.add_column("PHASE", overflow="ellipsis", no_wrap=True, max_width=36)
    for heading in ("COUNT", "MEAN", "P95", "MAX", "SHARE", "TOK/S", "PEAK"):
        table.add_column(heading, justify="right", no_wrap=True)
    several = any(phase.writers > 1 for phase in phases)
    for phase in phases:
        table.add_row(
            Text(printable(phase.name), style="italic" if phase.timer else ""),
            Text(f"{phase.count:,}") + Text(f" {phase.failed}{FAILED_SYMBOL}" if phase.failed else "", style="red"),
            duration(phase.mean),
            duration(phase.p95),
            Text(duration(phase.max)) + Text(printable(f" {phase.slowest}") if several else "", style="dim"),
            "–" if phase.share is None else f"{phase.share:.1%}",
            "–" if phase.tokens_per_second is None else number(float(f"{phase.tokens_per_second:.3g}")),
            _memory(phase),
        )
    return table


def _memory(phase: PhaseSummary) -> str:
    memory = phase.peak if phase.peak is not None else phase.rss
    return "–" if memory is None else size(memory)


def chart(timeline: Timeline, width: int) -> Iterator[Text]:
    """Yield the lines of a step's Gantt chart."""
    label = _label_width(timeline, width)
    columns = width - label - 10
    lasted = timeline.end - timeline.start
    heading = f"step {timeline.step:,}  {duration(lasted)}, {timeline.unaccounted:.0%} outside phases"
    heading += f", {timeline.overlap:.0%} overlapping" if timeline.overlap >= 0.005 else ""
    yield Text(heading, style="bold")
    yield Text(" " * (label + 10) + _axis(lasted, columns), style="dim")
    colours: dict[str, str] = {}
    colour, left = COLOURS[0], MAX_ROWS
    for title, rows in timeline.groups:
        yield Text(printable(title), style="dim")
        for row in rows[:left]:
            if row.depth == 0:
                colours.setdefault(row.name, COLOURS[len(colours) % len(COLOURS)])
                colour = colours[row.name]
            yield _line(row, timeline, label, columns, colour)
        left -= min(left, len(rows))
    if (total := sum(len(rows) for _, rows in timeline.groups)) > MAX_ROWS:
        yield Text(f"  … {counted(total - MAX_ROWS, 'more row')}", style="dim")
    yield Text(_legend(timeline), style="dim")


def _label_width(timeline: Timeline, width: int) -> int:
    names = [_label(row) for _, rows in timeline.groups for row in rows]
    return min(max(map(len, names), default=0), int(width * 0.4))


def _label(row: TimelineRow) -> str:
    return "  " * (row.depth + 1) + printable(row.name) + (f" ×{len(row.spans)}" if len(row.spans) > 1 else "")


def _line(row: TimelineRow, timeline: Timeline, label: int, columns: int, colour: str) -> Text:
    name = _label(row)
    if len(name) > label:
        name = f"{name[: label // 2]}…{name[len(name) - label + label // 2 + 1 :]}"
    failed = any(span.failed for span in row.spans)
    line = Text(name.ljust(label), style="red" if failed else "")
    seconds = row.seconds + sum(timeline.end - span.start for span in row.spans if span.end is None)
    line.append(duration(seconds).rjust(8) + "  ", style="dim")
    line.append("".join(_cells(row.spans, timeline, columns)), style=colour)
    return line


def _cells(spans: Sequence[PhaseSpan], timeline: Timeline, columns: int) -> list[str]:
    """Return one character per column: the shade of the stage that fills most of it, or a failed or open symbol."""
    # A column may be shared by several spans and stages: the one that covers most of it is drawn.
    scale = columns / max(timeline.end - timeline.start, 1e-9)
    filled: list[dict[str, float]] = [{} for _ in range(columns)]
    symbols: dict[int, str] = {}
    for span in spans:
        for column, cell in _covered(span, timeline, scale, columns):
            for shade, covered in cell.items():
                filled[column][shade] = filled[column].get(shade, 0.0) + covered
        last = min(columns - 1, max(0, math.ceil(((span.end or timeline.end) - timeline.start) * scale) - 1))
        if span.end is None or span.failed:
            symbols[last] = OPEN_SYMBOL if span.end is None else FAILED_SYMBOL
    cells = [max(cell, key=lambda shade: cell[shade]) if cell else " " for cell in filled]
    return [symbols.get(column, cell) for column, cell in enumerate(cells)]


def _stages(span: PhaseSpan, end: float) -> Iterator[tuple[str, float, float]]:
    if span.end is None or span.timer:
        yield SHADES["timer" if span.timer else "execute"], span.start, end if span.end is None else span.end
        return
    for stage, (start, stop) in stages(span).items():
        yield SHADES[stage], start, stop


def _covered(span: PhaseSpan, timeline: Timeline, scale: float, columns: int) -> list[tuple[int, dict[str, float]]]:
    """Return the columns that a span covers, with the share that each stage covers.

    Columns that are covered by less than half are left out, except where the span covers no other column better.
    """
    cells: dict[int, dict[str, float]] = {}
    for shade, start, end in _stages(span, timeline.end):
        first, last = (start - timeline.start) * scale, (end - timeline.start) * scale
        # A stage may be longer than its span, so its columns may lie outside.
        begin = max(0, min(columns - 1, math.floor(first)))
        for column in range(begin, min(columns, max(math.floor(first) + 1, math.ceil(last)))):
            cells.setdefault(column, {})[shade] = max(min(last, column + 1) - max(first, column), 1e-9)
    most = max((sum(cell.values()) for cell in cells.values()), default=0.0)
    return [(column, cell) for column, cell in cells.items() if sum(cell.values()) >= min(0.5, most)]


def _axis(seconds: float, columns: int) -> str:
    """Return the time axis, with ticks at round times."""
    step = _round_step(seconds * COLUMNS_PER_TICK / max(columns, 1))
    line = [" "] * columns
    for tick in range(int(seconds / step) + 1):
        text = "0" if tick == 0 else _tick(tick * step)
        column = round(tick * step / max(seconds, 1e-9) * columns)
        if column + len(text) <= columns:
            line[column : column + len(text)] = text
    return "".join(line)


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(about, 1e-6)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= about * 0.999)


def _tick(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def _legend(timeline: Timeline) -> str:
    spans = [span for _, rows in timeline.groups for row in rows for span in row.spans]
    entries = []
    if any(span.onload is not None or span.offload is not None for span in spans):
        entries += [f"{SHADES[stage]} {stage}" for stage in ("onload", "execute", "offload")]
    elif any(not span.timer for span in spans):
        entries.append(f"{SHADES['execute']} phase")
    entries += [f"{SHADES['timer']} timer"] if any(span.timer for span in spans) else []
    entries += [f"{FAILED_SYMBOL} failed"] if any(span.failed for span in spans) else []
    entries += [f"{OPEN_SYMBOL} still open"] if any(span.end is None for span in spans) else []
    return "  ".join(entries)
