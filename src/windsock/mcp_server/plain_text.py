"""Text from runs as it is given to programs: without characters that act, hide or reorder."""

from __future__ import annotations

import re
import unicodedata

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
"""Sequences for terminals: colours, moves of the cursor, titles, links."""
SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: marks that can carry any text unseen."""
LINE_ENDS = re.compile("\r\n?|[\u2028\u2029]")


def plain_text(text: str) -> str:
    """Return a text without terminal sequences and without characters that are not seen; line ends become newlines.

    Removed are control and format characters (with direction overrides and tags), private, unassigned and lone ones.
    """
    if text.isascii() and text.isprintable():
        return text
    text = LINE_ENDS.sub("\n", SELECTORS.sub("", ESCAPES.sub("", text)))
    return "\n".join(line if line.isprintable() else "".join(map(_plain, line)) for line in text.split("\n"))


def _plain(char: str) -> str:
    if char.isprintable() or char == "\t":
        return char
    return " " if unicodedata.category(char) == "Zs" else ""
