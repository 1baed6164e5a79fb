"""Console logs of slime and miles: lines ``step 12: {…}``, ``rollout 3: {…}``, ``perf 3: {…}`` and ``eval 3: {…}``.

Read in slime at 624b824 (August 2026), and in versions since June 2025, which print the lines without a prefix. Train
steps and rollouts are counted apart, both from 0.
"""

from __future__ import annotations

import re

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import END_BYTES, Facts, Line, Seen, time_in
from barograph.importers.reading.values import flat_numbers, parse_dict
from barograph.importers.recorder import Recorder

TITLE = "slime console log"

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


class Reader(LineReader):
    """Reads one row per line; rows of one rollout have different metrics."""

    needles = (b"step ", b"rollout ", b"perf ", b"eval ", b"passrate ", b"multi_turn ")

    def facts(self) -> Facts:
        """Return miles where only its files are named, else slime, which it is made from."""
        head = self.beginning(END_BYTES)
        is_miles = b"/miles/" in head and b"/slime/" not in head
        return Facts(producer="miles" if is_miles else "slime", created=self.created())

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
            at = line.at if line.at is not None else time_in(line.text[: line.text.find("{")])
            out.row(values, number, at, repeats=kind == "step")
            return True
        if ROW.search(line.text):
            out.unread(f"line {line.number}", "metrics that cannot be read")
        return False
