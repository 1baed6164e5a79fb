"""A journal that was cut or whose bytes changed: never an exception, never a wrong value, little lost."""

from pathlib import Path

import pytest

from barograph.base.model import Writer
from barograph.journal.segments.contents import united_heads
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.write import writer as writer_module
from barograph.journal.write.writer import JournalWriter

Written = dict[tuple[str, int], float]

KEY_SETS = (("score", "lr"), ("kl", "名/字 @8", "entropy"))


def value(name: str, step: int) -> float:
    return len(name) * 1000.0 + step


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """Return the bytes of a small journal with two key sets, several copies of each, and where each row begins."""
    folder = tmp_path_factory.mktemp("journal")
    writer_module.COPY_AFTER, kept = (4,), writer_module.COPY_AFTER
    try:
        writer = JournalWriter(folder, Writer("trainer", 0, 1))
        writer.event("start", pid=1)
        for step in range(14):
            for names in KEY_SETS:
                writer.row(names, [value(name, step) for name in names], step, 1.5)
            writer.commit(step, 1.5)
        writer.event("finish", status="finished")
        writer.close()
    finally:
        writer_module.COPY_AFTER = kept
    data = (folder / "trainer.0.1.0.seg").read_bytes()
    return data, starts_of(data)


def starts_of(data: bytes) -> list[int]:
    places, place = [], data.find(b"\xf5WSK")
    while place >= 0:
        places.append(place)
        place = data.find(b"\xf5WSK", place + 1)
    return places


def read(path: Path, data: bytes) -> tuple[SegmentReader, Written]:
    path.write_bytes(data)
    reader = SegmentReader(path)
    reader.poll()
    found: Written = {}
    for schema, table in reader.tables.items():
        names = reader.schemas.get(schema, ())
        for place, name in enumerate(names):
            steps = united_heads(table.chunks)[1].tolist()
            found |= {(name, step): v for step, v in zip(steps, table.column(place).tolist(), strict=True)}
    return reader, found


def everything() -> Written:
    return {(name, step): value(name, step) for names in KEY_SETS for name in names for step in range(14)}


def test_an_intact_journal_is_read_completely(tmp_path: Path, journal: tuple[bytes, list[int]]):
    """The journal that the other tests damage contains everything that was written."""
    reader, found = read(tmp_path / "a.seg", journal[0])
    assert found == everything()
    assert (reader.damage, reader.offset, len(reader.steps)) == ([], len(journal[0]), 14)


def test_a_journal_cut_at_any_byte_keeps_every_complete_frame(tmp_path: Path, journal: tuple[bytes, list[int]]):
    """A torn end is not damage: the frames before it are read, and the rest when it is there."""
    data, starts = journal
    path = tmp_path / "cut.seg"
    whole = everything()
    for cut in range(len(data)):
        reader, found = read(path, data[:cut])
        assert found.items() <= whole.items()
        assert reader.damage == []
        last_whole = max((end for end in [*starts[1:], len(data)] if end <= cut), default=16)
        assert reader.offset == (last_whole if cut >= 16 else 0)


def test_what_was_cut_off_is_read_when_it_arrives(tmp_path: Path, journal: tuple[bytes, list[int]]):
    """A reader at a torn end continues when the rest is there, at every cut."""
    data, _ = journal
    path = tmp_path / "growing.seg"
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        reader = SegmentReader(path)
        reader.poll()
        path.write_bytes(data)
        reader.poll()
        assert sum(len(table) for table in reader.tables.values()) == 28
        assert (len(reader.steps), reader.damage) == (14, [])


@pytest.mark.parametrize("flip", [0xFF, 0x01, 0x80])
def test_any_changed_byte_costs_at_most_the_frame_that_it_hits(
    tmp_path: Path, journal: tuple[bytes, list[int]], flip: int
):
    """No exception, no wrong value; a row is lost only when it was hit itself, since every schema has another copy."""
    data, starts = journal
    path = tmp_path / "flipped.seg"
    whole = everything()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= flip
        reader, found = read(path, bytes(changed))
        assert found.items() <= whole.items(), f"a wrong value after byte {place} changed"
        lost = whole.keys() - found.keys()
        assert len({step for _, step in lost}) <= 1
        assert len(lost) <= 3
        hit_last_frame = place >= starts[-1]
        if place >= 16:
            assert reader.damage or (hit_last_frame and reader.offset == starts[-1])


def test_a_long_run_of_rows_survives_damage_in_its_middle(tmp_path: Path):
    """The fast path over rows of one size loses the rows hit and no others."""
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    for step in range(500):
        writer.row(("a", "b"), (float(step), -float(step)), step)
    writer.close()
    path = tmp_path / "trainer.0.1.0.seg"
    data = bytearray(path.read_bytes())
    starts = starts_of(bytes(data))
    row_starts = [start for start in starts if data[start + 12] == 2]
    for row, byte in ((20, 0), (21, 5), (300, 9), (301, 40), (499, 30)):
        data[row_starts[row] + byte] ^= 0x55
    path.write_bytes(data)
    reader = SegmentReader(path)
    reader.poll()
    (table,) = reader.tables.values()
    steps = united_heads(table.chunks)[1]
    assert set(range(500)) - set(steps.tolist()) == {20, 21, 300, 301, 499}
    assert (table.column(0) == steps).all()


def test_frames_longer_than_a_chunk_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The size in which a file is read shows nowhere."""
    monkeypatch.setattr("barograph.journal.segments.reader.CHUNK", 64)
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    names = tuple(f"metric {n}" for n in range(100))
    for step in range(20):
        writer.row(names, [float(n) for n in range(100)], step)
        writer.commit(step)
    writer.close()
    reader = SegmentReader(tmp_path / "trainer.0.1.0.seg")
    reader.poll()
    (table,) = reader.tables.values()
    assert (len(table), len(reader.steps), reader.damage) == (20, 20, [])


def test_a_journal_of_a_newer_format_is_refused_with_what_to_do(tmp_path: Path):
    """A later release's segment is not misread."""
    from zlib import crc32

    from barograph.base.errors import JournalError

    version = (99).to_bytes(4, "little")
    path = tmp_path / "trainer.0.1.0.seg"
    path.write_bytes(b"BAROGRPH" + version + crc32(b"BAROGRPH" + version).to_bytes(4, "little"))
    with pytest.raises(JournalError, match="format 99.*pip install"):
        SegmentReader(path).poll()
