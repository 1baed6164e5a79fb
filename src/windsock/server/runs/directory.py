"""A served directory: its open runs, their list and their annotations."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from windsock.catalogue.names import recognise
from windsock.errors import WindsockError
from windsock.server.runs.annotations import Annotations
from windsock.server.runs.listing import Listing
from windsock.server.runs.open_runs import OpenRuns


class RunDirectory:
    """A directory of runs, or one log of another program, shared by all requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.annotations = Annotations(path.parent if path.is_file() else path)
        self.open_runs = OpenRuns(path, source_of=self.annotations.source)
        self.listing = Listing(self.open_runs, self.annotations)

    def prepare(self) -> None:
        """Load the catalogue and look at the runs while a browser starts: then the first page does not wait for it."""
        recognise("reward")
        with suppress(WindsockError, OSError):  # the request for the list reports it
            self.listing.update()

    def close(self) -> None:
        """Stop the background thread and close the annotations' segment."""
        self.listing.close()
        self.annotations.close()
        self.open_runs.folders.close()
