"""What people do on the page: pins, names, notes and hidden runs, in segments of their own beside the runs.

Every server appends to a segment of its own and reads all of them, so that several can serve one directory; of two
changes to the same thing the newer counts.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from windsock.journal.folder import segments
from windsock.journal.frames import Kind, frame, record_payload
from windsock.journal.reader import SegmentReader, events
from windsock.journal.segment import SegmentWriter
from windsock.model import Writer
from windsock.server.responses import RequestError

FOLDER = ".page"
WRITER = Writer("page", 0, 1)
PLAIN: dict[str, Any] = {"name": None, "pinned": False, "hidden": False, "note": ""}


class Marks:
    """The marks of all runs of a directory, by run and field."""

    def __init__(self, dir: Path) -> None:
        self._folder = dir / FOLDER
        self._lock = threading.Lock()
        self._writer: SegmentWriter | None = None
        self._readers: dict[Path, SegmentReader] = {}
        self._newest: dict[tuple[str, str], tuple[float, Any]] = {}

    def refresh(self) -> bool:
        """Read what this and other servers wrote since; True where there was anything."""
        with self._lock:
            for segment in segments(self._folder):
                self._readers.setdefault(segment.path, SegmentReader(segment.path))
            return any(list(map(self._take, self._readers.values())))

    def of(self, key: str) -> dict[str, Any]:
        """Return the marks of a run."""
        return {name: self._newest.get((key, name), (0.0, plain))[1] for name, plain in PLAIN.items()}

    def set(self, key: str, changes: dict[str, Any]) -> None:
        """Keep changes, or say why they cannot be kept."""
        with self._lock:
            if self._writer is None:
                self._writer = SegmentWriter(self._folder, WRITER, lambda: self._folder.mkdir(exist_ok=True))
            record = {"event": "mark", "time": time.time(), "run": key, **changes}
            self._writer.append(frame(record_payload(Kind.EVENT, record)))
            if self._writer.trouble:
                trouble, self._writer = self._writer.trouble, None
                raise RequestError(409, f"marks cannot be kept in {self._folder}: {trouble}")
        self.refresh()

    def close(self) -> None:
        """Bring what was written to the disk."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _take(self, reader: SegmentReader) -> bool:
        if not reader.poll():
            return False
        for event in events(reader.records):
            at = float(event.get("time") or 0.0)
            for name in PLAIN:
                place = str(event.get("run")), name
                if event.get("event") == "mark" and name in event and at >= self._newest.get(place, (0.0,))[0]:
                    self._newest[place] = at, event[name]
        reader.forget()
        return True
