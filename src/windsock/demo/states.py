"""States of the workers: arrays that are in memory only while somebody works with them, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class State:
    """The arrays of one worker. Between ``onload`` and ``offload`` they are in memory, otherwise in a file alone."""

    def __init__(self, path: Path, **arrays: NDArray[Any]) -> None:
        self._path = path
        self._kinds = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        self._arrays: dict[str, NDArray[Any]] = arrays
        self.offload()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def onload(self) -> None:
        """Read the arrays."""
        with self._path.open("rb") as file:
            for name, (dtype, shape) in self._kinds.items():
                self._arrays[name] = np.fromfile(file, dtype, int(np.prod(shape))).reshape(shape)

    def offload(self) -> None:
        """Write the arrays, and forget them."""
        with self._path.open("wb") as file:
            for name in self._kinds:
                self._arrays[name].tofile(file)
        self._arrays.clear()

    def __enter__(self) -> State:
        self.onload()
        return self

    def __exit__(self, *problem: object) -> None:
        self.offload()


def save(path: Path, states: Mapping[str, State], **others: Any) -> None:
    """Write a checkpoint; one that is there already is replaced whole."""
    arrays: dict[str, Any] = dict(others)
    for worker, state in states.items():
        with state:
            arrays |= {f"{worker}.{name}": state[name] for name in state._kinds}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.npz")
    np.savez(unfinished, **arrays)
    unfinished.replace(path)


def restore(path: Path, states: Mapping[str, State]) -> dict[str, NDArray[Any]]:
    """Put a checkpoint back into the states; return what else it held."""
    with np.load(path) as saved:
        for worker, state in states.items():
            with state:
                for name in state._kinds:
                    state[name][...] = saved[f"{worker}.{name}"]
        return {name: saved[name] for name in saved.files if name.partition(".")[0] not in states}
