"""What people keep on the page: pins, names, notes, tags, colours, hidden runs, sources; saved views and reports.

They are events in segments in ``.page/`` of the directory. Each server appends to its own segment and reads all of
them, so that several can serve one directory; the newest change of a field wins.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from barograph.base.errors import RequestError
from barograph.base.files.directory_watch import DirectoryWatch
from barograph.base.model import Writer
from barograph.journal.directory import MARK
from barograph.journal.format.folder import PAGE_FOLDER, segments
from barograph.journal.format.frames import Kind, frame, record_payload
from barograph.journal.segments.reader import SegmentReader, events
from barograph.journal.write.segment import SegmentWriter

WRITER = Writer("page", 0, 1)
VIEW_EVENT = "view"
REPORT_EVENT = "report"
MAX_VIEWS = 200
MAX_REPORTS = 200
DEFAULTS: dict[str, Any] = {
    "name": None,
    "pinned": False,
    "hidden": False,
    "note": "",
    "source": None,
    "colour": None,
    "tags": None,
}


class Annotations:
    """The annotations of all runs of a directory, by run and field, the saved views and the reports."""

    def __init__(self, dir: Path) -> None:
        self._folder = dir / PAGE_FOLDER
        self._lock = threading.Lock()
        self._writer: SegmentWriter | None = None
        self._readers: dict[Path, SegmentReader] = {}
        self._newest: dict[tuple[str, str], tuple[float, Any]] = {}
        self._views: dict[str, tuple[float, str | None]] = {}
        self._reports: dict[str, tuple[float, str | None]] = {}
        self._watch = DirectoryWatch()
        self._changed: set[str] = set()

    def refresh(self) -> None:
        """Read new changes of this and other servers."""
        with self._lock:
            if self._watch.tells(self._folder):
                if not self._watch.changed():
                    return
            else:
                self._watch.add(self._folder)
            for segment in segments(self._folder):
                self._readers.setdefault(segment.path, SegmentReader(segment.path))
            for reader in self._readers.values():
                self._read(reader)

    def take_changed(self) -> set[str]:
        """Return the runs whose annotations changed since the last call."""
        self.refresh()
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    def get(self, key: str) -> dict[str, Any]:
        """Return the annotations of a run, with defaults for the others."""
        return {name: self._newest.get((key, name), (0.0, default))[1] for name, default in DEFAULTS.items()}

    def source(self, key: str) -> str | None:
        """Return the source that a person has chosen for the names of a run, as of now."""
        self.refresh()
        source: str | None = self.get(key)["source"]
        return source

    def set(self, key: str, changes: dict[str, Any]) -> None:
        """Write changes; a RequestError reports a directory that is not writable."""
        self._write({"event": MARK, "time": time.time(), "run": key, **changes})

    def views(self) -> list[dict[str, Any]]:
        """Return the saved views by name: their states, and when they were saved."""
        self.refresh()
        kept = {name: (at, state) for name, (at, state) in self._views.items() if state is not None}
        return [{"name": name, "state": state, "saved": at} for name, (at, state) in sorted(kept.items())]

    def save_view(self, name: str, state: str | None) -> None:
        """Save a view under a name, in place of another of that name; None removes it."""
        if state is not None and len(self.views()) >= MAX_VIEWS and name not in self._views:
            raise RequestError(409, f"{MAX_VIEWS} views are saved: remove one first")
        self._write({"event": VIEW_EVENT, "time": time.time(), "name": name, "state": state})

    def reports(self) -> list[dict[str, Any]]:
        """Return the names of the reports, and when they were saved, the newest first."""
        self.refresh()
        kept = [(at, name) for name, (at, text) in self._reports.items() if text is not None]
        return [{"name": name, "saved": at} for at, name in sorted(kept, reverse=True)]

    def report(self, name: str) -> str | None:
        """Return the text of a report; None if there is none of that name."""
        self.refresh()
        return self._reports.get(name, (0.0, None))[1]

    def save_report(self, name: str, text: str | None) -> None:
        """Save a report under a name, in place of another of that name; None removes it."""
        if text is not None and self.report(name) is None and len(self.reports()) >= MAX_REPORTS:
            raise RequestError(409, f"{MAX_REPORTS} reports are saved: remove one first")
        self._write({"event": REPORT_EVENT, "time": time.time(), "name": name, "text": text})

    def _write(self, record: dict[str, Any]) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = SegmentWriter(self._folder, WRITER, lambda: self._folder.mkdir(exist_ok=True))
            self._writer.append(frame(record_payload(Kind.EVENT, record)))
            if self._writer.trouble:
                # The user is told that the change failed, so it must not be written later from the writer's backlog.
                trouble, self._writer = self._writer.trouble, None
                raise RequestError(409, f"cannot write annotations into {self._folder}: {trouble}")
        self.refresh()

    def close(self) -> None:
        """Close the segment of this server."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._watch.close()

    def _read(self, reader: SegmentReader) -> None:
        if not reader.poll():
            return
        for event in events(reader.records):
            at, run = float(event.get("time") or 0.0), str(event.get("run"))
            if event.get("event") == VIEW_EVENT and at >= self._views.get(event["name"], (0.0,))[0]:
                self._views[event["name"]] = at, event.get("state")
            if event.get("event") == REPORT_EVENT and at >= self._reports.get(event["name"], (0.0,))[0]:
                self._reports[event["name"]] = at, event.get("text")
            for name in DEFAULTS:
                if event.get("event") == MARK and name in event and at >= self._newest.get((run, name), (0.0,))[0]:
                    self._newest[run, name] = at, event[name]
                    self._changed.add(run)
        reader.forget()
