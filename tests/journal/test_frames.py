"""The bytes on disk."""

import re
import struct
from pathlib import Path
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.base.model import Writer
from barograph.journal.format import fields, frames
from barograph.journal.format.fields import decode_schema
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.write.writer import JournalWriter

KEPT = Path(__file__).parent.parent / "data" / "journal-v1" / "trainer.0.1.0.seg"


def test_a_frame_is_magic_length_checksum_and_payload():
    """The layout that docs/journal.md promises, built by hand."""
    payload = b"\x05{}"
    length = struct.pack("<I", 3)
    expected = b"\xf5WSK" + length + struct.pack("<I", crc32(length + payload)) + payload
    assert frames.frame(payload) == expected


def test_a_phase_marker_is_laid_out_as_documented():
    """Built by hand from docs/journal.md."""
    head = struct.pack("<BQQqdBHH", 10, 7, 3, 12, 1.5, 4, 1, 4)
    payload = head + b"tmain" + struct.pack("<7d", 9.0, 1.0, 7.0, 1.0, 500.0, 2e9, 1e9) + b"trained"
    values = (9.0, 1.0, 7.0, 1.0, 500.0, 2e9, 1e9)
    assert frames.phase_close_payload(7, 3, 12, 1.5, frames.FAILED, b"t", b"main", values, b"trained") == payload


@given(st.lists(st.text(), unique=True))
def test_any_names_survive_the_way_through_a_schema(names: list[str]):
    """Unicode, blanks, slashes and lone surrogates come back as they were."""
    id, back = decode_schema(frames.schema_payload(frames.schema_id(names), names))
    assert back == tuple(names)
    assert id == frames.schema_id(names)


def test_a_damaged_header_is_told_from_another_version():
    """A flipped bit in the version is damage, not a newer format."""
    head = frames.segment_head()
    assert frames.parse_segment_head(head) == frames.FORMAT_VERSION
    assert frames.parse_segment_head(head[:8] + bytes([head[8] ^ 2]) + head[9:]) is None
    assert frames.parse_segment_head(head[:7]) is None


DOCS = Path(__file__).parents[2] / "docs" / "journal.md"
SOURCE = Path(barograph.__file__).parent


def test_the_specification_has_every_kind_of_frame():
    """With its number; a number that is not used any more stays reserved."""
    table = DOCS.read_text().partition("| kind |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| ([a-z ]*)\|", table, re.MULTILINE)
    shown = {name.strip().replace(" ", "_").upper(): int(number) for number, name in rows if name.strip()}
    assert shown == {kind.name: int(kind) for kind in frames.Kind}


def test_the_specification_has_every_event_and_its_fields():
    """As the code writes them; ``**fields`` are those of records that are checked elsewhere."""
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS.read_text(), re.MULTILINE))
    call = re.compile(r"(?:journal\.|write_)event\(\s*\"(\w+)\"((?:,\s*\w+=|[^()]|\([^()]*\))*)\)")
    sources = [path.read_text() for path in SOURCE.rglob("*.py")]
    written = [found for source in sources for found in call.findall(source)]
    written += [(name, f"{name}=") for source in sources for name in re.findall(r"write_config\(\"(\w+)\"", source)]
    assert {name for name, _ in written} >= {"start", "config", "finish", "heartbeat", "skipped", "problem", "lacking"}
    for name, arguments in written:
        assert name in shown, name
        for field in re.findall(r"(?:^|,)\s*(\w+)=", arguments):
            assert f"`{field}`" in shown[name], f"{name} has {field}"


def test_the_journal_of_this_version_stays_readable():
    """A segment that was written by the first release reads as it did then."""
    reader = SegmentReader(KEPT)
    reader.poll()
    assert reader.damage == []
    assert reader.offset == KEPT.stat().st_size
    tables = {reader.schemas[id]: table for id, table in reader.tables.items()}
    first = tables[("critic/score/mean", "actor/lr", "名 字@8 /x")]
    assert first.column(0).tolist() == [0.0, 0.125, 0.25, 0.375]
    assert first.chunks[0].steps.tolist() == [fields.OPEN_STEP] * 4
    odd = tables[("nan", "inf", "-inf", "tiny")]
    assert str(odd.column(0).tolist() + odd.column(1).tolist() + odd.column(2).tolist()) == "[nan, inf, -inf]"
    assert odd.column(3).tolist() == [5e-324]
    assert reader.steps.steps.tolist() == [0, 1, 2, 3]
    (layout,) = reader.states
    assert layout == 0x1234
    assert reader.states[layout].chunks[0].values.tolist() == [[1.0, 2.0, 3.0]]
    kinds = [record.kind for record in reader.records]
    assert kinds == [frames.Kind.EVENT, frames.Kind.HISTOGRAM, 200, frames.Kind.EVENT]


def test_the_same_names_in_another_order_share_a_schema(tmp_path: Path):
    """A dict that is built in another order costs no new schema and mixes no values up."""
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    writer.row(("a", "b", "c"), (1.0, 2.0, 3.0), 0)
    writer.row(("c", "a", "b"), (30.0, 10.0, 20.0), 1)
    writer.close()
    reader = SegmentReader(tmp_path / "trainer.0.1.0.seg")
    reader.poll()
    (table,) = reader.tables.values()
    assert [table.column(place).tolist() for place in range(3)] == [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
