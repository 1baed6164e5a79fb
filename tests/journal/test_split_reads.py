"""What is read does not depend on how the bytes were split into reads."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from journals import contents
from odd_segments import segments

from barograph.journal.format import frames
from barograph.journal.segments import reader
from barograph.journal.segments.framing import intact_frames
from barograph.journal.segments.reader import SegmentReader


@settings(max_examples=300, deadline=None)
@given(segments, st.lists(st.integers(0, 10_000), max_size=6))
def test_a_segment_that_grows_gives_what_the_whole_gives(data: bytes, cuts: list[int]):
    """Rows, orders, commits, records and damage are the same, wherever the polls were."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trainer.0.1.0.seg"
        path.write_bytes(data)
        whole = SegmentReader(path)
        whole.poll()
        path.unlink()
        growing = SegmentReader(path)
        for cut in [*sorted(cuts), len(data)]:
            path.write_bytes(data[:cut])
            growing.poll()
        assert contents(growing) == contents(whole)


@settings(max_examples=200, deadline=None)
@given(segments, st.integers(20, 400))
def test_the_size_of_a_read_changes_nothing(data: bytes, size: int):
    """A segment that is read in small pieces gives what one read gives."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trainer.0.1.0.seg"
        path.write_bytes(data)
        whole, pieces = SegmentReader(path), SegmentReader(path)
        whole.poll()
        usual, reader.CHUNK = reader.CHUNK, size
        try:
            pieces.poll()
        finally:
            reader.CHUNK = usual
        assert contents(pieces) == contents(whole)


@settings(max_examples=300, deadline=None)
@given(segments)
def test_frames_that_are_found_together_are_those_that_are_found_one_by_one(data: bytes):
    """In small reads they are looked at one by one, in large ones together up to the first that is damaged."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trainer.0.1.0.seg"
        path.write_bytes(data)
        one_by_one, together = SegmentReader(path), SegmentReader(path)
        one_by_one.poll()
        usual, reader.MANY_BYTES = reader.MANY_BYTES, 0
        try:
            together.poll()
        finally:
            reader.MANY_BYTES = usual
        assert contents(together) == contents(one_by_one)


def test_frames_are_found_together_up_to_the_first_odd_one():
    """One with the magic in its payload, a damaged one, one without content, or one whose end is not there yet."""
    fine = [frames.frame(bytes([5]) * size) for size in (1, 40, 300)]
    inner = frames.frame(b"x" + frames.frame(b"y"))
    for odd in (inner, fine[1][:-1] + b"?", frames.frame(b""), fine[2][:-1], b""):
        starts, sizes = intact_frames(b"".join([*fine, odd]))
        assert (sizes, starts) == ([1, 40, 300], [12, 25, 77])
    assert intact_frames(b"".join([*fine, b"no frame"]))[1] == [1, 40]  # the one before is looked at on its own
    assert intact_frames(b"no frame") == intact_frames(b"") == ([], [])


def test_tables_are_in_the_order_in_which_they_were_first_logged(tmp_path: Path):
    """Names of one width come in the order of their first rows, and not in that of the ids of their schemas."""
    keys = sorted((frames.schema_id([name]) for name in "abcdef"), reverse=True)
    rows = [frames.row_struct(1).pack(frames.Kind.ROW, key, 0, 1.0, 2.0) for key in keys]
    path = tmp_path / "trainer.0.1.0.seg"
    path.write_bytes(frames.segment_head() + b"".join(map(frames.frame, rows)))
    found = SegmentReader(path)
    found.poll()
    assert list(found.tables) == keys
