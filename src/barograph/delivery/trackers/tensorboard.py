"""Tracker that writes TensorBoard's event files, without the tensorboard package or protobuf; all values of a step are
one event.

A file is a sequence of records (length, its checksum, event, its checksum). Field numbers are those of TensorFlow's
``event.proto``, ``summary.proto`` and ``tensor.proto`` and of TensorBoard's ``hparams/plugin_data.proto``.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from barograph.base.errors import TrackerError
from barograph.base.files.crc32c import crc32c
from barograph.base.model import MAIN_ROLE, Histogram, Row, RunInfo, Status, Writer
from barograph.delivery.trackers.payload import (
    flat_params,
    markdown,
    merge_rows,
    numbers,
    phase_times,
    phases_table,
    samples_table,
)

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5

DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7

CLASS_TENSOR = 2

START = 1  # session status; readers drop earlier points from its step on

SUCCESS, FAILURE = 1, 2


def event_record(event: bytes) -> bytes:
    """Return an event framed as a record of the file."""
    length = struct.pack("<Q", len(event))
    return b"".join((length, _masked(length), event, _masked(event)))


def version_event(time: float) -> bytes:
    """Return the first event of a file."""
    return _double(1, time) + _text(3, "brain.Event:2")


def summary_event(time: float, step: int, *values: bytes) -> bytes:
    """Return an event with these values of a step."""
    return _double(1, time) + _varint_field(2, step) + _bytes(5, b"".join(values))


def restart_event(time: float, step: int) -> bytes:
    """Return an event with which the points that follow replace the earlier ones from this step on."""
    return _double(1, time) + _varint_field(2, step) + _bytes(7, _varint_field(1, START))


def scalar_values(values: Mapping[str, float]) -> bytes:
    """Return named numbers as float32, the precision that TensorBoard stores."""
    if not values:
        return b""
    # Names repeat from step to step: only the four bytes of each value change.
    template, positions = _layout(tuple(values))
    with np.errstate(over="ignore"):  # out of the range of float32: infinite
        numbers = np.fromiter(values.values(), np.float64, len(values)).astype("<f4")
    filled = template.copy()
    filled[positions] = numbers.view(np.uint8)
    return filled.tobytes()


# A run logs a few sets of names, each at many steps.
@lru_cache(maxsize=64)
def _layout(names: tuple[str, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return the encoded bytes for these names with empty values, and the positions of the values' bytes."""
    out = bytearray()
    ends = []
    for name in names:
        out += _bytes(1, _text(1, name) + _key(2, FLOAT) + bytes(4))
        ends.append(len(out))
    positions = (np.array(ends, dtype=np.intp)[:, None] + np.arange(-4, 0)).reshape(-1)
    return np.frombuffer(bytes(out), dtype=np.uint8), positions


def text_value(name: str, content: str) -> bytes:
    """Return a text for the text plugin, in Markdown."""
    tensor = _varint_field(1, DT_STRING) + _bytes(2, _shape(1)) + _bytes(8, _encoded(content))
    return _value(name, tensor, "text")


def histogram_value(name: str, counted: Histogram) -> bytes:
    """Return a histogram for the histograms plugin: left edge, right edge and count of each bin."""
    columns = (counted.edges[:-1], counted.edges[1:], counted.counts)
    bins = np.array(columns, dtype="<f8").reshape(3, -1).T
    tensor = _varint_field(1, DT_DOUBLE) + _bytes(2, _shape(len(bins), 3)) + _bytes(4, bins.tobytes())
    return _value(name, tensor, "histograms")


def session_start(hparams: Mapping[str, bool | int | float | str], time: float) -> bytes:
    """Return a run's hyperparameters for the HParams tab.

    The list of all hyperparameters and metrics is left out: TensorBoard would use the first run's list for all runs.
    Without a list it builds one from all runs.
    """
    pairs = b"".join(_bytes(1, _text(1, name) + _bytes(2, _plain(value))) for name, value in hparams.items())
    return _value("_hparams_/session_start_info", _NULL, "hparams", _bytes(3, pairs + _double(5, time)))


def session_end(status: int, time: float) -> bytes:
    """Return a run's final status for the HParams tab."""
    end = _varint_field(1, status) + _double(2, time)
    return _value("_hparams_/session_end_info", _NULL, "hparams", _bytes(4, end))


