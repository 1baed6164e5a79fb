"""A run of the list: what is known of it, its record, and the part of it that a row shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windsock.importers.tensorboard import project_and_name, status_from_time
from windsock.journal.folder import FileStates, RunFiles
from windsock.journal.run_facts import Glance
from windsock.server.runs.open_runs import RunLocation

ROW_FACTS = ("key", "project", "status", "vocabulary", "last_step", "began", "seconds", "bytes")
MAX_REASON = 500  # characters in a row
MAX_TAGS = 20


@dataclass(slots=True)
class ListedRun:
    """A run of the list, and the states of its files when each part was read."""

    location: RunLocation
    number: int = -1  # in the order of appearance, for its colour
    files: RunFiles = field(default_factory=lambda: RunFiles({}, 0))
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)  # facts of event files that need reading
    reward: dict[str, Any] | None = None
    reward_files: FileStates | None = None
    reward_read_at: float = -1e9
    changed: int = 0
    search_text: str = ""

    @property
    def name(self) -> str:
        """The name given on the page, else the logged one."""
        return str(self.annotations.get("name") or self.facts["logged_name"])

    @property
    def began(self) -> float:
        """When the run began."""
        return float(self.details.get("began", self.facts["began"]))

    @property
    def last_heard(self) -> float:
        """When the run was written to last."""
        return float(self.details.get("last_heard", self.facts["last_heard"]))

    def update_search_text(self) -> None:
        """Find the texts that a search looks at."""
        facts = {**self.facts, **self.details}
        words = (self.name, facts["project"], facts["status"], facts["vocabulary"], *facts["tags"])
        self.search_text = " ".join((*words, self.annotations["note"])).lower()

    def record(self) -> dict[str, Any]:
        """Return everything about the run."""
        own = {**self.facts, **self.details, "number": self.number, "reward": self.reward, **self.annotations}
        return {**own, "name": self.name}

    def row(self) -> dict[str, Any]:
        """Return what a row of the list shows."""
        all_facts = {**self.facts, **self.details}
        return {
            **{name: all_facts[name] for name in ROW_FACTS},
            **self.annotations,
            "name": self.name,
            "number": self.number,
            "reason": self.facts["reason"][:MAX_REASON],
            "tags": self.facts["tags"][:MAX_TAGS],
            "reward": self.reward,
        }


def journal_facts(location: RunLocation, seen: Glance) -> dict[str, Any]:
    """Return the facts about a run with a journal."""
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
        "seconds": max(0.0, seen.last_heard - seen.began),
        "bytes": seen.bytes,
        "writers": seen.writers,
        "attempts": seen.attempts,
    }


def event_file_facts(location: RunLocation, files: RunFiles, root: Path) -> dict[str, Any]:
    """Return the facts in names and dates of event files; others need reading them."""
    project, name = project_and_name(location.folder, root)
    heard = max(modified for _, modified, _ in files.states.values()) / 1e9
    status = status_from_time(heard)
    return {
        "key": location.key,
        "id": location.key,
        "logged_name": name,
        "project": project,
        "kind": location.kind,
        "status": status.word,
        "reason": status.reason,
        "vocabulary": "",
        "producer": "",
        "group": None,
        "tags": [],
        "notes": None,
        "last_step": None,
        "began": heard,
        "last_heard": heard,
        "seconds": 0.0,
        "bytes": files.bytes,
        "writers": 1,
        "attempts": len(files.states),
    }
