"""The demo's parts: environment, network, losses and worker states; and that it learns, reproducibly."""

from pathlib import Path

import numpy as np
import pytest
from small import SMALL, trained

import barograph
from barograph.apps.demo import frozen_lake, ppo, reward
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.explorer import play
from barograph.apps.demo.ppo import Network, adam, clip_by_norm, log_softmax
from barograph.apps.demo.trainer import WorkerState, load_checkpoint, save_checkpoint, start_runs, train
from barograph.base.errors import SettingsError


def numeric(loss, at: np.ndarray, places: np.ndarray, by: float = 1e-6) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Return the derivative of a loss at some indices by finite differences."""
    found = []
    for place in places:
        step = np.zeros_like(at)
        step[place] = by
        found.append((loss(at + step) - loss(at - step)) / (2 * by))
    return np.array(found)


def test_the_networks_gradient_equals_finite_differences():
    """For the weights and biases of all layers."""
    rng = np.random.default_rng(0)
    network = Network([7, 6, 5, 3])
    weights = network.initial(rng, 1.0).astype(np.float64)
    inputs, mix = rng.normal(size=(11, 7)), rng.normal(size=(11, 3))
    gradient = network.gradient(weights, network.forward(weights, inputs), mix)
    places = rng.choice(network.size, 40, replace=False)
    expected = numeric(lambda w: float((network.forward(w, inputs)[-1] * mix).sum()), weights, places)
    assert gradient[places] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_the_policy_gradient_is_the_derivative_of_the_loss(entropy_coef: float, level: str):
    """The loss is barograph's: clipped surrogate with weights, of tokens or of episodes, and an entropy bonus."""
    rng = np.random.default_rng(1)
    lengths = np.array([4, 1, 7, 2, 3, 5, 8])
    count, clip = 30, 0.2 if level == "token" else 0.05
    logits, choices = rng.normal(size=(count, 5)), rng.integers(5, size=count)
    old = log_softmax(logits)[np.arange(count), choices] + rng.normal(0, 0.3, count)
    advantages, weights = rng.normal(size=count), rng.uniform(0.5, 2, len(lengths))

    def loss(flat: np.ndarray) -> float:
        now = log_softmax(flat.reshape(count, 5))
        arrays = {
            "log_probs": now[np.arange(count), choices], "old_log_probs": old, "advantages": advantages,
            "entropy": ppo.entropy_of(now),
        }  # fmt: skip
        bounds = np.append(0, np.cumsum(lengths))
        batch = barograph.Batch(response_mask=np.ones(count), weights=weights, cu_seqlens=bounds, **arrays)
        measured = barograph.measure(batch, clip=clip, entropy_coef=entropy_coef, loss="token-mean", level=level)
        assert 0 < measured["actor/clipfrac"] < 0.6
        return measured["actor/total_loss"]

    of_tokens, of_episodes = np.repeat(weights, lengths), lengths if level == "sequence" else None
    error, log_probs = ppo.policy_gradient(logits, choices, old, advantages, of_tokens, clip, entropy_coef, of_episodes)
    places = rng.choice(count * 5, 40, replace=False)
    assert error.ravel()[places] == pytest.approx(numeric(loss, logits.ravel(), places), abs=1e-7)
    assert log_probs == pytest.approx(log_softmax(logits))


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_value_gradient_is_the_derivative_of_the_loss(clip: float | None):
    """The loss is barograph's, with and without value clipping."""
    rng = np.random.default_rng(2)
    values, old, returns = rng.normal(size=(3, 40))

    def loss(now: np.ndarray) -> float:
        arrays = {"values": now, "old_values": old, "returns": returns, "response_mask": np.ones(40)}
        batch = barograph.Batch(**{name: array[:, None] for name, array in arrays.items()})
        return barograph.measure(batch, value_clip=clip, loss="token-mean")["critic/loss"]

    assert ppo.value_gradient(values, old, returns, clip) == pytest.approx(
        numeric(loss, values, np.arange(40)), abs=1e-7
    )


