"""Console logs of slime and miles: lines ``step 12: {…}``, ``rollout 3: {…}``, ``perf 3: {…}`` and ``eval 3: {…}``.

Read in slime at 624b824 (August 2026), and in versions since June 2025, which print the lines without a prefix. Train
steps and rollouts are counted apart, both from 0.
"""

from __future__ import annotations

import re

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Format, Line, Seen
from barograph.importers.reading.values import flat_numbers, parse_dict
from barograph.importers.recorder import Recorder

ROW = re.compile(
    r"(?:^|\] |\.py:\d+ - )((?:\w+-)?step|rollout|perf|eval|passrate|multi_turn) (\d{1,15})(?: full)?: (?=\{)"
)
OTHER_RANK = re.compile(r"^\[[^\]]*_rank[1-9]\d*\] ")  # miles, where each process may print


def parse_line(text: str) -> tuple[str, int, dict[str, float | None]] | None:
    """Return what is counted, its number and the values of a line; None if it is no such line."""
    found = ROW.search(text)
    values = parse_dict(text[found.end() :]) if found is not None else None
    if found is None or not values or not any("/" in name for name in values):
        return None
    return found[1], int(found[2]), flat_numbers(values)


def matches(seen: Seen) -> bool:
    """Return whether a line has metrics as slime prints them."""
    return seen.has(b": {'") and any(parse_line(line) is not None for line in seen.lines)


class ConsoleReader(LineReader):
    """Reads one row per line; rows of one rollout have different metrics."""

    needles = (b"step ", b"rollout ", b"perf ", b"eval ", b"passrate ", b"multi_turn ")
    producer = "slime"
    marks = ((b"/slime/", "slime"), (b"/miles/", "miles"))  # which is made from slime

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the metrics of a line."""
        if OTHER_RANK.match(line.text):
            return False
        found = parse_line(line.text)
        if found is not None:
            kind, number, values = found
            printed = [number, repr(values)]
            if self.state.get(kind) == printed:  # by another process
                return True
            self.state[kind] = printed
            out.row(values, number, line.time(line.text[: line.text.find("{")]), repeats=kind == "step")
            return True
        if ROW.search(line.text):
            out.unread(f"line {line.number}", "metrics that cannot be read")
        return False


FORMAT = Format("slime console log", ConsoleReader, matches)
