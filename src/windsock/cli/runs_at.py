"""The runs that a command finds at a path: journals, and logs of other programs."""

from __future__ import annotations

from pathlib import Path

from windsock.importers.logs import logs_at
from windsock.journal.run_facts import Glance
from windsock.journal.run_list import glances
from windsock.terminal.output import Progress


def runs_at(path: Path) -> list[Glance]:
    """Return the facts about the runs at a path."""
    journals = list(glances(path)) if path.is_dir() else []
    logs = logs_at(path, [run.path for run in journals]) if path.exists() else []
    if not logs:
        return journals
    from windsock.importers.log_list import log_glances  # imports NumPy, which an index of journals can do without

    dir = path if path.is_dir() else path.parent
    return [*journals, *log_glances(dir, logs, Progress("reading logs").show)]