def _plain(value: bool | int | float | str) -> bytes:
    # Before the numbers, as a bool is an int.
    if isinstance(value, bool):
        return _varint_field(4, int(value))
    return _double(2, float(value)) if isinstance(value, int | float) else _text(3, value)


def _value(name: str, tensor: bytes, plugin: str, content: bytes = b"") -> bytes:
    metadata = _bytes(1, _text(1, plugin) + _bytes(2, content)) + _varint_field(4, CLASS_TENSOR)
    return _bytes(1, _text(1, name) + _bytes(8, tensor) + _bytes(9, metadata))


def _shape(*sizes: int) -> bytes:
    return b"".join(_bytes(2, _varint_field(1, size)) for size in sizes)


def _masked(data: bytes) -> bytes:
    """Return the masked CRC of the record format: rotated and offset."""
    # The format masks checksums, as LevelDB does: it is problematic to compute the CRC of data that contains CRCs.
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _encoded(content: str) -> bytes:
    return content.encode("utf-8", "replace")  # lone surrogates have no UTF-8


def _text(field: int, content: str) -> bytes:
    return _bytes(field, _encoded(content))


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _key(field, DOUBLE) + struct.pack("<d", value)


def _varint_field(field: int, value: int) -> bytes:
    return _key(field, VARINT) + _varint(value)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are two's complement of 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The data of the HParams tab are in the metadata, but a value needs a tensor.
_NULL = _varint_field(1, DT_FLOAT) + _bytes(2, b"") + _bytes(4, bytes(4))

PHASES_SECONDS = 60.0

TEXT = "/text_summary"  # suffix of a text's tag, as in torch: a text and a number cannot share a tag


