"""Rewards: scores of episodes, rewards of tokens, and the filter of groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.explorer import Episodes
from barograph.apps.demo.frozen_lake import END, gymnasium_module
from barograph.base.arrays import Bools, FloatsOfAnySize, Ints

APPROACH_BONUS = 0.02  # of the faulty reward, for the first move towards the goal; it doubles with each further one


def episode_scores(episodes: Episodes, distance: NDArray[Any], fault: str = "") -> FloatsOfAnySize:
    """Return the score of each episode: 1 where it ended on the goal, else 0; ``fault`` as in ``SICK_RUNS``."""
    scores: FloatsOfAnySize = episodes.solved.astype(np.float64)
    if fault == "pay-approach":
        # Small beside the goal's 1 on a straight path, and several times as much for one that goes back and forth.
        scores += APPROACH_BONUS * (2.0 ** _approaches(episodes, distance) - 1)
    if fault == "replay-one-by-one":
        scores = np.array([_replay(episodes, row) for row in range(len(episodes))])
    return scores


def _approaches(episodes: Episodes, distance: NDArray[Any]) -> Ints:
    """Count the moves towards the goal. Moves away cost nothing, so that moving back and forth is rewarded."""
    after = np.concatenate([episodes.positions[:, 1:], episodes.ends[:, None]], axis=1)
    last = episodes.lengths - 1
    after[np.arange(len(after)), last] = episodes.ends
    before, now = (distance[episodes.maps[:, None], cells] for cells in (episodes.positions, after))
    return np.asarray(((now < before) & (now >= 0) & episodes.mask).sum(axis=1), np.int64)


def _replay(episodes: Episodes, row: int) -> float:
    """Return an episode's score by playing it again in a new environment."""
    board = episodes.prompt_text(row).split("\n")
    game = gymnasium_module().FrozenLakeEnv(desc=board, is_slippery=False)
    game.reset(seed=0)
    reached = 0.0
    for choice in episodes.choices[row][episodes.mask[row]]:
        if choice != END:
            reached = max(reached, float(game.step(int(choice))[1]))
    return reached


def group_normalised(scores: FloatsOfAnySize, runs: int) -> FloatsOfAnySize:
    """Return scores minus their group's mean, over its standard deviation; NaN for a group of equal scores."""
    by_group = scores.reshape(-1, runs)
    with np.errstate(invalid="ignore"):
        return np.asarray((by_group - by_group.mean(1, keepdims=True)) / by_group.std(1, keepdims=True)).ravel()


def token_rewards(
    episodes: Episodes, rewards: FloatsOfAnySize, log_ratio: FloatsOfAnySize, config: DemoConfig
) -> FloatsOfAnySize:
    """Return the reward of each token: move reward, KL penalty, and the outcome at the last token."""
    tokens = np.where(episodes.mask, config.move_reward - config.kl_coef * log_ratio, 0.0)
    # The outcome is known only at the end, so the last token gets it.
    tokens[np.arange(len(tokens)), episodes.lengths - 1] += np.clip(rewards, -config.reward_clip, config.reward_clip)
    return tokens


def kept_episodes(scores: FloatsOfAnySize, config: DemoConfig) -> Bools:
    """Return which episodes to train on: groups of equal scores are dropped, as they have no advantage.

    At most the share ``drop_at_most`` of the groups is dropped, and never all.
    """
    by_group = scores.reshape(-1, config.runs)
    uninformative = by_group.max(axis=1) == by_group.min(axis=1)
    if config.fault == "drop-unsolved-only":
        uninformative = by_group.max(axis=1) == 0
    max_dropped = int(config.drop_at_most * len(uninformative))
    dropped = uninformative & (np.cumsum(uninformative) <= max_dropped)
    return np.repeat(~dropped | dropped.all(), config.runs)
