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
CONTENTS = {VIEW_EVENT: "state", REPORT_EVENT: "text"}
"""What is saved under names, by the event that saves it: the field with the contents."""
MAX_SAVED = 200  # of each kind
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
        self._kept: dict[str, dict[str, tuple[float, str | None]]] = {kind: {} for kind in CONTENTS}
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
        kept = sorted(self._saved(VIEW_EVENT).items())
        return [{"name": name, "state": state, "saved": at} for name, (at, state) in kept]

    def save_view(self, name: str, state: str | None) -> None:
        """Save a view under a name, in place of another of that name; None removes it."""
        self._save(VIEW_EVENT, name, state)

    def reports(self) -> list[dict[str, Any]]:
        """Return the names of the reports, and when they were saved, the newest first."""
        kept = sorted(((at, name) for name, (at, _) in self._saved(REPORT_EVENT).items()), reverse=True)
        return [{"name": name, "saved": at} for at, name in kept]

    def report(self, name: str) -> str | None:
        """Return the text of a report; None if there is none of that name."""
        return self._saved(REPORT_EVENT).get(name, (0.0, None))[1]

    def save_report(self, name: str, text: str | None) -> None:
        """Save a report under a name, in place of another of that name; None removes it."""
        self._save(REPORT_EVENT, name, text)

    def _saved(self, kind: str) -> dict[str, tuple[float, str | None]]:
        """Return what is saved by name, with the time; without what was removed."""
        self.refresh()
        return {name: saved for name, saved in self._kept[kind].items() if saved[1] is not None}

    def _save(self, kind: str, name: str, contents: str | None) -> None:
        saved = self._saved(kind)
        if contents is not None and len(saved) >= MAX_SAVED and name not in saved:
            raise RequestError(409, f"{MAX_SAVED} {kind}s are saved: remove one first")
        self._write({"event": kind, "time": time.time(), "name": name, CONTENTS[kind]: contents})

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
            at, run, kind = float(event.get("time") or 0.0), str(event.get("run")), str(event.get("event"))
            kept = self._kept.get(kind)
            if kept is not None and at >= kept.get(event["name"], (0.0,))[0]:
                kept[event["name"]] = at, event.get(CONTENTS[kind])
            for name in DEFAULTS:
                if kind == MARK and name in event and at >= self._newest.get((run, name), (0.0,))[0]:
                    self._newest[run, name] = at, event[name]
                    self._changed.add(run)
        reader.forget()
