"""The rule of steps: which commit names the step of an open frame."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.journal.format.fields import MAX_STEP, OPEN_STEP
from barograph.journal.segments.steps import AttemptSteps, SegmentSteps, process_has_passed, superseded_from


def attempt(*segments: list[tuple[int, int, float]]) -> AttemptSteps:
    """Return an attempt whose segments have commits of offset, step and time."""
    made = AttemptSteps()
    for index, commits in enumerate(segments):
        steps = SegmentSteps()
        for commit in commits:
            add_commit(steps, *commit)
        made.add(index, steps)
    return made


def add_commit(steps: SegmentSteps, offset: int, step: int, time: float) -> None:
    """Add one commit."""
    steps.add_commits(np.array([offset]), np.array([step]), np.array([time]))


def add_rows(steps: SegmentSteps, *rows: tuple[int, int, float]) -> None:
    offsets, named, times = zip(*rows, strict=True)
    steps.add_rows(np.array(offsets), np.array(named), np.array(times, float))


@pytest.mark.parametrize(
    ("index", "offset", "time", "step"),
    [
        (0, 50, 1.0, 3),  # the next commit of its segment
        (0, 150, 2.5, 4),
        (0, 50, 99.0, 3),  # whatever its time
        (0, 250, 3.5, 20),  # the attempt's next commit by time
        (1, 50, 9.0, 10),
        (2, 50, 1.5, 4),
        (2, 50, 2.0, 4),  # at the very time of the commit
        (2, 50, 2.5, 10),
        (2, 50, 9.0, 21),  # none: the step to come
        (0, 250, 9.0, 21),
    ],
)
def test_an_open_frame_gets_the_next_commit_of_its_segment_else_of_its_attempt_else_the_step_to_come(
    index: int, offset: int, time: float, step: int
):
    """For one frame, and for an array of them."""
    steps = attempt([(100, 3, 1.0), (200, 4, 2.0)], [(100, 10, 3.0), (200, 20, 5.0)], [])
    assert steps.step_of(index, offset, time) == step
    resolved = steps.resolve(index, np.array([offset, 1]), np.array([OPEN_STEP, 7]), np.array([time, 0.0]))
    assert resolved.tolist() == [step, 7]


def test_by_time_the_commits_of_the_frames_own_segment_do_not_count():
    """They are before it in the file, though the clock was set back since."""
    steps = attempt([(100, 3, 50.0)], [(100, 8, 60.0)])
    assert steps.step_of(0, 200, 10.0) == 8
    assert attempt([(100, 3, 50.0)]).step_of(0, 200, 10.0) == 4


def test_the_step_to_come_is_after_the_highest_that_a_row_or_commit_names():
    """In any segment of the attempt; it is 0 where none does, and never more than fits."""
    first, second = SegmentSteps(), SegmentSteps()
    steps = AttemptSteps()
    steps.add(0, first)
    steps.add(1, second)
    assert steps.upcoming == 0
    add_rows(second, (10, OPEN_STEP, 1.0), (20, 6, 2.0), (30, 2, 3.0))
    assert steps.upcoming == 7
    add_commit(first, 10, 8, 4.0)
    assert steps.upcoming == 9
    add_commit(first, 20, MAX_STEP, 5.0)
    assert steps.upcoming == MAX_STEP


def test_the_first_step_is_that_of_the_row_or_commit_that_was_written_first():
    """An open first row gets the step of its commit, and has none that is certain before."""
    segment = SegmentSteps()
    steps = AttemptSteps()
    steps.add(0, segment)
    assert steps.first_step() is None
    add_rows(segment, (10, OPEN_STEP, 1.0), (20, 3, 2.0))
    assert (steps.first_step(), steps.first_step(committed=True)) == (4, None)
    add_commit(segment, 30, 9, 3.0)
    assert steps.first_step() == steps.first_step(committed=True) == 9
    child = SegmentSteps()
    steps.add(1, child)
    add_rows(child, (10, 6, 0.5))
    assert steps.first_step() == 6


KINDS = st.sampled_from([None, "row", "commit"])  # None is an open row
frames = st.lists(st.tuples(KINDS, st.integers(-2, 5), st.integers(0, 9)), max_size=6)


@given(st.lists(st.lists(frames, max_size=3), min_size=1, max_size=3))
def test_the_last_step_is_the_highest_of_all_rows_and_commits(segments: list[list[list[tuple[str | None, int, int]]]]):
    """However the frames of each segment, open rows, rows and commits, are split into reads."""
    steps = AttemptSteps()
    rows, commits = [], []
    for index, reads in enumerate(segments):
        segment, offset = SegmentSteps(), 0
        steps.add(index, segment)
        for read in reads:
            found = []
            for kind, step, time in read:
                offset += 10
                if kind == "commit":
                    add_commit(segment, offset, step, float(time))
                    commits.append(step)
                else:
                    found.append((offset, OPEN_STEP if kind is None else step, float(time)))
            if found:
                add_rows(segment, *found)
                rows += [(index, row) for row in found]
    named = [step for _, (_, step, _) in rows if step != OPEN_STEP]
    resolved = [steps.step_of(index, offset, time) for index, (offset, step, time) in rows if step == OPEN_STEP]
    assert steps.last_step() == max([*named, *resolved, *commits], default=None)
    times = [time for _, (_, _, time) in rows]
    assert steps.row_span() == ((min(times), max(times)) if times else None)


@pytest.mark.parametrize(
    ("firsts", "limits"),
    [
        ([], []),
        ([0], [None]),
        ([0, 5], [5, None]),
        ([0, 5, 3], [3, 3, None]),
        ([0, 3, 5], [3, 5, None]),
        ([0, None, 5], [5, 5, None]),
        ([0, 4, None], [4, None, None]),
    ],
)
def test_an_attempt_counts_below_the_first_step_of_every_newer_one(firsts: list[int | None], limits: list[int | None]):
    """One that has not named a step supersedes nothing yet."""
    assert superseded_from(firsts) == limits


def test_a_writer_is_past_a_step_when_it_has_committed_it_or_a_later_one():
    """Recently enough; one that never commits, when one of its rows names a later step."""
    steps = SegmentSteps()
    add_rows(steps, (10, 5, 1.0))
    assert (process_has_passed([steps], 4), process_has_passed([steps], 5)) == (True, False)
    add_commit(steps, 20, 3, 2.0)
    assert (process_has_passed([steps], 3), process_has_passed([steps], 4)) == (True, False)
    assert (process_has_passed([steps], 3, since=2.0), process_has_passed([steps], 3, since=2.1)) == (True, False)
