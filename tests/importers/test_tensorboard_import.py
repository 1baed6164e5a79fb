"""Event files written by TensorBoard's own package, read back without it."""

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_BFLOAT16, DT_HALF
from tensorboard.compat.tensorflow_stub.dtypes import string
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

from windsock.errors import JournalError, MetricNotFoundError
from windsock.importers.events import UndecodableError, Value, decode_event, decode_value, fields, records
from windsock.importers.tensorboard import TensorBoardRun, event_folders


def write(folder: Path, points: dict[int, float], at: float = 1e9, suffix: str = "", tag: str = "a") -> None:
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for step, value in points.items():
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(wall_time=at + step, step=step, summary=summary))
    writer.close()


def test_scalars_are_read_as_series(tmp_path: Path):
    """Steps, times, values, NaN and infinities included, in the order of the steps."""
    write(tmp_path, {-3: 0.5, 0: 1.0, 7: math.nan, 2**40: math.inf, 5: -2.25})
    run = TensorBoardRun(tmp_path)
    series = run.series("a")
    assert series.steps.tolist() == [-3, 0, 5, 7, 2**40]
    np.testing.assert_array_equal(series.values, [0.5, 1.0, -2.25, math.nan, math.inf])
    assert series.times[0] == 1e9 - 3
    assert run.steps == (-3, 2**40)
    with pytest.raises(MetricNotFoundError):
        run.series("b")


def test_what_torch_writes_is_read(tmp_path: Path):
    """Scalars, histograms, texts; images are skipped."""
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_scalar("new/style", step, step, new_style=True)
        writer.add_histogram("weights", np.arange(100.0), 3)
        writer.add_text("note", "# a <b>text</b>", 2)
        writer.add_image("picture", np.zeros((3, 4, 4), np.uint8), 1)
    run = TensorBoardRun(tmp_path)
    assert run.names() == ["loss", "new/style"]
    assert run.names("new/*") == ["new/style"]
    assert run.series("new/style").values.tolist() == [0, 1, 2, 3, 4]
    [(step, histogram)] = run.histograms("weights")
    assert (step, histogram.count, histogram.min, histogram.max, sum(histogram.counts)) == (3, 100, 0.0, 99.0, 100)
    assert [(text.name, text.text, text.step) for text in run.texts()] == [("note/text_summary", "# a <b>text</b>", 2)]


def test_tensors_of_one_number_are_scalars(tmp_path: Path):
    """As TensorFlow 2 and JAX write them, in any dtype."""
    writer = EventFileWriter(str(tmp_path))
    for step, value in enumerate((np.float32(0.5), np.float64(1.5), np.int64(-2), np.float16(4.0))):
        proto = tensor_util.make_tensor_proto(value)
        writer.add_event(Event(step=step, wall_time=1.0, summary=Summary(value=[Summary.Value(tag="t", tensor=proto)])))
    words = tensor_util.make_tensor_proto("words", dtype=string)
    writer.add_event(Event(step=9, wall_time=1.0, summary=Summary(value=[Summary.Value(tag="w", tensor=words)])))
    writer.close()
    run = TensorBoardRun(tmp_path)
    assert run.series("t").values.tolist() == [0.5, 1.5, -2.0, 4.0]
    assert run.texts()[0].text == "words"


@pytest.mark.parametrize(
    ("dtype", "bits", "value"),
    # 1 sign, 5 exponent and 10 fraction bits; and the upper half of a float32, 0x3fc0_0000 being 1.5
    [(DT_HALF, 0x3E00, 1.5), (DT_HALF, 0xC000, -2.0), (DT_BFLOAT16, 0x3FC0, 1.5), (DT_BFLOAT16, 0xC000, -2.0)],
)
def test_numbers_of_sixteen_bits_are_read(dtype: int, bits: int, value: float):
    """As bits in integers or as bytes."""
    for proto in (
        TensorProto(dtype=dtype, half_val=[bits]),
        TensorProto(dtype=dtype, tensor_content=bits.to_bytes(2, "little")),
    ):
        decoded = decode_value(Summary.Value(tag="t", tensor=proto).SerializeToString())
        assert decoded == Value("t", number=value)


def test_a_growing_file_is_followed(tmp_path: Path):
    """From the last offset; a torn end is read when it is complete."""
    write(tmp_path / "whole", {step: float(step) for step in range(100)})
    [source] = (tmp_path / "whole").iterdir()
    data = source.read_bytes()
    (tmp_path / "part").mkdir()
    target = tmp_path / "part" / source.name
    target.write_bytes(data[:1000])
    run = TensorBoardRun(tmp_path / "part")
    before = len(run.series("a"))
    assert 0 < before < 100
    assert not run.refresh()
    target.write_bytes(data)
    assert run.refresh()
    assert run.series("a").values.tolist() == list(range(100))
    assert run.damage() == []


