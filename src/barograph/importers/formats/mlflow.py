"""MLflow's local stores: the directories of ``mlruns``, one per run, and databases with all runs."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from barograph.base.former_name import present
from barograph.importers.reading.log import Facts, Format, FoundLogs, Log, LogReader, RewrittenError
from barograph.importers.reading.rows import StepRows
from barograph.importers.reading.sqlite import (
    UNREADABLE,
    DatabaseReader,
    columns,
    database,
    stored_runs,
    unique_names,
    while_unchanged,
)
from barograph.importers.reading.values import as_time, json_of, number_of
from barograph.importers.recorder import Recorder

META = "meta.yaml"
FOLDERS = {"metrics", "params", "tags", "artifacts", "inputs", "outputs", "traces", META}  # in the directory of a run
STATES = {"FINISHED": "finished", "FAILED": "crashed", "KILLED": "killed"}
STATE_NUMBERS = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}  # as directories have them
LARGEST = 1.7976931348623157e308  # which a database has for an infinite number
NAME_TAG = "barograph.name."  # of barograph's tracker: names that MLflow does not allow
MAX_VALUE = 1 << 16  # bytes of a parameter or a tag
MAX_FILES = 50_000  # metrics, parameters or tags of a run

Point = tuple[float | None, int, str, float]  # time, step, name and value


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the run whose directory it is, or the runs in databases."""
    if META in names and "metrics" in names:
        return FoundLogs([Log(folder, "mlflow_store")], FOLDERS & set(names))
    return stored_runs(folder, names, "mlflow_store", runs_of)


@while_unchanged
def runs_of(path: Path) -> dict[str, str] | None:
    """Return the ids of runs with the names under which they are opened; None if it is not MLflow's database."""
    try:
        with database(path) as connection:
            if not columns(connection, "runs") >= {"run_uuid", "experiment_id", "status"}:
                return None
            rows = connection.execute(
                "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
            )
            return unique_names([(str(id), str(name or "")) for id, name in rows])
    except UNREADABLE:
        return None


@dataclass(frozen=True, slots=True)
class _Run:
    """What MLflow knows of a run."""

    name: str = ""
    experiment: str = ""
    status: str = ""
    start_time: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", {present(tag): text for tag, text in self.tags.items()})

    def facts(self) -> Facts:
        labels = self.tags.get("barograph.tags", "")
        return Facts(
            name=self.name or self.tags.get("mlflow.runName", ""),
            project=self.experiment,
            group=self.tags.get("barograph.group"),
            created=self.start_time,
            tags=tuple(labels.split(", ")) if labels else (),
            notes=self.tags.get("mlflow.note.content"),
        )


