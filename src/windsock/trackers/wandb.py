"""Rows in Weights & Biases, online or offline."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from windsock.errors import TrackerError
from windsock.model import Row, RunInfo, Status
from windsock.trackers.forms import numbers, samples_table
from windsock.trackers.packages import require

STEP = "windsock/step"
CREATED = "windsock/created"
EXIT_CODES = {"finished": 0, "crashed": 1, "killed": 137}


class WandbTracker:
    """Hands rows to a W&B run; the arguments are those of ``wandb.init``, and ``api_key`` and ``base_url``.

    W&B drops a step that is not above the last. So every row is a W&B step of its own, equal to the row's step as long
    as steps rise, and carries its step as ``windsock/step``, which is the axis of all charts: nothing is dropped.

    What was handed over is safe when the run is finished and not before, so that there is no mark until then. Rows that
    are offered again get the W&B step that they had, and those that the server has are not sent again; an offline
    run is written anew, complete, and ``wandb sync`` merges the two by W&B's step.
    """

    in_process: ClassVar[bool] = False

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        name: str | None = None,
        group: str | None = None,
        id: str | None = None,
        resume: bool | str | None = None,
        resume_from: str | None = None,
        fork_from: str | None = None,
        job_type: str | None = None,
        tags: str | Sequence[str] | None = None,
        notes: str | None = None,
        mode: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        config_exclude_keys: Sequence[str] | None = None,
        config_include_keys: Sequence[str] | None = None,
        save_code: bool | None = None,
        force: bool | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        require("wandb")
        if mode not in (None, "online", "offline", "shared", "disabled"):
            raise TrackerError(f"tracker 'wandb': mode {mode!r}; expected online, offline, shared or disabled")
        if settings is not None and not isinstance(settings, Mapping):
            raise TrackerError(f"tracker 'wandb': settings: expected a mapping, got {type(settings).__name__}")
        self.url: str | None = None
        self._arguments = {
            "project": project, "entity": entity, "name": name, "group": group, "id": id, "resume": resume,
            "resume_from": resume_from, "fork_from": fork_from, "job_type": job_type, "tags": _list(tags),
            "notes": notes, "mode": mode, "dir": dir or log_dir, "config_exclude_keys": config_exclude_keys,
            "config_include_keys": config_include_keys, "save_code": save_code, "force": force,
        }  # fmt: skip
        self._settings = {"console": "off", **(settings or {})}
        self._access = {"api_key": api_key, "base_url": base_url}
        self._last = -1
        self._first = self._there = 0
        self._finished = False

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Begin the W&B run of the same id, or resume it."""
        import wandb

        chosen = self._chosen(info, folder)
        _await_free_second(Path(chosen["dir"]) / "wandb")
        try:
            self._run = wandb.init(**chosen, config=dict(config), settings=self._all_settings())
        except wandb.errors.AuthenticationError as problem:
            raise TrackerError(f"tracker 'wandb': {problem}; keys are at https://wandb.ai/authorize") from problem
        except (wandb.errors.UsageError, ValueError) as problem:
            raise TrackerError(
                f"tracker 'wandb': {problem}; a key (https://wandb.ai/authorize) goes into api_key or WANDB_API_KEY, "
                "and mode: offline needs none"
            ) from problem
        self.url = self._run.url
        self._place(info)
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, rows: Sequence[Row]) -> None:
        """Hand over the rows, each at once."""
        for row in rows:
            at = max(row.step, self._last + 1)
            if at >= self._there:
                self._run.log({**self._shown(row), STEP: row.step, "_timestamp": row.time}, step=at, commit=True)
            self._last = at

    def finish(self, status: Status) -> None:
        """End the run, with an exit code that says whether it went well, and wait until all is sent."""
        import wandb

        self._run.summary.update({"windsock/status": status.word, "windsock/reason": status.reason})
        self._run.finish(exit_code=EXIT_CODES.get(status.word, 1))
        if wandb.run is None:  # nobody else needs W&B's service, and only its end brings the last bytes to the disk
            wandb.teardown()
        self._finished = True

    def mark(self) -> dict[str, Any] | None:
        """Return the last W&B step once the run is finished: until then rows may be in memory alone."""
        return {"last": self._last} if self._finished else None

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Count W&B's steps on from the mark."""
        self._last = mark.get("last", self._first - 1)

    def _chosen(self, info: RunInfo, folder: Path) -> dict[str, Any]:
        given = {key: value for key, value in self._arguments.items() if value is not None}
        ours: dict[str, Any] = {
            "project": info.project, "name": info.name, "id": info.id, "group": info.group, "tags": list(info.tags),
            "notes": info.notes, "dir": folder, "reinit": "create_new",
        }  # fmt: skip
        if not {"resume", "resume_from", "fork_from"} & given.keys():
            ours["resume"] = "allow"
        return {**ours, **given}

    def _all_settings(self) -> dict[str, Any]:
        """Return the settings with the key in them, which W&B takes from there without writing it anywhere."""
        return {**self._settings, **{key: value for key, value in self._access.items() if value}}

    def _place(self, info: RunInfo) -> None:
        """Find out what the server has of this very run; behind what it has of another, ours begins."""
        ours = self._run.summary.get(CREATED) == info.created
        self._first, self._there = (0, self._run.step) if ours else (self._run.step, 0)
        self._last = self._run.step - 1
        self._run.summary[CREATED] = info.created

    def _shown(self, row: Row) -> dict[str, Any]:
        import wandb

        shown: dict[str, Any] = dict(numbers(row))
        shown |= {name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False) for name, text in row.texts.items()}
        shown |= {
            name: wandb.Histogram(np_histogram=(list(counted.counts), list(counted.edges)))
            for name, counted in row.histograms.items()
            if counted.counts
        }
        if row.samples:
            columns, cells = samples_table(row.samples)
            shown["samples"] = wandb.Table(columns=columns, data=cells)
        return shown


def _await_free_second(folder: Path) -> None:
    """Wait while there is a run of this very second: W&B names a directory by it and writes over what is there."""
    while any(folder.glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-*")):
        time.sleep(0.05)


def _list(words: str | Sequence[str] | None) -> list[str] | None:
    return [words] if isinstance(words, str) else list(words) if words else None