def test_a_restart_supersedes_the_steps_that_it_repeats(tmp_path: Path):
    """A file that was begun after the other had ended; one beside it does not."""
    write(tmp_path, dict.fromkeys(range(10), 1.0), at=1e9, suffix=".a")
    write(tmp_path, dict.fromkeys(range(4, 7), 2.0), at=2e9, suffix=".b")
    run = TensorBoardRun(tmp_path)
    assert run.series("a").values.tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert len(run.series("a", attempt=1)) == 10
    beside = tmp_path / "beside"
    write(beside, dict.fromkeys(range(10), 1.0), at=1e9, suffix=".a")
    write(beside, dict.fromkeys(range(4, 7), 2.0), at=1e9 + 1, suffix=".b", tag="b")
    assert len(TensorBoardRun(beside).series("a")) == 10
    assert run.steps == (0, 6)
    assert TensorBoardRun(beside).steps == (0, 9)


def test_a_session_start_removes_later_steps(tmp_path: Path):
    """As torch writes it for purge_step."""
    writer = EventFileWriter(str(tmp_path))
    for step in range(6):
        writer.add_event(Event(step=step, wall_time=1.0, summary=_number(1.0)))
    writer.add_event(Event(step=3, wall_time=2.0, session_log=SessionLog(status=SessionLog.START)))
    writer.add_event(Event(step=3, wall_time=3.0, summary=_number(2.0)))
    writer.close()
    run = TensorBoardRun(tmp_path)
    assert run.series("a").values.tolist() == [1, 1, 1, 2]
    assert run.steps == (0, 3)


def test_a_session_start_removes_histograms_and_texts(tmp_path: Path):
    """And tags without points."""
    with SummaryWriter(str(tmp_path)) as writer:
        for step in (2, 3, 4):
            writer.add_histogram("weights", np.arange(10.0), step)
            writer.add_text("note", "words", step)
        writer.add_scalar("late", 1.0, 5)
        writer.add_histogram("late", np.arange(10.0), 5)
        start = Event(step=3, wall_time=2.0, session_log=SessionLog(status=SessionLog.START))
        writer.file_writer.add_event(start, step=3)
    run = TensorBoardRun(tmp_path)
    assert [step for step, _ in run.histograms("weights")] == [2]
    assert [text.step for text in run.texts()] == [2]
    assert (run.names(), run.histogram_names(), run.steps) == ([], ["weights"], None)


def test_a_session_start_before_all_steps_removes_everything(tmp_path: Path):
    """The first step is then the first one after it."""
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(Event(step=5, wall_time=1.0, summary=_number(1.0)))
    writer.add_event(Event(step=3, wall_time=2.0, session_log=SessionLog(status=SessionLog.START)))
    for step in (3, 4):
        writer.add_event(Event(step=step, wall_time=3.0, summary=_number(2.0)))
    writer.close()
    assert TensorBoardRun(tmp_path).steps == (3, 4)


def _number(value: float) -> Summary:
    return Summary(value=[Summary.Value(tag="a", simple_value=value)])


def test_damage_is_reported_and_costs_only_the_rest_of_the_file(tmp_path: Path):
    """Values before it are kept."""
    write(tmp_path, dict.fromkeys(range(50), 1.0))
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[700:800] = b"\xff" * 100
    file.write_bytes(data)
    run = TensorBoardRun(tmp_path)
    assert 0 < len(run.series("a")) < 50
    assert "byte" in run.damage()[0]


@pytest.mark.parametrize("count", [math.nan, math.inf, -1.0])
def test_a_damaged_value_is_reported_and_costs_nothing_else(tmp_path: Path, count: float):
    """Neither other values of the record nor later records; it is counted, in both formats of histograms."""
    old = HistogramProto(min=0.0, max=1.0, num=1.0, sum=1.0, bucket_limit=[1.0], bucket=[count])
    new = tensor_util.make_tensor_proto(np.array([[0.0, 1.0, count]]))
    values = [Summary.Value(tag="h", histo=old), Summary.Value(tag="h", tensor=new), *_number(1.0).value]
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(Event(step=0, wall_time=1.0, summary=Summary(value=values)))
    writer.add_event(Event(step=1, wall_time=1.0, summary=_number(2.0)))
    writer.close()
    run = TensorBoardRun(tmp_path)
    assert run.series("a").values.tolist() == [1.0, 2.0]
    assert run.histogram_names() == []
    [damage] = run.damage()
    assert "2 undecodable" in damage
    assert f"invalid count {count}" in damage


