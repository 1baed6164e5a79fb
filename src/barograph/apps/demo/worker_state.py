"""Arrays of the demo's workers, in memory only while they are used, and checkpoints of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
