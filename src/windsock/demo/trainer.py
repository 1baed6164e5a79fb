"""The trainer: PPO with a critic, a reference policy and a reward, every part of it recorded.

Names of phases are those of ROLL, or of Trinity-RFT where that is the vocabulary of the run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.demo import ppo, reward, tell
from windsock.demo.explorer import Episodes, play
from windsock.demo.lake import CHOICES, FEATURES, Bools, Floats, Ints, draw_lakes
from windsock.demo.network import Network, adam, clipped, log_softmax
from windsock.demo.recipe import Recipe
from windsock.demo.states import State, restore, save
from windsock.run import Run

OF_TRINITY = {
    "actor_train/train_step": "update_actor",
    "critic/train_step": "update_critic",
    "critic/compute_values": "values",
    "reference/compute_log_probs": "ref",
}


@dataclass(slots=True)
class Experience:
    """What is known of a step's episodes before the update; arrays of tokens are (episodes, turns)."""

    episodes: Episodes
    tasks: Ints  # the group of each episode
    scores: Floats
    keep: Bools
    old: Floats  # log-probs of the choices, by the policy that is about to be updated
    old_all: Floats  # of all choices: (episodes, turns, choices)
    ref: Floats
    values: Floats
    weights: Floats
    outcomes: Floats = field(default_factory=lambda: np.zeros(0))  # what the end of each episode is worth
    rewards: Floats = field(default_factory=lambda: np.zeros(0))
    raw_advantages: Floats = field(default_factory=lambda: np.zeros(0))
    advantages: Floats = field(default_factory=lambda: np.zeros(0))
    returns: Floats = field(default_factory=lambda: np.zeros(0))


