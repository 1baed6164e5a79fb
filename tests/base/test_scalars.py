"""Values of every odd type, as a float64 or a reason why not."""

import decimal
import enum
import fractions
import math
import struct
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from barograph.base.model import Histogram
from barograph.base.scalars import Deferred, Rejection, classify, histogram, to_float
from kernels import CUDA, INTERPRETED, interpreted_kernels

needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")


class Level(enum.IntEnum):
    HIGH = 3


class Weird:
    def __float__(self) -> float:
        raise RuntimeError("boom")


class Money:
    def __float__(self) -> float:
        return 2.5


NUMBERS = [
    (1, 1.0),
    (True, 1.0),
    (0.1, 0.1),
    (-0.0, -0.0),
    (2**60, float(2**60)),
    (Level.HIGH, 3.0),
    (decimal.Decimal("0.5"), 0.5),
    (fractions.Fraction(1, 4), 0.25),
    (Money(), 2.5),
    (np.float64(0.1), 0.1),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.float16(0.1), float(np.float16(0.1))),
    (np.longdouble(0.5), 0.5),
    (np.int8(-3), -3.0),
    (np.uint64(2**63), float(2**63)),
    (np.bool_(True), 1.0),
    (np.array(1.5), 1.5),
    (np.array([1.5]), 1.5),
    (np.array([[2]]), 2.0),
    (torch.tensor(0.1), float(np.float32(0.1))),
    (torch.tensor(0.1, dtype=torch.float64), 0.1),
    (torch.tensor(1.0078125, dtype=torch.bfloat16), 1.0078125),
    (torch.tensor(0.5, dtype=torch.float16), 0.5),
    (torch.tensor(7), 7.0),
    (torch.tensor(True), 1.0),
    (torch.tensor([2.0]), 2.0),
    (torch.tensor(3.0, requires_grad=True), 3.0),
    (torch.nn.Parameter(torch.tensor(4.0)), 4.0),
    (torch.tensor(0.5, dtype=torch.float8_e4m3fn), 0.5),
]
REFUSALS = [
    (None, "None"),
    ("0.5", "a string"),
    (b"1", "a bytes"),
    (1j, "a complex number"),
    (np.complex64(1), "a complex number"),
    (torch.tensor(1j), "a complex number"),
    (10**400, "too large"),
    ([1.0], "a list"),
    ({"lr": 1.0}, "a mapping: log its entries under names like 'actor/lr'"),
    (np.zeros(3), r"an array of shape \(3,\): log its mean, or barograph.histogram"),
    (np.zeros(0), r"an array of shape \(0,\)"),
    (torch.zeros(2, 2), r"an array of shape \(2, 2\)"),
    (torch.tensor(1.0, device="meta"), "cannot be converted to a float"),
    (np.ma.masked, "masked"),
    (np.datetime64("2026-01-01"), "a datetime64"),
    (np.str_("x"), "a string"),
    (np.array("x"), "a string"),
    (object(), "an object"),
    (Weird(), "boom"),
    (lambda: 1, "a function"),
    (Level, "an EnumType|an EnumMeta"),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS, ids=lambda v: type(v).__name__)
def test_scalars_of_every_kind_become_the_same_float(value: object, expected: float):
    """Python, NumPy and torch scalars of any real dtype are stored exactly, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = to_float(value)
        again = classify({"x": value}).numbers["x"]
    assert struct.pack("<d", got) == struct.pack("<d", expected) == struct.pack("<d", again)


@pytest.mark.parametrize(("value", "reason"), REFUSALS, ids=lambda v: type(v).__name__)
def test_values_that_are_not_numbers_are_rejected_with_a_reason(value: object, reason: str):
    """None, strings, arrays and odd objects each have their reason, and never raise."""
    got = to_float(value)
    assert isinstance(got, Rejection)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(got)
    assert classify({"good": 1.0, "bad": value}).numbers == {"good": 1.0}


@given(st.floats(width=64))
def test_every_float_is_converted_bit_by_bit(value: float):
    """NaN, infinities, zeros of both signs and subnormals are not touched."""
    got = to_float(value)
    assert math.isnan(got) if math.isnan(value) else struct.pack("<d", got) == struct.pack("<d", value)


def test_a_name_that_is_not_a_string_is_rejected():
    """The other values are kept."""
    found = classify({3: 1.0, "a": torch.tensor(2.0), ("x",): torch.tensor(1.0)})  # type: ignore[dict-item]
    assert found.numbers == {"a": 2.0}
    assert set(found.rejected) == {"3", "('x',)"}


def test_histograms_are_classified():
    """A histogram is neither a number nor rejected."""
    found = classify({"adv": histogram([1.0, 2.0])})
    assert (found.numbers, found.rejected) == ({}, {})
    assert isinstance(found.histograms["adv"], Histogram)


@given(st.lists(st.floats(width=64), max_size=100), st.integers(1, 20))
def test_a_histogram_counts_every_value_once(values: list[float], bins: int):
    """Bins, finite and non-finite counts and extremes agree with the values."""
    made = histogram(values, bins)
    finite = [v for v in values if math.isfinite(v)]
    assert sum(made.counts) == made.count == len(finite)
    assert made.nonfinite == len(values) - len(finite)
    assert len(made.edges) == (len(made.counts) + 1 if finite else 0)
    if finite:
        assert (made.min, made.max) == (min(finite), max(finite))
        assert made.edges[0] <= made.min
        assert made.edges[-1] >= made.max


def test_a_histogram_of_a_tensor():
    """Tensors of half precision that require gradients are taken as they are."""
    made = histogram(torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16, requires_grad=True), bins=3)
    assert (made.counts, made.sum) == ((1, 1, 1), 7.0)


def test_deferred_values_keep_their_order_and_the_moment_they_were_logged():
    """Values of several dtypes come back in order, and later changes to the tensors do not reach them."""
    tensors = [torch.tensor(1.5), torch.tensor(2, dtype=torch.int64), torch.tensor([3.5], dtype=torch.bfloat16)]
    deferred = Deferred(tensors)
    for tensor in tensors:
        tensor.add_(10)
    assert deferred.ready()
    assert deferred.values() == [1.5, 2.0, 3.5]


class Operations(TorchFunctionMode):
    """The torch functions that are called, without the reading of properties."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ not in ("__get__", "dim"):
            self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def test_the_number_of_torch_operations_does_not_grow_with_the_scalars():
    """All scalars of a dtype are one stack and one copy, with gradients or without."""
    counts = []
    for many in (2, 20, 200):
        tensors = [torch.tensor(float(n), requires_grad=n % 2 == 0) for n in range(many)]
        with Operations() as operations:
            deferred = Deferred(tensors)
        assert deferred.values() == [float(n) for n in range(many)]
        counts.append(operations.names)
    assert counts[0] == counts[1] == counts[2]
    assert sorted(set(counts[0]) - {"_set_grad_enabled"}) == ["copy_", "empty", "stack"]


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool,
])  # fmt: skip
def test_deferred_values_of_every_dtype_are_exact(dtype):
    """They are the numbers that the tensors have, widened to float64."""
    tensors = [torch.tensor(value).to(dtype) for value in (0.0, 1.0, 2.5, 100.0)]
    assert Deferred(tensors).values() == [float(tensor.item()) for tensor in tensors]


