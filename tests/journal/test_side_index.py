"""The side index: it makes reading cheaper and changes no answer, whatever happens to it."""

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import contents
from odd_segments import segments

import barograph
from barograph.journal import archive
from barograph.journal.format import fields, frames
from barograph.journal.format.folder import INDEX_FOLDER
from barograph.journal.format.frames import Kind
from barograph.journal.segments import indexed_reader, reader, side_index
from barograph.journal.segments.indexed_reader import IndexedReader
from barograph.journal.segments.reader import SegmentReader

NAME = "trainer.0.1.0.seg"
OLD = 1_700_000_000  # a time of last change, so that a segment counts as complete


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several parts in a small segment."""
    monkeypatch.setattr(reader, "CHUNK", 1500)
    monkeypatch.setattr(indexed_reader, "PART_BYTES", 2000)
    monkeypatch.setattr(indexed_reader, "MIN_BYTES", 100)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Write a small segment with frames of all kinds and some damage."""
    path = tmp_path / "run" / NAME
    path.parent.mkdir()
    path.write_bytes(segment_bytes())
    os.utime(path, (OLD, OLD))
    return path


def segment_bytes(seed: int = 0, steps: int = 40) -> bytes:
    chance = random.Random(seed)
    names = [("loss", "kl"), ("score", "length", "entropy")]
    found = [frames.record_payload(Kind.EVENT, {"event": "start", "time": 1.0, "pid": chance.randrange(10**6)})]
    for step in range(steps):
        for of_table in names:
            id = frames.schema_id(of_table)
            if step in (0, 20):
                found.append(frames.schema_payload(id, of_table))
            values = [chance.random() for _ in of_table]
            found.append(frames.row_struct(len(values)).pack(Kind.ROW, id, fields.OPEN_STEP, 1.0 + step, *values))
        found.append(frames.state_payload(7, step, 1.0 + step, [chance.random(), float("nan")]))
        found.append(frames.sparse_state_payload(8, step, 1.0 + step, b"B" + bytes([step])))
        found.append(frames.record_payload(Kind.TEXT, {"name": "t", "step": None, "time": 1.0, "text": f"{step}"}))
        found.append(frames.sample_payload(step, 1.0, 2, [b'{"reward":1}']))
        found.append(frames.commit_payload(step, 2.0 + step))
    found += [bytes([Kind.EVENT]) + b"{", bytes([Kind.ROW]) + bytes(5)]
    encoded = [frames.frame(payload) for payload in found]
    encoded[20] = encoded[20][:-1] + b"?"
    encoded.insert(30, b"no frame")
    return frames.segment_head() + b"".join(encoded)


def plain(path: Path) -> dict[str, object]:
    """Return what is read without an index."""
    found = SegmentReader(path)
    found.poll()
    return contents(found)


def indexed(path: Path) -> dict[str, object]:
    """Return what is read with the index, and write it where there is none."""
    found = IndexedReader(path)
    found.poll()
    return contents(found)


def parts(path: Path) -> list[Path]:
    """Return the files of a segment's index, in the order of the segment."""
    folder = path.parent / "index" / "segments"
    return sorted(folder.glob(f"{path.name}.*"), key=lambda part: int(part.suffix[1:])) if folder.exists() else []


@pytest.mark.usefixtures("small_parts")
def test_an_index_has_what_the_segment_has(segment: Path):
    """Rows, states, records, samples, commits, names and damage are the same, while it is written and from it."""
    expected = plain(segment)
    assert indexed(segment) == expected
    assert len(parts(segment)) > 3
    assert indexed(segment) == expected


