"""Following a run as rows: piece by piece, from any place, every row once."""

import random
from pathlib import Path

import pytest

import barograph
from barograph.base.model import Row
from barograph.journal.read import segment_follower
from barograph.journal.read.follower import RunFollower


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces so small that a short run has many."""
    monkeypatch.setattr("barograph.journal.segments.reader.CHUNK", 512)
    monkeypatch.setattr(segment_follower, "PIECE", 1000)


def written(attempts: int = 1) -> Path:
    """Write rows with and without a step, those of an attempt saying which it is."""
    chance = random.Random(0)
    for attempt in range(attempts):
        run = barograph.init(id="long")
        for step in range(200):
            run.log({"attempt": attempt, "open": step})
            if chance.random() < 0.5:
                run.log({"named": step}, step=1000 + step)
            if chance.random() < 0.3:
                run.commit(step)
        run.commit(200)
        run.finish()
    return run.path


def contents(rows: list[Row]) -> list[tuple[int, dict[str, float]]]:
    return sorted((row.step, dict(row.values)) for row in rows)


def all_rows(follower: RunFollower) -> list[Row]:
    found: list[Row] = []
    while rows := follower.new_rows():
        found += rows
    return found


def test_pieces_are_the_whole(small: None):
    """A long run is read in pieces, and no row is missing or comes twice."""
    path = written()
    follower = RunFollower(path)
    first = follower.new_rows()
    assert 0 < len(first) < 50
    segment_follower.PIECE = 1 << 20
    whole = all_rows(RunFollower(path))
    assert contents(first + all_rows(follower)) == contents(whole)


def test_another_follower_goes_on_from_any_place(small: None):
    """Also where rows wait for their commit that lie before others that were emitted."""
    path = written()
    whole = all_rows(RunFollower(path))
    follower = RunFollower(path)
    found: list[Row] = []
    while rows := follower.new_rows():
        found += rows
        follower = RunFollower(path, follower.cursors())
    assert contents(found) == contents(whole)


def test_an_attempt_is_read_to_its_end_before_the_next(small: None):
    """In pieces too: what a newer attempt supersedes never comes after it."""
    path = written(attempts=2)
    attempts = [row.writer.attempt for row in all_rows(RunFollower(path))]
    assert attempts == sorted(attempts)
    assert set(attempts) == {1, 2}