def test_deferred_values_of_mixed_shapes_and_dtypes_keep_their_order():
    """One element may have any number of axes."""
    tensors = [torch.tensor([[1.5]]), torch.tensor(2**40), torch.tensor(3.5), torch.tensor([4]), torch.tensor(5.5)]
    assert Deferred(tensors).values() == [1.5, float(2**40), 3.5, 4.0, 5.5]


class Far(torch.Tensor):
    """A tensor that says it is on a device."""

    is_cpu = False


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_amounts_on_a_device_are_counted(tmp_path, device):
    """They are in the total of the step in which they were counted, as they were then."""
    import barograph

    run = barograph.init(dir=tmp_path)
    for step in range(3):
        amount = torch.full((), 10 + step, device=device)
        run.count(tokens=amount.as_subclass(Far) if device == "cpu" else amount, samples=2)
        amount += 100
        run.commit(step)
    run.count(tokens=histogram([1.0]))
    run.finish()
    view = barograph.open(run.path)
    assert view.series("tokens").values.tolist() == [10, 21, 33]
    assert view.series("samples").values.tolist() == [2, 4, 6]
    assert "cannot be counted" in view.skipped()["tokens"][0]


@needs_cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_cuda_scalars_are_logged_without_a_synchronisation(tmp_path):
    """Logging device scalars never waits for the device; commit brings them home, as they were when logged."""
    import barograph

    run = barograph.init(dir=tmp_path)
    run.log({"warm": torch.ones((), device="cuda")}, step=0)
    run.commit(0)
    running = torch.zeros((), device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 20):
            running += 1
            run.log({"loss": running, "half": running.half(), "host": 1.0}, step=step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    run.commit(20)
    view = barograph.open(run.path)
    assert view.series("loss").values.tolist() == view.series("half").values.tolist() == list(range(1, 20))
    run.finish()


@pytest.mark.skipif(not INTERPRETED, reason="on a device, the next test has this")
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16", "int64", "int16", "uint8", "bool"])
def test_a_kernel_reads_scalars_at_their_addresses(kind: str, monkeypatch: pytest.MonkeyPatch):
    """In double precision, and no more of them than there are."""
    from barograph.base import scalars

    interpreted_kernels(monkeypatch)
    stored = (torch.arange(100) * 37 % 101).to(getattr(torch, kind))
    for count in (1, 64):
        given = list(stored[:count].unbind())
        addresses = torch.tensor([tensor.data_ptr() for tensor in given])
        results = torch.full((64,), -1.0, dtype=torch.float64)
        scalars._gathering_kernel(given)(0, (1, 1, 1), None, (), lambda: (addresses, results, count))  # noqa: B023
        assert results.tolist() == stored[:count].double().tolist() + [-1.0] * (64 - count)


@needs_cuda
def test_cuda_scalars_arrive_as_they_are():
    """Of every dtype, at any address, in any number, with gradients, and where memory and value differ."""
    from barograph.base import scalars

    draw = torch.Generator(device="cuda").manual_seed(3)
    numbers = torch.randint(-100, 100, (150,), device="cuda", generator=draw)
    kinds = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16"]
    for kind in (getattr(torch, name) for name in kinds):
        stored = (numbers.abs() if not kind.is_signed else numbers).to(kind)
        for count in (1, 20, 64, 65, 150):
            given = [stored[place] if place % 2 else stored[place : place + 1] for place in range(count)]
            assert Deferred(given).values() == stored[:count].double().tolist()
    odd = torch.tensor([1.5, float("nan"), float("inf"), -0.0, 1e300], device="cuda", dtype=torch.float64)
    assert str(Deferred(odd.unbind()).values()) == str(odd.tolist())
    loss = torch.nn.Parameter(torch.tensor(2.5, device="cuda"))
    turned = torch.tensor([1 + 2j], device="cuda").conj().imag
    assert turned.is_neg()
    assert Deferred([loss, loss * 2, turned[0], loss.detach()]).values() == [2.5, 5.0, -2.0, 2.5]
    assert scalars._unable == []
