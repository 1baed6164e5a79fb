"""Console logs of SkyRL: ``Step 3:`` and then a dict over several lines, whose numbers are texts of four decimals.

Read in SkyRL at a956457 (August 2026, ``skyrl/train/utils/tracking.py``).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Line, Seen, time_in
from barograph.importers.reading.values import flat_numbers, parse_dict
from barograph.importers.recorder import Recorder

TITLE = "SkyRL console log"

STEP = re.compile(r"(?:^| - )Step (\d{1,15}): *$")
MAX_LINES = 20_000  # of one dict


def matches(seen: Seen) -> bool:
    """Return whether a dict follows the line of a step."""
    if not seen.has(b"Step ", b"{'"):
        return False
    return any(STEP.search(line) and following.startswith("{'") for line, following in pairwise(seen.lines))


class Reader(LineReader):
    """Reads one row per dict; ``state["block"]`` has what was read of the one that is open."""

    needles = (b"Step ",)

    def facts(self) -> Facts:
        """Return SkyRL."""
        return Facts(producer="skyrl", created=self.created())

    @property
    def wants_all(self) -> bool:
        """Whether the next line is looked at whatever it has."""
        return "block" in self.state or super().wants_all

    def line(self, line: Line, out: Recorder) -> bool:
        """Begin, continue or record a dict."""
        if found := STEP.search(line.text):
            at = line.at if line.at is not None else time_in(line.text)
            self.state["block"] = {"step": int(found[1]), "at": at, "lines": [], "number": line.number}
        elif "block" in self.state:
            return self._continue(self.state["block"], line, out)
        return False

    def _continue(self, block: dict[str, Any], line: Line, out: Recorder) -> bool:
        """Take a line: all but the first one are indented, and others are of other processes."""
        text = line.text.rstrip()
        lines = block["lines"]
        if not text.startswith(" " if lines else "{"):
            return False
        lines.append(text)
        if text.endswith("}"):
            values = parse_dict("\n".join(lines))
            if values is not None:
                del self.state["block"]
                out.row(flat_numbers(values), block["step"], block["at"], repeats=True)
                return True
        if len(lines) > MAX_LINES:
            del self.state["block"]
            out.unread(f"line {block['number']}", "a dict without its end")
        return False