class Trainer:
    """One training. ``run`` and ``explorer`` record it: two roles of one run.

    What is drawn at random comes from generators of the recipe's seed, so that two trainings of one recipe are equal,
    whatever is recorded.
    """

    def __init__(self, recipe: Recipe, run: Run, explorer: Run, folder: Path) -> None:
        self.recipe, self.run, self.explorer = recipe, run, explorer
        self.rng = np.random.default_rng([recipe.seed, 0])
        self.version = self.updates = 0
        self.served = 0  # the version that the explorer has
        self.lakes = draw_lakes(recipe.maps, recipe.seed)
        self.held_out = draw_lakes(recipe.validation_maps, recipe.seed + 1_000_003, self.lakes)
        self.actor = Network([FEATURES, recipe.hidden, recipe.hidden, CHOICES])
        self.critic = Network([FEATURES, recipe.hidden, recipe.hidden, 1])
        weights, values = self.actor.initial(self.rng, 0.3), self.critic.initial(self.rng)
        self.states = {
            "actor_train": State(folder / "actor_train", weights=weights, moments=np.zeros((2, *weights.shape), "f4")),
            "critic": State(folder / "critic", weights=values, moments=np.zeros((2, *values.shape), "f4")),
            "actor_infer": State(folder / "actor_infer", weights=weights),
            "reference": State(folder / "reference", weights=weights),
            "reward": State(folder / "reward", distance=self.lakes.distance),
        }
        self.hoard: list[Any] = []

    def step(self, number: int) -> None:
        """Explore, judge, update, hand the weights on, record."""
        recipe, run = self.recipe, self.run
        with run.timer("rollout"), run.timer("wait_explore_step"):
            episodes, tasks = self._explore(number)
        experience = self._judge(episodes, tasks)
        with run.timer("adv", tokens=int(episodes.lengths.sum())):
            self._credit(experience)
        tell.experience(run, experience, recipe, self.version)
        learnt = self._update_critic(experience) | self._update_actor(experience)
        if (number + 1) % recipe.sync_every == 0:
            with run.timer("sync_weight"):
                self._serve()
        if number % recipe.validate_every == 0 or number == recipe.steps - 1:
            with run.timer("eval"):
                self._evaluate(number)
        if (number + 1) % recipe.save_every == 0:
            with run.timer("save_checkpoint"):
                self.save(number)
        tell.update(run, learnt)
        self.explorer.commit(number)
        run.commit(number)

    def _phase(self, name: str, worker: str, tokens: Any = None, flops: Any = None, run: Run | None = None) -> Any:
        """Return a phase in which the state of a worker is in memory."""
        state, run = self.states[worker], run or self.run
        name = OF_TRINITY.get(name, name) if run.info.vocabulary == "trinity" else name
        return run.phase(name, onload=state.onload, offload=state.offload, tokens=tokens, flops=flops)

    def _explore(self, number: int) -> tuple[Episodes, Ints]:
        """Draw tasks, and play each of them several times."""
        recipe = self.recipe
        maps = self.rng.integers(len(self.lakes), size=recipe.tasks)
        places = np.where(self.lakes.distance[maps] > 0, self.rng.random((recipe.tasks, self.lakes.tiles.shape[1])), -1)
        maps, starts = (np.repeat(drawn, recipe.runs) for drawn in (maps, places.argmax(axis=1)))
        counted = {"generated": 0}
        with self._phase("actor_infer/generate", "actor_infer", lambda: counted, run=self.explorer):
            weights = self.states["actor_infer"]["weights"]
            episodes = play(
                self.actor, weights, self.lakes, maps, starts, self.rng, recipe.turns, recipe.temperature, self.served
            )
            counted["generated"] = int(episodes.lengths.sum())
        tasks = np.repeat(np.arange(recipe.tasks), recipe.runs)
        tell.rollouts(self.explorer, number, episodes, tasks, recipe)
        return episodes, tasks

    def _judge(self, episodes: Episodes, tasks: Ints) -> Experience:
        """Ask reference, reward, actor and critic about the episodes, and drop what is not worth training on."""
        recipe, run, seen = self.recipe, self.run, episodes.seen()
        choices, tokens = episodes.choices[episodes.mask], len(seen)
        with run.timer("ref_log_probs_values_reward"):
            with self._phase("reference/compute_log_probs", "reference", tokens):
                ref = self._log_probs("reference", seen)[np.arange(tokens), choices]
            with self._phase("reward/compute_rewards", "reward"):
                scores = reward.scores_of(episodes, self.states["reward"]["distance"], recipe.fault)
        with run.timer("old_log_probs_values"):
            with self._phase("actor_train/compute_log_probs", "actor_train", tokens):
                old_all = self._log_probs("actor_train", seen)
            with self._phase("critic/compute_values", "critic", tokens):
                values = self.critic.forward(self.states["critic"]["weights"], seen)[-1][:, 0]
        old = ref if recipe.fault == "old-from-reference" else old_all[np.arange(tokens), choices]
        if recipe.fault == "keep-every-batch":
            self.hoard.append(seen)
        began = time.perf_counter()
        keep = reward.kept(scores, recipe)
        tell.pipeline(run, scores, tasks, keep, time.perf_counter() - began)
        old, old_all, ref, values = (episodes.spread(array) for array in (old, old_all, ref, values))
        drift = np.where(episodes.mask, old - episodes.log_probs, 0.0).sum(axis=1)
        weights = np.minimum(np.exp(np.minimum(drift, 50.0)), recipe.largest_weight)
        return Experience(episodes, tasks, scores, keep, old, old_all, ref, values, weights)

    def _log_probs(self, worker: str, seen: NDArray[Any]) -> Floats:
        """Return the log-probs of every choice at every token."""
        return log_softmax(self.actor.forward(self.states[worker]["weights"], seen)[-1])

    def _credit(self, experience: Experience) -> None:
        """Turn scores into rewards of tokens, and those into advantages."""
        recipe, episodes = self.recipe, experience.episodes
        experience.outcomes = scores = experience.scores
        if recipe.normalise:
            experience.outcomes = np.where(experience.keep, reward.normalised(scores, recipe.runs), scores)
        experience.rewards = reward.token_rewards(
            episodes, experience.outcomes, experience.old - experience.ref, recipe
        )
        experience.raw_advantages, experience.returns = ppo.advantages_of(
            experience.rewards, experience.values, episodes.mask, recipe.discount, recipe.trace
        )
        trained_on = episodes.mask & experience.keep[:, None]
        experience.advantages = ppo.whitened(experience.raw_advantages, trained_on)

    def _mini_batches(self, experience: Experience) -> list[Ints]:
        """Return the episodes of each mini-batch of all epochs."""
        rows = np.flatnonzero(experience.keep)
        found = []
        for _ in range(self.recipe.epochs):
            found += np.array_split(self.rng.permutation(rows), self.recipe.mini_batches)
        return [rows for rows in found if len(rows)]

    def _update_critic(self, experience: Experience) -> dict[str, float]:
        """Let the critic learn the returns."""
        recipe, episodes = self.recipe, experience.episodes
        batches = self._mini_batches(experience)
        tokens = int(sum(episodes.lengths[rows].sum() for rows in batches))
        norms = []
        with self._phase("critic/train_step", "critic", tokens, {"critic": 6 * self.critic.size * tokens}):
            weights, moments = self.states["critic"]["weights"], self.states["critic"]["moments"]
            for number, rows in enumerate(batches, self.updates + 1):
                mask = episodes.mask[rows]
                passed = self.critic.forward(weights, episodes.seen(rows))
                values = passed[-1][:, 0]
                old, returns = experience.values[rows][mask], experience.returns[rows][mask]
                error = ppo.value_error(values, old, returns, recipe.value_clip)
                gradient = self.critic.gradient(weights, passed, error[:, None].astype(weights.dtype))
                gradient, norm = clipped(gradient, recipe.max_grad_norm)
                adam(weights, moments, gradient, recipe.critic_lr, number)
                norms.append(norm)
                tell.value_part(self.run, experience, rows, episodes.spread(values, rows), recipe)
        return {"value/grad_norm": float(np.mean(norms)), "value/lr": recipe.critic_lr}

    def _update_actor(self, experience: Experience) -> dict[str, float]:
        """Let the policy learn what was better than expected."""
        recipe, episodes = self.recipe, experience.episodes
        batches = self._mini_batches(experience)
        tokens = int(sum(episodes.lengths[rows].sum() for rows in batches))
        norms = []
        flops = {"actor": 6 * self.actor.size * tokens}
        with self._phase("actor_train/train_step", "actor_train", {"trained": tokens}, flops):
            weights, moments = self.states["actor_train"]["weights"], self.states["actor_train"]["moments"]
            for rows in batches:
                self.updates += 1
                mask = episodes.mask[rows]
                passed = self.actor.forward(weights, episodes.seen(rows))
                error, log_probs = ppo.policy_error(
                    passed[-1],
                    episodes.choices[rows][mask],
                    experience.old[rows][mask],
                    experience.advantages[rows][mask],
                    np.broadcast_to(experience.weights[rows, None], mask.shape)[mask],
                    recipe.clip,
                    recipe.entropy_coef,
                )
                gradient, norm = clipped(
                    self.actor.gradient(weights, passed, error.astype(weights.dtype)), recipe.max_grad_norm
                )
                adam(weights, moments, gradient, recipe.actor_lr, self.updates)
                norms.append(norm)
                tell.policy_part(self.run, experience, rows, log_probs, recipe)
        self.version += 1
        return {"policy/grad_norm": float(np.mean(norms)), "policy/lr": recipe.actor_lr}

    def _serve(self) -> None:
        """Give the explorer the weights of the actor."""
        with self.states["actor_train"] as trained, self.states["actor_infer"] as served:
            served["weights"][...] = trained["weights"]
        self.served = self.version

    def _evaluate(self, number: int) -> None:
        """Let the present policy play held-out maps, some that it trained on, and gymnasium's own."""
        with self.states["actor_train"] as trained:
            for taskset in tell.tasksets(self.lakes, self.held_out):
                rng = np.random.default_rng([self.recipe.seed, 1, number, taskset.number])
                maps, starts = (np.repeat(array, self.recipe.repeats) for array in (taskset.maps, taskset.starts))
                played = play(self.actor, trained["weights"], taskset.lakes, maps, starts, rng, self.recipe.turns)
                tell.evaluation(self.run, self.explorer, number, taskset, played, self.recipe)

    def save(self, number: int) -> None:
        """Write a checkpoint beside the run's journal."""
        counts = np.array([number, self.version, self.updates, self.served])
        save(self.run.path / "checkpoints" / f"{number}.npz", self.states, counts=counts)

    def load(self, path: Path) -> int:
        """Go on from a checkpoint; return its step."""
        number, self.version, self.updates, self.served = restore(path, self.states)["counts"].tolist()
        return int(number)
