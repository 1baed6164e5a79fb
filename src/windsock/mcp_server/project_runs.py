"""The runs that a caller may use: those of all projects, or of the one that its token is for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from windsock.mcp_server.runs import Runs
from windsock.transfer.tokens import Grant

MAX_OPEN = 16  # directories of projects


class ProjectRuns:
    """A directory of runs. A token of one project can name nothing of another: its runs know no other directory."""

    def __init__(self, path: Path, lang: str = "en") -> None:
        self._path = path
        self._lang = lang
        self._lock = threading.Lock()
        self._opened: OrderedDict[str | None, Runs] = OrderedDict()

    def of(self, grant: Grant) -> Runs:
        """Return the runs that a grant is for."""
        with self._lock:
            found = self._opened.get(grant.project)
            if found is None:
                path = self._path if grant.project is None else self._path / grant.project
                found = self._opened[grant.project] = Runs(path, self._lang)
            self._opened.move_to_end(grant.project)
            while len(self._opened) > MAX_OPEN:
                self._opened.popitem(last=False)[1].close()
            return found

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].close()
