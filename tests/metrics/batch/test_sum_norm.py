"""The two rules that trainers call seq-mean-token-sum-norm, against loops over updates, ranks and micro-batches."""

import math

import numpy as np
import pytest
from test_device import assert_same, place, tensors  # noqa: F401 - a fixture
from test_harness import OPTIONS, by_id, make

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import Measurement, measure

NORM = 7.0
UPDATES, RANKS, MICRO = 2, 2, 3  # of 4 sequences each: 48 sequences
ROWS = np.arange(48).reshape(UPDATES, RANKS, MICRO, 4)


def sums_of(data: dict) -> np.ndarray:
    """Return the sum of the policy-gradient loss of each sequence, 0 where it has no token."""
    totals = []
    for row in range(len(data["response_mask"])):
        one = measure(Batch(**data).take(slice(row, row + 1)), loss="seq-mean-token-sum", part="policy")
        totals.append(one.get("actor/pg_loss", 0.0))
    return np.array(totals)


def measured(data: dict, **options: object) -> float:
    """Return the loss of a step that is measured per micro-batch, by the ranks one after the other."""
    step = Measurement()
    for rank in range(RANKS):
        own = Measurement(rank)
        for rows in ROWS[:, rank].reshape(-1, 4):
            own.add(Batch(**data).take(rows), ("policy",), Options.from_keywords({"loss_norm": NORM, **options}))
        step.merge(own)
    return step.finish("roll")["actor/pg_loss"]


@pytest.fixture
def data() -> dict:
    """Return a step with sequences that have no token."""
    made = make(48, 8, 40)
    assert not made["keep"].all()
    return made


def test_rolls_rule_sums_an_update_over_micro_batches_and_ranks(data: dict):
    """ROLL divides each micro-batch by the width, adds up micro-batches and ranks, and means the optimizer steps."""
    totals = sums_of(data)
    updates = [math.fsum(totals[rows].sum() / NORM for rows in update.reshape(-1, 4)) for update in ROWS]
    got = measured(data, loss="token-sum-norm", loss_batch=RANKS * MICRO * 4)
    assert got == pytest.approx(sum(updates) / UPDATES, rel=1e-12)


def test_trinitys_rule_means_the_micro_batches(data: dict):
    """Trinity divides each micro-batch by the width, and by their number; data parallelism means the ranks."""
    totals = sums_of(data)
    cells = [totals[rows].sum() / NORM for rows in ROWS.reshape(-1, 4)]
    assert measured(data, loss="token-sum-norm", loss_batch=4) == pytest.approx(np.mean(cells), rel=1e-12)


def test_verls_rule_means_the_sequences_with_a_token(data: dict):
    """Since 0.7.1 veRL divides by the factor and by the sequences."""
    totals = sums_of(data)
    counts = (data["response_mask"] & data["keep"][:, None]).sum(axis=1)
    assert measured(data, loss="seq-mean-token-sum-norm") == pytest.approx(totals.sum() / NORM / (counts > 0).sum())


def test_the_sum_does_not_depend_on_the_split(data: dict):
    """One call gives the value of the micro-batches, also where one of these has no token at all."""
    data["response_mask"][4:8] = False
    options = {"loss": "token-sum-norm", "loss_norm": NORM, "loss_batch": 24}
    whole = measure(Batch(**data), **options)
    assert measured(data, **options) == pytest.approx(whole["actor/pg_loss"], rel=1e-12)


def test_a_sum_over_no_token_is_zero_and_over_no_sequence_missing():
    """It is a sum like that of the trainer; a step without sequences has none."""
    options = {**OPTIONS, "loss": "token-sum-norm"}
    empty = make(4, 5, 41)
    empty["response_mask"][:] = False
    assert by_id(measure(Batch(**empty), **options))["policy/loss/pg"] == 0.0
    assert "actor/pg_loss" in measure(Batch(**make(0, 5, 42)), **options).missing


def test_the_device_has_the_sum_of_the_host(place: str):  # noqa: F811
    """Both paths reduce by the same rule."""
    there, here = tensors(make(12, 9, 43), place)
    options = {**OPTIONS, "loss": "token-sum-norm"}
    assert_same(measure(there, **options), measure(here, **options))
