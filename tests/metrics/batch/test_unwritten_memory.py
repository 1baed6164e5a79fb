"""Memory of a device that no kernel has written: its bits reach no value, and NumPy warns of none of them."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_device import assert_same, place, tensors  # noqa: F401 - place is a fixture
from test_harness import LEVELS, OPTIONS, make
from test_reduced_states import fetched

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.plan import Fetched, plan_of
from barograph.metrics.batch.step import PARTS, Measurement
from barograph.metrics.formulas.table import COUNT_SLOTS
from barograph.metrics.gpu import passes
from barograph.metrics.gpu.selection import DeviceSelection, selection_of
from barograph.metrics.states.kinds import MEAN

BITS = {"signalling NaN": 0x7FA00000, "NaN": 0x7FC00000, "infinity": 0x7F800000, "largest": 0x7F7FFFFF}
"""Numbers in single precision. NumPy warns when it converts the first one to double precision."""


def batch_of(seed: int, not_finite: tuple[int, ...]) -> dict:
    """Return sequences of two domains; the given ones have a NaN and an infinity among their valid tokens."""
    data = make(6, 8, seed) | {"domains": np.array([3, 7, 3, 7, 7, 3])}
    data["response_mask"][:, :2] = True
    data["keep"][:] = True
    for row in not_finite:
        data["advantages"][row, 0] = math.nan
        data["returns"][row, 1] = math.inf
    return data


def as_a_kernel_leaves_it(piece: Fetched, bits: int) -> Fetched:
    """Return results in single precision; counts are written only for sequences with a number that is not finite."""
    table, rows = piece.table, piece.rows.astype(np.float32)
    unwritten = rows[table.blocks["odd"].start] == 0
    for slot in COUNT_SLOTS:
        rows.view(np.uint32)[table.blocks[slot], unwritten] = bits
    return replace(piece, rows=rows)


@pytest.mark.parametrize("not_finite", [(), (1, 4)], ids=str)
@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_counts_are_selected_before_they_are_converted(bits: int, not_finite: tuple[int, ...]):
    """Those that were not written are 0, without a warning."""
    data = batch_of(0, not_finite)
    plan = plan_of(frozenset(data), PARTS, Options.from_keywords(OPTIONS))
    clean = fetched(data, plan)
    selection, written = DeviceSelection([as_a_kernel_leaves_it(clean, bits)]), DeviceSelection([clean])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for channel in clean.table.places:
            assert selection.nonfinite(channel).tolist() == written.nonfinite(channel).tolist(), channel
            count, expected = (each.state(MEAN, channel, 0)[2] for each in (selection, written))
            assert count == expected, channel
    assert selection.nonfinite("advantages").tolist() == [float(row in not_finite) for row in range(6)]


@pytest.mark.parametrize("options", [OPTIONS, {**OPTIONS, **LEVELS[1]}], ids=["tokens", "sequences"])
@pytest.mark.parametrize("not_finite", [(), (1, 4), tuple(range(6))], ids=str)
@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_bits_that_were_not_written_reach_no_value(
    monkeypatch: pytest.MonkeyPatch, bits: int, not_finite: tuple[int, ...], options: dict
):
    """All metrics, of domains too, are those of the host, and a training sees no warning."""
    monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_kernels", lambda kind: None)
    select = selection_of
    monkeypatch.setattr(
        passes, "selection_of", lambda pieces: select([as_a_kernel_leaves_it(piece, bits) for piece in pieces])
    )
    pairs = [tensors(batch_of(seed, not_finite), "cpu") for seed in range(2)]
    there, here = ([pair[side] for pair in pairs] for side in (0, 1))
    got, told = measured_and_warnings(there, options)
    assert told == []
    assert_same(got, measured_and_warnings(here, options)[0])


def measured_and_warnings(batches: list[Batch], options: dict) -> tuple[dict, list[str]]:
    """Return the values of a step, and what was warned of in the code that computes them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measurement = Measurement()
        for batch in batches:
            measurement.add(batch, options=Options.from_keywords(options))
        values = measurement.finish("roll")
    # Triton's interpreter has warnings of its own.
    return values, [str(warning.message) for warning in caught if "triton" not in warning.filename]


@pytest.mark.parametrize("not_finite", [(), (1, 4)], ids=str)
def test_kernels_write_all_that_is_read(place: str, monkeypatch: pytest.MonkeyPatch, not_finite: tuple[int, ...]):  # noqa: F811
    """With results in memory that is full of NaN, the values are those of the host."""
    there, here = tensors(batch_of(5, not_finite), place)
    if passes._kernels(there.device.type) is None:
        pytest.skip("plain torch operations write all their results")
    empty = torch.empty

    def poisoned(*arguments, **settings) -> torch.Tensor:
        memory = empty(*arguments, **settings)
        return memory.fill_(BITS["signalling NaN"]) if memory.dtype == torch.int32 else memory

    monkeypatch.setattr(torch, "empty", poisoned)
    got, told = measured_and_warnings([there], OPTIONS)
    assert told == []
    assert_same(got, measured_and_warnings([here], OPTIONS)[0])
