"""States of data about sequences: their order, and what is computed once for several."""

from __future__ import annotations

import numpy as np
import pytest
from test_harness import OPTIONS, make

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import measure
from barograph.metrics.states.kinds import Moments


def scored(right: int, aborted: int = 0) -> Batch:
    """Return eight sequences, some of them with a right answer, and the last ones without a token."""
    data = make(8, 20, 7)
    data["response_mask"][:] = True
    data["response_mask"][8 - aborted :] = False
    data["scores"] = (np.arange(8) < right).astype(np.float64)
    return Batch(**{name: array for name, array in data.items() if name not in ("episodes", "keep")})


@pytest.mark.parametrize(("right", "aborted"), [(8, 0), (4, 0), (4, 2), (2, 3)])
def test_the_order_of_values_does_not_depend_on_the_data(right: int, aborted: int):
    """The same key set in the same order, so that a run's rows have one schema."""
    names = [*measure(scored(right, aborted), **OPTIONS)]
    assert names == [name for name in measure(scored(3, 1), **OPTIONS) if name in names]


@pytest.mark.parametrize(("aborted", "rows"), [(0, 2), (1, 4)])
def test_numbers_of_sequences_are_reduced_once(aborted: int, rows: int, monkeypatch: pytest.MonkeyPatch):
    """Where none was aborted, the lengths and scores of all are those of the sequences with a response."""
    reduced = []
    compute = Moments.from_rows

    def counted(self: Moments, data: np.ndarray, rank: int = 0) -> np.ndarray:
        reduced.append(len(data))
        return compute(self, data, rank)

    monkeypatch.setattr(Moments, "from_rows", counted)
    batch = scored(3, aborted)
    values = measure(Batch(response_mask=batch.response_mask, scores=batch.scores))
    assert sum(reduced) == rows
    assert values["critic/score/mean"] == 3 / 8
    assert values["reward/score_not_aborted/mean"] == 3 / (8 - aborted)
