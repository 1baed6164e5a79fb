"""W&B's files of a run, ``run-ID.wandb``, which it writes offline and online alike.

Each record is a message of ``wandb_internal.proto``, decoded without the wandb package. Several files of one run, of
which the later ones resumed it, are its attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from barograph.base.former_name import present
from barograph.importers.reading.block_records import FileLayout, RecordFileReader
from barograph.importers.reading.events import BYTES, DOUBLE, FIXED64, VARINT, UndecodableError, fields, timestamp
from barograph.importers.reading.log import Facts, Format
from barograph.importers.reading.values import as_step, as_time, histogram_of, json_of, to_float
from barograph.importers.recorder import Recorder

SIGNATURE = b":W&B"

LAYOUT = FileLayout(
    "wandb_offline",
    ".wandb",
    SIGNATURE,
    inner=frozenset({"files", "logs", "tmp"}),
    beside=frozenset({"latest-run", "debug.log", "debug-internal.log", "debug-cli.root.log"}),
)

# Fields of Record.
HISTORY, SUMMARY, CONFIG, METRIC, OUTPUT, RUN, EXIT = 2, 3, 5, 12, 13, 17, 18

OWN_STEP = "barograph/step"  # of barograph's tracker: the step of a row

OWN = ("barograph/created", "barograph/status", "barograph/reason", OWN_STEP)

MAX_SUMMARY = 1000

MAX_DEPTH = 8

MAX_AXES = 100

MEDIA = "tables, pictures and other media are in files of their own, which are not read"

MAX_LINE = 300

SIGNALS = range(129, 193)  # exit codes of a process that a signal ended


class Reader(RecordFileReader):
    """Reads one run."""

    layout = LAYOUT

    def facts(self) -> Facts:
        """Return what W&B knows of the run."""
        for path in self.files():
            with suppress(OSError, UndecodableError):
                for kind, data in self.first_contents(path):
                    if kind == RUN:
                        return _facts(data)
        return Facts()

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        for path in self.files():
            self.read_file(path, out)

    def contents(self, record: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages in a record, by their field."""
        return ((field, value) for field, wire, value in fields(record) if wire == BYTES)

    def content(self, kind: int, data: bytes, out: Recorder) -> None:
        """Record a message."""
        if kind == HISTORY:
            self._history(data, out)
        elif kind == RUN:
            self._went_on(out)
            for field, wire, inner in fields(data):
                if field == 4 and wire == BYTES:
                    self._config(inner, out)
        elif kind == CONFIG:
            self._config(data, out)
        elif kind == SUMMARY:
            self._summary(data)
        elif kind == METRIC:
            self._metric(data, out)
        elif kind == OUTPUT:
            self._output(data)
        elif kind == EXIT:
            self._exit(data, out)

    def _history(self, data: bytes, out: Recorder) -> None:
        """Record what one call of ``wandb.log`` had logged."""
        self._went_on(out)
        found = dict(_flat(_nested(_pairs(data, _parsed))))
        at = as_time(found.get("_timestamp"))
        step = self._step(found)
        numbers: dict[str, float | None] = {}
        for name, value in found.items():
            if name[:1] == "_" or present(name) in OWN:
                continue
            if value is None or isinstance(value, int | float):
                numbers[name] = None if value is None else to_float(value)
            elif isinstance(value, str):
                out.text(name, value, step, at)
            else:
                self._object(name, value, step, at, out)
        out.row(numbers, step, at)
        self.state["last_step"] = step

    def _step(self, found: Mapping[str, Any]) -> int | None:
        """Return the step of a row: the axis of its metrics, else W&B's own, which counts calls."""
        axes: dict[str, str] = self.state.get("axes", {})
        for pattern, axis in sorted(axes.items(), key=lambda pair: pair[0] == "*"):  # which is for all others
            if any(fnmatchcase(name, pattern) for name in found if name[:1] != "_"):
                step = as_step(found.get(axis))
                if step is not None:
                    self.state.setdefault("positions", {})[axis] = step
                elif axis in self.state.get("positions", {}):
                    step = int(self.state["positions"][axis])
                if step is not None:
                    return step
        return as_step(found.get("_step"))

    def _object(self, name: str, value: Any, step: int | None, at: float | None, out: Recorder) -> None:
        histogram = histogram_of(value) if isinstance(value, Mapping) and value.get("_type") == "histogram" else None
        if histogram is not None:
            out.histogram(name, histogram, step, at)
        else:
            out.note(MEDIA)

    def _config(self, data: bytes, out: Recorder) -> None:
        config = _nested(_pairs(data, _json))
        config.pop("_wandb", None)
        if config:
            out.config(config)

    def _summary(self, data: bytes) -> None:
        """Keep the numbers of the summary: those that were never logged are recorded at the end."""
        kept = self.state.setdefault("summary", {})
        for name, value in _flat(_nested(_pairs(data, _parsed))):
            if (
                name[:1] != "_"
                and present(name) not in OWN
                and isinstance(value, int | float)
                and len(kept) < MAX_SUMMARY
            ):
                kept[name] = to_float(value)

    def _metric(self, data: bytes, out: Recorder) -> None:
        """Note the axis that the run has defined for some metrics."""
        # Fields of MetricRecord: 1 name, 2 glob_name, 4 step_metric, 10 expanded_from_glob.
        found = {field: value for field, _, value in fields(data)}
        name, axis = found.get(2) or found.get(1), found.get(4)
        axes = self.state.setdefault("axes", {})
        if isinstance(name, bytes) and isinstance(axis, bytes) and not found.get(10) and len(axes) < MAX_AXES:
            axes[_text(name)] = _text(axis)
            if present(_text(axis)) != OWN_STEP:
                out.note(f"steps are read from {_text(axis)!r}, which the run defined as an axis of its charts")

    def _output(self, data: bytes) -> None:
        for field, wire, value in fields(data):
            if field == 3 and wire == BYTES and value.strip():
                self.state["line"] = _text(value).strip()[-MAX_LINE:]

    def _exit(self, data: bytes, out: Recorder) -> None:
        codes = [value for field, wire, value in fields(data) if field == 1 and wire == VARINT]
        code = codes[-1] if codes else 0
        summary = {name: value for name, value in self.state.pop("summary", {}).items() if not out.has_any_of((name,))}
        if summary:
            out.note("what only W&B's summary has is shown at the last step")
            out.row(summary, self.state.get("last_step"), keeps_attempt=True)
        word = "finished" if code == 0 else "killed" if code in SIGNALS else "crashed"
        line = self.state.get("line", "")
        out.status(word, "" if code == 0 else f"exit code {code}{f': {line}' if line else ''}")
        self.state["ended"] = True

    def _went_on(self, out: Recorder) -> None:
        if self.state.pop("ended", None):
            out.status(None)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _facts(data: bytes) -> Facts:
    """Return the facts of a RunRecord."""
    texts: dict[int, list[str]] = {}
    created = None
    for field, wire, value in fields(data):
        if wire == BYTES and field in (1, 3, 6, 8, 9, 10):
            texts.setdefault(field, []).append(_text(value))
        elif wire == BYTES and field == 17:
            created = as_time(timestamp(value))
    id, project, group, name, notes = (texts.get(field, [""])[-1] for field in (1, 3, 6, 8, 9))
    return Facts(
        name=name or id,
        project=project,
        group=group or None,
        created=created,
        tags=tuple(texts.get(10, ())),
        notes=notes or None,
    )


