"""Tracker that writes TensorBoard's event files, without the tensorboard package."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from windsock.errors import TrackerError
from windsock.model import MAIN_ROLE, Row, RunInfo, Status, Writer
from windsock.trackers import tensorboard_events as events
from windsock.trackers.params import flat_params
from windsock.trackers.rows import merge_rows, numbers
from windsock.trackers.tables import markdown, phase_times, phases_table, samples_table

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
        print(f"windsock: tensorboard --logdir {self._folder}", file=sys.stderr)

    def log(self, rows: Sequence[Row]) -> None:
        """Write one event per row."""
        # Restored after a failed write, so that the event of a new attempt is written again with its rows.
        attempts = dict(self._attempts)
        out: dict[Path, list[bytes]] = {}
        for row in merge_rows(rows):
            out.setdefault(self._folder_of(row.writer), []).extend(map(events.record, self._events(row)))
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
        end = events.session_end(events.SUCCESS if status.word == "finished" else events.FAILURE, now)
        self._append(self._folder, events.record(events.summary(now, 0, end)))
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
        begin = events.session_start(self._hparams, self._info.created)
        hparams = [events.summary(now, 0, begin)] if folder == self._folder else []  # the trainer's directory only
        return b"".join(map(events.record, [events.version(now), *hparams]))

    def _events(self, row: Row) -> Iterator[bytes]:
        """Yield a row's event; at the start of a new attempt, first an event that replaces the earlier one's points."""
        known = self._attempts.get(str(row.writer), row.writer.attempt)
        self._attempts[str(row.writer)] = max(known, row.writer.attempt)
        if row.writer.attempt > known:
            self._steps[str(row.writer)] = row.step
            yield events.restart(row.time, row.step)
        self._warn_if_step_falls(row)
        yield events.summary(row.time, row.step, events.scalars(numbers(row)), *self._other_values(row))

    def _warn_if_step_falls(self, row: Row) -> None:
        """Warn once about a falling step, after which TensorBoard's fast loader hides points."""
        last = self._steps.get(str(row.writer), row.step)
        self._steps[str(row.writer)] = max(last, row.step)
        if row.step < last and not self._warned:
            self._warned = True
            print(
                f"windsock: step {row.step} was logged after step {last}: view with tensorboard --load_fast=false",
                file=sys.stderr,
            )

    def _other_values(self, row: Row) -> Iterator[bytes]:
        for name, text in row.texts.items():
            yield events.text(name + TEXT, text)
        for name, counted in row.histograms.items():
            yield events.histogram(name, counted)
        if row.samples:
            yield events.text("samples" + TEXT, markdown(samples_table(row.samples)))
        # Texts are large in event files: the phases table is written once a minute, not every step.
        if row.time - self._phases_at >= PHASES_SECONDS and phase_times(row.values):
            self._phases_at = row.time
            yield events.text("phases" + TEXT, markdown(phases_table(row.values)))

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
