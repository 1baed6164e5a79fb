"""The trainer: PPO with a critic, a reference policy and a reward, with all of it recorded, and a complete training by
it.

Phase names are ROLL's, or Trinity-RFT's where that is the run's vocabulary.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.apps.demo import ppo, recording, reward
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.explorer import Episodes, play
from barograph.apps.demo.frozen_lake import CHOICES, FEATURES, sample_lakes, tasksets
from barograph.apps.demo.ppo import Network, adam, clip_by_norm, log_softmax
from barograph.base.arrays import Bools, FloatsOfAnySize, Ints
from barograph.recording.run import Run
from barograph.session import init

TRINITY_NAMES = {
    "actor_train/train_step": "update_actor",
    "critic/train_step": "update_critic",
    "critic/compute_values": "values",
    "reference/compute_log_probs": "ref",
}


class WorkerState:
    """Arrays of one worker: in memory between ``onload`` and ``offload``, otherwise in a file."""

    def __init__(self, path: Path, **arrays: NDArray[Any]) -> None:
        self._path = path
        self._formats = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        self._arrays: dict[str, NDArray[Any]] = arrays
        self.offload()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def onload(self) -> None:
        """Read the arrays from the file."""
        with self._path.open("rb") as file:
            for name, (dtype, shape) in self._formats.items():
                self._arrays[name] = np.fromfile(file, dtype, int(np.prod(shape))).reshape(shape)

    def offload(self) -> None:
        """Write the arrays to the file and free them."""
        with self._path.open("wb") as file:
            for name in self._formats:
                self._arrays[name].tofile(file)
        self._arrays.clear()

    def __enter__(self) -> WorkerState:
        self.onload()
        return self

    def __exit__(self, *problem: object) -> None:
        self.offload()


def save_checkpoint(path: Path, states: Mapping[str, WorkerState], **others: Any) -> None:
    """Write a checkpoint atomically; replace an existing one."""
    arrays: dict[str, Any] = dict(others)
    for worker, state in states.items():
        with state:
            arrays |= {f"{worker}.{name}": state[name] for name in state._formats}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.replace(path)  # a kill while writing leaves the old checkpoint


def load_checkpoint(path: Path, states: Mapping[str, WorkerState]) -> dict[str, NDArray[Any]]:
    """Load a checkpoint into the states; return its other arrays."""
    with np.load(path) as saved:
        for worker, state in states.items():
            with state:
                for name in state._formats:
                    state[name][...] = saved[f"{worker}.{name}"]
        return {name: saved[name] for name in saved.files if name.partition(".")[0] not in states}


@dataclass(slots=True)
class Experience:
    """Data of a step's episodes before the update. Token arrays have the shape (episodes, turns)."""

    episodes: Episodes
    tasks: Ints  # group of each episode
    scores: FloatsOfAnySize
    keep: Bools
    old: FloatsOfAnySize  # log-probs of the choices by the policy before the update
    old_all: FloatsOfAnySize  # log-probs of all choices: (episodes, turns, choices)
    ref: FloatsOfAnySize
    ref_all: FloatsOfAnySize
    values: FloatsOfAnySize
    weights: FloatsOfAnySize
    rejected: Bools  # for a small importance weight; not trained on
    outcomes: FloatsOfAnySize = field(default_factory=lambda: np.zeros(0))  # score in the reward of each episode
    rewards: FloatsOfAnySize = field(default_factory=lambda: np.zeros(0))
    raw_advantages: FloatsOfAnySize = field(default_factory=lambda: np.zeros(0))
    advantages: FloatsOfAnySize = field(default_factory=lambda: np.zeros(0))
    returns: FloatsOfAnySize = field(default_factory=lambda: np.zeros(0))

    @property
    def trained(self) -> Bools:
        """Which episodes are trained on. If all were rejected, all that were kept are used."""
        accepted = self.keep & ~self.rejected
        return accepted if accepted.any() else self.keep


