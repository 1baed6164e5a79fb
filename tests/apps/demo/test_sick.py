"""Each sick run differs from the healthy one in the metric that shows its fault."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small import trained

import barograph
from barograph.apps.demo.config import SICK_RUNS, DemoConfig, sick_config
from barograph.base.errors import SettingsError
from barograph.catalogue.registry import REGISTRY

STEPS = 16
Values = Callable[[str], np.ndarray]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """Return the values of a training without a fault."""
    return reader(trained(tmp_path_factory.mktemp("healthy"), STEPS))


def reader(view: barograph.View) -> Values:
    return lambda name: view.series(name).values


@pytest.fixture
def sick(request: pytest.FixtureRequest, tmp_path: Path) -> Values:
    """Return the values of a training with the fault that the test is named after."""
    name = request.node.name.removeprefix("test_").replace("_", "-")
    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier tests left to this process would hide a leak
    return reader(trained(tmp_path, STEPS, sick=name))


def late(values: np.ndarray) -> float:
    """Return the median of a series' last values."""
    return float(np.median(values[-5:]))


def test_entropy_collapse(healthy: Values, sick: Values):
    """The entropy is almost 0, unlike the healthy policy's."""
    name = "critic/entropy/mean"
    assert late(sick(name)) < 0.2 < 0.4 < late(healthy(name))
    assert sick(name)[0] == healthy(name)[0]


def test_kl_blowup(healthy: Values, sick: Values):
    """The KL to the reference grows far beyond the healthy one."""
    assert late(sick("policy/ref_kl_sum")) > 1.7 * late(healthy("policy/ref_kl_sum"))


def test_ratio_drift(healthy: Values, sick: Values):
    """The ratio is not near 1."""
    assert abs(late(healthy("actor/ratio_mean")) - 1) < 0.02
    assert late(sick("actor/ratio_mean")) > 1.5
    assert (np.diff(sick("actor/ratio_mean")[:5]) > 0).all()


def test_value_explosion(healthy: Values, sick: Values):
    """The critic's loss is hundreds of times the healthy one."""
    assert sick("critic/loss").max() > 100 * healthy("critic/loss").max()
    assert np.abs(sick("critic/values/mean")).max() > 5 * np.abs(healthy("critic/values/mean")).max()


def test_nan(healthy: Values, sick: Values):
    """After some healthy steps, rewards and losses are NaN."""
    for name in ("critic/rewards/mean", "actor/total_loss", "critic/entropy/mean"):
        assert np.isfinite(healthy(name)).all()
        assert np.isfinite(sick(name)[0])
        assert np.isnan(sick(name)[-1])
    assert np.isfinite(sick("critic/score/mean")).all()


def test_dead_groups(healthy: Values, sick: Values):
    """All runs of a task have the same score from the first step on, and nothing is learnt."""
    assert np.median(sick("reward/zero_std_groups")[:8]) > 0.9 > 0.7 > np.median(healthy("reward/zero_std_groups")[:8])
    assert late(sick("critic/score/mean")) < 0.2 < late(healthy("critic/score/mean"))


def test_reward_hacking(tmp_path: Path):
    """The validation score first rises as in a healthy training, then falls to almost 0, while the score rises on."""
    faster = {"steps": 26, "actor_lr": 4e-3, "hidden": 128}
    healthy, sick = (reader(trained(tmp_path, sick=name, **faster)) for name in ("", "reward-hacking"))
    usual, validated = healthy("val/score/mean"), sick("val/score/mean")
    assert validated[2] > 0.8 * usual[2] > 0.4
    assert validated[-1] < 0.1 < 0.5 < usual[-1]
    assert late(sick("critic/score/mean")) > 2 > 1 >= late(healthy("critic/score/mean"))


def test_length_explosion(healthy: Values, sick: Values):
    """Responses reach the length limit."""
    assert late(sick("tokens/response_length/mean")) > 14 > 12 > late(healthy("tokens/response_length/mean"))
    assert late(sick("critic/score/mean")) < late(healthy("critic/score/mean"))


def test_stale_policy(healthy: Values, sick: Values):
    """Samples are many versions old, and unlikely under the trainer's policy."""
    assert healthy("sample/staleness/mean").max() == 0
    assert sick("sample/staleness/mean").tolist() == list(range(STEPS))
    assert late(sick("policy/mismatch/kl_k3")) > 0.05 > 1e-6 > late(healthy("policy/mismatch/kl_k3"))


def test_lr_too_high(healthy: Values, sick: Values):
    """The KL of updates and the clip fraction are many times the healthy ones."""
    assert np.median(sick("actor/approxkl")) > 5 * np.median(healthy("actor/approxkl"))
    assert np.median(sick("actor/clipfrac")) > 3 * np.median(healthy("actor/clipfrac"))


def test_slow_phase(healthy: Values, sick: Values):
    """One phase takes many times as long, and the training is otherwise equal."""
    name = "time/reward/compute_rewards/execute"
    assert np.median(sick(name)) > 20 * np.median(healthy(name))
    assert sick("critic/score/mean").tolist() == healthy("critic/score/mean").tolist()


def test_memory_leak(healthy: Values, sick: Values):
    """Memory grows with every step, and the training is otherwise equal."""
    name = "memory/cpu/actor_train/train_step/end/rss"
    growth, usual = (values(name)[-1] - values(name)[4] for values in (sick, healthy))
    assert growth > 0.005
    assert growth > 2.5 * usual  # a healthy process still grows by some megabytes
    assert sick("critic/score/mean").tolist() == healthy("critic/score/mean").tolist()


def test_every_sick_run_has_a_test_and_a_known_metric():
    """The table, the tests and the catalogue agree."""
    for name, sickness in SICK_RUNS.items():
        assert f"test_{name.replace('-', '_')}" in globals(), name
        assert REGISTRY.metric(sickness.shows_in) is not None
        assert sick_config(DemoConfig(), name) != DemoConfig()
    with pytest.raises(SettingsError, match="did you mean nan"):
        sick_config(DemoConfig(), "nann")
