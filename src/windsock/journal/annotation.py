"""Annotations of runs that people make on the page, as other readers find them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windsock.errors import JournalError
from windsock.journal.folder import PAGE_FOLDER, segments
from windsock.journal.reader import SegmentReader, events

EVENT = "mark"  # the event's name on disk, written since 0.1


def latest_annotation(folder: Path, run: str, field: str) -> Any:
    """Return what a field of a run was set to last on the page of its directory, or None."""
    found = [
        (float(event.get("time") or 0.0), event[field])
        for parent in (folder.parent, folder.parent.parent)
        for event in _events(parent / PAGE_FOLDER)
        if event.get("event") == EVENT and event.get("run") == run and field in event
    ]
    return max(found, key=lambda change: change[0])[1] if found else None


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for segment in segments(folder):
        reader = SegmentReader(segment.path)
        try:
            reader.poll()
        except (JournalError, OSError):  # being written by another version, or removed meanwhile
            continue
        yield from events(reader.records)