def test_a_record_that_is_not_an_event_is_skipped(tmp_path: Path):
    """If its length is correct, the next one is found."""
    write(tmp_path, dict.fromkeys(range(3), 1.0))
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    ends = [end for end, _ in records(bytes(data))]
    data[ends[1] + 12 : ends[2] - 4] = b"\xff" * (ends[2] - ends[1] - 16)
    file.write_bytes(data)
    run = TensorBoardRun(tmp_path)
    assert run.series("a").steps.tolist() == [0, 2]
    assert "1 undecodable" in run.damage()[0]


def test_a_file_that_cannot_be_opened_for_a_while_is_read_again(tmp_path: Path):
    """It is reported as damage meanwhile."""
    write(tmp_path, {0: 1.0})
    [file] = tmp_path.iterdir()
    run = TensorBoardRun(tmp_path)
    write(tmp_path / "more", {1: 2.0})
    [more] = (tmp_path / "more").iterdir()
    away = file.rename(tmp_path / "away")
    assert not run.refresh()
    assert file.name in run.damage()[0]
    away.write_bytes(away.read_bytes() + more.read_bytes())
    away.rename(file)
    assert run.refresh()
    assert run.damage() == []
    assert run.series("a").values.tolist() == [1.0, 2.0]


MESSAGES = (
    Summary.Value(tag="h", histo=HistogramProto(min=0, max=2, num=3, sum=4, bucket_limit=[1, 2], bucket=[1, 2])),
    Summary.Value(tag="h", tensor=tensor_util.make_tensor_proto(np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]))),
    Summary.Value(tag="t", tensor=tensor_util.make_tensor_proto(np.float16(4.0))),
    Summary.Value(tag="w", tensor=tensor_util.make_tensor_proto(["some", "words"], dtype=string)),
)


@given(st.sampled_from(MESSAGES), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=6))
def test_a_message_with_any_bytes_changed_is_decoded_or_rejected(
    message: Summary.Value, changes: list[tuple[int, int]]
):
    """With no other error than UndecodableError."""
    data = bytearray(message.SerializeToString())
    for place, byte in changes:
        data[place % len(data)] = byte
    with contextlib.suppress(UndecodableError):
        decode_value(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\x42\x04\x12\x02\x10\x03",  # a tensor of which a dimension is a number
        b"\x42\x05\x42\x01a\x38\x01",  # one of a word and a number
        b"\x42\x02\x28\x01",  # one whose float is a varint
    ],
)
def test_a_tensor_of_odd_fields_is_decoded_or_rejected(data: bytes):
    """With no other error than UndecodableError."""
    with contextlib.suppress(UndecodableError):
        decode_value(data)


def test_a_step_beyond_64_bits_is_rejected():
    """Ten bytes of a varint have 70 bits."""
    with pytest.raises(UndecodableError):
        decode_event(b"\x10" + b"\xff" * 9 + b"\x7f")


@pytest.mark.parametrize("data", [b"\x09", b"\xff" * 12, b"\x2a\x7f", b"\x0b", b"\x0a\x05ab"])
def test_bytes_that_are_not_a_message_are_rejected(data: bytes):
    """With UndecodableError."""
    with pytest.raises(UndecodableError):
        list(fields(data))
    with pytest.raises(UndecodableError):
        decode_event(data)


def test_folders_with_event_files_are_found_below_a_directory(tmp_path: Path):
    """At any depth that people use, hidden ones and those of runs left out; one without any is no run."""
    for place in ("lab/one", "lab/two/deep", ".hidden", "journal/inside"):
        write(tmp_path / place, {0: 1.0})
    found = [folder.relative_to(tmp_path).as_posix() for folder in event_folders(tmp_path, skip=[tmp_path / "journal"])]
    assert found == ["lab/one", "lab/two/deep"]
    with pytest.raises(JournalError):
        TensorBoardRun(tmp_path / "lab")


def test_the_framework_is_recognised_by_its_names(tmp_path: Path):
    """So that the catalogue explains what veRL wrote."""
    writer = EventFileWriter(str(tmp_path))
    tags = ("actor/ppo_kl", "timing_s/gen", "response_length/clip_ratio", "val-core/gsm8k/reward/mean@1")
    for tag in tags:
        value = Summary.Value(tag=tag, simple_value=0.5)
        writer.add_event(Event(step=0, wall_time=1.0, summary=Summary(value=[value])))
    writer.close()
    assert TensorBoardRun(tmp_path).info.vocabulary == "verl"
