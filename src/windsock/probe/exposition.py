"""Prometheus's text format: the samples of a few metrics out of an exposition."""

from __future__ import annotations

import re
from collections.abc import Collection

Sample = tuple[dict[str, str], float]
"""Labels and value; escapes in labels are left as they are."""

NAME = re.compile(r"[A-Za-z_:][\w:]*+", re.ASCII)
# Possessive: a line without an end costs no more than its length.
LINE = re.compile(r'[ \t]*+(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?+[ \t]*+(?P<value>[^\s{#]++)', re.ASCII)
LABEL = re.compile(r'([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"', re.ASCII)


def parse(text: str, names: Collection[str]) -> dict[str, list[Sample]]:
    """Return the samples of the named metrics; a line that does not follow the format is skipped."""
    found: dict[str, list[Sample]] = {}
    for line in text.split("\n"):
        name = NAME.match(line)
        if name is None or name[0] not in names:
            continue
        rest = LINE.match(line, name.end())
        if rest is None:
            continue
        try:
            value = float(rest["value"])
        except ValueError:
            continue
        found.setdefault(name[0], []).append((dict(LABEL.findall(rest["labels"] or "")), value))
    return found
