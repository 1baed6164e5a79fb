"""Tracker for Trackio: its local database, a Hugging Face Space, or a server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.payload import alerts, numbers, samples_table
from barograph.delivery.trackers.registry import require_package


class TrackioTracker:
    """Logs rows to a Trackio run; the arguments are those of ``trackio.init``.

    A local row is written at once, with its time and an id derived from its content. Trackio stores an id once, so a
    row that is delivered again changes nothing. With ``space_id`` or ``server_url`` Trackio sends rows in the
    background, and a row may be stored twice after a crash.
    """

    in_process: ClassVar[bool] = False

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        server_url: str | None = None,
        dataset_id: str | None = None,
        bucket_id: str | None = None,
        private: bool | None = None,
        tags: str | Sequence[str] | None = None,
        auto_log_gpu: bool = False,
        gpu_log_interval: float = 10.0,
        auto_log_cpu: bool = False,
        cpu_log_interval: float = 10.0,
        webhook_url: str | None = None,
    ) -> None:
        require_package("trackio")
        self.url: str | None = None
        self._project, self._name, self._group = project, name, group
        self._is_local = not (space_id or server_url)
        self._tags = tags
        self._arguments: dict[str, Any] = {
            "space_id": space_id, "server_url": server_url, "dataset_id": dataset_id, "bucket_id": bucket_id,
            "private": private, "auto_log_gpu": auto_log_gpu, "gpu_log_interval": gpu_log_interval,
            "auto_log_cpu": auto_log_cpu, "cpu_log_interval": cpu_log_interval, "webhook_url": webhook_url,
        }  # fmt: skip

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Start or continue the run."""
        import trackio

        # Trackio rejects config keys with a leading underscore, such as Hydra's ``_target_``.
        settings = {f"config{key}" if key.startswith("_") else key: value for key, value in config.items()}
        tags = self._tags or info.tags
        if tags:
            settings["tags"] = [tags] if isinstance(tags, str) else list(tags)
        try:
            self._run = trackio.init(
                self._project or info.project,
                self._name or info.name,
                self._group or info.group,
                config=settings,
                resume="never" if self._is_local else "allow",  # a local run is continued by its id, not by its name
                # In a notebook Trackio would start a dashboard and show it below the cell.
                embed=False,
                **self._arguments,
            )
        except ValueError as problem:
            raise TrackerError(f"tracker 'trackio': {problem}") from problem
        if self._is_local:
            # Trackio makes up an id; with the run's own, a restarted relay continues the same run.
            self._run.id = info.id
        self.url = self._run.url or f"trackio show --project {self._run.project}"

    def log(self, rows: Sequence[Row]) -> None:
        """Write the rows to the database, or pass them to Trackio's sender."""
        if self._is_local:
            self._write(rows)
            return
        for row in rows:
            self._run.log(_payload(row), step=row.step)
            self._send_alerts(row)

    def finish(self, status: Status) -> None:
        """End the run and wait until Trackio has sent all rows."""
        self._run.finish()

    def _write(self, rows: Sequence[Row]) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        run = self._run
        # trackio.log sends in the background with the time of the call; this stores the row's own time, at once.
        SQLiteStorage.bulk_log(
            run.project,
            run.name,
            [self._plain(row) for row in rows],
            steps=[row.step for row in rows],
            timestamps=[_moment(row) for row in rows],
            config=run.config,
            log_ids=[_id(row) for row in rows],
            run_id=run.id,
        )
        found = [(row, number, alert) for row in rows for number, alert in enumerate(alerts(row))]
        SQLiteStorage.bulk_alert(
            run.project,
            run.name,
            [alert.title for _, _, alert in found],
            [alert.text for _, _, alert in found],
            [alert.level for _, _, alert in found],
            [row.step for row, _, _ in found],
            timestamps=[_moment(row) for row, _, _ in found],
            alert_ids=[f"{_id(row)}-{number}" for row, number, _ in found],
            run_id=run.id,
        )

    def _send_alerts(self, row: Row) -> None:
        from trackio.alerts import AlertLevel

        for alert in alerts(row):
            self._run.alert(alert.title, alert.text, AlertLevel(alert.level), step=row.step)

    def _plain(self, row: Row) -> dict[str, Any]:
        """Return a row's content as ``trackio.log`` would store it."""
        from trackio.table import Table
        from trackio.utils import RESERVED_KEYS

        context = {"project": self._run.project, "run": self._run.name, "step": row.step}
        plain: dict[str, Any] = {}
        for name, value in _payload(row).items():
            key = f"__{name}" if name in RESERVED_KEYS or name.startswith("__") else name
            is_plain = isinstance(value, float)
            plain[key] = value if is_plain else value._to_dict(**context if isinstance(value, Table) else {})
        return plain


def _moment(row: Row) -> str:
    return datetime.fromtimestamp(row.time, UTC).isoformat()


def _payload(row: Row) -> dict[str, Any]:
    import trackio

    payload: dict[str, Any] = {name: float(value) for name, value in numbers(row).items()}
    payload |= {name: trackio.Markdown(text) for name, text in row.texts.items()}
    payload |= {
        name: trackio.Histogram(np_histogram=(counted.counts, counted.edges))
        for name, counted in row.histograms.items()
        if counted.counts
    }
    if row.samples:
        columns, cells = samples_table(row.samples)
        payload["samples"] = trackio.Table(columns=columns, data=cells)
    return payload


def _id(row: Row) -> str:
    """Return an id that is the same each time a row is delivered."""
    content = repr((row.writer, row.step, row.time, sorted(row.values.items()), sorted(row.texts)))
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=16).hexdigest()