class Trainer:
    """One training, recorded by ``run`` and ``explorer``, two roles of one run.

    All random numbers depend on the config's seed only, so that trainings with the same config are equal.
    """

    def __init__(self, config: DemoConfig, run: Run, explorer: Run, folder: Path) -> None:
        self.config, self.run, self.explorer = config, run, explorer
        run.tokenizer(recording.token_text)
        self.rng = np.random.default_rng([config.seed, 0])
        self.version = self.updates = 0
        self.served = 0  # weight version of the explorer
        self.lakes = sample_lakes(config.maps, config.seed)
        self.held_out = sample_lakes(config.validation_maps, config.seed + 1_000_003, self.lakes)
        self.actor = Network([FEATURES, config.hidden, config.hidden, CHOICES])
        self.critic = Network([FEATURES, config.hidden, config.hidden, 1])
        weights, values = self.actor.initial(self.rng, 0.3), self.critic.initial(self.rng)
        self.states = {
            "actor_train": WorkerState(
                folder / "actor_train", weights=weights, moments=np.zeros((2, *weights.shape), "f4")
            ),
            "critic": WorkerState(folder / "critic", weights=values, moments=np.zeros((2, *values.shape), "f4")),
            "actor_infer": WorkerState(folder / "actor_infer", weights=weights),
            "reference": WorkerState(folder / "reference", weights=weights),
            "reward": WorkerState(folder / "reward", distance=self.lakes.distance),
        }
        self.leaked: list[Any] = []  # of the fault keep-every-batch

    def step(self, number: int) -> None:
        """Run one step: explore, evaluate the episodes, update, transfer weights, record."""
        config, run = self.config, self.run
        with run.timer("rollout"), run.timer("wait_explore_step"):
            episodes, tasks = self._explore(number)
        experience = self._score(episodes, tasks)
        with run.timer("adv", tokens=int(episodes.lengths.sum())):
            self._assign_advantages(experience)
        recording.record_experience(run, experience, config, self.version)
        statistics = self._update_critic(experience) | self._update_actor(experience)
        if (number + 1) % config.sync_every == 0:
            with run.timer("sync_weight"):
                self._transfer_weights()
        if number % config.validate_every == 0 or number == config.steps - 1:
            with run.timer("eval"):
                self._evaluate(number)
        if (number + 1) % config.save_every == 0:
            with run.timer("save_checkpoint"):
                self.save(number)
        recording.record_update(run, statistics)
        self.explorer.commit(number)
        run.commit(number)

    def _phase(self, name: str, worker: str, tokens: Any = None, flops: Any = None, run: Run | None = None) -> Any:
        """Return a phase that loads and offloads a worker's state."""
        state, run = self.states[worker], run or self.run
        name = TRINITY_NAMES.get(name, name) if run.info.vocabulary == "trinity" else name
        return run.phase(name, onload=state.onload, offload=state.offload, tokens=tokens, flops=flops)

    def _explore(self, number: int) -> tuple[Episodes, Ints]:
        """Sample tasks and play each of them several times."""
        config = self.config
        maps = self.rng.integers(len(self.lakes), size=config.tasks)
        places = np.where(self.lakes.distance[maps] > 0, self.rng.random((config.tasks, self.lakes.tiles.shape[1])), -1)
        maps, starts = (np.repeat(sampled, config.runs) for sampled in (maps, places.argmax(axis=1)))
        counted = {"generated": 0}
        with self._phase("actor_infer/generate", "actor_infer", lambda: counted, run=self.explorer):
            weights = self.states["actor_infer"]["weights"]
            episodes = play(
                self.actor, weights, self.lakes, maps, starts, self.rng, config.turns, config.temperature, self.served
            )
            counted["generated"] = int(episodes.lengths.sum())
        tasks = np.repeat(np.arange(config.tasks), config.runs)
        recording.record_rollouts(self.explorer, number, episodes, tasks, config)
        return episodes, tasks

    def _score(self, episodes: Episodes, tasks: Ints) -> Experience:
        """Compute log-probs, scores and values of the episodes, and filter groups."""
        config, run, observations = self.config, self.run, episodes.observations()
        choices, tokens = episodes.choices[episodes.mask], len(observations)
        with run.timer("ref_log_probs_values_reward"):
            with self._phase("reference/compute_log_probs", "reference", tokens):
                ref_all = self._log_probs("reference", observations)
                ref = ref_all[np.arange(tokens), choices]
            with self._phase("reward/compute_rewards", "reward"):
                scores = reward.episode_scores(episodes, self.states["reward"]["distance"], config.fault)
        with run.timer("old_log_probs_values"):
            with self._phase("actor_train/compute_log_probs", "actor_train", tokens):
                old_all = self._log_probs("actor_train", observations)
            with self._phase("critic/compute_values", "critic", tokens):
                values = self.critic.forward(self.states["critic"]["weights"], observations)[-1][:, 0]
        old = ref if config.fault == "old-from-reference" else old_all[np.arange(tokens), choices]
        if config.fault == "keep-every-batch":
            self.leaked.append(observations)
        began = time.perf_counter()
        keep = reward.kept_episodes(scores, config)
        recording.record_pipeline(run, scores, tasks, keep, time.perf_counter() - began)
        old, old_all, ref, ref_all, values = map(episodes.to_grid, (old, old_all, ref, ref_all, values))
        # Truncated importance weights correct for the difference of explorer and trainer.
        drift = np.where(episodes.mask, old - episodes.log_probs, 0.0).sum(axis=1)
        ratios = np.exp(np.minimum(drift, 50.0))  # 50: exp must not overflow
        weights, rejected = np.minimum(ratios, config.largest_weight), ratios < config.smallest_weight
        return Experience(episodes, tasks, scores, keep, old, old_all, ref, ref_all, values, weights, rejected)

    def _log_probs(self, worker: str, observations: NDArray[Any]) -> FloatsOfAnySize:
        """Return the log-probs of all choices at each token."""
        return log_softmax(self.actor.forward(self.states[worker]["weights"], observations)[-1])

    def _assign_advantages(self, experience: Experience) -> None:
        """Compute token rewards from scores, and advantages from rewards."""
        config, episodes = self.config, experience.episodes
        experience.outcomes = scores = experience.scores
        if config.normalise:
            experience.outcomes = np.where(experience.keep, reward.group_normalised(scores, config.runs), scores)
        experience.rewards = reward.token_rewards(
            episodes, experience.outcomes, experience.old - experience.ref, config
        )
        experience.raw_advantages, experience.returns = ppo.gae(
            experience.rewards, experience.values, episodes.mask, config.discount, config.trace
        )
        trained = episodes.mask & experience.keep[:, None]
        experience.advantages = ppo.whitened(experience.raw_advantages, trained)

    def _mini_batches(self, experience: Experience) -> list[Ints]:
        """Return the episode indices of the mini-batches of all epochs."""
        rows = np.flatnonzero(experience.trained)
        found = []
        for _ in range(self.config.epochs):
            found += np.array_split(self.rng.permutation(rows), self.config.mini_batches)
        return [rows for rows in found if len(rows)]

    def _update_critic(self, experience: Experience) -> dict[str, float]:
        """Train the critic on the returns; return its statistics."""
        config, episodes = self.config, experience.episodes
        batches = self._mini_batches(experience)
        tokens = int(sum(episodes.lengths[rows].sum() for rows in batches))
        norms = []
        with self._phase("critic/train_step", "critic", tokens, {"critic": 6 * self.critic.size * tokens}):
            weights, moments = self.states["critic"]["weights"], self.states["critic"]["moments"]
            # The critic makes as many updates as the actor, which counts them.
            for number, rows in enumerate(batches, self.updates + 1):
                mask = episodes.mask[rows]
                activations = self.critic.forward(weights, episodes.observations(rows))
                values = activations[-1][:, 0]
                old, returns = experience.values[rows][mask], experience.returns[rows][mask]
                error = ppo.value_gradient(values, old, returns, config.value_clip)
                gradient = self.critic.gradient(weights, activations, error[:, None].astype(weights.dtype))
                gradient, norm = clip_by_norm(gradient, config.max_grad_norm)
                adam(weights, moments, gradient, config.critic_lr, number)
                norms.append(norm)
                recording.record_value(self.run, experience, rows, episodes.to_grid(values, rows), config)
        return {"value/grad_norm": float(np.mean(norms)), "value/lr": config.critic_lr}

    def _update_actor(self, experience: Experience) -> dict[str, float]:
        """Train the policy on the advantages; return its statistics."""
        config, episodes = self.config, experience.episodes
        batches = self._mini_batches(experience)
        tokens = int(sum(episodes.lengths[rows].sum() for rows in batches))
        norms = []
        flops = {"actor": 6 * self.actor.size * tokens}  # per weight and token: 2 forward, 4 backward
        with self._phase("actor_train/train_step", "actor_train", {"trained": tokens}, flops):
            weights, moments = self.states["actor_train"]["weights"], self.states["actor_train"]["moments"]
            for rows in batches:
                self.updates += 1
                mask = episodes.mask[rows]
                activations = self.actor.forward(weights, episodes.observations(rows))
                error, log_probs = ppo.policy_gradient(
                    activations[-1],
                    episodes.choices[rows][mask],
                    experience.old[rows][mask],
                    experience.advantages[rows][mask],
                    np.broadcast_to(experience.weights[rows, None], mask.shape)[mask],
                    config.clip,
                    config.entropy_coef,
                    episodes.lengths[rows] if config.level == "sequence" else None,
                )
                gradient, norm = clip_by_norm(
                    self.actor.gradient(weights, activations, error.astype(weights.dtype)), config.max_grad_norm
                )
                adam(weights, moments, gradient, config.actor_lr, self.updates)
                norms.append(norm)
                recording.record_policy(self.run, experience, rows, activations[-1], log_probs, config)
        self.version += 1
        return {"policy/grad_norm": float(np.mean(norms)), "policy/lr": config.actor_lr}

    def _transfer_weights(self) -> None:
        """Copy the actor's weights to the explorer."""
        with self.states["actor_train"] as trained, self.states["actor_infer"] as served:
            served["weights"][...] = trained["weights"]
        self.served = self.version

    def _evaluate(self, number: int) -> None:
        """Evaluate the policy on all tasksets."""
        with self.states["actor_train"] as trained:
            for taskset in tasksets(self.lakes, self.held_out):
                # A generator of its own, so that evaluating does not change the training.
                rng = np.random.default_rng([self.config.seed, 1, number, taskset.number])
                maps, starts = (np.repeat(array, self.config.repeats) for array in (taskset.maps, taskset.starts))
                played = play(self.actor, trained["weights"], taskset.lakes, maps, starts, rng, self.config.turns)
                recording.record_evaluation(self.run, self.explorer, number, taskset, played, self.config)

    def save(self, number: int) -> None:
        """Write a checkpoint to the run's folder."""
        counts = np.array([number, self.version, self.updates, self.served])
        save_checkpoint(self.run.path / "checkpoints" / f"{number}.npz", self.states, counts=counts)

    def load(self, path: Path) -> int:
        """Load a checkpoint; return its step."""
        number, self.version, self.updates, self.served = load_checkpoint(path, self.states)["counts"].tolist()
        return int(number)


