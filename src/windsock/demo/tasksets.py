"""Tasks that the demo evaluates its policy on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windsock.demo.frozen_lake import Ints, Lakes, classic_map

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