def test_gae_equals_its_definition():
    """For responses of different lengths."""
    rng = np.random.default_rng(3)
    rewards, values = rng.normal(size=(2, 4, 6))
    mask = np.arange(6) < np.array([6, 3, 1, 4])[:, None]
    advantages, returns = ppo.gae(rewards * mask, values, mask, 0.9, 0.8)
    for row, length in enumerate(mask.sum(axis=1)):
        following = np.append(values[row, 1:length], 0.0)
        surprises = rewards[row, :length] + 0.9 * following - values[row, :length]
        for turn in range(length):
            expected = sum(0.72**k * surprises[turn + k] for k in range(length - turn))
            assert advantages[row, turn] == pytest.approx(expected)
        assert (advantages[row, length:] == 0).all()
    assert returns[mask] == pytest.approx((advantages + values)[mask])


def test_the_map_arrays_equal_gymnasiums_environment():
    """Transitions equal gymnasium's, and distances are lengths of shortest paths."""
    lakes = frozen_lake.sample_lakes(6, 3)
    assert len({row.tobytes() for row in lakes.tiles}) == 6
    others = frozen_lake.sample_lakes(6, 3, lakes)
    assert not {row.tobytes() for row in lakes.tiles} & {row.tobytes() for row in others.tiles}
    classic = frozen_lake.classic_map()
    game = frozen_lake.gymnasium_module().FrozenLakeEnv(map_name="4x4", is_slippery=False)
    game.reset(seed=0)
    here = 0
    for move in (1, 1, 2, 1, 2, 2):
        here = int(classic.after[0, here, move])
        assert game.step(move)[0] == here
    assert classic.tiles[0, here] == frozen_lake.GOAL
    assert classic.distance[0, 0] == 6
    assert classic.distance[0, 5] == -1, "a hole"
    assert classic.best_scores(np.zeros(2, int), np.array([0, 5]), 16).tolist() == [1, 0]
    assert lakes.prompts(np.array([0]), np.array([2]))[0, -1] == frozen_lake.POSITION + 2


def test_an_episode_ends_with_its_end_token_or_at_the_limit():
    """A policy that only moves generates the maximum number of tokens; one that ends at once generates one."""
    lakes, network = frozen_lake.sample_lakes(2, 0), Network([frozen_lake.FEATURES, frozen_lake.CHOICES])
    for choice, length in ((0, 5), (frozen_lake.END, 1)):
        weights = np.zeros(network.size, np.float32)
        network.layers(weights)[0][1][choice] = 50.0
        played = play(network, weights, lakes, np.arange(2), np.zeros(2, int), np.random.default_rng(0), 5)
        assert played.lengths.tolist() == [length, length]
        assert played.finished.tolist() == [choice == frozen_lake.END] * 2
        assert not played.solved.any()
        assert played.response_text(0).split() == [frozen_lake.TOKEN_TEXTS[frozen_lake.CHOICE + choice]] * length


def test_the_filter_drops_groups_of_equal_scores_but_never_all():
    """It drops at most the allowed share, and keeps everything where nothing would be left."""
    scores = np.array([0, 0, 0, 1, 1, 1.0, 0, 0])
    for most, kept in ((1.0, [0, 0, 1, 1, 0, 0, 0, 0]), (0.25, [0, 0, 1, 1, 1, 1, 1, 1]), (0.0, [1] * 8)):
        config = DemoConfig().changed({"runs": 2, "drop_at_most": most})
        assert reward.kept_episodes(scores, config).tolist() == [bool(k) for k in kept]
    assert reward.kept_episodes(np.zeros(4), DemoConfig().changed({"runs": 2, "drop_at_most": 1.0})).all()


def test_a_state_is_in_memory_only_between_onload_and_offload(tmp_path: Path):
    """Offloaded arrays are freed and loaded unchanged; a checkpoint restores them."""
    state = WorkerState(tmp_path / "state", weights=np.arange(5.0), moments=np.ones((2, 3), np.float32))
    with pytest.raises(KeyError):
        state["weights"]
    with state:
        state["weights"][0] = 7
    save_checkpoint(tmp_path / "point.npz", {"actor": state}, counts=np.array([3]))
    with state:
        assert state["weights"].tolist() == [7, 1, 2, 3, 4]
        state["weights"][:] = 0
    assert load_checkpoint(tmp_path / "point.npz", {"actor": state})["counts"].tolist() == [3]
    with state:
        assert state["weights"].tolist() == [7, 1, 2, 3, 4]


