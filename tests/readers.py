"""Readers of the trackers' data as series, with the projects' own libraries.

A value that a place holds twice after its own merge is an error here. W&B and SwanLab have no Python reader of offline
files: they are decoded with their own definitions.
"""

from __future__ import annotations

import collections
import json
import struct
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Series = dict[str, dict[int, float]]
BLOCK, HEAD = 32768, 7  # of LevelDB's log format


class DuplicateError(AssertionError):
    """A value is stored twice."""


class Once(dict[int, Any]):
    """Points of a series; setting a step twice is an error."""

    def __setitem__(self, step: int, value: Any) -> None:
        if step in self:
            raise DuplicateError(f"step {step} is stored twice")
        super().__setitem__(step, value)


def tensorboard_accumulated(folder: Path) -> Any:
    """Return TensorBoard's accumulator of a directory."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def tensorboard_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return every point of every scalar, in TensorBoard's order."""
    found = tensorboard_accumulated(folder)
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]}


def tensorboard_texts(accumulator: Any, tag: str) -> dict[int, str]:
    """Return the texts of a tag by step."""
    return {event.step: event.tensor_proto.string_val[0].decode() for event in accumulator.Tensors(tag)}


def tensorboard_series(folder: Path) -> Series:
    """Return the scalars of a directory."""
    found: Series = collections.defaultdict(Once)
    for name, points in tensorboard_scalars(folder).items():
        for step, value in points:
            found[name][step] = value
    return dict(found)


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield the records of a ``.wandb`` file: LevelDB's log format, each a Record of wandb_internal.proto."""
    from wandb.proto import wandb_internal_pb2

    data, place, parts = path.read_bytes(), HEAD, b""
    while place + HEAD <= len(data):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if place + HEAD + length > len(data):
            return  # W&B was killed while it wrote this
        parts += data[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def wandb_files(folder: Path) -> list[Path]:
    """Return the offline files below a directory, oldest first."""
    return sorted(folder.rglob("*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def wandb_history(path: Path) -> list[dict[str, Any]]:
    """Return the content of every history record of a file."""
    found = [record.history for record in wandb_records(path) if record.WhichOneof("record_type") == "history"]
    return [_nested(one.item) for one in found]


def _nested(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        *path, last = item.nested_key or [item.key]
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = json.loads(item.value_json)
    return found


def wandb_series(points: Iterable[dict[str, Any]]) -> Series:
    """Return the series of W&B's charts: by the defined axis, with W&B steps merged."""
    by_step = {point["_step"]: point for point in points}
    found: Series = collections.defaultdict(Once)
    for point in by_step.values():
        for name, value in point.items():
            if isinstance(value, int | float) and name[0] != "_" and name != "barograph/step":
                found[name][point["barograph/step"]] = value
    return dict(found)


def swanlab_records(path: Path) -> dict[str, list[Any]]:
    """Return the records of a ``.swanlab`` file by kind."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    reader = DataStoreReader()
    reader.open(path)
    found = collections.defaultdict(list)
    for data in reader:
        record = Record.FromString(data)
        for field, content in record.ListFields():
            found[field.name].append(content)
    reader.close()
    return found


def swanlab_files(folder: Path) -> list[Path]:
    """Return the files of offline and local runs below a directory that have a header, oldest first."""
    found = (path for path in folder.rglob("*.swanlab") if path.stat().st_size >= HEAD)  # it was killed before that
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def swanlab_series(*paths: Path) -> Series:
    """Return the series of several files of one run; the first value of a name and step counts, as in SwanLab."""
    found: Series = collections.defaultdict(dict)
    for path in paths:
        for scalar in swanlab_records(path)["scalar"]:
            found[scalar.key].setdefault(scalar.step, scalar.value.number)
    return dict(found)


def mlflow_run(uri: str, run_id: str) -> tuple[Any, Any]:
    """Return MLflow's client and the run with this barograph id."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiments = [one.experiment_id for one in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.`barograph.run_id` = '{run_id}'")
    return client, run


def mlflow_series(uri: str, run_id: str) -> Series:
    """Return the metrics of the run with this barograph id, by their logged names."""
    client, run = mlflow_run(uri, run_id)
    found: Series = collections.defaultdict(Once)
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            found[run.data.tags.get(f"barograph.name.{name}", name)][metric.step] = metric.value
    return dict(found)


def trackio_logs(project: str, run_id: str) -> list[dict[str, Any]]:
    """Return Trackio's rows of a run."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = [one for one in trackio.Api().runs(project) if one.id == run_id]
    return list(SQLiteStorage.get_logs(project, run.name, max_points=None, run_id=run_id))


def trackio_series(logs: Iterable[dict[str, Any]]) -> Series:
    """Return the series of Trackio's rows."""
    found: Series = collections.defaultdict(Once)
    for record in logs:
        for name, value in record.items():
            if isinstance(value, float | int) and name not in ("step", "timestamp"):
                found[name][record["step"]] = value
    return dict(found)


def prometheus_samples(url: str) -> list[Any]:
    """Return an endpoint's samples, parsed by Prometheus' parser."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def prometheus_values(url: str) -> dict[str, float]:
    """Return an endpoint's last values by logged name."""
    return {s.labels["name"]: s.value for s in prometheus_samples(url) if "name" in s.labels}


def jsonl_series(path: Path) -> Series:
    """Return the metrics of a file of JSON lines; rows of one step are merged."""
    found: Series = collections.defaultdict(Once)
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for name, value in record["metrics"].items():
            found[name][record["step"]] = float(value)
    return dict(found)
