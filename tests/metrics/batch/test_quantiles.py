"""Quantiles of a step: merged over micro-batches and ranks, exact in bytes and within 3 % in value."""

import math

import numpy as np
import pytest

import barograph
from barograph.base.process.distributed import Share
from barograph.journal.format.frames import Kind
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import Measurement, measure
from barograph.metrics.batch.values import finished
from barograph.recording.collectors import measurements
from segment_frames import of_rank

SHARES = (1, 10, 50, 90, 99)


def arrays(seed: int, rows: int = 8, width: int = 512) -> dict:
    random = np.random.default_rng(seed)
    old = -random.exponential(0.5, (rows, width))
    return {
        "response_mask": np.arange(width) < random.integers(1, width + 1, rows)[:, None],
        "old_log_probs": old,
        "log_probs": old + random.normal(0, 0.05, (rows, width)),
        "rollout_log_probs": old + random.normal(0, 0.01, (rows, width)),
        "entropy": random.exponential(0.3, (rows, width)) ** 3,
        "advantages": random.normal(0, 1, (rows, 1)).repeat(width, 1),
    }


def exact(data: list[dict]) -> dict[str, list[float]]:
    """Return NumPy's quantiles of all batches together."""

    def tokens(function):
        return np.concatenate([function(one)[one["response_mask"]] for one in data])

    values = {
        "policy/entropy/": tokens(lambda one: one["entropy"]),
        "actor/ratio_": tokens(lambda one: np.exp(one["log_probs"] - one["old_log_probs"])),
        "policy/mismatch/log_prob_difference/": tokens(lambda o: abs(o["old_log_probs"] - o["rollout_log_probs"])),
        "tokens/response_length/": np.concatenate([one["response_mask"].sum(1) for one in data]),
        "critic/advantages/": tokens(lambda one: one["advantages"]),
    }
    return {
        f"{name}p{share}": float(np.quantile(found, share / 100, method="inverted_cdf"))
        for name, found in values.items()
        for share in SHARES
    }


def assert_close(got: dict, expected: dict[str, float]) -> None:
    for name, value in expected.items():
        if "ratio" in name:
            assert math.log(got[name]) == pytest.approx(math.log(value), rel=0.03 + 1e-9, abs=1e-5), name
        else:
            assert got[name] == pytest.approx(value, rel=0.03 + 1e-9, abs=1e-5), name


def test_quantiles_are_within_three_percent_of_those_of_numpy():
    """Of the value, and of its logarithm for ratios."""
    for seed in range(5):
        data = arrays(seed)
        assert_close(measure(Batch(**data)), exact([data]))


def test_a_value_that_is_not_finite_makes_the_quantiles_nan():
    """As it does the mean, with the same count."""
    data = arrays(0)
    data["entropy"][:, 0] = math.inf
    measured = measure(Batch(**data))
    assert math.isnan(measured["policy/entropy/p50"])
    assert measured["barograph/nonfinite/policy/entropy/p50"] == 8
    assert not math.isnan(measured["actor/ratio_p50"])


def test_a_batch_without_tokens_has_no_quantiles():
    """They are missing with the reason; lengths of 0 are lengths."""
    data = arrays(0)
    data["response_mask"][:] = False
    measured = measure(Batch(**data))
    assert measured.missing["policy/entropy/p50"] == "no valid token"
    assert measured["tokens/response_length/p99"] == 0.0


def test_ranks_are_merged_by_readers_and_by_an_exchange():
    """Two ranks with two micro-batches each have the quantiles of all four, and journals do not grow by empty bins."""
    data = [arrays(seed) for seed in range(4)]
    runs = [barograph.init(id="spread", rank=rank, world_size=2, concurrent=True) for rank in range(2)]
    parts = [Measurement(rank) for rank in range(2)]
    for number, one in enumerate(data):
        runs[number % 2].measure(one, part=None)
        parts[number % 2].add(Batch(**one))
    for run in runs:
        run.commit(0)
    expected = exact(data)
    view = barograph.open(runs[0].path)
    read = {name: float(view.series(name).values[-1]) for name in view.names() if name in expected}
    assert_close(read, expected)
    shares = [measurements.measured_share(part) for part in parts]
    exchanged = measurements.finished_measurement(
        measurements.merged_measurement_of([*shares, Share()]), shares, "roll"
    )
    assert {name: exchanged[name] for name in expected} == read
    (frame,) = of_rank(runs[0].path, 0, Kind.SPARSE_STATE)
    assert len(frame) < 3000
    assert len(shares[0].body) < 8000
    for run in runs:
        run.finish()


@pytest.mark.parametrize("count", [-5.0, math.inf, math.nan, 1e300])
def test_counts_that_no_data_has_change_no_other_quantiles(count: float):
    """As a damaged journal may have them: the counts of all states are added up together."""
    measurement = Measurement()
    measurement.add(Batch(**arrays(0)))
    layout, vector = measurement.packed()
    states = layout.unpack(vector)
    expected = finished(states, "roll")
    states["policy/entropy:quantiles"] = np.full_like(states["policy/entropy:quantiles"], count)
    states["policy/entropy:quantiles"][-1] = 0.0
    with np.errstate(all="ignore"):
        got = finished(states, "roll")
    assert got.keys() == expected.keys()
    assert {name for name in expected if got[name] != expected[name]} <= {
        f"policy/entropy/p{share}" for share in SHARES
    }
