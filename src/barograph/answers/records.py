"""Records that name their schema and its version, what names a run and its writers in them, and the words of a run's
status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a list of runs can do without NumPy
    from barograph.journal.view import View


def writer_triples(view: View) -> list[list[Any]]:
    """Return role, rank and attempt of every writer."""
    return [[writer.role, writer.rank, writer.attempt] for writer in view.writers()]


def writer_records(view: View) -> list[dict[str, Any]]:
    """Return the status of the newest attempt of every role and rank."""
    return [
        {
            "role": writer.role,
            "rank": writer.rank,
            "attempt": writer.attempt,
            "status": status.word,
            "reason": status.reason,
        }
        for writer, status in view.writer_statuses().items()
    ]


STATUS_SYMBOLS = {"running": "●", "finished": "✓", "crashed": "✗", "killed": "✗", "stalled": "◌", "unreadable": "?"}

VERSION = 1  # of all schemas: fields are added without a new one, and never change or go


def versioned(kind: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the name of its schema, which ``docs/schema`` has as ``KIND.json``."""
    return {"schema": f"barograph/{kind}/{VERSION}", **record}


def run_record(view: View) -> dict[str, Any]:
    """Return what names a run."""
    return {"run": view.id, "name": view.name, "path": str(view.location)}
