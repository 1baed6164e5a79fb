"""What all addresses share: the runs, the list of them, the marks that people make."""

from __future__ import annotations

from pathlib import Path

from windsock.server.runs.annotations import Marks
from windsock.server.runs.listing import Listing
from windsock.server.runs.open_runs import Library


class Site:
    """One directory as it is served."""

    def __init__(self, dir: Path) -> None:
        self.dir = dir
        self.library = Library(dir)
        self.marks = Marks(dir)
        self.listing = Listing(self.library, self.marks)

    def close(self) -> None:
        """Let everything end that runs beside."""
        self.listing.close()
        self.marks.close()
