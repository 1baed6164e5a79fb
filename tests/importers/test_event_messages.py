"""The messages in event files: what is damaged is rejected with one error."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_BFLOAT16, DT_HALF
from tensorboard.compat.tensorflow_stub.dtypes import string
from tensorboard.util import tensor_util

from barograph.importers.reading.events import UndecodableError, Value, decode_event, decode_value, fields


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
