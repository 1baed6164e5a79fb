"""What is prepared once for batches with the same arrays, parts and options."""

import numpy as np
import pytest
from test_harness import make

from barograph.metrics.batch.arrays import Batch, BatchError
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.plan import plan_of


def test_a_plan_is_made_once():
    """Batches of the same arrays and options share it, however the options were given."""
    arrays = frozenset(make(2, 3, 0))
    first = plan_of(arrays, ("policy",), Options.from_keywords({"clip": 0.2, "dual_clip": 3.0}))
    assert (
        plan_of(frozenset(arrays), ("policy",), Options.from_keywords({"dual_clip": 3.0, "clip": [0.2, 0.2]})) is first
    )
    assert plan_of(arrays, ("value",), Options()) is not first


def test_a_coefficient_that_changes_with_every_step_needs_no_other_kernel():
    """What a device has to prepare depends on the channels and arrays alone."""
    arrays = frozenset(make(2, 3, 0))
    tables = {
        plan_of(arrays, ("data",), Options.from_keywords({"kl_coef": step / 7, "clip": step / 9})).table(("scores",))
        for step in range(1, 5)
    }
    assert len(tables) == 1


def test_a_part_of_a_part_has_the_arrays_of_its_sequences():
    """Arrays are cut when they are used; further ones take the place of the whole's."""
    data = make(12, 5, 3)
    whole = Batch(**data)
    part = whole.take(slice(2, 10)).having(log_probs=np.full((8, 5), -1.0)).take(slice(1, 4))
    assert part.sequences == 3
    assert part.given == whole.given
    np.testing.assert_array_equal(part.log_probs, np.full((3, 5), -1.0))
    np.testing.assert_array_equal(part.advantages, data["advantages"][3:6])
    np.testing.assert_array_equal(part.scores, data["scores"][3:6])
    assert part.eos_ids == data["eos_ids"]
    assert part.logits is None
    with pytest.raises(AttributeError, match="Batch has no 'loss'"):
        _ = part.loss


def test_further_arrays_are_checked_like_the_first():
    """A wrong shape is rejected with the shape of the part."""
    part = Batch(**make(12, 5, 3)).take(slice(2, 10))
    with pytest.raises(BatchError, match=r"values: expected shape \(8, 5\) like response_mask, got \(12, 5\)"):
        part.having(values=np.zeros((12, 5)))
    with pytest.raises(BatchError, match=r"scores: expected shape \(8,\) like response_mask, got \(3,\)"):
        part.having(scores=[1.0, 0.0, 1.0])
    assert part.having(keep=None).keep is None
