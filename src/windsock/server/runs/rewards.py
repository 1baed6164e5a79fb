"""The rewards of runs with their sparklines, and an index of those that were read, with the summaries for the table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.headline import headline_values
from windsock.catalogue.resolution import RunNames
from windsock.journal import decoding
from windsock.journal.decoding import DecodingError, list_of, nullable, object_of
from windsock.journal.directory_index import DirectoryIndex, files_digest
from windsock.journal.folder import FileStates
from windsock.server.runs.listed_run import ListedRun
from windsock.server.runs.run_summary import from_record
from windsock.view import View

SPARK_POINTS = 48
KIND = "rewards"
SPARK = object_of(
    {
        "min": list_of(nullable(decoding.read_number)),
        "max": list_of(nullable(decoding.read_number)),
        "nonfinite": list_of(decoding.read_count),
    },
    ("min",),
)
REWARD = nullable(
    object_of({"name": decoding.read_text, "last": decoding.read_number, "spark": SPARK}, ("name", "last", "spark"))
)
RECORD = object_of({"reward": REWARD, "summary": decoding.read_any}, ("reward", "summary"))


class RewardIndex:
    """The rewards that were read, by the folder of the run, for the next server."""

    def __init__(self, dir: Path, folder: Path | None = None) -> None:
        self._dir = dir
        self._index = DirectoryIndex(folder or dir, KIND)
        self._loaded = self._index.load()

    def take(self, run: ListedRun) -> bool:
        """Use an earlier server's result if the files are the same; return whether there was one."""
        digest, record = self._loaded.pop(self._path_of(run), ("", None))
        if digest != _digest(run, run.files.states):
            return False
        try:
            found = RECORD(record)
            run.summary = None if found["summary"] is None else from_record(found["summary"])
        except (DecodingError, TypeError, ValueError):
            return False
        run.reward = found["reward"]
        run.reward_files = run.files.states
        return True

    def save(self, runs: Iterable[ListedRun]) -> None:
        """Store the results of runs that have ended: one that goes on has other files when the next server starts."""
        self._index.save(
            {
                self._path_of(run): (_digest(run, run.reward_files), _record(run))
                for run in runs
                if run.ended and run.reward_files
            }
        )

    def _path_of(self, run: ListedRun) -> str:
        return run.location.path.relative_to(self._dir).as_posix()


def _record(run: ListedRun) -> dict[str, Any]:
    return {"reward": run.reward, "summary": None if run.summary is None else run.summary.record()}


def _digest(run: ListedRun, states: FileStates) -> str:
    """Return the digest of what the reward was read from: the files, and the source that a person has chosen."""
    source = run.annotations.get("source")
    return files_digest(states) + (f" {source}" if source else "")


def reward_summary(view: View, names: RunNames) -> dict[str, Any] | None:
    """Return the reward of a run with its sparkline, or None where it logs none."""
    value = headline_values(names).get("reward")
    if value is None:
        return None
    series = view.series(value.name)
    buckets = series.zoom(max_points=SPARK_POINTS)
    low, high = _rounded(buckets.min), _rounded(buckets.max)
    spark: dict[str, Any] = {"min": low}
    if high != low:
        spark["max"] = high
    if buckets.nonfinite.any():
        spark["nonfinite"] = buckets.nonfinite.tolist()
    return {"name": value.name, "last": float(series.last), "spark": spark}


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Round values to five digits: a sparkline shows no more, and the list is half as large."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
