"""What is known about a run in a list, and its status at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windsock.errors import JournalError
from windsock.formatting import describe_error
from windsock.journal.folder import identity, run_files
from windsock.journal.status import End, joint_status, writer_end, writer_status
from windsock.model import RunInfo, Status


@dataclass(frozen=True, slots=True)
class Glance:
    """The facts about a run in a list."""

    info: RunInfo
    path: Path
    status: Status
    last_step: int | None
    began: float
    last_heard: float
    bytes: int
    writers: int
    attempts: int
    digest: str = ""  # of its files


@dataclass(frozen=True, slots=True)
class WriterEnd:
    """What the ends of a writer's segments tell. Its status also depends on the process and the clock."""

    events: list[dict[str, Any]]  # as few as give the status of all
    last_row: float | None

    @property
    def status(self) -> Status:
        """The status at this moment."""
        return writer_status(self.events, self.last_row)

    @property
    def end(self) -> End:
        """Whether the writer still records at this moment, has written its end, or was killed."""
        return writer_end(self.events, self.last_row)

    @property
    def written(self) -> Status | None:
        """The status that the writer has written at its end."""
        finish = next((event for event in self.events if event["event"] == "finish"), None)
        return None if finish is None else Status(finish.get("status", "finished"), finish.get("reason", ""))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the files of a run tell, as long as they are the same."""

    info: RunInfo
    ends: list[WriterEnd]  # of the writers that decide the status, the main one first
    last_step: int | None
    last_heard: float
    writers: int
    attempts: int

    @property
    def status(self) -> Status:
        """The status at this moment."""
        return joint_status([end.status for end in self.ends])


def seen_at(folder: Path, facts: RunFacts, size: int, digest: str = "") -> Glance:
    """Return the facts about a run at this moment; ``size`` and ``digest`` are those of its files."""
    return Glance(
        info=facts.info,
        path=folder,
        status=facts.status,
        last_step=facts.last_step,
        began=facts.info.created,
        last_heard=facts.last_heard,
        bytes=size,
        writers=facts.writers,
        attempts=facts.attempts,
        digest=digest,
    )


def unreadable(folder: Path, problem: Exception) -> Glance:
    """Return the facts in a list about a run that cannot be read."""
    info = identity(folder)
    status = Status("unreadable", str(problem) if isinstance(problem, JournalError) else describe_error(problem))
    return Glance(info, folder, status, None, info.created, info.created, run_files(folder).bytes, 0, 0)
