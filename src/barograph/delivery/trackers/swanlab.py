"""Tracker for SwanLab: its cloud, a self-hosted server, or local files."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.payload import markdown, merge_rows, numbers, samples_table
from barograph.delivery.trackers.registry import require_package

STATES = {"finished": "success", "killed": "aborted"}
CONNECT_TIMEOUT = 10.0
# Nobody answers questions in the relay, and its output is not the training's.
QUIET = {"interactive": False, "terminal": {"proxy_type": "none"}}


class SwanLabTracker:
    """Logs rows to a SwanLab run; the arguments are those of ``swanlab.init`` and ``swanlab.login``.

    SwanLab accepts steps in any order and stores the first value of a name and step, so a row that is delivered again
    changes nothing. Rows are durable only when the run is finished, so there is no mark before. SwanLab drops steps
    below those of a resumed run, negative steps, and a second value of a name and step; they are counted in
    ``skipped``.
    """

    in_process: ClassVar[bool] = False

    def __init__(
        self,
        project: str | None = None,
        workspace: str | None = None,
        experiment_name: str | None = None,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        group: str | None = None,
        job_type: str | None = None,
        tags: str | Sequence[str] | None = None,
        id: str | None = None,
        resume: bool | str | None = None,
        mode: str | None = None,
        logdir: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        public: bool | None = None,
        color: str | None = None,
        reinit: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        login_kwargs: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        host: str | None = None,
    ) -> None:
        require_package("swanlab")
        if mode not in (None, "online", "cloud", "local", "offline", "disabled"):
            raise TrackerError(f"tracker 'swanlab': mode must be online, local, offline or disabled; got {mode!r}")
        for key, value in (("settings", settings), ("login_kwargs", login_kwargs)):
            if value is not None and not isinstance(value, Mapping):
                raise TrackerError(f"tracker 'swanlab': {key} must be a mapping; got {type(value).__name__}")
        self.url: str | None = None
        self.skipped = 0
        self._arguments = {
            "project": project, "workspace": workspace, "name": experiment_name or name,
            "description": description or notes, "group": group, "job_type": job_type,
            "tags": [tags] if isinstance(tags, str) else tags, "id": id, "resume": resume, "mode": mode,
            "log_dir": logdir or log_dir, "public": public, "color": color, "reinit": reinit,
        }  # fmt: skip
        self._settings = {**QUIET, **(settings or {})}
        self._login = {**(login_kwargs or {}), **{k: v for k, v in (("api_key", api_key), ("host", host)) if v}}
        self._highest = -1  # highest step that was logged
        self._floor = -1  # SwanLab drops steps up to this one
        self._attempts: dict[str, int] = {}
        self._names: set[str] = set()
        self._finished = False

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Log in where credentials are given, and start or resume the run."""
        import swanlab

        given = {key: value for key, value in self._arguments.items() if value is not None}
        defaults: dict[str, Any] = {
            "project": info.project, "name": info.name, "id": info.id, "group": info.group,
            "tags": list(info.tags), "description": info.notes, "resume": "allow", "log_dir": str(folder / "swanlab"),
        }  # fmt: skip
        try:
            chosen = {key: value for key, value in {**defaults, **given}.items() if value}
            if self._login and self._is_online(swanlab.Settings().mode):
                self._check_connection()
                swanlab.login(**self._login)
            self._run = swanlab.init(**chosen, config=dict(config), settings=swanlab.Settings(**self._settings))
        except (swanlab.exceptions.AuthenticationError, RuntimeError, ValueError, TypeError) as problem:
            # An unreachable host also raises AuthenticationError: check, so that it is retried.
            if isinstance(problem, swanlab.exceptions.AuthenticationError):
                self._check_connection()
            raise TrackerError(
                f"tracker 'swanlab': {problem} Set login_kwargs.api_key or SWANLAB_API_KEY to a key from "
                "https://swanlab.cn/space/~/settings, or use mode: offline."
            ) from problem
        self.url = self._run.url if self._run.mode == "online" else str(self._run.dir)

    def log(self, rows: Sequence[Row]) -> None:
        """Log the rows."""
        for row in merge_rows(rows):
            payload = self._payload(row)
            self._count_dropped(row, payload)
            self._run.log(payload, step=row.step)

    def finish(self, status: Status) -> None:
        """End the run with its state and wait until all rows are written and sent."""
        state = STATES.get(status.word, "crashed")
        self._run.finish(state, error=(status.reason or status.word) if state == "crashed" else None)
        self._finished = True

    def mark(self) -> dict[str, Any] | None:
        """Return the highest step once the run is finished; before that, rows may be in memory only."""
        return {"highest": self._highest, "attempts": dict(self._attempts)} if self._finished else None

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Restore the steps that were delivered; SwanLab itself drops rows that are delivered again."""
        self._highest = mark.get("highest", -1)
        self._attempts = dict(mark.get("attempts", {}))
        # The server knows the steps of an earlier process; a new offline file starts empty.
        self._floor = self._highest if self._run.mode == "online" else -1

    def _is_online(self, default: str) -> bool:
        return (self._arguments["mode"] or self._settings.get("mode") or default) in ("online", "cloud")

    def _check_connection(self) -> None:
        """Raise ConnectionError where the host does not answer: SwanLab reports that as a wrong key."""
        import swanlab

        host = self._login.get("host") or swanlab.Settings().api_host
        try:
            urllib.request.urlopen(host, timeout=CONNECT_TIMEOUT).close()
        except urllib.error.HTTPError as answer:
            # Any status is an answer: the host is reachable.
            answer.close()
        except OSError as problem:
            raise ConnectionError(f"{host} does not answer: {problem}") from problem

    def _count_dropped(self, row: Row, payload: Mapping[str, Any]) -> None:
        """Count the values of a row that SwanLab will drop."""
        attempt = self._attempts.setdefault(str(row.writer), row.writer.attempt)
        if row.writer.attempt > attempt:  # a new attempt may repeat steps
            self._floor = self._highest
            self._attempts[str(row.writer)] = row.writer.attempt
        if row.step < 0 or row.step <= self._floor:
            self.skipped += len(payload)
        elif row.step == self._highest:
            self.skipped += len(self._names & payload.keys())
        self._names = set(payload) | (self._names if row.step == self._highest else set())
        self._highest = max(self._highest, row.step)

    def _payload(self, row: Row) -> dict[str, Any]:
        import swanlab

        payload: dict[str, Any] = dict(numbers(row))
        payload |= {name: swanlab.Text(text) for name, text in row.texts.items()}
        for name, counted in row.histograms.items():
            payload[name] = _bars(counted.edges, counted.counts)
        if row.samples:
            payload["samples"] = swanlab.Text(markdown(samples_table(row.samples)))
        return payload


def _bars(edges: Sequence[float], counts: Sequence[int]) -> Any:
    """Return a histogram as a bar chart."""
    import swanlab

    bar = swanlab.echarts.Bar()
    bar.add_xaxis([f"{left:.4g}" for left in edges[:-1]])
    bar.add_yaxis("count", list(counts))
    return bar
