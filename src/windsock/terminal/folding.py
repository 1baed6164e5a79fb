"""Folding of names and texts into lines."""

from __future__ import annotations

import re

PIECE = re.compile(r"[^\s/_.:,-]*[\s/_.:,-]+|[^\s/_.:,-]+")


def fold(text: str, width: int) -> list[str]:
    """Return a text in lines that end after spaces, slashes, dashes and the like, and in a word only if it is wider."""
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for piece in PIECE.findall(text):
        if cell_len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
            continue
        *whole, rest = chop_cells(piece, width) if cell_len(piece.rstrip()) > width else [piece]
        lines += [*whole, rest]
    return [line.rstrip() for line in lines if line.strip()] or [""]
