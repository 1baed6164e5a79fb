"""The explorer: plays episodes with the weights that it was last given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.demo.lake import CHOICE, END, GOAL, PROMPT_LENGTH, SIZE, WORDS, Bools, Floats, Ints, Lakes
from windsock.demo.network import Network, log_softmax


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes of one call: a row for each, a column for each turn, in which the policy wrote one token."""

    lakes: Lakes
    maps: Ints
    starts: Ints
    positions: Ints  # (episodes, turns): where the turn began
    choices: Ints
    mask: Bools
    log_probs: Floats  # of the choices, as they were drawn
    ends: Ints  # where each episode ended
    version: int  # of the weights

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def solved(self) -> Bools:
        """Whether an episode ended on the goal."""
        return np.asarray(self.lakes.tiles[self.maps, self.ends] == GOAL, np.bool_)

    @property
    def finished(self) -> Bools:
        """Whether an episode ended because the policy said so."""
        return np.asarray((self.mask & (self.choices == END)).any(axis=1), np.bool_)

    @property
    def lengths(self) -> Ints:
        """How many tokens the policy wrote."""
        return np.asarray(self.mask.sum(axis=1), np.int64)

    @property
    def token_counts(self) -> Ints:
        """How many tokens an episode has in all: prompt, choices, and the position that answers each move."""
        return np.asarray(PROMPT_LENGTH + 2 * self.lengths - self.finished, np.int64)

    def seen(self, rows: Ints | None = None) -> NDArray[Any]:
        """Return what the policy saw at each valid token, of all episodes or some."""
        if rows is None:
            return np.asarray(self.lakes.sights[self.maps[:, None], self.positions][self.mask])
        return np.asarray(self.lakes.sights[self.maps[rows, None], self.positions[rows]][self.mask[rows]])

    def spread(self, of_tokens: NDArray[Any], rows: Ints | None = None) -> Floats:
        """Return what each valid token has one of as an array of episodes and turns."""
        mask = self.mask if rows is None else self.mask[rows]
        placed = np.zeros((*mask.shape, *of_tokens.shape[1:]))
        placed[mask] = of_tokens
        return placed

    def prompt_text(self, row: int) -> str:
        """Return the prompt of an episode, as a map with the start in it."""
        tiles = [WORDS[token] for token in self.lakes.tiles[self.maps[row]]]
        tiles[self.starts[row]] = "S"
        return "\n".join("".join(tiles[line : line + SIZE]) for line in range(0, len(tiles), SIZE))

    def response_text(self, row: int) -> str:
        """Return the moves of an episode."""
        return " ".join(WORDS[CHOICE + choice] for choice in self.choices[row][self.mask[row]])


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
    """Play one episode for each entry of maps and starts, all at once, turn by turn.

    An episode goes on until the policy ends it, also on the goal and in a hole, where moves lead nowhere any more.
    """
    shape = len(maps), turns
    positions, choices = np.zeros(shape, np.int64), np.full(shape, END)
    mask, log_probs = np.zeros(shape, np.bool_), np.zeros(shape)
    here, going = starts.copy(), np.arange(len(maps))
    draws = rng.random((turns, len(maps)))
    for turn in range(turns):
        logits = network.forward(weights, lakes.sights[maps[going], here[going]])[-1] / temperature
        all_log_probs = log_softmax(logits)
        chosen = (np.exp(all_log_probs).cumsum(axis=1) > draws[turn, going, None]).argmax(axis=1)
        positions[going, turn], choices[going, turn], mask[going, turn] = here[going], chosen, True
        log_probs[going, turn] = all_log_probs[np.arange(len(going)), chosen]
        going, moves = going[chosen != END], chosen[chosen != END]
        here[going] = lakes.after[maps[going], here[going], moves]
        if not len(going):
            break
    return Episodes(lakes, maps, starts, positions, choices, mask, log_probs, here, version)
