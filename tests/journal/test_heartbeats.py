"""Heartbeats: a process writes one every ten seconds, and readers keep the last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import barograph
from barograph.base.model import Writer
from barograph.importers.summary import run_warnings
from barograph.journal.format import frames
from barograph.journal.format.folder import segment_path
from barograph.journal.format.frames import Kind
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.write.segment import SegmentWriter

WRITER = Writer("trainer", 0, 1)
COUNTS = {"dropped": 0, "waiting": 0, "failed_writes": 0, "failed_syncs": 0}


def write_events(folder: Path, *events: dict[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    segment = SegmentWriter(folder, WRITER)
    for event in events:
        segment.append(frames.frame(frames.record_payload(Kind.EVENT, event)))
    segment.close(0.0)
    return segment_path(folder, WRITER, 0)


def heartbeat(at: float, **fields: object) -> dict[str, object]:
    return {"event": "heartbeat", "time": at, **COUNTS, **fields}


def read(path: Path) -> SegmentReader:
    reader = SegmentReader(path)
    reader.poll()
    return reader


def test_of_a_week_of_heartbeats_one_is_kept(tmp_path: Path):
    """The others tell nothing that the last does not."""
    start = {"event": "start", "time": 1.0}
    reader = read(write_events(tmp_path, start, *(heartbeat(10.0 * n) for n in range(1, 2000))))
    assert len(reader.records) == 1
    assert [json.loads(record.payload[1:])["time"] for record in reader.heartbeats] == [19990.0]
    view = barograph.View(tmp_path)
    assert [event["event"] for event in view.events()] == ["start", "heartbeat"]


def test_the_most_frames_that_waited_are_still_told(tmp_path: Path):
    """Other counts are totals; that of the frames in memory goes up and down."""
    beats = [heartbeat(10.0 * n, waiting=7 if n == 3 else 0, failed_writes=min(n, 5)) for n in range(1, 100)]
    write_events(tmp_path, {"event": "start", "time": 1.0}, *beats)
    view = barograph.View(tmp_path)
    assert "5 writes failed, and up to 7 frames waited in memory; what was not dropped was written later" in (
        run_warnings(view)
    )
    assert [event["time"] for event in view.events()] == [1.0, 30.0, 990.0]


@pytest.mark.parametrize("odd", [{"waiting": -1}, {"waiting": "many"}, {"time": 1e12}, {"dropped": None}])
def test_a_heartbeat_that_cannot_be_decoded_is_damage(tmp_path: Path, odd: dict[str, object]):
    """It is counted as any other event is, and the one before it is kept."""
    path = write_events(tmp_path, heartbeat(10.0), heartbeat(20.0, **odd))
    reader = read(path)
    assert [record.offset for record in reader.heartbeats] == [frames.SEGMENT_HEAD.size]
    assert [damage.kind for damage in reader.damage] == ["event"]


def test_a_heartbeat_of_another_form_is_one(tmp_path: Path):
    """Further fields, or fewer, do not matter."""
    reader = read(write_events(tmp_path, heartbeat(10.0), {"event": "heartbeat", "time": 20, "new": [1]}))
    assert [json.loads(record.payload[1:])["time"] for record in reader.heartbeats] == [20]
    assert not reader.records
