"""The end of processes that were killed, told by one that sees it: readers on other machines would wait for an hour."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from windsock.journal import frames
from windsock.journal.folder import SegmentFile, segment_path
from windsock.journal.glance import first_events, segment_end, start_event
from windsock.journal.segment import SEGMENT_FLAGS
from windsock.journal.status import KILLED

IDENTITY = ("host", "machine", "pid", "born", "actor")


def note_lost_writers(folder: Path, segments: Iterable[SegmentFile]) -> None:
    """Write the end of each process of this machine that has not written it itself, as a further segment of it.

    ``segments`` are in the order of writers and indexes.
    """
    for writer, of_writer in groupby(segments, key=lambda segment: segment.writer):
        first, *later = of_writer
        if first.index == 0 and segment_end(first.path) == "lost" and not _is_noted([first, *later][-1].path):
            index = max(segment.index for segment in (first, *later)) + 1
            _write_end(segment_path(folder, writer, index), first.path)


def _is_noted(path: Path) -> bool:
    return any(event.get("event") == "finish" and event.get("lost") for event in first_events(path))


def _write_end(path: Path, of: Path) -> None:
    start = start_event(of) or {}
    known = {name: start[name] for name in IDENTITY if name in start}
    events = (
        {"event": "start", "time": time.time(), **known},
        {"event": "finish", "time": time.time(), "status": KILLED.word, "reason": KILLED.reason, "lost": True},
    )
    payloads = (frames.record_payload(frames.Kind.EVENT, event) for event in events)
    fd = os.open(path, SEGMENT_FLAGS, 0o644)
    try:
        os.write(fd, frames.segment_head() + b"".join(map(frames.frame, payloads)))
    finally:
        os.close(fd)
