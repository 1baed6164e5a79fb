"""Spans from their frames, also if some of them are lost."""

from pathlib import Path

import pytest

import barograph
from barograph.journal.segments.reader import SegmentReader


def segment(run: barograph.Run) -> Path:
    [path] = run.path.glob("*.seg")
    return path


@pytest.mark.parametrize(("kind", "closed"), [(9, True), (10, False)])
def test_a_lost_frame_costs_only_its_own_facts(kind: int, closed: bool):
    """The close frame has everything; without it the span is open."""
    run = barograph.init()
    with run.phase("train", tokens=3):
        pass
    run.commit(5)
    run.finish()
    reader = SegmentReader(segment(run))
    reader.poll()
    [lost] = [record for record in reader.records if record.kind == kind]
    data = bytearray(segment(run).read_bytes())
    data[lost.offset + 20] ^= 255
    segment(run).write_bytes(data)
    view = barograph.open(run.path)
    [span] = view.phases()
    assert (span.name, span.step, span.lane, span.end is not None) == ("train", 5, "main", closed)
    assert len(view.damage()) == 1


def test_spans_of_a_superseded_attempt_do_not_count():
    """As with rows: from the newer attempt's first step on, the older one's are gone."""
    for first in (0, 2):
        run = barograph.init(id="again")
        for step in range(first, first + 4):
            with run.phase("train"):
                pass
            run.commit(step)
        run.finish()
    spans = barograph.open("again").phases()
    assert [(span.step, span.writer.attempt) for span in spans] == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2)]
    assert [span.writer.attempt for span in barograph.open("again").phases(step=3)] == [2]


def test_steps_have_windows():
    """From commit to commit; the first begins with its first phase."""
    run = barograph.init()
    with run.phase("train"):
        pass
    run.commit(0)
    run.commit(1)
    view = barograph.open(run.path)
    [windows] = view.step_windows().values()
    assert windows[0][0] == view.phases()[0].start
    assert windows[0][1] == windows[1][0] <= windows[1][1]
