"""Tracker for MLflow: a tracking server, a database or a directory."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.payload import flat_params, markdown, numbers, samples_table
from barograph.delivery.trackers.registry import require_package

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Metric

RUN_ID_TAG = "barograph.run_id"
NAME_TAG_PREFIX = "barograph.name."
STATES = {"finished": "FINISHED", "crashed": "FAILED", "killed": "KILLED"}
# Limits of MLflow's API.
# A key may have 250 characters; a name is also used as a tag's key behind NAME_TAG_PREFIX.
MAX_BATCH_METRICS, MAX_BATCH_PARAMS, MAX_PARAM_LENGTH, MAX_NAME_LENGTH = 1000, 100, 6000, 230
UNSUPPORTED = re.compile(r"[^\w.\-/ ]")


class MlflowTracker:
    """Logs rows in batches to an MLflow run, found again by the tag ``barograph.run_id``.

    MLflow allows only letters, digits and ``_ - . / space`` in names: ``@`` becomes ``_at_``, another character ``_``
    with a checksum after the name, and the original name is stored as a tag of the run. MLflow stores equal metrics
    (name, step, time, value) once, so a row that is delivered again changes nothing.
    """

    in_process: ClassVar[bool] = False

    def __init__(
        self,
        tracking_uri: str | None = None,
        uri: str | None = None,
        experiment_name: str | None = None,
        project: str | None = None,
        run_name: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        description: str | None = None,
        artifact_location: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
    ) -> None:
        require_package("mlflow")
        if tags is not None and not isinstance(tags, Mapping):
            raise TrackerError(f"tracker 'mlflow': tags must be a mapping; got {type(tags).__name__}")
        self.url: str | None = None
        self._uri = tracking_uri or uri
        self._experiment = experiment_name or project
        self._name = run_name or name
        self._run_id = run_id
        self._tags = dict(tags or {})
        self._description = description
        self._location = artifact_location
        self._access = {"USERNAME": username, "PASSWORD": password, "TOKEN": token}
        self._mapped: dict[str, str] = {}

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Find the run by its tag, or create it, and log the configuration as parameters."""
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        # The client has no parameters for credentials.
        os.environ.update({f"MLFLOW_TRACKING_{key}": value for key, value in self._access.items() if value})
        uri = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute() / 'mlflow.db'}"
        try:
            self._client = MlflowClient(uri)
            experiment = self._find_experiment(self._experiment or info.project, uri)
            self._run_id = self._run_id or self._find_run(experiment, info) or self._create_run(experiment, info)
            self._client.update_run(self._run_id, status="RUNNING")  # a continued run was FINISHED
        except MlflowException as problem:
            # To try again does not help with these. Other errors are raised as they are and retried.
            if problem.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "UNAUTHENTICATED"):
                raise TrackerError(f"tracker 'mlflow': {problem.message}") from problem
            raise
        self._load_names()
        self._log_params(config)
        self.url = f"{uri}#/experiments/{experiment.experiment_id}/runs/{self._run_id}"

    def log(self, rows: Sequence[Row]) -> None:
        """Log numbers in batches, then texts, histograms and samples as artifacts."""
        assert self._run_id is not None
        metrics = (metric for row in rows for metric in self._metrics(row))
        while batch := list(islice(metrics, MAX_BATCH_METRICS)):
            self._client.log_batch(self._run_id, metrics=batch)
        # Artifacts last: they are slow, and writing the same file again is harmless.
        for row in rows:
            self._log_artifacts(row)

    def finish(self, status: Status) -> None:
        """Set the run's status."""
        assert self._run_id is not None
        if status.reason:
            self._client.set_tag(self._run_id, "barograph.reason", status.reason)
        self._client.set_terminated(self._run_id, STATES.get(status.word, "FAILED"))

    def _find_experiment(self, name: str, uri: str) -> Experiment:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            location = self._location or _artifact_location(uri, name)
            found = self._client.get_experiment(self._client.create_experiment(name, artifact_location=location))
        return found

    def _find_run(self, experiment: Experiment, info: RunInfo) -> str | None:
        runs = self._client.search_runs([experiment.experiment_id], f"tags.`{RUN_ID_TAG}` = '{info.id}'", max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def _create_run(self, experiment: Experiment, info: RunInfo) -> str:
        tags = {RUN_ID_TAG: info.id, "barograph.tags": ", ".join(info.tags), "barograph.group": info.group or ""}
        tags |= {"mlflow.note.content": self._description or info.notes or "", **self._tags}
        tags = {key: value for key, value in tags.items() if value}
        name = self._name or info.name
        started = int(info.created * 1000)
        return str(self._client.create_run(experiment.experiment_id, started, tags, name).info.run_id)

    def _log_params(self, config: Mapping[str, Any]) -> None:
        """Log the parameters that the run does not have: MLflow rejects changed values."""
        from mlflow.entities import Param

        assert self._run_id is not None
        known = self._client.get_run(self._run_id).data.params
        wanted = {self._valid_name(name): str(value)[:MAX_PARAM_LENGTH] for name, value in flat_params(config).items()}
        new = iter([Param(name, value) for name, value in wanted.items() if name not in known])
        while batch := list(islice(new, MAX_BATCH_PARAMS)):
            self._client.log_batch(self._run_id, params=batch)

    def _metrics(self, row: Row) -> Iterator[Metric]:
        from mlflow.entities import Metric

        time = int(row.time * 1000)
        for name, value in numbers(row).items():
            yield Metric(self._valid_name(name), value, time, row.step)

    def _log_artifacts(self, row: Row) -> None:
        assert self._run_id is not None
        for name, text in row.texts.items():
            self._client.log_text(self._run_id, text, f"texts/{self._valid_name(name)}/{row.step:08d}.md")
        for name, counted in row.histograms.items():
            bins = {field: getattr(counted, field) for field in counted.__dataclass_fields__}
            # The minimum and maximum of a histogram without values are NaN, which strict JSON does not have.
            plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in bins.items()}
            self._client.log_dict(self._run_id, plain, f"histograms/{self._valid_name(name)}/{row.step:08d}.json")
        if row.samples:
            table = markdown(samples_table(row.samples))
            self._client.log_text(self._run_id, table, f"samples/{row.step:08d}.md")

    def _load_names(self) -> None:
        """Read the names that were mapped before, so that a continued run maps them alike."""
        assert self._run_id is not None
        tags = self._client.get_run(self._run_id).data.tags
        self._mapped = {tags[key]: key.removeprefix(NAME_TAG_PREFIX) for key in tags if key.startswith(NAME_TAG_PREFIX)}

    def _valid_name(self, name: str) -> str:
        """Return a name that MLflow allows; where it differs, store the original as a tag of the run."""
        if name not in self._mapped:
            valid = _valid_name(name)
            if valid in self._mapped.values():
                valid = _with_checksum(valid, name)
            self._mapped[name] = valid
            if valid != name:
                assert self._run_id is not None
                self._client.set_tag(self._run_id, NAME_TAG_PREFIX + valid, name)
        return self._mapped[name]


def _valid_name(name: str) -> str:
    spoken = name.replace("@", "_at_")
    # MLflow uses names as paths: no empty parts, no dots alone, no slash at either end.
    plain = UNSUPPORTED.sub("_", re.sub(r"(?<=/)/+|^/|/$|(?<![^/])\.+(?![^/])", "_", spoken))
    return plain if plain == spoken and len(plain) <= MAX_NAME_LENGTH else _with_checksum(plain, name)


def _with_checksum(mapped: str, name: str) -> str:
    """Return a unique name."""
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{mapped[: MAX_NAME_LENGTH - 9]}_{digest}"


def _artifact_location(uri: str, experiment: str) -> str | None:
    """Return a folder beside a database file; by default MLflow writes artifacts to the working directory."""
    if not uri.startswith("sqlite:///"):
        return None
    return (Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlartifacts" / experiment).as_uri()
