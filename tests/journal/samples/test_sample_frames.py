"""Samples on their way through the journal."""

import math
import os
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.base.model import Sample, Writer
from barograph.journal.format import frames
from barograph.journal.format.samples import decode, encode
from barograph.journal.segments.framing import read_payload
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.write.writer import JournalWriter

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)  # lone surrogates too


@given(
    st.builds(
        Sample,
        prompt=ANY_TEXT,
        completion=ANY_TEXT,
        messages=st.lists(st.fixed_dictionaries({"role": ANY_TEXT, "content": ANY_TEXT}), max_size=3).map(tuple),
        reward=st.none() | st.floats(allow_nan=False),
        rewards=st.dictionaries(ANY_TEXT, st.floats(allow_nan=False), max_size=3),
        length=st.none() | st.integers(-(2**63), 2**63 - 1),
        task=st.none() | ANY_TEXT.filter(bool),
        step=st.just(7),
    )
)
def test_any_sample_is_read_as_it_was_written(sample: Sample):
    """Every Unicode text, lone surrogates included, and every number."""
    [record] = frames.parse_samples(frames.sample_payload(7, 1.5, 9, [encode(sample)]))
    assert decode(record, 7) == sample


def test_the_body_is_as_documented():
    """Step, time and counts uncompressed, then a compressed JSON array."""
    payload = frames.sample_payload(12, 3.25, 4096, [b'{"completion":"x"}', b"{}"])
    assert payload[0] == 8
    assert frames.parse_sample_head(payload) == (12, 3.25, 2, 4096)
    assert zlib.decompress(payload[25:]) == b'[{"completion":"x"},{}]'


def test_nan_stays_nan():
    """It is not read as a missing reward."""
    back = decode(encode(Sample(reward=math.nan, advantage=-math.inf)), 0)
    assert (str(back.reward), back.advantage) == ("nan", -math.inf)


def test_entries_of_the_wrong_type_are_left_out():
    """The rest of the frame is read."""
    record = {
        "prompt": 3,
        "completion": "c",
        "reward": "high",
        "rewards": {"a": 1, "b": None},
        "length": 2.5,
        "task": [],
    }
    assert decode({**record, "weight_version": 10**30, "messages": [1, {"role": "user"}]}, 1) == Sample(
        completion="c", rewards={"a": 1.0}, messages=({"role": "user"},), step=1
    )


def test_a_message_that_json_cannot_encode_does_not_lose_the_sample():
    """Objects become their description, and so does a message inside itself."""
    inside: dict[str, object] = {"role": "user", "content": "hello"}
    inside["self"] = inside
    assert decode(encode(Sample("p", messages=(inside,), reward=1.0)), 0).reward == 1.0
    described = decode(encode(Sample(messages=({"role": "user", "content": Path("x")},))), 0)
    assert "x" in described.messages[0]["content"]


@given(st.binary(max_size=200))
def test_other_bytes_raise_a_value_error(body: bytes):
    """No other exception is raised."""
    payload = frames.sample_payload(1, 0.0, 0, [])[: frames.SAMPLE_HEAD.size] + body
    for wrong in (payload, payload[:25] + zlib.compress(body)):
        try:
            assert isinstance(frames.parse_samples(wrong), list)
        except ValueError:
            continue


def test_a_body_that_decompresses_to_too_much_is_rejected(monkeypatch: pytest.MonkeyPatch):
    """A small frame cannot fill the memory."""
    monkeypatch.setattr(frames, "MAX_SAMPLE_BODY", 1000)
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        frames.parse_samples(frames.sample_payload(1, 0.0, 1, [b'"' + b"x" * 5000 + b'"']))


def test_frames_have_a_bounded_size_and_the_first_has_the_number_seen(tmp_path: Path):
    """A large budget becomes several frames."""
    noise = random.Random(1)
    texts = [encode(Sample("p", noise.randbytes(150_000).hex())) for _ in range(12)]
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    writer.samples(3, 4096, texts)
    writer.close()
    reader = SegmentReader(tmp_path / "trainer.0.1.0.seg")
    reader.poll()
    assert [frame.seen for frame in reader.samples] == [4096, 0, 0, 0]
    assert sum(frame.kept for frame in reader.samples) == 12
    fd = os.open(reader.path, os.O_RDONLY)
    payloads = [read_payload(fd, frame.offset) for frame in reader.samples]
    with pytest.raises(ValueError, match="no intact frame"):
        read_payload(fd, reader.samples[0].offset + 1)
    os.close(fd)
    assert max(len(payload) for payload in payloads) < 1 << 20
    assert sum(len(frames.parse_samples(payload)) for payload in payloads) == 12


def test_a_reader_does_not_keep_the_bodies_of_samples():
    """Opening a run keeps only the offsets of sample frames in memory."""
    run = barograph.init()
    run.sample("p", "c" * 1000)
    run.log({"x": 1.0})
    run.commit(0)
    run.finish()
    reader = SegmentReader(run.path / "trainer.0.1.0.seg")
    reader.poll()
    assert [(frame.step, frame.kept, frame.seen) for frame in reader.samples] == [(0, 1, 1)]
    assert all(record.kind != frames.Kind.SAMPLE for record in reader.records)


def test_a_frame_that_is_too_short_is_damage(tmp_path: Path):
    """It is reported like other damage, and the rest is read."""
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    writer.segment.append(frames.frame(b"\x08abc"))
    writer.row(("x",), (1.0,), 0)
    writer.close()
    reader = SegmentReader(tmp_path / "trainer.0.1.0.seg")
    reader.poll()
    assert [damage.reason for damage in reader.damage] == ["the sample frame is too short"]
    assert len(reader.tables) == 1
