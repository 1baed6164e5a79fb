"""A run of the list: what is known of it, its record, and the part of it that a row shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from windsock.catalogue.taught import NamesFiles
from windsock.diagnosis.health import Health
from windsock.importers.formats import Log
from windsock.importers.imported import log_info
from windsock.importers.log_list import oldest_file
from windsock.journal.folder import FileStates, RunFiles
from windsock.journal.run_facts import Glance, RunFacts, seen_at
from windsock.model import Status
from windsock.server.runs.open_runs import RunLocation
from windsock.server.runs.run_summary import RunSummary

ROW_FACTS = ("key", "project", "status", "vocabulary", "last_step", "began", "seconds", "bytes")
MAX_REASON = 500  # characters in a row
MAX_TAGS = 20
HealthBasis = tuple[FileStates, str | None, NamesFiles]
"""The files of a run, the source that a person has chosen, and the files that describe names."""


@dataclass(slots=True)
class ListedRun:
    """A run of the list, and the states of its files when each part was read."""

    location: RunLocation
    number: int = -1  # in the order of appearance, for its colour
    files: RunFiles = field(default_factory=lambda: RunFiles({}, 0))
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    imported: RunFacts | None = None  # of a log that was read
    problem: str = ""  # why a log could not be read
    reward: dict[str, Any] | None = None
    summary: RunSummary | None = None  # read together with the reward
    reward_files: FileStates | None = None
    reward_read_at: float = -1e9
    health: Health | None = None
    health_basis: HealthBasis | None = None  # what it was made of; also where it could not be made
    judged_at: float = -1e9
    changed: int = 0
    search_text: str = ""

    @property
    def name(self) -> str:
        """The name given on the page, else the logged one."""
        return str(self.annotations.get("name") or self.facts["logged_name"])

    @property
    def tags(self) -> list[str]:
        """The tags given on the page, else the logged ones."""
        given = self.annotations.get("tags")
        if given is None:
            return list(self.facts["tags"])
        return [tag for tag in (one.strip() for one in str(given).split(",")) if tag]

    @property
    def began(self) -> float:
        """When the run began."""
        return float(self.facts["began"])

    @property
    def last_heard(self) -> float:
        """When the run was written to last."""
        return float(self.facts["last_heard"])

    @property
    def health_record(self) -> dict[str, Any] | None:
        """The doctor's verdict, and whether it is on the files as they are now; None if it is not known."""
        if self.health is None or self.health_basis is None:
            return None
        return {**self.health.record(), "is_current": self.health_basis[0] == self.files.states}

    def update_search_text(self) -> None:
        """Find the texts that a search looks at."""
        facts = self.facts
        words = (self.name, facts["project"], facts["status"], facts["vocabulary"], *self.tags)
        self.search_text = " ".join((*words, self.annotations["note"])).lower()

    def record(self) -> dict[str, Any]:
        """Return everything about the run."""
        own = {"number": self.number, "reward": self.reward, "health": self.health_record}
        return {**self.facts, **own, **self.annotations, "name": self.name, "tags": self.tags}

    def row(self) -> dict[str, Any]:
        """Return what a row of the list shows."""
        return {
            **{name: self.facts[name] for name in ROW_FACTS},
            **self.annotations,
            "name": self.name,
            "number": self.number,
            "reason": self.facts["reason"][:MAX_REASON],
            "tags": self.tags[:MAX_TAGS],
            "reward": self.reward,
            "health": self.health_record,
        }


def log_glance(run: ListedRun, log: Log) -> Glance:
    """Return the facts about a run in a log: those of its import, or before that, what name and files tell."""
    files = run.files
    if run.imported is not None:
        return seen_at(log.place, run.imported, files.bytes)
    info = log_info(log, oldest_file(files))
    status = Status("unreadable", run.problem) if run.problem else Status("unknown", "the log is not read yet")
    heard = max(modified for _, modified, _ in files.states.values()) / 1e9
    return Glance(info, log.place, status, None, info.created, heard, files.bytes, 1, 1)


def facts_record(location: RunLocation, seen: Glance) -> dict[str, Any]:
    """Return the facts about a run."""
    info = seen.info
    return {
        "key": location.key,
        "id": info.id,
        "logged_name": info.name,
        "project": info.project,
        "kind": location.kind,
        "status": seen.status.word,
        "reason": seen.status.reason,
        "vocabulary": info.vocabulary,
        "producer": info.producer,
        "group": info.group,
        "tags": list(info.tags),
        "notes": info.notes,
        "last_step": seen.last_step,
        "began": seen.began,
        "last_heard": seen.last_heard,
        "seconds": max(0.0, seen.last_heard - seen.began) or None,  # a log without times has none
        "bytes": seen.bytes,
        "writers": seen.writers,
        "attempts": seen.attempts,
    }