def start_runs(config: DemoConfig, source: Any = None, **settings: Any) -> tuple[Run, Run]:
    """Start the run in both roles; return the trainer's and the explorer's run."""
    defaults: dict[str, Any] = {
        "project": "demo",
        "config": {"demo": asdict(config)},
        "devices": 1,
        "peak_flops": measure_peak_flops(),
    }
    run = init(source, **(defaults | settings))
    shared: dict[str, Any] = {"id": run.id, "vocabulary": run.info.vocabulary, "project": run.project}
    shared |= {name: settings.get(name) for name in ("mode", "concurrent")}
    folder = settings.get("dir") or run.path.parent.parent
    return run, init(role="explorer", dir=folder, track_with=[], **shared)  # the trainer's run delivers to trackers


def train(
    config: DemoConfig,
    run: Run,
    explorer: Run,
    after_step: Callable[[int], None] | None = None,
    keep: Path | None = None,
) -> Trainer:
    """Train; call ``after_step`` with each committed step.

    The states of the workers are stored in a temporary folder, or in ``keep``.
    """
    with tempfile.TemporaryDirectory(prefix="barograph-demo-") as folder, single_threaded():
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(config, run, explorer, keep or Path(folder))
        for number in range(config.steps):
            trainer.step(number)
            if after_step is not None:
                after_step(number)
    return trainer


def single_threaded() -> AbstractContextManager[Any]:
    """Limit NumPy to one thread: for matrices this small, several threads are slower."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def measure_peak_flops(size: int = 384, tries: int = 5) -> float:
    """Return this processor's peak FLOP/s, measured by matrix products."""
    matrix = np.ones((size, size), np.float32)
    seconds = []
    with single_threaded():
        for _ in range(tries):
            began = time.perf_counter()
            matrix @ matrix
            seconds.append(time.perf_counter() - began)
    return 2.0 * size**3 / min(seconds)  # the fastest try is the least disturbed one
