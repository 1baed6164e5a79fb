"""The explorer: plays episodes with the weights of its last update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.apps.demo.frozen_lake import CHOICE, END, GOAL, PROMPT_LENGTH, SIZE, TOKEN_TEXTS, Lakes
from barograph.apps.demo.ppo import Network, log_softmax
from barograph.base.arrays import Bools, FloatsOfAnySize, Ints


@dataclass(frozen=True, slots=True)
class Episodes:
    """A batch of episodes, as arrays of episodes and turns. In a turn the policy generates one token."""

    lakes: Lakes
    maps: Ints
    starts: Ints
    positions: Ints  # (episodes, turns): at the start of the turn
    choices: Ints
    mask: Bools
    log_probs: FloatsOfAnySize  # of the choices, when they were sampled
    ends: Ints  # final position of each episode
    version: int  # weight version

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def solved(self) -> Bools:
        """Whether each episode ended on the goal."""
        return np.asarray(self.lakes.tiles[self.maps, self.ends] == GOAL, np.bool_)

    @property
    def finished(self) -> Bools:
        """Whether each episode ended with the end token."""
        return np.asarray((self.mask & (self.choices == END)).any(axis=1), np.bool_)

    @property
    def lengths(self) -> Ints:
        """Number of generated tokens of each episode."""
        return np.asarray(self.mask.sum(axis=1), np.int64)

    @property
    def token_counts(self) -> Ints:
        """Number of all tokens of each episode: prompt, choices, and the position after each move."""
        return np.asarray(PROMPT_LENGTH + 2 * self.lengths - self.finished, np.int64)

    def observations(self, rows: Ints | None = None) -> NDArray[Any]:
        """Return the observations at valid tokens, of all or of some episodes."""
        if rows is None:
            return np.asarray(self.lakes.observations[self.maps[:, None], self.positions][self.mask])
        return np.asarray(self.lakes.observations[self.maps[rows, None], self.positions[rows]][self.mask[rows]])

    def to_grid(self, token_values: NDArray[Any], rows: Ints | None = None) -> FloatsOfAnySize:
        """Return values of valid tokens as an array of episodes and turns, 0 elsewhere."""
        mask = self.mask if rows is None else self.mask[rows]
        grid = np.zeros((*mask.shape, *token_values.shape[1:]))
        grid[mask] = token_values
        return grid

    def prompt_text(self, row: int) -> str:
        """Return an episode's prompt as a map with its start."""
        tiles = [TOKEN_TEXTS[token] for token in self.lakes.tiles[self.maps[row]]]
        tiles[self.starts[row]] = "S"
        return "\n".join("".join(tiles[line : line + SIZE]) for line in range(0, len(tiles), SIZE))

    def response_text(self, row: int) -> str:
        """Return an episode's moves."""
        return " ".join(TOKEN_TEXTS[CHOICE + choice] for choice in self.choices[row][self.mask[row]])


def play(
    network: Network,
    weights: NDArray[Any],
    lakes: Lakes,
    maps: Ints,
    starts: Ints,
    rng: np.random.Generator,
    turns: int,
    temperature: float = 1.0,
    version: int = 0,
) -> Episodes:
    """Play one episode per entry of ``maps`` and ``starts``, all in parallel.

    An episode continues until the policy ends it, also on the goal and in a hole, where moves have no effect.
    """
    shape = len(maps), turns
    positions, choices = np.zeros(shape, np.int64), np.full(shape, END)
    mask, log_probs = np.zeros(shape, np.bool_), np.zeros(shape)
    position, active = starts.copy(), np.arange(len(maps))
    # Sampled for all turns at once, so that the stream does not depend on when episodes end.
    draws = rng.random((turns, len(maps)))
    for turn in range(turns):
        logits = network.forward(weights, lakes.observations[maps[active], position[active]])[-1] / temperature
        all_log_probs = log_softmax(logits)
        chosen = (np.exp(all_log_probs).cumsum(axis=1) > draws[turn, active, None]).argmax(axis=1)
        positions[active, turn], choices[active, turn], mask[active, turn] = position[active], chosen, True
        log_probs[active, turn] = all_log_probs[np.arange(len(active)), chosen]
        active, moves = active[chosen != END], chosen[chosen != END]
        position[active] = lakes.after[maps[active], position[active], moves]
        if not len(active):
            break
    return Episodes(lakes, maps, starts, positions, choices, mask, log_probs, position, version)
