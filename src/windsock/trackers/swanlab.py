"""Rows in SwanLab: in its cloud, on a host of one's own, or in local files."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from windsock.errors import TrackerError
from windsock.model import Row, RunInfo, Status
from windsock.trackers.forms import markdown, numbers, samples_table, united
from windsock.trackers.packages import require

STATES = {"finished": "success", "killed": "aborted"}
REACH_SECONDS = 10.0
QUIET = {"interactive": False, "terminal": {"proxy_type": "none"}}


class SwanLabTracker:
    """Hands rows to a SwanLab run; the arguments are those of ``swanlab.init``, and those of ``swanlab.login``.

    SwanLab takes steps in any order and keeps the first value of a name and step, so that a row which is offered again
    changes nothing. What was handed over is safe when the run is finished and not before: there is no mark until
    then. A step below those that a resumed run had, a negative one, and a second value for a name and step are refused
    by SwanLab; they are counted in ``skipped``.
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
        require("swanlab")
        if mode not in (None, "online", "cloud", "local", "offline", "disabled"):
            raise TrackerError(f"tracker 'swanlab': mode {mode!r}; expected online, local, offline or disabled")
        for word, value in (("settings", settings), ("login_kwargs", login_kwargs)):
            if value is not None and not isinstance(value, Mapping):
                raise TrackerError(f"tracker 'swanlab': {word}: expected a mapping, got {type(value).__name__}")
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
        self._highest = -1  # step that was handed over
        self._floor = -1  # up to here SwanLab has decided
        self._attempts: dict[str, int] = {}
        self._names: set[str] = set()
        self._finished = False

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Log in where there is something to log in with, and begin the run of the same id, or resume it."""
        import swanlab

        given = {key: value for key, value in self._arguments.items() if value is not None}
        ours: dict[str, Any] = {
            "project": info.project, "name": info.name, "id": info.id, "group": info.group,
            "tags": list(info.tags), "description": info.notes, "resume": "allow", "log_dir": str(folder / "swanlab"),
        }  # fmt: skip
        try:
            chosen = {key: value for key, value in {**ours, **given}.items() if value}
            if self._login and self._goes_online(swanlab.Settings().mode):
                self._reach()
                swanlab.login(**self._login)
            self._run = swanlab.init(**chosen, config=dict(config), settings=swanlab.Settings(**self._settings))
        except (swanlab.exceptions.AuthenticationError, RuntimeError, ValueError, TypeError) as problem:
            if isinstance(problem, swanlab.exceptions.AuthenticationError):
                self._reach()
            raise TrackerError(
                f"tracker 'swanlab': {problem} A key (https://swanlab.cn/space/~/settings) goes into "
                "login_kwargs.api_key or SWANLAB_API_KEY, and mode: offline needs none."
            ) from problem
        self.url = self._run.url if self._run.mode == "online" else str(self._run.dir)

    def log(self, rows: Sequence[Row]) -> None:
        """Hand over the rows."""
        for row in united(rows):
            shown = self._shown(row)
            self._count_refused(row, shown)
            self._run.log(shown, step=row.step)

    def finish(self, status: Status) -> None:
        """End the run with its state and wait until all is written and sent."""
        state = STATES.get(status.word, "crashed")
        self._run.finish(state, error=(status.reason or status.word) if state == "crashed" else None)
        self._finished = True

    def mark(self) -> dict[str, Any] | None:
        """Return the highest step once the run is finished: until then rows may be in memory alone."""
        return {"highest": self._highest, "attempts": dict(self._attempts)} if self._finished else None

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Know again what was delivered; rows that are offered again SwanLab refuses itself."""
        self._highest = mark.get("highest", -1)
        self._attempts = dict(mark.get("attempts", {}))
        self._floor = self._highest if self._run.mode == "online" else -1

    def _goes_online(self, default: str) -> bool:
        return (self._arguments["mode"] or self._settings.get("mode") or default) in ("online", "cloud")

    def _reach(self) -> None:
        """Raise ConnectionError where the host does not answer, which SwanLab takes for a wrong key."""
        import swanlab

        host = self._login.get("host") or swanlab.Settings().api_host
        try:
            urllib.request.urlopen(host, timeout=REACH_SECONDS).close()
        except urllib.error.HTTPError as answer:
            answer.close()
        except OSError as problem:
            raise ConnectionError(f"{host} does not answer: {problem}") from problem

    def _count_refused(self, row: Row, shown: Mapping[str, Any]) -> None:
        """Count what SwanLab will not take of a row, by what was given before."""
        attempt = self._attempts.setdefault(str(row.writer), row.writer.attempt)
        if row.writer.attempt > attempt:  # it begins anew at a step that may have been given
            self._floor = self._highest
            self._attempts[str(row.writer)] = row.writer.attempt
        if row.step < 0 or row.step <= self._floor:
            self.skipped += len(shown)
        elif row.step == self._highest:
            self.skipped += len(self._names & shown.keys())
        self._names = set(shown) | (self._names if row.step == self._highest else set())
        self._highest = max(self._highest, row.step)

    def _shown(self, row: Row) -> dict[str, Any]:
        import swanlab

        shown: dict[str, Any] = dict(numbers(row))
        shown |= {name: swanlab.Text(text) for name, text in row.texts.items()}
        for name, counted in row.histograms.items():
            shown[name] = _bars(counted.edges, counted.counts)
        if row.samples:
            shown["samples"] = swanlab.Text(markdown(samples_table(row.samples)))
        return shown


def _bars(edges: Sequence[float], counts: Sequence[int]) -> Any:
    """Return a histogram as a chart of bars."""
    import swanlab

    bar = swanlab.echarts.Bar()
    bar.add_xaxis([f"{left:.4g}" for left in edges[:-1]])
    bar.add_yaxis("count", list(counts))
    return bar
