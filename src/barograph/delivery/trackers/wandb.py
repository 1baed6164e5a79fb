"""Tracker for Weights & Biases, online or offline."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.payload import alerts, numbers, samples_table
from barograph.delivery.trackers.registry import require_package

STEP = "barograph/step"
CREATED = "barograph/created"
# 137 is 128 + SIGKILL, as shells report it.
EXIT_CODES = {"finished": 0, "crashed": 1, "killed": 137}


class WandbTracker:
    """Logs rows to a W&B run; the arguments are those of ``wandb.init``, ``api_key`` and ``base_url``.

    W&B drops steps that do not rise. So every row is a W&B step of its own, equal to the row's step while steps rise,
    and has its step as ``barograph/step``, the x axis of all charts. Nothing is dropped.

    Rows are durable only when the run is finished, so there is no mark before. Rows that are delivered again get the
    same W&B step as before, and rows that the server has are not sent again. An offline run is written again from its
    start; ``wandb sync`` merges both files by W&B step.
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
        require_package("wandb")
        if mode not in (None, "online", "offline", "shared", "disabled"):
            raise TrackerError(f"tracker 'wandb': mode must be online, offline, shared or disabled; got {mode!r}")
        if settings is not None and not isinstance(settings, Mapping):
            raise TrackerError(f"tracker 'wandb': settings must be a mapping; got {type(settings).__name__}")
        self.url: str | None = None
        self._arguments = {
            "project": project, "entity": entity, "name": name, "group": group, "id": id, "resume": resume,
            "resume_from": resume_from, "fork_from": fork_from, "job_type": job_type, "tags": _list(tags),
            "notes": notes, "mode": mode, "dir": dir or log_dir, "config_exclude_keys": config_exclude_keys,
            "config_include_keys": config_include_keys, "save_code": save_code, "force": force,
        }  # fmt: skip
        # Without console capture: the relay's output is not the training's.
        self._settings = {"console": "off", **(settings or {})}
        self._access = {"api_key": api_key, "base_url": base_url}
        self._last = -1
        self._first = 0  # W&B step of this run's first row
        self._on_server = 0  # W&B steps that the server has
        self._finished = False

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Start or resume the W&B run."""
        import wandb

        arguments = self._init_arguments(info, folder)
        _wait_for_free_second(Path(arguments["dir"]) / "wandb")
        try:
            self._run = wandb.init(**arguments, config=dict(config), settings=self._all_settings())
        except wandb.errors.AuthenticationError as problem:
            raise TrackerError(f"tracker 'wandb': {problem}; get a key from https://wandb.ai/authorize") from problem
        except (wandb.errors.UsageError, ValueError) as problem:
            raise TrackerError(
                f"tracker 'wandb': {problem}; set api_key or WANDB_API_KEY to a key from https://wandb.ai/authorize, "
                "or use mode: offline"
            ) from problem
        self.url = self._run.url
        self._find_position(info)
        # All charts use the row's step as their x axis, whatever W&B's own step is.
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, rows: Sequence[Row]) -> None:
        """Log each row as one W&B step."""
        for row in rows:
            wandb_step = max(row.step, self._last + 1)
            if wandb_step >= self._on_server:
                self._run.log(
                    {**self._payload(row), STEP: row.step, "_timestamp": row.time}, step=wandb_step, commit=True
                )
                for alert in alerts(row):
                    self._run.alert(alert.title, alert.text, alert.level.upper(), wait_duration=0)
            self._last = wandb_step

    def finish(self, status: Status) -> None:
        """End the run with an exit code and wait until all rows are sent."""
        import wandb

        self._run.summary.update({"barograph/status": status.word, "barograph/reason": status.reason})
        self._run.finish(exit_code=EXIT_CODES.get(status.word, 1))
        if wandb.run is None:  # no other W&B run: stop the service, which flushes the last bytes to disk
            wandb.teardown()
        self._finished = True

    def mark(self) -> dict[str, Any] | None:
        """Return the last W&B step once the run is finished; before that, rows may be in memory only."""
        return {"last": self._last} if self._finished else None

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Continue W&B's steps from the mark."""
        self._last = mark.get("last", self._first - 1)

    def _init_arguments(self, info: RunInfo, folder: Path) -> dict[str, Any]:
        given = {key: value for key, value in self._arguments.items() if value is not None}
        # create_new: with ``in_process=True`` a training may have a W&B run of its own, which must stay open.
        defaults: dict[str, Any] = {
            "project": info.project, "name": info.name, "id": info.id, "group": info.group, "tags": list(info.tags),
            "notes": info.notes, "dir": folder, "reinit": "create_new",
        }  # fmt: skip
        if not {"resume", "resume_from", "fork_from"} & given.keys():
            defaults["resume"] = "allow"  # a restarted relay continues the same W&B run
        return {**defaults, **given}

    def _all_settings(self) -> dict[str, Any]:
        """Return the settings with the key; W&B does not write keys from settings to any file."""
        return {**self._settings, **{key: value for key, value in self._access.items() if value}}

    def _find_position(self, info: RunInfo) -> None:
        """Find the first W&B step of this run, and the steps of it that the server has.

        Where the server has another run of the same id, this run starts after its steps.
        """
        is_same = self._run.summary.get(CREATED) == info.created
        self._first, self._on_server = (0, self._run.step) if is_same else (self._run.step, 0)
        self._last = self._run.step - 1
        self._run.summary[CREATED] = info.created

    def _payload(self, row: Row) -> dict[str, Any]:
        import wandb

        payload: dict[str, Any] = dict(numbers(row))
        # Escaped: a completion may contain markup and scripts, and is shown on W&B's page.
        payload |= {
            name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False) for name, text in row.texts.items()
        }
        payload |= {
            name: wandb.Histogram(np_histogram=(list(counted.counts), list(counted.edges)))
            for name, counted in row.histograms.items()
            if counted.counts
        }
        if row.samples:
            columns, cells = samples_table(row.samples)
            payload["samples"] = wandb.Table(columns=columns, data=cells)
        return payload


def _wait_for_free_second(folder: Path) -> None:
    """Wait while a run of this second exists: W&B names directories by second and overwrites existing ones."""
    while any(folder.glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-*")):
        time.sleep(0.05)


def _list(tags: str | Sequence[str] | None) -> list[str] | None:
    return [tags] if isinstance(tags, str) else list(tags) if tags else None
