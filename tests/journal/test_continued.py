"""The status of a process whose file could not grow and that continued in further segments."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import barograph
from barograph.base.model import Writer
from barograph.base.process.identity import process_identity
from barograph.journal.format.folder import segments
from barograph.journal.read.status import glance, segment_status
from barograph.journal.write.writer import JournalWriter

WRITER = Writer("trainer", 0, 1)

LIMITED = """
import resource, sys
import barograph
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
run = barograph.init(dir=sys.argv[1], id="run")
for step in range(600):
    run.log({"x": step / 7}, step=step)
    if step % 10 == 9:
        run.commit(step)
        run._maintain()
run.finish()
"""


def test_the_end_is_read_from_the_last_segment(tmp_path: Path):
    """A run under a limit of file size that finished is finished, for lists, for the page and for every segment."""
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], check=True, timeout=60)
    folder = tmp_path / "default" / "run"
    found = segments(folder)
    assert len(found) > 2
    assert glance(folder).status.word == "finished"
    assert glance(folder).last_step == 599
    assert {segment_status(segment.path).word for segment in found} == {"finished"}
    view = barograph.open(folder)
    assert view.status.word == "finished"
    assert [event["event"] for event in view.events()].count("start") == 1
    assert view.series("x").steps.tolist() == list(range(600))


def test_heartbeats_of_later_segments_count(tmp_path: Path):
    """A live process whose first segment is old is running, not stalled; its forked children do not count."""
    old = time.time() - 600
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = JournalWriter(tmp_path, WRITER)
    journal._announce = lambda: journal.event("start", **process_identity())
    journal.event("start", **process_identity() | {"time": old})
    for step in range(200):
        journal.row(("x",), (1.0,), step, old)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        for step in range(200, 300):
            journal.row(("x",), (1.0,), step, old)
        journal.segment.maintain()
        journal.event("heartbeat")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    child = os.fork()
    if not child:
        journal.event("finish", status="crashed")
        os._exit(0)
    os.waitpid(child, 0)
    assert [segment.index for segment in segments(tmp_path)] == [0, 1, 2]
    assert glance(tmp_path).status.word == "running"
    assert glance(tmp_path).last_step == 299
    assert barograph.open(tmp_path).status.word == "running"
    journal.close()
