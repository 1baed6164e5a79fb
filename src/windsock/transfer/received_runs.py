"""The runs of a directory that other machines send to: their receivers, and how many runs there may be."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from windsock.journal.folder import is_run, subfolders
from windsock.transfer.destination import DestinationError
from windsock.transfer.receiver import Limits, Receiver, check_run_path

MAX_OPEN = 4096  # receivers that are kept: each has the names of its segments


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """How much a directory takes."""

    projects: int = 1000
    runs: int = 100_000  # of a project
    of_run: Limits = field(default_factory=Limits)


class ReceivedRuns:
    """The receivers of a directory's runs, by project and run."""

    def __init__(self, dir: Path, limits: DirectoryLimits | None = None) -> None:
        self.dir = dir
        self.limits = limits or DirectoryLimits()
        self._open: OrderedDict[tuple[str, str], Receiver] = OrderedDict()

    def receiver(self, project: str, run: str) -> Receiver:
        """Return the receiver of a run, which need not exist; raise DestinationError if it cannot have this name."""
        key = project, run
        found = self._open.get(key)
        if found is None:
            check_run_path(project, run)
            if is_run(self.dir / project):
                raise DestinationError(f"{project} is a run here, not a project", "name", permanent=True)
            found = self._open[key] = Receiver(self.dir / project / run, self.limits.of_run)
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return found

    def check_room(self, receiver: Receiver) -> None:
        """Raise DestinationError where the run of a receiver is a new one, and there are too many."""
        folder = receiver.folder
        if os.path.isdir(folder):
            return
        if not os.path.isdir(folder.parent) and len(subfolders(self.dir)) >= self.limits.projects:
            raise _too_many(f"the directory has {self.limits.projects:,} projects")
        if len(subfolders(folder.parent)) >= self.limits.runs:
            raise _too_many(f"the project {folder.parent.name} has {self.limits.runs:,} runs")


def _too_many(what: str) -> DestinationError:
    return DestinationError(f"{what}; no more are taken", "limit", permanent=True)
