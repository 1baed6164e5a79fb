"""The interface of MLflow's tracking, recorded by barograph: ``import barograph.mlflow as mlflow``.

MLflow's metrics without a step are all at step 0. Here they are counted by name, so that they are a curve.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from barograph.base.model import Status
from barograph.integrations.drop_ins.media import Table
from barograph.integrations.drop_ins.recorded_run import Config, CurrentRun, RecordedRun, from_environment
from barograph.integrations.guard import unharmed
from barograph.recording.run import Run as Recorded

__all__ = [
    "Run", "active_run", "end_run", "log_dict", "log_metric", "log_metrics", "log_param", "log_params", "log_table",
    "log_text", "set_experiment", "set_tag", "set_tags", "start_run",
]  # fmt: skip

VARIABLES = {"MLFLOW_EXPERIMENT_NAME": "project", "MLFLOW_RUN_NAME": "name"}
ENDS = {"FINISHED": "finished", "FAILED": "crashed", "KILLED": "killed"}


class Run(RecordedRun):
    """A run of MLflow."""

    module = "mlflow"

    def __init__(self, run: Recorded, config: Config) -> None:
        super().__init__(run, config)
        self.info = SimpleNamespace(run_id=run.id, run_name=run.name, experiment_id=run.project, status="RUNNING")
        self._counts: Counter[str] = Counter()

    @unharmed
    def log_metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Record values under a step; without one, those of each name are counted."""
        by_step: dict[int, dict[str, Any]] = {}
        for name, value in values.items():
            number = self._counts[name] if step is None else int(step)
            self._counts[name] = max(self._counts[name], number + 1)
            by_step.setdefault(number, {})[name] = value
        for number, found in by_step.items():
            self.record(found, number)

    @unharmed
    def log_table(self, name: str, data: Any) -> None:
        """Record a mapping of columns or a data frame at the last step."""
        if isinstance(data, Mapping):
            columns = ([*column] if isinstance(column, list | tuple) else [column] for column in data.values())
            self.log_file(name, Table([*data], [*zip(*columns, strict=False)]))
        else:
            self.log_file(name, Table(dataframe=data))

    @unharmed
    def log_file(self, name: str, contents: str | Table) -> None:
        """Record a text or a table at the last step."""
        step = max(self._counts.values(), default=1) - 1
        self.record({name: contents}, step)
        self.recorded.commit(step)

    def finish(self, status: Any = "FINISHED", **_: Any) -> None:
        """End the run with a status of MLflow."""
        word = ENDS.get(str(status), "finished")
        self.info.status = str(status)
        self.end(Status(word))  # type: ignore[arg-type]


_current = CurrentRun("mlflow", Run)
_experiment: dict[str, str] = {}


def set_experiment(experiment_name: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """Choose the project of the runs that begin from now on."""
    _experiment["project"] = str(experiment_name or kwargs.get("experiment_id"))
    return SimpleNamespace(name=_experiment["project"], experiment_id=_experiment["project"])


def start_run(
    run_id: str | None = None,
    experiment_id: str | None = None,
    run_name: str | None = None,
    nested: bool = False,
    tags: Mapping[str, Any] | None = None,
    description: str | None = None,
    **ignored: Any,
) -> Run:
    """Begin a run, or continue that of an id, and return it; the end of its ``with`` block ends it."""
    settings = {
        **from_environment(VARIABLES), **_experiment, "id": run_id, "notes": description,
        "tags": [f"{name}={value}" for name, value in (tags or {}).items()],
        **({"name": run_name} if run_name else {}), **({"project": experiment_id} if experiment_id else {}),
    }  # fmt: skip
    return _current.init(settings, ignored, reinit="nested" if nested else True)


def active_run() -> Run | None:
    """Return the current run."""
    return _current.run


def _active() -> Run:
    """Return the current run; begin one where there is none, as MLflow does."""
    return _current.run or start_run()


def log_metric(key: str, value: Any, step: int | None = None, *args: Any, **kwargs: Any) -> None:
    """Record a value."""
    _active().log_metrics({key: value}, step)


def log_metrics(metrics: Mapping[str, Any], step: int | None = None, *args: Any, **kwargs: Any) -> None:
    """Record values of a step."""
    _active().log_metrics(metrics, step)


def log_param(key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Add to the run's config."""
    _active().config.update({key: value})
    return value


def log_params(params: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
    """Add to the run's config."""
    _active().config.update(params)


def set_tag(key: str, value: Any, *args: Any, **kwargs: Any) -> None:
    """Add to the run's config, below ``tags``."""
    set_tags({key: value})


def set_tags(tags: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
    """Add to the run's config, below ``tags``."""
    config = _active().config
    config.update({"tags": {**config.get("tags", {}), **tags}})


def log_text(text: str, artifact_file: str, *args: Any, **kwargs: Any) -> None:
    """Record a text under the name of its file."""
    _active().log_file(artifact_file, text)


def log_dict(dictionary: Any, artifact_file: str, *args: Any, **kwargs: Any) -> None:
    """Record data as a text of JSON under the name of its file."""
    _active().log_file(artifact_file, json.dumps(dictionary, default=repr))


def log_table(data: Any, artifact_file: str, *args: Any, **kwargs: Any) -> None:
    """Record a table, a mapping of columns or a data frame: of prompts and completions as samples, else as a text."""
    _active().log_table(artifact_file, data)


def end_run(status: str = "FINISHED") -> None:
    """End the current run."""
    _current.finish(status)


def __getattr__(name: str) -> Any:
    return _current.attribute(name)
