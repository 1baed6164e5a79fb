"""TensorBoard's event files: the files of one directory are one run.

Files that were written at the same time are of several writers of one attempt. One that begins after the others have
ended, with metrics that they have as well, is a restart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from barograph.importers.reading.events import (
    DAMAGED_LENGTH,
    RECORD_HEAD,
    Layouts,
    UndecodableError,
    Value,
    behind_damage,
    decode_event,
    decode_value,
    is_intact,
    record_size,
    records,
)
from barograph.importers.reading.log import Facts, Format, FoundLogs, Log, LogReader, RewrittenError, Seen
from barograph.importers.reading.rows import StepRows
from barograph.importers.reading.values import json_of
from barograph.importers.recorder import Recorder

PATTERN = "tfevents"  # in the name of every event file
CREATED = re.compile(r"tfevents\.(\d{9,11})\.")
SIGNATURE = b"brain.Event:"
CHUNK = 4 << 20
MAX_CHUNK = 128 << 20  # a record that is larger is skipped
HEAD_BYTES = 64  # that identify a file
GENERIC = ("runs", "logs", "log", "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "tfevents",
           "lightning_logs", "event_files")  # fmt: skip
SETTINGS = ("args/text_summary", "model_config/text_summary")  # as the Trainer of transformers writes them, in JSON
SUCCESS, FAILURE = 1, 2  # how a session of the HParams tab ended
NUMBERED = "some metrics have no steps: their points are numbered in their order"


def matches(seen: Seen) -> bool:
    """Return whether a file begins with the version of event files."""
    return SIGNATURE in seen.head[:HEAD_BYTES]


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the directory if it has event files; if only some of them are given, these."""
    given = {name for name in names if PATTERN in name}
    if not given:
        return FoundLogs()
    all_names = {path.name for path in event_files(folder)}
    given &= all_names
    if given == all_names:
        return FoundLogs([Log(folder, "event_files")] if given else [], given)
    return FoundLogs([Log(folder / name, "event_files") for name in sorted(given)], given)


def event_files(folder: Path) -> list[Path]:
    """List the event files in a directory, oldest first: their names have the time of their creation."""
    try:
        names = [entry.name for entry in os.scandir(folder) if PATTERN in entry.name and entry.is_file()]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=_created)]


def _created(name: str) -> tuple[int, str]:
    found = CREATED.search(name)
    return (int(found[1]) if found else 0), name


