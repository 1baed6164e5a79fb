"""Tables of two columns, Metric and Value, under the title ``Step 3``, as rich prints them for Tinker and rLLM.

Read in tinker-cookbook at 9dfcc3a and rLLM at 9beb6e0 (August 2026).
"""

from __future__ import annotations

import re

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import END_BYTES, Facts, Line, Seen, time_in
from barograph.importers.reading.values import number_of
from barograph.importers.recorder import Recorder

TITLE = "console log with tables of metrics"

STEP = re.compile(r"^\s*Step (\d{1,15})\s*$")
HEADER = re.compile(r"[┃│|] Metric\s+[┃│|] +Value\s+[┃│|]")
ROW = re.compile(r"│ (\S[^│]*+)│([^│]*+)│\s*$")
END = "└"
MARKS = ((b"rllm", "rllm"), (b"tinker", "tinker"))


def matches(seen: Seen) -> bool:
    """Return whether there is a table of metrics, and the step of one."""
    if not seen.has(b"Metric", b"Value", b"Step ", "│".encode()):
        return False
    return any(HEADER.search(line) for line in seen.lines) and any(STEP.match(line) for line in seen.lines)


class Reader(LineReader):
    """Reads one row per table; ``state["values"]`` has what was read of the one that is open."""

    needles = tuple(word.encode() for word in ("Step ", "Metric", "│", END))

    def facts(self) -> Facts:
        """Return the framework, where the beginning of the log names it."""
        head = self.beginning(END_BYTES)
        producer = next((source for mark, source in MARKS if mark in head), "")
        return Facts(producer=producer, created=self.created())

    def line(self, line: Line, out: Recorder) -> bool:
        """Take the metric of a line; a table is recorded at its end."""
        at = line.at if line.at is not None else time_in(line.text)
        if at is not None:
            self.state["at"] = at
        if found := STEP.match(line.text):
            self.state["step"] = int(found[1])
        elif HEADER.search(line.text):
            self.state["values"] = []
        elif "values" in self.state and (found := ROW.search(line.text)):
            self._take(found[1].rstrip(), found[2].strip())
        elif END in line.text and "values" in self.state:
            numbers = {name: number_of(text) for name, text in self.state.pop("values")}
            values = {name: number for name, number in numbers.items() if number is not None}
            out.row(values, self.state.pop("step", None), self.state.get("at"), repeats=True)
            return True
        return False

    def _take(self, name: str, text: str) -> None:
        """Take a name and a value; a name that is too long goes on in the next line, beside an empty value."""
        values = self.state["values"]
        if text or not values:
            values.append([name, text])
        else:
            values[-1][0] += name
