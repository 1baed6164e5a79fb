"""An index of samples that is damaged, stale, of another run or from another version changes no answer."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import barograph
from barograph.journal.format import frames
from barograph.journal.samples import blocks, index
from barograph.journal.samples import blocks as stored_blocks
from barograph.journal.samples.index import VERSION
from barograph.journal.samples.query import Query
from barograph.journal.segments.framing import read_payload

QUERIES = (
    Query(),
    Query(grep="word 7"),
    Query(regex=r"word \d*3\b"),
    Query(min_reward=0.5, sort="-reward"),
    Query(task="t3", sort="-length"),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several blocks of few samples."""
    monkeypatch.setattr(blocks, "MAX_SAMPLES", 16)


def record(id: str, steps: range, seed: int = 0, **settings: object) -> barograph.Run:
    """Record ten samples in each step."""
    draw = random.Random(seed)
    run = barograph.init(id=id, samples_per_step=100, **settings)  # type: ignore[arg-type]
    for step in steps:
        for n in range(10):
            text = f"word {draw.randrange(100)} of {id}"
            run.sample(text, text[::-1], reward=draw.random(), length=n, task=f"t{n % 5}", rewards={"a": 1.0})
        run.commit(step)
    run.finish()
    return run


def answers(path: Path) -> list[str]:
    """Return what a new view answers to several searches."""
    view = barograph.open(path)
    return [repr(view.find_samples(query, 30)) for query in QUERIES] + [repr(view.sample_census())]


def index_of(path: Path) -> Path:
    return path / "index" / index.FILE


def test_no_byte_of_the_index_changes_an_answer():
    """Whichever is flipped, in the contents or in what SQLite needs."""
    run = record("flip", range(8))
    expected, draw = answers(run.path), random.Random(1)
    file = index_of(run.path)
    whole = file.read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]
    for place in [*range(100), *draw.sample(used, 200), *draw.sample(range(len(whole)), 20)]:
        data = bytearray(whole)
        data[place] ^= draw.choice((1, 16, 128, 255))
        index.remove(file)
        file.write_bytes(data)
        assert answers(run.path) == expected, f"byte {place}"


@pytest.mark.parametrize("size", [0, 1, 99, 100, 4096, 16384, 16385, -1, -1000])
def test_an_index_that_is_cut_changes_no_answer(size: int):
    """At any place."""
    run = record("cut", range(8))
    expected, file = answers(run.path), index_of(run.path)
    data = file.read_bytes()
    file.write_bytes(data[:size])
    assert answers(run.path) == expected


def test_an_index_of_another_run_changes_no_answer():
    """Its segments have the same names."""
    first, second = record("first", range(4)), record("second", range(4), seed=1)
    expected = answers(second.path)
    answers(first.path)
    shutil.copy(index_of(first.path), index_of(second.path))
    assert answers(second.path) == expected


def test_a_segment_that_was_cut_and_grew_again_makes_the_index_stale():
    """Its first frame is the same, but not the last one that the index has."""
    run = record("grew", range(6))
    before = answers(run.path)
    [segment] = run.path.glob("*.seg")
    [(_, found)] = barograph.open(run.path)._sample_frames()
    other = frames.frame(frames.sample_payload(5, 1.0, 1, [b'{"completion":"word 7"}']))
    data = segment.read_bytes()[: found[-1].offset] + other
    segment.write_bytes(data + bytes(len(segment.read_bytes()) - len(data)))
    after = answers(run.path)
    assert after != before
    index.remove(index_of(run.path))
    assert answers(run.path) == after


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, 2**31 - 1])
def test_an_index_of_another_version_changes_no_answer(version: int):
    """It is made again."""
    run = record("version", range(4))
    expected = answers(run.path)
    with sqlite3.connect(index_of(run.path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    assert answers(run.path) == expected
    with sqlite3.connect(index_of(run.path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    db.close()


def test_parts_that_were_exchanged_change_no_answer():
    """The checksum of a part is also of its place."""
    run = record("exchanged", range(8))
    expected = answers(run.path)
    for part in ("columns", "texts", "rest"):
        with sqlite3.connect(index_of(run.path)) as db:
            found = db.execute(f"SELECT id, {part} FROM blocks ORDER BY id LIMIT 2").fetchall()
            for (id, _), (_, other) in zip(found, reversed(found), strict=True):
                db.execute(f"UPDATE blocks SET {part} = ? WHERE id = ?", (other, id))
        db.close()
        assert answers(run.path) == expected


def hide(folder: Path) -> None:
    """Put a file in the place of the folder of indexes."""
    shutil.rmtree(folder)
    folder.write_text("in the way")


@pytest.mark.parametrize("harm", [hide, lambda folder: (folder / index.FILE).unlink()])
def test_an_index_that_cannot_be_written_changes_no_answer(
    harm: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """It is made elsewhere, or again."""
    monkeypatch.setattr(index.tempfile, "tempdir", str(tmp_path))
    run = record("place", range(4))
    expected = answers(run.path)
    harm(run.path / "index")
    assert answers(run.path) == expected


def test_following_a_run_gives_the_answers_of_opening_it():
    """Also with several ranks, whose samples arrive in turns."""
    runs = [barograph.init(id="follow", rank=rank, samples_per_step=100) for rank in range(3)]
    view = barograph.open(runs[0].path)
    for step in range(12):
        for rank in (2, 0, 1):
            for n in range(5):
                runs[rank].sample(f"word {n}", f"{rank} {step}", reward=n / 5)
            runs[rank].commit(step)
            view.refresh()
            view.samples(limit=1)
    for run in runs:
        run.finish()
    view.refresh()
    followed = [repr(view.find_samples(query, 100)) for query in QUERIES]
    index.remove(index_of(view.path))
    whole = barograph.open(view.path)
    assert followed == [repr(whole.find_samples(query, 100)) for query in QUERIES]
    assert whole.sample_census().kept == 180


def test_only_new_frames_are_read(monkeypatch: pytest.MonkeyPatch):
    """By this process and by the next."""
    run = record("new", range(8))
    answers(run.path)
    read: list[int] = []
    monkeypatch.setattr(
        stored_blocks, "read_payload", lambda fd, offset: read.append(offset) or read_payload(fd, offset)
    )
    answers(run.path)
    assert not read
    record("new", range(8, 10))
    assert barograph.open(run.path).sample_census().kept == 100
    assert len(read) == 2


def test_a_search_reads_one_block_at_a_time(monkeypatch: pytest.MonkeyPatch):
    """The memory of a search does not grow with the run; texts are read where they may match."""
    run = record("blocks", range(30))
    barograph.open(run.path).sample_census()
    sizes: list[int] = []
    unsealed = stored_blocks.unsealed

    def counted(blob: bytes, place: str) -> bytes:
        sizes.append(len(blob)) if place.startswith("texts") else None
        return unsealed(blob, place)

    monkeypatch.setattr(stored_blocks, "unsealed", counted)
    barograph.open(run.path).find_samples(Query(min_reward=0.5), 0)
    assert not sizes
    barograph.open(run.path).find_samples(Query(grep="word"), 0)
    assert len(sizes) == 19
    assert max(sizes) < 16 * 60
