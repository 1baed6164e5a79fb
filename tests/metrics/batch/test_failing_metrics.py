"""A metric that cannot be computed costs itself only, in a batch, in a step and over ranks."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_harness import OPTIONS, make

from barograph.journal.merge.measurements import DescribedLayout, RankState, merge_states
from barograph.metrics.batch import plan, values
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.quantities import QUANTITIES
from barograph.metrics.batch.step import Measurement, measure

FAILING = "tokens/aborted"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let one quantity of the sequences raise, for batches of more than 5 sequences."""

    def data(selection: Any, options: Any) -> Any:
        if len(selection.counts) > 5:
            raise ValueError("no luck")
        return selection.response_lengths == 0

    quantities = [dataclasses.replace(q, data=data, gives_state=False) if q.state == FAILING else q for q in QUANTITIES]
    monkeypatch.setattr(plan, "QUANTITIES", tuple(quantities))
    plan.plan_of.cache_clear()
    yield
    plan.plan_of.cache_clear()


def test_underflowed_ratios_have_no_effective_sample_size():
    """Where all ratios to the rollout policy are zero, that one metric is missing and the others are there."""
    batch = make(6, 8, 0)
    for shift in (2000.0, 500.0):  # the ratios underflow, and their squares
        batch["rollout_log_probs"] = batch["old_log_probs"] + shift
        measured = measure(Batch(**batch), **OPTIONS)
        assert measured.missing["policy/mismatch/effective_sample_size"] == "all ratios are zero"
        assert len(measured) > 80


@pytest.mark.usefixtures("failing")
def test_a_quantity_that_raises_is_missing_with_the_error():
    """All other metrics have their values, and the error is reported."""
    errors: list[tuple[str, str]] = []
    measurement = Measurement(report=lambda name, error: errors.append((name, str(error))))
    measurement.add(Batch(**make(12, 8, 0)))
    measured = measurement.finish("trinity")
    assert measured.missing["tokens/aborted"] == "ValueError: no luck"
    assert "response_length/mean" in measured
    assert errors == [(FAILING, "no luck")]


@pytest.mark.usefixtures("failing")
def test_a_quantity_that_raised_for_one_batch_has_no_value_in_the_step():
    """The value of the other batches alone would be a wrong number."""
    whole = Batch(**make(12, 8, 0))
    for slices in ([slice(0, 4), slice(4, 12)], [slice(0, 8), slice(8, 12)]):
        measurement = Measurement()
        for rows in slices:
            measurement.add(whole.take(rows))
        assert measurement.finish("trinity").missing["tokens/aborted"] == "ValueError: no luck"


@pytest.mark.usefixtures("failing")
def test_a_quantity_that_raised_on_one_rank_has_no_merged_value():
    """A reader of the states says so; the other metrics are merged."""
    whole, states, layouts = Batch(**make(12, 8, 0)), [], {}
    for rank, rows in enumerate((slice(0, 4), slice(4, 12))):
        measurement = Measurement(rank)
        measurement.add(whole.take(rows))
        layout, vector = measurement.packed()
        states.append(RankState(rank, layout.hash, vector))
        record = {"layout": layout.hash, "entries": layout.entries}
        layouts |= [DescribedLayout.parse(json.loads(json.dumps(record)))]  # as the journal stores it
    merged = merge_states(states, layouts, "trinity")
    assert "tokens/aborted" not in merged
    assert not any(name.startswith("barograph/nonfinite/tokens") for name in merged)
    assert merged["response_length/mean"] == pytest.approx(measure(whole, vocabulary="trinity")["response_length/mean"])


def test_a_derived_metric_that_raises_is_missing_with_the_error(monkeypatch: pytest.MonkeyPatch):
    """The metrics that it is derived from have their values."""

    def derive(*_: Any) -> float:
        return 1 / 0

    monkeypatch.setitem(values.DERIVED, "value/explained_variance", derive)
    measured = measure(Batch(**make(6, 8, 0)), vocabulary="trinity")
    assert measured.missing["critic/vf_explained_var"] == "ZeroDivisionError: division by zero"
    assert "critic/returns/mean" in measured


@pytest.mark.parametrize("kind", ["mean", "sum", "ratio", "moments", "extrema", "quantiles", "positive-quantiles"])
def test_a_failed_state_stays_one_when_it_is_merged(kind: str):
    """On either side, with data and with none."""
    from barograph.metrics.states.kinds import KINDS

    of = KINDS[kind]
    failed = values.failed_state(of)
    for other in (of.empty(), of.from_values(np.ones((3, 2))), failed):
        assert values.has_failed(of.merge(failed, other))
        assert values.has_failed(of.merge(other, failed))
    assert not values.has_failed(of.from_values([np.nan, 1.0]))


def test_a_device_that_fails_costs_no_batch_of_the_host(monkeypatch: pytest.MonkeyPatch):
    """Its results are lost, once; those of the host are still computed."""
    measurement = Measurement()
    measurement.add(Batch(**make(6, 8, 0)))
    monkeypatch.setattr(measurement._on_devices[0], "collected", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measurement.finish("roll")
    assert dict(measurement.finish("roll")) == dict(measure(Batch(**make(6, 8, 0))))
