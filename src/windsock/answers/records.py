"""Records that name their schema and its version, and what names a run in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windsock.view import View

VERSION = 1  # of all schemas: fields are added without a new one, and never change or go


def versioned(kind: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the name of its schema, which ``docs/schema`` has as ``KIND.json``."""
    return {"schema": f"windsock/{kind}/{VERSION}", **record}


def run_record(view: View) -> dict[str, Any]:
    """Return what names a run."""
    return {"run": view.id, "name": view.name, "path": str(view.location)}
