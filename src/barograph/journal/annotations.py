"""Annotations of runs that people make on the page, as other readers find them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barograph.base.errors import JournalError
from barograph.journal.format.folder import PAGE_FOLDER, segments

EVENT = "mark"  # the event's name on disk, written since 0.1


def latest_annotation(folder: Path, run: str, field: str) -> Any:
    """Return what a field of a run was set to last on the page of its directory, or None."""
    return LatestAnnotations(field).get(folder, run)


class LatestAnnotations:
    """What a field of runs was set to last. The segments of each directory are read once."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._known: dict[Path, dict[str, tuple[float, Any]]] = {}

    def get(self, folder: Path, run: str) -> Any:
        """Return what the field of a run was set to last on the page of its directory, or None."""
        found = [self._of(parent).get(run, (0.0, None)) for parent in (folder.parent, folder.parent.parent)]
        return max(found, key=lambda change: change[0])[1]

    def _of(self, dir: Path) -> dict[str, tuple[float, Any]]:
        if dir not in self._known:
            found: dict[str, tuple[float, Any]] = {}
            for event in _events(dir / PAGE_FOLDER):
                if event.get("event") == EVENT and self._field in event:
                    run, at = str(event.get("run")), float(event.get("time") or 0.0)
                    if at >= found.get(run, (0.0,))[0]:
                        found[run] = at, event[self._field]
            self._known[dir] = found
        return self._known[dir]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for segment in segments(folder):
        from barograph.journal.segments.reader import (  # imports NumPy, which most directories do not need
            SegmentReader,
            events,
        )

        reader = SegmentReader(segment.path)
        try:
            reader.poll()
        except (JournalError, OSError):  # being written by another version, or removed meanwhile
            continue
        yield from events(reader.records)