def _nested(pairs: Iterable[tuple[list[str], Any]]) -> dict[str, Any]:
    """Return the values in objects, by the parts of their names."""
    found: dict[str, Any] = {}
    for path, value in pairs:
        inner = found
        for part in path[:-1]:
            below = inner.get(part)
            if not isinstance(below, dict):
                below = inner[part] = {}
            inner = below
        inner[path[-1]] = value
    return found


def _flat(found: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield names and values, the parts of a name joined by dots, as W&B does; an object that has a type is a value."""
    for key, value in found.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "_type" not in value and depth < MAX_DEPTH:
            yield from _flat(value, f"{name}.", depth + 1)
        else:
            yield name, value


def _pairs(data: bytes, parse: Callable[[bytes], Any]) -> Iterator[tuple[list[str], Any]]:
    """Yield names, in parts, and values of a history, a summary or a configuration."""
    for field, wire, item in fields(data):
        if field == 1 and wire == BYTES:
            pair = _short_pair(item, parse) or _pair(item, parse)
            if pair[0]:
                yield pair


def _short_pair(item: bytes, parse: Callable[[bytes], Any]) -> tuple[list[str], Any] | None:
    """Decode an item of a short name and a short value, as almost all are; None for others."""
    # 1 key or 2 nested_key, then 16 value_json; a length below 128 has one byte
    if len(item) < 6 or item[0] not in (0x0A, 0x12) or item[1] > 127:
        return None
    middle = 2 + item[1]
    start = middle + 3
    if item[middle : middle + 2] != b"\x82\x01" or start > len(item) or item[start - 1] != len(item) - start:
        return None
    return [_text(item[2:middle])], parse(item[start:])


def _pair(item: bytes, parse: Callable[[bytes], Any]) -> tuple[list[str], Any]:
    """Decode an item: 1 key, 2 nested_key, 4 boolean, 5 integer, 6 number, 7 text, 8 json, 16 value_json."""
    path: list[str] = []
    found: Any = None
    for field, wire, value in fields(item):
        if field in (1, 2) and wire == BYTES:
            path.append(_text(value))
        elif field in (8, 16) and wire == BYTES:
            found = parse(value)
        elif field == 7 and wire == BYTES:
            found = _text(value)
        elif field == 6 and wire == FIXED64:
            (found,) = DOUBLE.unpack(value)
        elif field == 5 and wire == VARINT:
            found = (value >> 1) ^ -(value & 1)  # sint64
        elif field == 4 and wire == VARINT:
            found = bool(value)
    return path, found


def _parsed(text: bytes) -> Any:
    """Return a value of a metric; numbers are floats, NaN and infinities included."""
    with suppress(ValueError):
        return float(text)
    found = _json(text)
    return SPECIAL.get(found, found) if isinstance(found, str) else found


def _json(text: bytes) -> Any:
    """Return a value of JSON; one that cannot be parsed is a text."""
    return json_of(text, _text(text))


SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


FORMAT = Format("W&B run", Reader, LAYOUT.matches, LAYOUT.logs_in)