@pytest.mark.usefixtures("small_parts")
def test_blocks_are_written_in_few_calls_and_all_of_them(segment: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where a call writes less than it is given."""
    expected, written = plain(segment), []
    assert indexed(segment) == expected
    whole = [part.read_bytes() for part in parts(segment)]
    shutil.rmtree(segment.parent / "index")

    def write_some(fd: int, blocks: list[bytes]) -> int:
        written.append(len(blocks))
        return os.write(fd, b"".join(blocks)[:100])

    monkeypatch.setattr(side_index, "MAX_BLOCKS", 16)
    monkeypatch.setattr(os, "writev", write_some)
    assert indexed(segment) == expected
    assert [part.read_bytes() for part in parts(segment)] == whole
    assert max(written) == 16


@settings(max_examples=200, deadline=None)
@given(segments, st.lists(st.integers(0, 10_000), max_size=4), st.integers(60, 600))
def test_any_segment_is_the_same_with_an_index(data: bytes, cuts: list[int], size: int):
    """A reader that is there while the segment grows, and one that comes later, have what a plain reader has."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_reader, "PART_BYTES", size)
        patch.setattr(indexed_reader, "MIN_BYTES", 20)
        path = Path(folder) / NAME
        growing = IndexedReader(path)
        for cut in [*sorted(cuts), len(data)]:
            path.write_bytes(data[:cut])
            growing.poll()
        os.utime(path, (OLD, OLD))
        expected = plain(path)
        assert contents(growing) == expected
        assert indexed(path) == expected
        assert indexed(path) == expected


def damages(part: Path, places: Iterable[int]) -> Iterator[bytes | None]:
    """Yield what can become of a part: a byte is flipped, it is cut, too long, missing, or of a newer version."""
    data = part.read_bytes()
    for place in places:
        yield data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
    yield from (data[:length] for length in (0, 5, len(data) // 2, len(data) - 1))
    yield from (data + b"x", None)
    head = side_index.HEAD.unpack_from(data)
    yield side_index.HEAD.pack(head[0], head[1] + 1, *head[2:]) + data[side_index.HEAD.size :]


def check_damages(segment: Path, places: Callable[[int], Iterable[int]]) -> None:
    """Damage each part in each way, and compare what is read with what the segment has."""
    expected = plain(segment)
    indexed(segment)
    assert parts(segment)
    for part in parts(segment):
        data = part.read_bytes()
        for damaged in damages(part, places(len(data))):
            if damaged is None:
                part.unlink()
            else:
                part.write_bytes(damaged)
            assert indexed(segment) == expected
            part.write_bytes(data)


def test_no_byte_of_an_index_changes_an_answer(segment: Path, monkeypatch: pytest.MonkeyPatch):
    """Every byte may be flipped, and the index may be cut, missing or of a newer version."""
    monkeypatch.setattr(indexed_reader, "MIN_BYTES", 100)
    segment.write_bytes(segment_bytes(steps=5))
    os.utime(segment, (OLD, OLD))
    check_damages(segment, range)


@pytest.mark.usefixtures("small_parts")
def test_no_part_of_an_index_changes_an_answer(segment: Path):
    """Each of several parts may be damaged: the others are used or made again."""
    chance = random.Random(0)
    check_damages(segment, lambda length: chance.sample(range(length), 20))


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_is_damaged_or_removed_while_it_is_used_changes_nothing(segment: Path):
    """The columns are read from the segment again."""
    expected = plain(segment)
    indexed(segment)
    for damage in (Path.unlink, lambda part: part.write_bytes(bytes(part.stat().st_size))):
        for place in range(len(parts(segment))):
            opened = IndexedReader(segment)
            opened.poll()
            damage(parts(segment)[place])
            assert contents(opened) == expected
            assert indexed(segment) == expected  # and is made again


@pytest.mark.usefixtures("small_parts")
def test_a_damaged_part_is_made_again(segment: Path):
    """The next reader replaces it, and the one after has all parts."""
    indexed(segment)
    before = {part.name: part.read_bytes() for part in parts(segment)}
    parts(segment)[1].write_bytes(b"nonsense")
    written = [part.stat().st_mtime_ns for part in parts(segment)]
    indexed(segment)
    assert {part.name: part.read_bytes() for part in parts(segment)} == before
    made_again = [part.stat().st_mtime_ns != at for part, at in zip(parts(segment), written, strict=True)]
    assert (made_again.count(True), made_again[1]) == (1, True)


@pytest.mark.usefixtures("small_parts")
def test_an_index_of_another_run_is_not_used(segment: Path, tmp_path: Path):
    """A segment of the same name and length has its own checksums."""
    other = tmp_path / "other" / NAME
    other.parent.mkdir()
    other.write_bytes(segment_bytes(seed=1))
    os.utime(other, (OLD, OLD))
    indexed(other)
    shutil.copytree(other.parent / "index", segment.parent / "index")
    assert indexed(segment) == plain(segment)
    shutil.rmtree(segment.parent / "index")
    indexed(segment)
    for part in parts(other):  # and a mixture of both
        if part.name != parts(other)[0].name:
            shutil.copy(part, segment.parent / "index" / "segments" / part.name)
    assert indexed(segment) == plain(segment)


@pytest.mark.usefixtures("small_parts")
def test_a_segment_that_was_replaced_or_cut_is_read_anew(segment: Path):
    """The parts of the segment before are stale: it is shorter, or of the same length with other bytes inside."""
    indexed(segment)
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    assert indexed(segment) == plain(segment)
    segment.write_bytes(data)
    indexed(segment)
    middle = len(data) // 2
    segment.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    assert indexed(segment) == plain(segment)


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_time_before_the_segment_was_changed_are_not_used(segment: Path):
    """The last part tells that the bytes are others: those before it, which were made while it grew, are not used."""
    data = segment.read_bytes()
    for length in (len(data) // 2, len(data)):
        segment.write_bytes(data[:length])
        os.utime(segment, (OLD + length, OLD + length))
        indexed(segment)
    segment.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    assert indexed(segment) == plain(segment)
    assert indexed(segment) == plain(segment)


@pytest.mark.usefixtures("small_parts")
def test_a_segment_that_grows_keeps_its_parts(segment: Path):
    """The bytes behind the index are read, and become a part when they are many."""
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    os.utime(segment, (OLD, OLD))
    indexed(segment)
    before = {part: part.stat().st_mtime_ns for part in parts(segment)}
    segment.write_bytes(data)
    os.utime(segment, (OLD + 1, OLD + 1))
    assert indexed(segment) == plain(segment)
    assert {part: part.stat().st_mtime_ns for part in before} == before
    assert len(parts(segment)) > len(before)


@pytest.mark.usefixtures("small_parts")
def test_a_folder_that_cannot_be_written_is_read_without_an_index(segment: Path):
    """A file in the place of the folder, as an unwritable one, leaves everything in memory."""
    (segment.parent / "index").write_text("no folder")
    assert indexed(segment) == plain(segment)


@pytest.mark.usefixtures("small_parts")
def test_a_disk_that_is_nearly_full_is_left_to_the_training(segment: Path, monkeypatch: pytest.MonkeyPatch):
    """No index is written, and everything is read."""
    monkeypatch.setattr(side_index, "MIN_FREE", 1 << 62)
    assert indexed(segment) == plain(segment)
    assert parts(segment) == []


@pytest.mark.usefixtures("small_parts")
def test_no_drafts_are_left_behind(segment: Path):
    """A part is written beside its place and then moved there."""
    indexed(segment)
    assert {file.name.split(".seg.")[0] for file in (segment.parent / "index" / "segments").iterdir()} == {
        "trainer.0.1.0"
    }


def test_small_segments_have_no_index(segment: Path):
    """They are read as quickly without one."""
    indexed(segment)
    assert parts(segment) == []


def write_wide_run(folder: Path, rows: int, width: int) -> Path:
    """Write a run with one table and return its segment."""
    names = [f"group/metric_{number}" for number in range(width)]
    key, encode = frames.schema_id(names), frames.row_struct(width)
    payloads = [encode.pack(Kind.ROW, key, step, 1.0 + step, *range(step, step + width)) for step in range(rows)]
    path = folder / NAME
    folder.mkdir()
    encoded = map(frames.frame, [frames.schema_payload(key, names), *payloads])
    path.write_bytes(frames.segment_head() + b"".join(encoded))
    os.utime(path, (OLD, OLD))
    return path


def test_one_column_of_many_is_read_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A series of 200 takes less than one part in twenty of the bytes, once the run was opened before."""
    segment = write_wide_run(tmp_path / "run", rows=3000, width=200)
    barograph.open(segment.parent)
    read = count_read(monkeypatch)
    series = barograph.open(segment.parent).series("group/metric_150")
    assert series.values.tolist() == [float(step + 150) for step in range(3000)]
    assert 0 < read[0] < segment.stat().st_size / 20


def test_columns_do_not_stay_in_memory(tmp_path: Path):
    """What is in the index is in no chunk, also of the reader that has written it."""
    segment = write_wide_run(tmp_path / "run", rows=6000, width=200)
    for _ in range(2):
        found = IndexedReader(segment)
        found.poll()
        [table] = found.tables.values()
        assert (len(table), table.fresh(), len(found.records.fresh)) == (6000, None, 0)


def test_some_rows_and_columns_are_picked_from_disk_and_memory(tmp_path: Path):
    """A table gives the same values whether its rows are on disk or not."""
    segment = write_wide_run(tmp_path / "run", rows=6000, width=200)
    whole, stored = SegmentReader(segment), IndexedReader(segment)
    whole.poll()
    stored.poll()
    [expected], [found] = whole.tables.values(), stored.tables.values()
    for rows, columns in (
        ([0, 7, 5999], [3, 4, 5, 90]),
        ([4000], [199]),
        ([], [1]),
        (range(6000), [0]),
        ([5, 70], range(200)),
    ):
        picked = np.array(rows, np.int64), np.array(columns, np.int64)
        assert found.pick(*picked).tolist() == expected.pick(*picked).tolist()
    assert found.column(5, 4990).tolist() == expected.column(5, 4990).tolist()
    for of_stored, of_memory in ((found, expected), (expected, found)):
        rows = [chunk.values for chunk in of_stored.since(10)]
        assert np.array_equal(np.concatenate(rows), np.stack([of_memory.column(n, 10) for n in range(200)], axis=1))


def count_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose only entry grows with the bytes that are read."""
    read, pread = [0], os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        read[0] += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    return read


def test_single_states_are_read_without_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of one state, sparse or not, its frame is read: a step that cannot be merged is looked at state by state."""
    payloads = []
    for step in range(4000):
        payloads.append(frames.sparse_state_payload(1, step, 1.0, b"B" + bytes([step % 256] * 90)))
        payloads.append(frames.state_payload(2, step, 1.0, [float(step)] * 20))
    path = tmp_path / NAME
    path.write_bytes(frames.segment_head() + b"".join(map(frames.frame, payloads)))
    os.utime(path, (OLD, OLD))
    found = IndexedReader(path)
    found.poll()
    found.sparse_states[1].joined_payloads(np.array([7]))  # the offsets of all are read once
    found.states[2].pick(np.array([7]), np.arange(20))
    read = count_read(monkeypatch)
    assert found.sparse_states[1].joined_payloads(np.array([3000]))[0] == payloads[6000]
    assert found.states[2].pick(np.array([3000]), np.arange(20)).tolist() == [[3000.0] * 20]
    assert read[0] < 1000


def test_an_archive_has_no_index(tmp_path: Path):
    """The index is in the run's folder of indexes, which can be made again."""
    segment = write_wide_run(tmp_path / "run", rows=3000, width=200)
    (segment.parent / "run.json").write_text('{"format": 1, "id": "run", "project": "p", "name": "n"}')
    barograph.open(segment.parent)
    assert parts(segment)
    assert all(part.is_relative_to(segment.parent / INDEX_FOLDER) for part in parts(segment))
    assert not any("segments" in name for name in archive._contents(segment.parent))


def test_very_many_small_tables_have_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """To read each from disk takes longer than to parse all; with more rows they have one."""
    monkeypatch.setattr(indexed_reader, "FEW_TABLES", 10)
    monkeypatch.setattr(indexed_reader, "MIN_BYTES", 1000)
    run = barograph.init(dir=tmp_path, id="sets")
    for rows, has_index in ((2, False), (100, True)):
        for n in range(20):
            for step in range(rows):
                run.log({f"family{n}/value": float(n)}, step=step)
        if has_index:
            run.finish()
        view = barograph.open(run.path)
        assert [view.series(f"family{n}/value").last for n in range(20)] == list(range(20))
        assert (run.path / "index" / "segments").exists() == has_index


def test_very_many_short_columns_have_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A block for each number would take longer to write than all of them to read."""
    monkeypatch.setattr(indexed_reader, "FEW_COLUMNS", 100)
    for rows, has_index in ((3, False), (30, True)):
        segment = write_wide_run(tmp_path / str(rows), rows=rows, width=20_000)
        (segment.parent / "run.json").write_text('{"format": 1, "id": "run", "project": "p", "name": "n"}')
        assert len(barograph.open(segment.parent).names()) == 20_000
        assert bool(parts(segment)) == has_index
