"""States from the statistics that a device has reduced: those that the host computes from single sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_harness import LEVELS, LOSSES, OPTIONS, make

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.plan import Fetched, MeasurementPlan, plan_of
from barograph.metrics.batch.step import PARTS, measured_states
from barograph.metrics.batch.values import finished
from barograph.metrics.formulas.table import REDUCED_ROWS, REDUCED_SLOTS, WEIGHT
from barograph.metrics.gpu import torch_pass
from barograph.metrics.gpu.selection import DeviceSelection, ReducedSelection, reduced_states, selection_of
from barograph.metrics.states.kinds import POSITIVE_QUANTILES

FIVE = frozenset(("response_mask", "log_probs", "old_log_probs", "ref_log_probs", "advantages", "returns"))


def fetched(data: dict, plan: MeasurementPlan) -> Fetched:
    """Return the statistics of the sequences of a batch, from plain torch operations."""
    tensors = {name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in data.items()}
    results = torch_pass.queue_operations(Batch(**tensors), plan)
    return results.fetched(iter([tensor.numpy() for tensor in results.tensors()]))


def with_reduction(piece: Fetched) -> Fetched:
    """Return the results with the statistics of all sequences, as the kernel reduces them."""
    table, rows, histograms = piece.table, piece.rows, piece.histograms.copy()
    tokens = rows[table.blocks["valid"]][0]
    some = tokens > 0
    reduced = np.zeros((len(table.reduced), len(REDUCED_SLOTS)))
    for place, channel in enumerate(table.channels):
        totals, spread = rows[table.row(channel.name)].copy(), channel.statistics == "spread"
        if spread:
            totals += rows[table.row(channel.name, "shift")] * tokens
        means = totals[some] / tokens[some]
        bad = rows[table.row(channel.name, "bad")].sum() if channel.statistics != "count" else 0.0
        reduced[place] = [totals.sum(), 0.0, 0.0, 0.0, means.sum(), tokens.sum(), bad]
        if spread:
            squares = rows[table.row(channel.name, "squares")][some]
            between = (means - totals.sum() / tokens.sum()) ** 2
            reduced[place, 1] = (squares + between * tokens[some]).sum()
            reduced[place, 2] = rows[table.row(channel.name, "min")][some].min()
            reduced[place, 3] = rows[table.row(channel.name, "max")][some].max()
    for number, name in enumerate(REDUCED_ROWS):
        if name in table.reduced:
            numbers = rows[number // 2]
            chosen = numbers[numbers > 0] if number % 2 else numbers
            squares = ((chosen - chosen.mean()) ** 2).sum()
            of_row = [chosen.sum(), squares, chosen.min(), chosen.max(), 0.0, len(chosen), 0.0]
            reduced[table.reduced[name]] = of_row
    if "response" in table.histograms:
        lengths = rows[table.blocks["response"]][0]
        histograms[table.histograms["response"]] = WEIGHT * POSITIVE_QUANTILES.from_values(lengths)[:-1]
    return replace(piece, histograms=histograms, reduced=reduced)


def options_of(**more: object) -> Options:
    return Options.from_keywords({**OPTIONS, **more})


@pytest.mark.parametrize(
    "options",
    [
        *[options_of(loss=loss) for loss in LOSSES],
        *[options_of(**levels) for levels in LEVELS],
        Options(),
        options_of(kl_coef=0.0),
    ],
    ids=lambda options: f"{options.loss}-{options.level}",
)
def test_reduced_statistics_give_the_states_of_the_sequences(options: Options):
    """All quantities, with the rank of the process, and sequences without tokens."""
    data = make(12, 40, 52)
    data["response_mask"][3] = False
    plan = plan_of(frozenset(data), PARTS, options)
    piece = fetched(data, plan)
    reduced = selection_of([with_reduction(piece)])
    assert isinstance(reduced, ReducedSelection)
    expected, reasons = measured_states(DeviceSelection([piece]), plan, rank=3)
    got, missing = measured_states(reduced, plan, rank=3)
    assert set(got) == set(expected)
    assert missing == reasons
    for name, state in expected.items():
        np.testing.assert_allclose(got[name], state, rtol=1e-9, atol=1e-12, err_msg=name)
        assert not np.signbit(got[name][got[name] == 0]).any(), name
    values, alike = finished(got, "roll", missing), finished(dict(expected), "roll", reasons)
    assert values == pytest.approx(alike, rel=1e-9, abs=1e-12)
    assert values.missing == alike.missing


def test_most_states_need_no_single_sequence():
    """None of five tensors and a mask; of all arrays those of scores, groups and weights of sequences."""
    plan = plan_of(FIVE, PARTS, Options())
    assert reduced_states(plan, plan.table(())).rest.quantities == ()
    whole = plan_of(frozenset(make(4, 6, 0)), PARTS, options_of())
    left = reduced_states(whole, whole.table(())).rest.quantities
    assert not [quantity.state for quantity in left if quantity.channel is not None]
    assert len(left) < len(whole.quantities) / 2


@pytest.mark.parametrize("bad", ["odd", "empty", "several"])
def test_unusual_batches_are_computed_from_their_sequences(bad: str):
    """With a number that is not finite, without a token, and where results did not fit into one matrix."""
    data = make(6, 8, 8)
    if bad == "odd":
        data["advantages"][data["response_mask"]] = np.nan
    plan = plan_of(frozenset(data), PARTS, options_of())
    piece = with_reduction(fetched(data, plan))
    if bad == "empty":
        piece.reduced[piece.table.reduced["some_valid"]] = 0.0
    pieces = [piece, piece] if bad == "several" else [piece]
    assert type(selection_of(pieces)) is DeviceSelection
