"""The count of a loss that is not finite: the tokens that made it so, for every split of the batch."""

import math

import numpy as np
import pytest
from test_device import place, tensors  # noqa: F401 - a fixture
from test_harness import LOSSES, OPTIONS, make

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import Measurement, measure


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_tokens_are_counted_and_not_micro_batches(place: str, loss: str, parts: int, bad: float):  # noqa: F811
    """Five bad tokens are five, in one micro-batch or in four, on the device as on the host."""
    data = make(12, 8, 40)
    valid = np.argwhere(data["response_mask"] & data["keep"][:, None])
    data["advantages"][tuple(valid[:: len(valid) // 5][:5].T)] = bad
    count = np.sum(~np.isfinite(data["advantages"][tuple(valid.T)]))
    assert count == 5
    for batch in tensors(data, place):
        step = Measurement()
        for micro in batch.split(parts):
            step.add(micro, ("policy",), Options.from_keywords({**OPTIONS, "loss": loss}))
        measured = step.finish("roll")
        assert not math.isfinite(measured["actor/pg_loss"])
        for name in ("actor/pg_loss", "actor/weighted_pg_loss"):
            assert measured[f"barograph/nonfinite/{name}"] == 5, name
        assert "barograph/nonfinite/actor/kl_loss" not in measured


def test_all_tokens_of_a_sequence_whose_weight_is_nan_are_counted():
    """The weight multiplies each of them."""
    data = {"log_probs": [[-1.0] * 3] * 2, "old_log_probs": [[-1.0] * 3] * 2, "advantages": [[1.0] * 3] * 2}
    measured = measure(Batch(response_mask=[[1, 1, 1], [1, 1, 0]], weights=[1.0, math.nan], **data))
    assert measured["barograph/nonfinite/actor/weighted_pg_loss"] == 2
    assert measured["actor/pg_loss"] == -1.0


def test_finite_losses_that_add_up_to_an_infinity_count_as_one():
    """The value is infinite, so that the count is not 0."""
    measured = measure(Batch(response_mask=[[1, 1]], log_probs=[[-1.7e308, -1.7e308]]), loss="token-mean")
    names = [name for name in measured if name.startswith("barograph/nonfinite/") and "sft" in name]
    assert names
    assert all(measured[name] == 1 for name in names)
