"""SwanLab's files of a run, ``*.swanlab``, which it writes offline, locally and online alike.

Each record is a message of ``swanlab.record.v1``, decoded without the swanlab package; versions before 0.7 wrote JSON.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barograph.importers.reading.block_records import FileLayout, RecordFileReader
from barograph.importers.reading.events import (
    BYTES,
    DOUBLE,
    FIXED64,
    VARINT,
    UndecodableError,
    fields,
    signed,
    timestamp,
)
from barograph.importers.reading.log import Facts, Format, Log
from barograph.importers.reading.values import SPECIAL, as_time, to_float
from barograph.importers.recorder import Recorder

SIGNATURE = b":SWL"
LAYOUT = FileLayout(
    "swanlab_store",
    ".swanlab",
    SIGNATURE,
    inner=frozenset({"files", "media", "debug", "logs", "console"}),
    beside=frozenset({"runs.swanlab"}),  # a database of older versions, of what is in the directories
)
CONFIG_FILE = Path("files", "config.yaml")  # beside the records
MAX_CONFIG = 4 << 20
MEDIA = "texts, pictures and other media are in files of their own, which are not read"
# Fields of Record.
START, FINISH, COLUMN, SCALAR, MEDIUM = 10, 11, 12, 13, 14
SYSTEM = 2  # class of a column: what SwanLab measures of the machine
STATES = {1: "finished", 2: "crashed", 3: "killed"}


@dataclass(frozen=True, slots=True)
class _Scalar:
    """One value of a metric."""

    name: str
    step: int
    at: float | None
    value: float


class Reader(RecordFileReader):
    """Reads one run. SwanLab stores a metric once per step: the first value counts."""

    layout = LAYOUT

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("system", [])  # columns that are not the training's
        self._row: dict[str, float | None] = {}
        self._row_step = 0
        self._row_time: float | None = None

    def files(self) -> list[Path]:
        """Return the files of the run and its settings."""
        files = super().files()
        return [*files, *(file.parent / CONFIG_FILE for file in files)]

    def facts(self) -> Facts:
        """Return what SwanLab knows of the run."""
        facts: dict[str, Any] = {}
        for path in super().files()[:1]:
            with suppress(OSError, UndecodableError):
                for kind, data in self.first_contents(path):
                    if kind == START:
                        facts |= {name: value for name, value in data.items() if value}
        return Facts(**facts)

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        for path in super().files():
            self._config(path.parent / CONFIG_FILE, out)
            self.read_file(path, out)
            self._end_row(out)

    def contents(self, record: bytes) -> Iterator[tuple[int, Any]]:
        """Yield what a record has, by the field of its kind; older versions wrote JSON."""
        return _contents_of_json(record) if record[:1] == b"{" else _contents(record)

    def content(self, kind: int, data: Any, out: Recorder) -> None:
        """Record what a record has."""
        if kind == SCALAR:
            self._scalar(data, out)
        elif kind == COLUMN:
            if data[1] == SYSTEM:
                self.state["system"].append(data[0])
        elif kind == MEDIUM:
            out.note(MEDIA)
        elif kind == FINISH:
            self._end_row(out)
            state, error = data
            out.status(STATES.get(state), error.strip().splitlines()[-1] if error.strip() else "")
        elif kind == START:
            out.status(None)

    def _scalar(self, scalar: _Scalar, out: Recorder) -> None:
        if scalar.name in self.state["system"]:
            return
        if scalar.step != self._row_step:
            self._end_row(out)
        if not self._row:
            self._row_step, self._row_time = scalar.step, scalar.at
        self._row.setdefault(scalar.name, scalar.value)

    def _end_row(self, out: Recorder) -> None:
        if self._row:
            out.row(self._row, self._row_step, self._row_time, keeps_attempt=True)
            self._row = {}

    def _config(self, path: Path, out: Recorder) -> None:
        """Record the settings, if they have changed."""
        try:
            text = path.read_bytes()[:MAX_CONFIG]
        except OSError:
            return
        if self.state.get("config") == (state := [len(text), path.stat().st_mtime_ns]):
            return
        self.state["config"] = state
        try:
            yaml = importlib.import_module("yaml")
        except ImportError:
            out.note(f"the settings in {CONFIG_FILE} are not read: pip install pyyaml")
            return
        try:
            found = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            out.unread(str(CONFIG_FILE), "not YAML")
            return
        if isinstance(found, Mapping):
            out.config({str(key): _setting(value) for key, value in found.items()})


def _setting(value: Any) -> Any:
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


def _contents(record: bytes) -> Iterator[tuple[int, Any]]:
    """Yield what a record has, by the field of its kind."""
    for field, wire, data in fields(record):
        if wire != BYTES:
            continue
        if field == SCALAR:
            scalar = _scalar(data)
            if scalar is not None:
                yield field, scalar
        elif field == COLUMN:
            column = {number: value for number, _, value in fields(data)}
            yield field, (_text(column.get(3)), column.get(1))
        elif field == FINISH:
            finish = {number: value for number, _, value in fields(data)}
            yield field, (finish.get(1, 0), _text(finish.get(2)))
        elif field == START:
            yield field, _start(data)
        elif field == MEDIUM:
            yield field, None


def _scalar(data: bytes) -> _Scalar | None:
    """Decode a ScalarRecord: 1 key, 2 step, 4 timestamp, 5 value."""
    name, step, at, value = "", 0, None, None
    for field, wire, inner in fields(data):
        if field == 1 and wire == BYTES:
            name = _text(inner)
        elif field == 2 and wire == VARINT:
            step = signed(inner)
        elif field == 4 and wire == BYTES:
            at = timestamp(inner)
        elif field == 5 and wire == BYTES:
            value = next((DOUBLE.unpack(number)[0] for _, kind, number in fields(inner) if kind == FIXED64), 0.0)
    return None if value is None or not name else _Scalar(name, step, at, value)


def _start(data: bytes) -> dict[str, Any]:
    """Decode a StartRecord: 1 project, 4 name, 5 description, 6 tags, 7 group, 10 id, 12 started_at."""
    found: dict[str, Any] = {"tags": ()}
    names = {1: "project", 4: "name", 5: "notes", 7: "group"}
    for field, wire, value in fields(data):
        if wire == BYTES and field in names:
            found[names[field]] = _text(value)
        elif wire == BYTES and field == 6:
            found["tags"] += (_text(value),)
        elif wire == BYTES and field == 12:
            found["created"] = as_time(timestamp(value))
    return found


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _contents_of_json(record: bytes) -> Iterator[tuple[int, Any]]:
    """Yield what a record of an older version has, in the form of the newer ones."""
    try:
        found = json.loads(record)
        kind, data = found["model_type"], found["data"]
        if kind == "Scalar":
            yield SCALAR, _json_scalar(data)
        elif kind == "Column":
            yield COLUMN, (str(data["key"]), SYSTEM if data.get("cls") == "SYSTEM" else 0)
        elif kind == "Project":
            yield START, {"project": str(data["name"])}
        elif kind == "Experiment":
            tags = tuple(map(str, data.get("tags") or ()))
            yield START, {"name": str(data["name"]), "notes": str(data.get("description") or ""), "tags": tags}
        elif kind == "Header":
            yield START, {"created": as_time(data.get("create_time"))}
        elif kind == "Footer":
            yield FINISH, ((1 if data.get("success") else 2), "")
        elif kind == "Media":
            yield MEDIUM, None
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as problem:
        raise UndecodableError(f"a record is not as expected: {type(problem).__name__}") from None


def _json_scalar(data: Mapping[str, Any]) -> _Scalar:
    metric = data["metric"]
    value = metric["data"]
    number = SPECIAL[value.lower()] if isinstance(value, str) else to_float(value)
    return _Scalar(str(data["key"]), int(data["step"]), as_time(metric.get("create_time")), number)


FORMAT = Format("SwanLab run", Reader, LAYOUT.matches, LAYOUT.logs_in)
