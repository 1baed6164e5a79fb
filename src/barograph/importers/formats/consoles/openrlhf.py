"""Console logs of OpenRLHF: ``Global step 3: {…}``, and progress bars with metrics in older versions.

Read in OpenRLHF at 3c3be62 (August 2026), which prints a dict per step since May 2025. Before, the metrics of a step
stand behind the progress bar of the episode (2025), or behind that of the micro-batches of each update (2024), as they
do for supervised and preference trainings. Its logger has times without a year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Format, Line, Seen
from barograph.importers.reading.values import flat_numbers, number_of, parse_dict
from barograph.importers.recorder import COUNTED_NOTE, Recorder

STEP = re.compile(r"(?:^|[✨ ])Global step (\d{1,15}): (?=\{)")
EVALUATION = re.compile(r"(?:global_step (\d{1,15}), eval_metrics|Eval at step (\d{1,15})): (?=\{)")
BAR = re.compile(
    r"(?:(Episode|Train epoch) \[(\d{1,9})/(\d{1,9})\]|(Train step of epoch) (\d{1,9})):\s+\d+%\|[^|\r]*\|\s*"
    r"(\d{1,15})/(\d{1,15}) \[([^\]\r]*)\]"
)
METRIC = re.compile(r"([\w./@ -]{1,200}?)=([^,\s]{1,100})(?:, |$)")
PICTURE = "the metrics are those of progress bars, which have three digits"


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar at one moment: what it counts, which pass this is, where it stands, and the metrics behind it."""

    kind: str
    number: int  # of the pass, from 0
    passes: int
    place: int
    total: int
    metrics: str

    @property
    def values(self) -> dict[str, float | None]:
        """The metrics behind the bar."""
        found = {name.strip(): number_of(number) for name, number in METRIC.findall(self.metrics)}
        return {name: number for name, number in found.items() if number is not None}


def bars_in(text: str) -> Iterator[Bar]:
    """Yield the moments of progress bars in a line, as far as they have metrics."""
    for found in BAR.finditer(text):
        kind, number, passes, other_kind, other_number, place, total, inner = found.groups()
        metrics = ", ".join(part for part in inner.split(", ") if "=" in part)
        if metrics and kind:
            yield Bar(kind, int(number) - 1, int(passes), int(place), int(total), metrics)
        elif metrics:
            yield Bar(other_kind, int(other_number), 1, int(place), int(total), metrics)


def matches(seen: Seen) -> bool:
    """Return whether a line has the metrics of a step."""
    if seen.has(b"Global step ") and any(_metrics(STEP, line) is not None for line in seen.lines):
        return True
    text = seen.head + seen.tail  # a line has only what a progress bar wrote last
    return b"%|" in text and not seen.is_binary and any(bars_in(text.decode("utf-8", "replace")))


def _metrics(pattern: re.Pattern[str], text: str) -> tuple[int, dict[str, float | None]] | None:
    """Return number and metrics of a line; None if it is no such line."""
    found = pattern.search(text)
    values = parse_dict(text[found.end() :]) if found is not None else None
    if found is None or values is None:
        return None
    return int(next(group for group in found.groups() if group is not None)), flat_numbers(values)


class ConsoleReader(LineReader):
    """Reads the dicts of steps; where there are none, the progress bars."""

    needles = (b"lobal step ", b"eval_metrics: {", b"Eval at step ", b"%|")
    producer = "openrlhf"
    marks = ((b"Policy Train epoch [", "skyrl"),)  # which has its progress bars, and names the model in them

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        super().read(out)
        for update in self.state.get("updates", {}).values():
            if update["is_full"] and update["count"]:  # whether the first one is a step is not known yet
                self._end_update(update, out)

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the metrics of a line."""
        if (found := _metrics(STEP, line.text)) is not None:
            self.state["has_steps"] = True
            out.row(found[1], found[0], line.at, repeats=True)
            return True
        if (found := _metrics(EVALUATION, line.text)) is not None:
            out.row(found[1], found[0], line.at)
            return True
        if STEP.search(line.text):
            out.unread(f"line {line.number}", "metrics that cannot be read")
        bars = [*bars_in(line.before), *bars_in(line.text)] if "%|" in line.text or "%|" in line.before else []
        for bar in bars:
            self._bar(bar, line.at, out)
        return bool(bars)

    def _bar(self, bar: Bar, at: float | None, out: Recorder) -> None:
        if bar.kind == "Train epoch":
            self._update(bar, out)
        elif self.state.get(bar.kind) != [bar.number, bar.metrics]:  # it is drawn again when it has moved on
            self.state[bar.kind] = [bar.number, bar.metrics]
            self.state["has_steps"] = True
            out.note(PICTURE)
            out.row(bar.values, bar.number * bar.total + bar.place + 1, at, repeats=True)

    def _update(self, bar: Bar, out: Recorder) -> None:
        """Keep the last metrics of an update: they are a step if none is printed before the next update.

        Actor and critic have bars of their own, which are drawn in turn and differ in their metrics.
        """
        values = bar.values
        key = next(iter(values), "")
        updates = self.state.setdefault("updates", {})
        update = updates.setdefault(key, {"count": 0, "at": [0, 0], "is_recorded": False})
        if [bar.number, bar.place] < update["at"]:
            self._end_update(update, out)
            update["is_recorded"] = False
        update |= {"at": [bar.number, bar.place], "values": values}
        update["is_full"] = bar.place >= bar.total and bar.number + 1 == bar.passes

    def _end_update(self, update: dict[str, Any], out: Recorder) -> None:
        """Record an update, unless steps are printed."""
        if update["is_recorded"] or self.state.get("has_steps"):
            return
        for note in (PICTURE, COUNTED_NOTE, "each update is a step, with the metrics of its last micro-batch"):
            out.note(note)
        update["count"] += 1
        update["is_recorded"] = True
        out.row(update["values"], update["count"])


FORMAT = Format("OpenRLHF console log", ConsoleReader, matches)