class TensorBoardTracker:
    """Writes event files to ``log_dir/exp_name/timestamp``, as ROLL does.

    ``log_dir`` is by default ``tensorboard`` in the run's directory (TRL calls it ``logging_dir``); ``exp_name`` is by
    default the run's name. The timestamp is the run's first start, so that a continued run adds a file to the same
    directory. Writers other than the trainer have subdirectories, because they have steps of their own.

    A mark contains the lengths of the files; rewinding truncates them. New rows then go to a new file, because
    TensorBoard may have an old one open.
    """

    in_process: ClassVar[bool] = False

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        exp_name: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url: str | None = None
        given = log_dir or logging_dir
        self._base = Path(given).absolute() if given else None
        self._exp_name = exp_name
        self._files: dict[Path, FileIO] = {}
        self._lengths: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._warned = False
        self._phases_at = -PHASES_SECONDS
        if self._base and self._base.exists() and not self._base.is_dir():
            raise TrackerError(f"tracker 'tensorboard': log_dir {self._base} is a file; expected a directory")

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Choose and print the directory; files are created with the first rows."""
        self._info = info
        self._hparams = flat_params(config)
        base = (self._base or folder / "tensorboard") / (self._exp_name or info.name)
        try:
            self._folder = self._create_folder(base / time.strftime("%Y%m%d-%H%M%S", time.localtime(info.created)))
        except OSError as problem:
            raise TrackerError(f"tracker 'tensorboard' cannot write {base}: {problem.strerror}") from problem
        self.url = str(self._folder)
        self._lengths = {
            str(path.relative_to(self._folder)): path.stat().st_size for path in self._run_files(self._folder)
        }
        print(f"barograph: tensorboard --logdir {self._folder}", file=sys.stderr)

    def log(self, rows: Sequence[Row]) -> None:
        """Write one event per row."""
        # Restored after a failed write, so that the event of a new attempt is written again with its rows.
        attempts = dict(self._attempts)
        out: dict[Path, list[bytes]] = {}
        for row in merge_rows(rows):
            out.setdefault(self._folder_of(row.writer), []).extend(map(event_record, self._events(row)))
        try:
            for folder, records in out.items():
                self._append(folder, b"".join(records))
        except OSError:
            # The rows are delivered again: remove those that were written.
            self.rewind({"files": self._lengths, "attempts": attempts})
            raise
        self._lengths |= {self._relative(file): file.tell() for file in self._files.values()}

    def finish(self, status: Status) -> None:
        """Write the run's final status and close the files."""
        now = time.time()
        end = session_end(SUCCESS if status.word == "finished" else FAILURE, now)
        self._append(self._folder, event_record(summary_event(now, 0, end)))
        self.mark()
        self._close()

    def mark(self) -> dict[str, Any]:
        """Sync the files to disk and return their lengths."""
        for file in self._files.values():
            os.fsync(file.fileno())
            self._lengths[self._relative(file)] = file.tell()
        return {"files": dict(self._lengths), "attempts": dict(self._attempts)}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Truncate the files to their lengths at the mark and remove later files."""
        self._close()
        self._lengths = dict(mark.get("files", {}))
        for path in list(self._run_files(self._folder)):
            length = self._lengths.get(str(path.relative_to(self._folder)))
            if length is None:
                path.unlink()
            elif length < path.stat().st_size:
                os.truncate(path, length)
        self._attempts = dict(mark.get("attempts", {}))
        self._steps.clear()
        self._phases_at = -PHASES_SECONDS

    def _create_folder(self, folder: Path) -> Path:
        """Create the directory; add the run's id to its name where another run started in the same second."""
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # A continued run finds its own files there and reuses the directory.
            if any(folder.rglob("*tfevents*")) and not any(self._run_files(folder)):
                folder = folder.with_name(f"{folder.name}-{self._info.id}")
                folder.mkdir(exist_ok=True)
        return folder

    def _run_files(self, folder: Path) -> Iterator[Path]:
        return (path for path in folder.rglob("*tfevents*") if f".{self._info.id}." in path.name)

    def _relative(self, file: FileIO) -> str:
        return str(Path(str(file.name)).relative_to(self._folder))

    def _folder_of(self, writer: Writer) -> Path:
        if (writer.role, writer.rank) == (MAIN_ROLE, 0):
            return self._folder
        return self._folder / (f"{writer.role}-{writer.rank}" if writer.rank else writer.role)

    def _append(self, folder: Path, data: bytes) -> None:
        if folder not in self._files:
            self._files[folder] = self._new_file(folder)
            data = self._beginning(folder) + data
        # A raw file may write only a part when the disk is full.
        if (self._files[folder].write(data) or 0) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _new_file(self, folder: Path) -> FileIO:
        """Open a new file. TensorBoard reads the files of a directory in the order of their names."""
        folder.mkdir(exist_ok=True)
        # Two files of one second would have equal names without the number.
        number = sum(path.parent == folder for path in self._run_files(folder))
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{self._info.id}.{number}"
        return FileIO(folder / name, "xb")

    def _beginning(self, folder: Path) -> bytes:
        now = time.time()
        begin = session_start(self._hparams, self._info.created)
        hparams = [summary_event(now, 0, begin)] if folder == self._folder else []  # the trainer's directory only
        return b"".join(map(event_record, [version_event(now), *hparams]))

    def _events(self, row: Row) -> Iterator[bytes]:
        """Yield a row's event; at the start of a new attempt, first an event that replaces the earlier one's points."""
        known = self._attempts.get(str(row.writer), row.writer.attempt)
        self._attempts[str(row.writer)] = max(known, row.writer.attempt)
        if row.writer.attempt > known:
            self._steps[str(row.writer)] = row.step
            yield restart_event(row.time, row.step)
        self._warn_if_step_falls(row)
        yield summary_event(row.time, row.step, scalar_values(numbers(row)), *self._other_values(row))

    def _warn_if_step_falls(self, row: Row) -> None:
        """Warn once about a falling step, after which TensorBoard's fast loader hides points."""
        last = self._steps.get(str(row.writer), row.step)
        self._steps[str(row.writer)] = max(last, row.step)
        if row.step < last and not self._warned:
            self._warned = True
            print(
                f"barograph: step {row.step} was logged after step {last}: view with tensorboard --load_fast=false",
                file=sys.stderr,
            )

    def _other_values(self, row: Row) -> Iterator[bytes]:
        for name, text in row.texts.items():
            yield text_value(name + TEXT, text)
        for name, counted in row.histograms.items():
            yield histogram_value(name, counted)
        if row.samples:
            yield text_value("samples" + TEXT, markdown(samples_table(row.samples)))
        # Texts are large in event files: the phases table is written once a minute, not every step.
        if row.time - self._phases_at >= PHASES_SECONDS and phase_times(row.values):
            self._phases_at = row.time
            yield text_value("phases" + TEXT, markdown(phases_table(row.values)))

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