def test_adam_takes_steps_of_the_learning_rate_and_clipping_bounds_the_norm():
    """Adam's first step has the size of the learning rate in every coordinate."""
    weights, moments = np.zeros(3), np.zeros((2, 3))
    adam(weights, moments, np.array([5.0, -0.1, 0.0]), 0.01, 1)
    assert weights == pytest.approx([-0.01, 0.01, 0.0])
    gradient, norm = clip_by_norm(np.array([3.0, 4.0]), 1.0)
    assert norm == 5.0
    assert gradient == pytest.approx([0.6, 0.8])


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> barograph.View:
    """Return a training that is long enough to learn."""
    return trained(tmp_path_factory.mktemp("healthy"), 30)


def test_the_demo_learns(healthy: barograph.View):
    """The score on held-out maps rises from almost 0 to most of the possible score."""
    score = healthy.series("val/score/mean").values
    assert score[0] < 0.1
    assert score[-1] > 0.4
    assert healthy.series("val/score/of_best").values == pytest.approx(score)


def test_the_same_seed_gives_the_same_training_bit_by_bit(tmp_path: Path):
    """Recording changes nothing, and NumPy's global generator is not used."""
    ends = []
    np.random.seed(0)  # the one that must not be touched
    before = np.random.get_state()[1].copy()
    for mode, seed in (("online", 5), ("disabled", 5), ("online", 6)):
        config = DemoConfig().changed(SMALL | {"steps": 3, "seed": seed})
        run, explorer = start_runs(config, dir=tmp_path, mode=mode)
        trainer = train(config, run, explorer, keep=tmp_path / f"{mode}{seed}")
        explorer.finish()
        run.finish()
        with trainer.states["actor_train"] as state:
            ends.append(state["weights"].tobytes())
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]
    assert (np.random.get_state()[1] == before).all()


def test_checkpoints_are_written_and_can_be_loaded(healthy: barograph.View, tmp_path: Path):
    """They are written every few steps to the run's folder."""
    points = sorted((healthy.path / "checkpoints").glob("*.npz"), key=lambda path: int(path.stem))
    assert [int(point.stem) for point in points] == [3, 7, 11, 15, 19, 23, 27]
    config = DemoConfig().changed(SMALL | {"steps": 1})
    run, explorer = start_runs(config, mode="disabled")
    trainer = train(config, run, explorer, keep=tmp_path)
    assert trainer.load(points[-1]) == 27
    assert trainer.version == 28


def test_unknown_and_wrong_hyperparameters_are_rejected():
    """The error names the nearest hyperparameter, or the expected type or range."""
    with pytest.raises(SettingsError, match="did you mean 'actor_lr'"):
        DemoConfig().changed({"actor_rl": 1.0})
    with pytest.raises(SettingsError, match="steps must be an integer; got 'many'"):
        DemoConfig().changed({"steps": "many"})
    for weight in (0.5, float("inf")):
        with pytest.raises(SettingsError, match=f"largest_weight must be finite and 1 or more; got {weight}"):
            DemoConfig().changed({"largest_weight": weight})
    with pytest.raises(SettingsError, match="smallest_weight must be between 0 and 1; got 1.5"):
        DemoConfig().changed({"smallest_weight": 1.5})
    with pytest.raises(SettingsError, match="level must be token or sequence; got 'group'"):
        DemoConfig().changed({"level": "group"})
    with pytest.raises(SettingsError, match="actor_lr must be a number; got None"):
        DemoConfig().changed({"actor_lr": None})
    without = DemoConfig().changed({"value_clip": None, "clip": 1})
    assert without.changed({"value_clip": None}).value_clip is None
    assert without.changed({"value_clip": 0.5}).value_clip == 0.5
