"""Groups of runs: which differ only in the seed, their common curves, and which group is better."""

import math

import numpy as np
import pytest

from barograph.metrics.comparison import (
    aligned,
    area,
    common_steps,
    compare_groups,
    is_label,
    is_seed,
    last_value,
    seed_of,
    setting_digest,
)

STEPS = np.arange(11.0)


def runs(level: float, *offsets: float) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(STEPS, level + offset + STEPS / 10) for offset in offsets]


@pytest.mark.parametrize("key", ["seed", "data_seed", "trainer.random_seed", "seed_offset", "SEED"])
def test_keys_of_seeds(key: str):
    """Whatever they stand below."""
    assert is_seed(key)


@pytest.mark.parametrize("key", ["seeding.mode", "model.path", "lr", "train_file", "data.path", "unseeded"])
def test_keys_of_settings(key: str):
    """A path of a model or of data is a setting."""
    assert not is_seed(key)
    assert not is_label(key)


@pytest.mark.parametrize(
    "key", ["trainer.experiment_name", "run_name", "output_dir", "trainer.default_local_dir", "name", "master_port"]
)
def test_keys_that_only_name_a_run(key: str):
    """They differ between runs of the same setting."""
    assert is_label(key)


def test_runs_that_differ_only_in_the_seed_have_one_digest():
    """Names of the run do not count; another learning rate does, and so does another type."""
    one = {"seed": 1, "actor.lr": 1e-6, "run_name": "a", "clip": [0.2, 0.3]}
    assert setting_digest(one) == setting_digest({**one, "seed": 2, "run_name": "b"})
    assert setting_digest(one) != setting_digest({**one, "actor.lr": 2e-6})
    assert setting_digest({"lr": 1}) != setting_digest({"lr": "1"})
    assert setting_digest({"seed": 1}) is None
    assert seed_of(one) == "1"
    assert seed_of({"lr": 1}) is None


def test_curves_are_aligned_on_common_steps():
    """A step that a run lacks lies on its line; outside of its steps it has no value; a NaN is no value."""
    first = np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0])
    second = np.array([0.0, 5.0, 10.0]), np.array([4.0, math.nan, 8.0])
    steps, values = aligned([first, second], 100)
    assert steps.tolist() == [0, 10, 20]
    assert values[0].tolist() == [0, 1, 2]
    assert values[1][:2].tolist() == [4, 8]
    assert math.isnan(values[1][2])


def test_many_steps_are_averaged():
    """The mean of all buckets is that of the curve."""
    x = np.arange(1000.0)
    steps, values = aligned([(x, x), (x, 2 * x)], 100)
    assert len(steps) == 100
    assert steps[-1] == 999
    assert values.mean(axis=1) == pytest.approx([499.5, 999.0])
    assert aligned([], 10)[0].size == 0


def test_area_and_last_value():
    """The area is the mean over the steps, by trapezes, also between the steps of a run."""
    curve = np.array([0.0, 10.0]), np.array([0.0, 1.0])
    assert area(curve, 0, 10) == pytest.approx(0.5)
    assert area(curve, 2, 6) == pytest.approx(0.4)
    assert area(curve, 4, 4) == pytest.approx(0.4)
    assert math.isnan(area(curve, 0, 11))
    assert last_value(curve, 9) == 0.0
    assert math.isnan(last_value(curve, -1))
    assert common_steps([curve, (np.array([3.0, 30.0]), np.array([1.0, 1.0]))]) == (3, 10)
    assert common_steps([curve, (np.array([30.0]), np.array([1.0]))]) is None


def test_the_better_group_is_found():
    """Higher or lower, as the metric wants it; the difference is that of the means."""
    groups = {"a": runs(0.0, 0.0, 0.1, -0.1), "b": runs(1.0, 0.05, 0.0, -0.05)}
    found = compare_groups(groups, "higher")
    assert found.steps == (0, 10)
    assert found.groups["a"].last.word is None
    assert found.groups["b"].last.difference is not None
    assert found.groups["b"].last.difference.mean == pytest.approx(1.0)
    assert (found.groups["b"].last.word, found.groups["b"].area.word) == ("better", "better")
    assert compare_groups(groups, "lower").groups["b"].last.word == "worse"
    assert compare_groups(groups).groups["b"].last.word == "higher"


def test_what_the_seeds_do_not_show_is_undecided():
    """Nor is anything said of fewer than three seeds, or of runs without values."""
    noisy = {"a": runs(0.0, -1.0, 0.0, 1.0), "b": runs(0.2, -1.0, 0.0, 1.0)}
    assert compare_groups(noisy, "higher").groups["b"].last.word == "undecided"
    few = {"a": runs(0.0, 0.0, 0.1), "b": runs(9.0, 0.0, 0.1, 0.2)}
    assert compare_groups(few, "higher").groups["b"].last.word == "too few"
    nothing = {"a": runs(0.0, 0.0), "b": [(np.empty(0), np.empty(0))]}
    assert compare_groups(nothing, "higher").groups["b"].last.word == "nothing"
    assert compare_groups({}).groups == {}
