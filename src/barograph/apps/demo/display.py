"""Live display of a training: progress, vital signs and phase shares, drawn in place or as plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from barograph.apps.terminal.sparkline import sparkline
from barograph.base.formatting import duration, number
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.journal.view import View

VITAL_SIGNS = (
    "validation/score/mean",
    "reward/score/mean",
    "evaluation/entropy/mean",
    "policy/kl_k2",
    "policy/clip_fraction",
    "policy/ref_kl_sum",
    "value/explained_variance",
    "value/loss",
    "tokens/response_length/mean",
    "reward/zero_std_groups",
    "system/tokens_per_second",
)
MAX_SIGNS_IN_LINE = 5
REDRAW_SECONDS = 0.25
SPARK_WIDTH = 32
BAR_WIDTH = 40
RECENT_STEPS = 10  # steps over which phase shares are computed


class LiveDisplay:
    """Shows a run step by step: a display that is redrawn on a terminal, a line every few steps elsewhere."""

    def __init__(self, console: Console, view: View, steps: int, line_every: int = 10) -> None:
        self._console, self._view = console, view
        self._steps, self._line_every = steps, line_every
        self._began = self._last_drawn = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> LiveDisplay:
        if self._console.is_terminal:
            # No refresh thread: the display changes only after steps.
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def after_step(self, step: int) -> None:
        """Update the display after a committed step."""
        last = step == self._steps - 1
        if self._live is None:
            if step % self._line_every == 0 or last:
                self._view.refresh()
                line = plain_line(self._view, step, self._steps)
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif last or time.monotonic() - self._last_drawn >= REDRAW_SECONDS:
            self._view.refresh()
            self._live.update(dashboard(self._view, step, self._steps, time.monotonic() - self._began), refresh=True)
            self._last_drawn = time.monotonic()


def vital_signs(view: View) -> list[str]:
    """Return the names of the vital signs that a run has logged."""
    known = set(view.names())
    names = [vocabulary_name(REGISTRY.metric(id), view.info.vocabulary).pattern for id in VITAL_SIGNS]
    return [name for name in names if name in known]


def plain_line(view: View, step: int, steps: int) -> str:
    """Return a step's vital signs in one line."""
    values = (f"{name} {number(view.series(name).last)}" for name in vital_signs(view)[:MAX_SIGNS_IN_LINE])
    return "  ".join([f"step {step + 1}/{steps}", *values])


def dashboard(view: View, step: int, steps: int, seconds: float) -> Group:
    """Return progress, vital signs and phase shares."""
    found = {name: view.series(name) for name in vital_signs(view)}
    signs = ((name, number(series.last), sparkline(series, SPARK_WIDTH)) for name, series in found.items())
    shares = ((name, f"{share:.0%}", "█" * round(share * SPARK_WIDTH)) for name, share in phase_shares(view))
    progress = _progress(step + 1, steps, seconds)
    return Group(progress, Text(""), _table(signs, "cyan"), Text(""), _table(shares, "magenta"))


def _progress(done: int, steps: int, seconds: float) -> Text:
    filled = BAR_WIDTH * done // max(steps, 1)
    left = f", {duration(seconds / done * (steps - done))} left" if done < steps else ""
    line = Text("━" * filled, style="green")
    line.append("━" * (BAR_WIDTH - filled), style="dim")
    line.append(f"  step {done:,} of {steps:,}  {duration(seconds)}{left}")
    return line


def _table(rows: Iterable[tuple[str, str, str]], style: str) -> Table:
    """Return names with their values and a drawing of each."""
    table = Table.grid(padding=(0, 2))
    for name, value, drawn in rows:
        table.add_row(Text(name), Text(value, justify="right"), Text(drawn, style))
    return table


def phase_shares(view: View) -> list[tuple[str, float]]:
    """Return each phase's share of the time of all phases in the last steps, largest first."""
    names = view.names("time/*/total")
    seconds = {name: float(view.series(name).values[-RECENT_STEPS:].sum()) for name in names}
    total = sum(seconds.values()) or 1.0
    shares = [(name.removeprefix("time/").removesuffix("/total"), spent / total) for name, spent in seconds.items()]
    return sorted(shares, key=lambda pair: -pair[1])


def next_commands(view: View, trackers: Iterable[str], reference: str) -> list[str]:
    """Return commands to inspect a run; ``reference`` is its id or path."""
    name = vocabulary_name(REGISTRY.metric(VITAL_SIGNS[0]), view.info.vocabulary).pattern
    found = [
        f"barograph up {view.path.parent.parent} --open",
        f"barograph show {reference}",
        f"barograph phases {reference}",
        f"barograph samples {reference} -n 5",
        f"barograph explain {name}",
        f"barograph export {reference} --to csv -o {view.id}.csv",
    ]
    if "tensorboard" in trackers:
        found.append(f"barograph tensorboard {reference}")
    return found