class _RunReader(LogReader):
    """Base of the readers of one run."""

    def run(self) -> _Run:
        """Return what MLflow knows of the run."""
        raise NotImplementedError

    def points(self, out: Recorder) -> Iterable[Point]:
        """Return the points that are new."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """Return what MLflow knows of the run."""
        return self.run().facts()

    def read(self, out: Recorder) -> None:
        """Record the points that are new."""
        run = self.run()
        settings = {name: _setting(text) for name, text in run.params.items()}
        self.record_config(settings, out)
        names = {tag.removeprefix(NAME_TAG): name for tag, name in run.tags.items() if tag.startswith(NAME_TAG)}
        rows = StepRows(lambda values, step, at, _: out.row(values, step, at))
        for at, step, name, value in self.points(out):
            rows.add(at, step, (names.get(name, name),), (value,))
        rows.end()
        if run.status in STATES:
            out.status(STATES[run.status], run.tags.get("barograph.reason", ""))
        else:
            out.status(None)


class _StoredRunReader(DatabaseReader, _RunReader):
    """Reads a run in a database."""

    @cached_property
    def _id(self) -> str:
        return self.id_in(runs_of(self.log.path))

    def run(self) -> _Run:
        try:
            with database(self.log.path) as connection:
                found = connection.execute(
                    "SELECT runs.name, experiments.name, runs.status, runs.start_time FROM runs"
                    " LEFT JOIN experiments USING (experiment_id) WHERE run_uuid = ?",
                    (self._id,),
                ).fetchone()
                params, tags = (
                    dict(connection.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (self._id,)))
                    for table in ("params", "tags")
                )
        except UNREADABLE:
            return _Run(self.log.member)
        if found is None:
            return _Run(self.log.member)
        name, experiment, status, start = found
        return _Run(name or "", experiment or "", status or "", as_time(start), params, tags)

    def points(self, out: Recorder) -> Iterator[Point]:
        """Yield the points in the order in which they were written."""
        query = (
            "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics {way}"
            " WHERE run_uuid = ? AND rowid > ? ORDER BY rowid"
        )
        for row, name, value, at, step, is_nan in self.rows_after_last(query, self._id, out):
            if isinstance(value, int | float) and isinstance(step, int):
                yield as_time(at), step, str(name), math.nan if is_nan else _infinite(float(value))
            else:
                out.unread(f"row {row}", "a value or a step is no number")
            self.state["last"], self.state["point"] = row, [name, step, at]

    def check_same(self, connection: sqlite3.Connection) -> None:
        """Raise RewrittenError if the last point that was read is another one now."""
        last = (self.state["last"],)
        found = connection.execute("SELECT key, step, timestamp FROM metrics WHERE rowid = ?", last).fetchone()
        if found is None or list(found) != self.state["point"]:
            raise RewrittenError


def _infinite(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= LARGEST else value


class _FolderReader(_RunReader):
    """Reads a run in a directory: a file per metric, parameter and tag."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self._path = log.path
        self._offsets: dict[str, int] = state.setdefault("offsets", {})

    def files(self) -> list[Path]:
        return [self._path / META, *self._files("metrics"), *self._files("params"), *self._files("tags")]

    def _files(self, name: str) -> list[Path]:
        """Return the files below a directory; a name with slashes is a path."""
        found = []
        for path in (self._path / name).rglob("*"):
            if path.is_file() and not path.is_symlink():
                found.append(path)
                if len(found) >= MAX_FILES:
                    break
        return sorted(found)

    def run(self) -> _Run:
        meta, experiment = _flat_yaml(self._path / META), _flat_yaml(self._path.parent / META)
        state = meta.get("status", "")
        start = meta.get("start_time", "")
        return _Run(
            meta.get("run_name", ""),
            experiment.get("name", ""),
            STATE_NUMBERS.get(state, state),
            as_time(number_of(start)),
            dict(self._texts("params")),
            dict(self._texts("tags")),
        )

    def _texts(self, name: str) -> Iterator[tuple[str, str]]:
        for path in self._files(name):
            with suppress(OSError), path.open("rb") as file:
                yield path.relative_to(self._path / name).as_posix(), file.read(MAX_VALUE).decode("utf-8", "replace")

    def points(self, out: Recorder) -> Iterable[Point]:
        """Return the new points by time: each metric has a file of its own."""
        found: list[Point] = []
        for path in self._files("metrics"):
            name = path.relative_to(self._path / "metrics").as_posix()
            try:
                found.extend(self._new_points(path, name, out))
            except OSError as problem:
                out.unread(f"metrics/{name}", f"cannot be read: {problem.strerror or problem}")
        return sorted(found, key=lambda point: (point[0] or 0.0, point[1]))

    def _new_points(self, path: Path, name: str, out: Recorder) -> Iterator[Point]:
        offset = self._offsets.get(name, 0)
        if path.stat().st_size < offset:
            raise RewrittenError
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                point = _point(line, name)
                if point is not None:
                    yield point
                else:
                    out.unread(f"metrics/{name}", "a line is not time, value and step")
        self._offsets[name] = offset


def _point(line: bytes, name: str) -> Point | None:
    """Parse a line of time in milliseconds, value and, since MLflow 1.0, step."""
    parts = line.decode("utf-8", "replace").split()
    if not 2 <= len(parts) <= 3:
        return None
    at, value = number_of(parts[0]), number_of(parts[1])
    try:
        step = int(parts[2]) if len(parts) == 3 else 0
    except ValueError:
        return None
    return None if at is None or value is None else (as_time(at), step, name, value)


def _flat_yaml(path: Path) -> dict[str, str]:
    """Return the texts of a YAML file that has a name and a text per line, as MLflow writes them."""
    found: dict[str, str] = {}
    with suppress(OSError), path.open("rb") as file:
        for line in file.read(MAX_VALUE).decode("utf-8", "replace").splitlines():
            name, is_pair, text = line.partition(": ")
            text = text.strip()
            if is_pair and name == name.strip() and text != "null":
                quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
                found[name] = text[1:-1].replace("''", "'") if quoted else text
    return found


def _setting(text: str) -> Any:
    """Return a parameter as a number or a truth value if its text is one."""
    if text in ("True", "False"):
        return text == "True"
    value = json_of(text)
    return value if isinstance(value, int | float) else text


def reader(log: Log, state: dict[str, Any]) -> LogReader:
    """Return the reader of a run in a database or in a directory."""
    return _StoredRunReader(log, state) if log.member else _FolderReader(log, state)


FORMAT = Format("MLflow run", reader, logs_in=logs_in)
