"""The configs of the runs of a list, and an index of those that were read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.base.formatting import flatten
from barograph.importers.cache import list_folder
from barograph.journal.directory import RunIndex
from barograph.journal.format.folder import is_run
from barograph.journal.read.status import Glance

KIND = "configs"
MAX_KEYS = 5000
MAX_VALUE_LENGTH = 200  # characters; configs are compared here, not shown


class ConfigIndex:
    """The flat configs of the runs below a directory. An entry counts only for the files that it was made of."""

    def __init__(self, dir: Path) -> None:
        # Nothing is written beside logs.
        self._indexes = {True: RunIndex(dir, KIND), False: RunIndex(dir, KIND, list_folder(dir))}

    def known(self, run: Glance) -> dict[str, Any] | None:
        """Return the config of a run, if it was read from its files as they are now."""
        for index in self._indexes.values():
            digest, config = index.get(run.path)
            if run.digest and digest == run.digest and isinstance(config, dict):
                return config
        return None

    def read(self, run: Glance) -> dict[str, Any]:
        """Return the config of a run and keep it; raise what opening the run raises."""
        from barograph.importers.opening import open_run  # imports NumPy, which known configs can do without

        return self.keep(run, open_run(run.path).config)

    def keep(self, run: Glance, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the flat config of a run that was read, and keep it if the run is over."""
        flat = flat_config(config)
        if run.status.ended:
            self._indexes[is_run(run.path)].put(run.path, run.digest, flat)
        return flat

    def save(self) -> None:
        """Write what is new, without the runs that are gone."""
        for index in self._indexes.values():
            index.save()


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a config by their dotted keys: numbers and flags, and all else as text."""
    leaves = dict(flatten(config))
    return {key: _scalar(leaves[key]) for key in list(leaves)[:MAX_KEYS]}


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
