"""The reward: what an episode is worth, and what of that each token gets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.demo.explorer import Episodes
from windsock.demo.lake import END, Bools, Floats, Ints, gymnasium_lake
from windsock.demo.recipe import Recipe

APPROACH = 0.5  # what the faulty reward pays for a move towards the goal


def scores_of(episodes: Episodes, distance: NDArray[Any], fault: str = "") -> Floats:
    """Return the score of each episode: 1 where it ended on the goal, else 0."""
    scores: Floats = episodes.solved.astype(np.float64)
    if fault == "pay-approach":
        scores = APPROACH * _approaches(episodes, distance)
    if fault == "replay-one-by-one":
        scores = np.array([_replayed(episodes, row) for row in range(len(episodes))])
    return scores


def _approaches(episodes: Episodes, distance: NDArray[Any]) -> Ints:
    """Count the moves that led nearer to the goal; going away again costs nothing, and so pays to come back."""
    after = np.concatenate([episodes.positions[:, 1:], episodes.ends[:, None]], axis=1)
    last = episodes.lengths - 1
    after[np.arange(len(after)), last] = episodes.ends
    before, now = (distance[episodes.maps[:, None], cells] for cells in (episodes.positions, after))
    return np.asarray(((now < before) & (now >= 0) & episodes.mask).sum(axis=1), np.int64)


def _replayed(episodes: Episodes, row: int) -> float:
    """Play an episode again in a game of its own, move by move."""
    board = episodes.prompt_text(row).split("\n")
    game = gymnasium_lake().FrozenLakeEnv(desc=board, is_slippery=False)
    game.reset(seed=0)
    reached = 0.0
    for choice in episodes.choices[row][episodes.mask[row]]:
        if choice != END:
            reached = max(reached, float(game.step(int(choice))[1]))
    return reached


def normalised(scores: Floats, runs: int) -> Floats:
    """Return scores less the mean of their group, in units of its deviation. A group of equals has none: 0/0."""
    by_group = scores.reshape(-1, runs)
    with np.errstate(invalid="ignore"):
        return np.asarray((by_group - by_group.mean(1, keepdims=True)) / by_group.std(1, keepdims=True)).ravel()


def token_rewards(episodes: Episodes, rewards: Floats, log_ratio: Floats, recipe: Recipe) -> Floats:
    """Return the reward of each token: for moving, for staying near the reference, and at the end for the outcome."""
    tokens = np.where(episodes.mask, recipe.move_reward - recipe.kl_coef * log_ratio, 0.0)
    tokens[np.arange(len(tokens)), episodes.lengths - 1] += np.clip(rewards, -recipe.reward_clip, recipe.reward_clip)
    return tokens


def kept(scores: Floats, recipe: Recipe) -> Bools:
    """Say which episodes are trained on: not those of groups whose scores are all alike, from which little is learnt.

    No more than ``drop_at_most`` of the groups go, and never all.
    """
    by_group = scores.reshape(-1, recipe.runs)
    useless = by_group.max(axis=1) == by_group.min(axis=1)
    if recipe.fault == "drop-unsolved-only":
        useless = by_group.max(axis=1) == 0
    most = int(recipe.drop_at_most * len(useless))
    dropped = useless & (np.cumsum(useless) <= most)
    return np.repeat(~dropped | dropped.all(), recipe.runs)