class Reader(LogReader):
    """Reads the event files of a directory, or one file."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("files", {})  # by name: offset, head, attempt, time of the last value, a session has started
        state.setdefault("attempt", 1)
        state.setdefault("unstepped", {})  # number of points, of tags that never had a step but 0
        self._layouts = Layouts()
        self._unnumbered: dict[str, list[tuple[float, float]]] = {}  # time and value, of their points but the first
        self._file: dict[str, Any] = {}
        self._rows: StepRows

    def files(self) -> list[Path]:
        """Return the event files."""
        return event_files(self.log.path) if self.log.path.is_dir() else [self.log.path]

    def facts(self) -> Facts:
        """Return names from the directories, and the time of the first event."""
        path = self.log.path.absolute()
        places = (path, *path.parents) if path.is_dir() else path.parents
        named = [place.name for place in places if place.name and place.name.lower() not in GENERIC]
        name, project, *_ = *named, "", ""
        return Facts(name=name, project=project, created=self._first_time())

    def _first_time(self) -> float | None:
        for path in self.files():
            with suppress(OSError, UndecodableError), path.open("rb") as file:
                for _, record in records(file.read(1024)):
                    return decode_event(record)[0] or None
        return None

    def read(self, out: Recorder) -> None:
        """Record what is new in each file."""
        files = self.files()
        if not set(self.state["files"]) <= {path.name for path in files}:
            raise RewrittenError  # one was removed
        self._rows = StepRows(partial(self._record, out))
        for path in files:
            self._file = self.state["files"].setdefault(path.name, {"offset": 0})
            try:
                with path.open("rb") as file:
                    self._read_file(file, path.name, out)
            except OSError as problem:
                out.unread(path.name, f"cannot be read: {problem.strerror or problem}")
            self._rows.end()
        self._number_points(out)

    # -- records -------------------------------------------------------------------------------------------------

    def _read_file(self, file: BinaryIO, name: str, out: Recorder) -> None:
        known, size, head = self._file, os.fstat(file.fileno()).st_size, file.read(HEAD_BYTES)
        if size < known["offset"] or not head.startswith(bytes.fromhex(known.get("head", ""))):
            raise RewrittenError
        known["head"] = head.hex()
        want = CHUNK
        while size - known["offset"] >= RECORD_HEAD:
            file.seek(known["offset"])
            data = file.read(want)
            done = self._read_records(data, name, out)
            known["offset"] += done
            want = self._size_to_read(data[done : done + RECORD_HEAD], size - known["offset"])
            if not want:
                return
            if want > MAX_CHUNK:
                out.unread(f"{name} byte {known['offset']}", f"a record of more than {MAX_CHUNK:,} bytes")
                known["offset"] += want
                want = CHUNK

    @staticmethod
    def _size_to_read(head: bytes, left: int) -> int:
        """Return how many bytes to read next, with the next record as a whole; 0 if it is not complete yet."""
        if len(head) < RECORD_HEAD:
            return min(left, CHUNK) if left >= RECORD_HEAD else 0
        size = record_size(head)
        return max(size, CHUNK) if size <= left else 0

    def _read_records(self, data: bytes, name: str, out: Recorder) -> int:
        """Record the complete records; return how many bytes are done with."""
        place = 0
        while True:
            try:
                for stop, record in records(data, place):
                    for problem in self._event(record, out):
                        out.unread(self._where(name, place), problem)
                    place = stop
                if len(data) - place < RECORD_HEAD or is_intact(data[place : place + RECORD_HEAD]):
                    return place
                raise UndecodableError(DAMAGED_LENGTH)
            except UndecodableError as problem:
                out.unread(self._where(name, place), str(problem))
                place = behind_damage(data, place)

    def _where(self, name: str, place: int) -> str:
        return f"{name}, record at byte {self._file['offset'] + place}"

    # -- values --------------------------------------------------------------------------------------------------

    def _event(self, record: bytes, out: Recorder) -> Sequence[str]:
        """Record an event; return what is wrong with its values."""
        numbers = self._layouts.decode(record)
        if numbers is not None:
            self._rows.add(*numbers)
            return ()
        at, step, encoded, starts = decode_event(record)
        if starts:
            self._rows.end()
            self._file["starts"] = True
        return [problem for data in encoded if (problem := self._encoded_value(data, at, step, out))]

    def _encoded_value(self, data: bytes, at: float, step: int, out: Recorder) -> str:
        try:
            value = decode_value(data)
        except UndecodableError as problem:
            return str(problem)
        if value is not None:
            self._value(value, at, step, out)
        return ""

    def _value(self, value: Value, at: float, step: int, out: Recorder) -> None:
        if value.number is not None:
            self._rows.add(at, step, (value.tag,), (value.number,))
        elif value.histogram is not None:
            out.histogram(value.tag, value.histogram, step, at)
        elif value.hparams is not None:
            out.config(value.hparams)
        elif value.session_end is not None:
            self._rows.end()
            self._session_ended(value.session_end, out)
        elif value.text is not None:
            settings = _settings(value)
            if settings is None:
                out.text(value.tag, value.text, step, at)
            else:
                out.config(settings)

    def _record(self, out: Recorder, row: dict[str, float], step: int, first: float | None, last: float | None) -> None:
        """Record a row."""
        assert first is not None
        assert last is not None
        self._begin_attempt(row, step, first, out)
        self._file["ended"] = max(last, self._file.get("ended", last))
        if self.state.pop("ended", None):
            out.status(None)
        if step == 0:
            row = self._without_steps(row, first, out)
        elif self.state["unstepped"]:
            self._have_steps(row, out)
        out.row(row, step, first, keeps_attempt=True)

    def _begin_attempt(self, row: Mapping[str, float], step: int, at: float, out: Recorder) -> None:
        """Begin another attempt with the first row of a file, or of a session, that logs known metrics anew."""
        file, attempt = self._file, self.state["attempt"]
        if file.get("attempt", attempt) != attempt:
            raise RewrittenError  # a file that had ended goes on: it was written at the same time as later ones
        if "attempt" not in file:
            others = [one for one in self.state["files"].values() if one is not file and one.get("attempt") == attempt]
            is_later = bool(others) and all(at >= one["ended"] for one in others)
            file["starts"] = file.get("starts", False) or (is_later and not _is_addition(row, step, out))
            file["attempt"] = attempt
        if file.get("starts"):
            file["starts"] = False
            if out.has_any_of(row):
                self._number_points(out)
                self.state["unstepped"] = {}
                out.restart()
                self.state["attempt"] = file["attempt"] = attempt + 1

    # -- points without a step -----------------------------------------------------------------------------------

    def _without_steps(self, row: Mapping[str, float], at: float, out: Recorder) -> dict[str, float]:
        """Return the values whose step may be 0, and keep those of tags that have one at step 0 already."""
        counts, kept = self.state["unstepped"], {}
        for tag, value in row.items():
            if tag in counts:
                counts[tag] += 1
                self._unnumbered.setdefault(tag, []).append((at, value))
            else:
                kept[tag] = value
                if not out.has_any_of((tag,)):
                    counts[tag] = 1
        return kept

    def _have_steps(self, row: Mapping[str, float], out: Recorder) -> None:
        """Note that the points of some tags have steps: of those at step 0 the last counts."""
        counts = self.state["unstepped"]
        for tag in counts.keys() & row.keys():
            points = self._unnumbered.pop(tag, [])
            if counts.pop(tag) > 1 + len(points):
                raise RewrittenError  # an earlier reading has numbered them
            if points:
                at, value = points[-1]
                out.row({tag: value}, 0, at, keeps_attempt=True)

    def _number_points(self, out: Recorder) -> None:
        """Record the points without a step: there are several of a tag, and all have the step 0."""
        rows: dict[int, tuple[float, dict[str, float]]] = {}
        for tag, points in self._unnumbered.items():
            first = self.state["unstepped"][tag] - len(points)
            for number, (at, value) in enumerate(points, first):
                rows.setdefault(number, (at, {}))[1][tag] = value
        if rows:
            out.note(NUMBERED)
        for number, (at, row) in sorted(rows.items()):
            out.row(row, number, at, keeps_attempt=True)
        self._unnumbered = {}

    def _session_ended(self, status: int, out: Recorder) -> None:
        """Say how the run ended, unless rows follow."""
        words = {SUCCESS: ("finished", ""), FAILURE: ("crashed", "the HParams tab says that the run failed")}
        if status in words:
            self.state["ended"] = True
            out.status(*words[status])


def _is_addition(row: Mapping[str, float], step: int, out: Recorder) -> bool:
    """Return whether a row adds to the last step, as an evaluation after the training does, and does not repeat it."""
    known = out.names_at_last_step() if step == out.last_step else []
    return len(known) >= 2 * len(row.keys() & known) and bool(known)


def _settings(value: Value) -> dict[str, Any] | None:
    """Return the settings that a text is, as the Trainer of transformers writes them; None for other texts."""
    if value.tag not in SETTINGS or value.text is None:
        return None
    found = json_of(value.text)
    if not isinstance(found, dict):
        return None
    return found if value.tag == SETTINGS[0] else {"model_config": found}


FORMAT = Format("TensorBoard event files", Reader, matches, logs_in)
