"""FrozenLake as a language task: a map is a prompt, an episode is a response of moves and an end token.

Maps and rules are gymnasium's, whose transition table is converted to arrays, so that many episodes are played at
once. The tasksets are what the policy is evaluated on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.base.arrays import FloatsOfAnySize, Ints
from barograph.base.errors import BarographError
from barograph.base.installation import install_command

SIZE = 4

CELLS = SIZE * SIZE

MOVES = 4  # left, down, right, up, as gymnasium numbers them

END = MOVES  # the end token

CHOICES = MOVES + 1

PAD, FROZEN, HOLE, GOAL = range(4)  # token ids: padding and tiles, then positions, then choices

POSITION = 4

CHOICE = POSITION + CELLS

VOCABULARY = CHOICE + CHOICES

PROMPT_LENGTH = CELLS + 1  # tiles and position

TILES = {"S": FROZEN, "F": FROZEN, "H": HOLE, "G": GOAL}

TOKEN_TEXTS = ["", "F", "H", "G", *(f"@{cell}" for cell in range(CELLS)), "left", "down", "right", "up", "end"]

REACH = SIZE - 1

WINDOW = 2 * REACH + 1  # contains the complete map, seen from any cell

FEATURES = 3 * WINDOW * WINDOW


@dataclass(frozen=True, slots=True)
class Lakes:
    """Maps as arrays: tiles as tokens, transitions, distances to the goal, and observations."""

    tiles: Ints  # (maps, cells)
    after: Ints  # (maps, cells, moves)
    distance: Ints  # (maps, cells): fewest moves to the goal, -1: unreachable
    observations: FloatsOfAnySize  # (maps, cells, features)

    def __len__(self) -> int:
        return len(self.tiles)

    def prompts(self, maps: Ints, starts: Ints) -> Ints:
        """Return the prompts of episodes: the tiles of the map and the start position."""
        return np.concatenate([self.tiles[maps], POSITION + starts[:, None]], axis=1)

    def best_scores(self, maps: Ints, starts: Ints, turns: int) -> FloatsOfAnySize:
        """Return the scores of an optimal player: 1 where the goal can be reached within ``turns``."""
        distance = self.distance[maps, starts]
        return ((distance >= 0) & (distance <= turns)).astype(np.float32)


def sample_lakes(count: int, seed: int, avoid: Lakes | None = None, frozen: float = 0.7) -> Lakes:
    """Sample different solvable maps, none of them in ``avoid``."""
    seen = {row.tobytes() for row in avoid.tiles} if avoid is not None else set()
    tiles, after = [], []
    for number, board in _boards(seed, frozen):
        row = _tokens(board)
        if row.tobytes() not in seen:
            seen.add(row.tobytes())
            tiles.append(row)
            after.append(_transitions(board))
        if len(tiles) == count:
            break
        if number > 100 * count:
            raise BarographError(
                f"cannot find {count} different {SIZE}x{SIZE} maps with {frozen:.0%} ice: use fewer maps"
            )
    return _lakes(tiles, after)


def classic_map() -> Lakes:
    """Return gymnasium's standard map of this size."""
    board = gymnasium_module().MAPS[f"{SIZE}x{SIZE}"]
    return _lakes([_tokens(board)], [_transitions(board)])


def _lakes(tiles: list[Ints], after: list[Ints]) -> Lakes:
    all_tiles, all_after = np.array(tiles), np.array(after)
    return Lakes(all_tiles, all_after, _distances(all_tiles, all_after), _observations(all_tiles))


def _tokens(board: list[str]) -> Ints:
    return np.array([TILES[letter] for line in board for letter in line])


def _boards(seed: int, frozen: float) -> Iterator[tuple[int, list[str]]]:
    """Yield gymnasium's random maps."""
    frozen_lake = gymnasium_module()
    seeds = np.random.default_rng(seed)
    number = 0
    while True:
        number += 1
        yield number, frozen_lake.generate_random_map(SIZE, frozen, seed=int(seeds.integers(2**31)))


def gymnasium_module() -> Any:
    """Return gymnasium's FrozenLake module."""
    try:
        from gymnasium.envs.toy_text import frozen_lake
    except ImportError:
        raise BarographError(f"the demo needs gymnasium: {install_command('demo')}") from None
    return frozen_lake


def _transitions(board: list[str]) -> Ints:
    """Return the next cell for each cell and move, from gymnasium's table."""
    table = gymnasium_module().FrozenLakeEnv(desc=board, is_slippery=False).P
    return np.array([[table[cell][move][0][1] for move in range(MOVES)] for cell in range(CELLS)])


def _distances(tiles: Ints, after: Ints) -> Ints:
    """Return the fewest moves to the goal from every cell of every map, by value iteration."""
    far = CELLS * 2
    distance = np.where(tiles == GOAL, 0, far)
    walkable = tiles == FROZEN
    for _ in range(CELLS):
        nearest = distance[np.arange(len(tiles))[:, None, None], after].min(axis=2) + 1
        distance = np.where(walkable, np.minimum(distance, nearest), distance)
    return np.where(distance < far, distance, -1)


def _observations(tiles: Ints) -> FloatsOfAnySize:
    """Return the observation of each cell: holes, goal and the map's border, centred on the cell."""
    board = np.pad(tiles.reshape(-1, SIZE, SIZE), ((0, 0), (REACH, REACH), (REACH, REACH)), constant_values=PAD)
    windows = np.lib.stride_tricks.sliding_window_view(board, (WINDOW, WINDOW), axis=(1, 2))
    channels = [(windows == token).reshape(len(tiles), CELLS, -1) for token in (HOLE, GOAL, PAD)]
    return np.concatenate(channels, axis=2).astype(np.float32)


MAX_SEEN_MAPS = 16


@dataclass(frozen=True, slots=True)
class Taskset:
    """A named set of tasks; a task is a map and a start position."""

    name: str
    number: int
    lakes: Lakes
    maps: Ints
    starts: Ints
    prefix: str = "eval"
    detailed: bool = False
    ks: tuple[int, ...] = ()  # of best@k and the like, instead of the powers of two


def tasksets(trained: Lakes, held_out: Lakes) -> list[Taskset]:
    """Return the tasksets: held-out maps, some maps of the training, and all starts on gymnasium's own map."""
    classic = classic_map()
    starts = np.flatnonzero(classic.distance[0] > 0)
    every, some = np.arange(len(held_out)), np.arange(min(MAX_SEEN_MAPS, len(trained)))
    return [
        Taskset("held_out", 0, held_out, every, np.zeros_like(every)),
        Taskset("seen", 1, trained, some, np.zeros_like(some), detailed=True),
        Taskset("classic", 2, classic, np.zeros_like(starts), starts, prefix="bench", ks=(1, 3)),
    ]
