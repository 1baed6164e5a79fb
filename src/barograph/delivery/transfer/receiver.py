"""The receiving side of a transfer: pieces of segments are checked and appended to the files of a run's folder.

The length of a file is the only state: nothing that was written is cut or written again, so that a process that is
killed at any time leaves the beginning of the segment. `ReceivedRuns` are the receivers of a directory's runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from barograph.base.formatting import size
from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.pieces import complete_frames, ends_with_finish, newest_time
from barograph.delivery.transfer.state import ReceivedList
from barograph.journal.format import fields
from barograph.journal.format.folder import (
    ID_PATTERN,
    RUN_FILE,
    SegmentFile,
    closing_fd,
    folder_name,
    is_run,
    open_regular_file,
    run_info,
    segment_path,
    subfolders,
    write_first,
)
from barograph.journal.format.frames import FORMAT_VERSION, SEGMENT_HEAD, parse_segment_head

MAX_NAME = 255  # bytes of a file's name

LOCK_SECONDS = 5.0

RETRY_SECONDS = 1.0

FULL_SECONDS = 30.0  # to wait where the disk is full

APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class ReceiverLimits:
    """The sizes that a receiver takes."""

    piece_bytes: int = 4 << 20  # that senders are asked for, and the most that one read returns
    largest_piece: int = 80 << 20  # with a frame that is larger than that: a record has up to 64 MiB
    segment_bytes: int = 64 << 30
    run_bytes: int = 1 << 40
    segments: int = 65_536
    info_bytes: int = 1 << 20
    free_bytes: int = 256 << 20  # that stay free on the disk


class Added(NamedTuple):
    """A piece that was taken: the bytes of its segment that are held then, and how many of them it has added."""

    held: int
    new_bytes: int
    newest_time: float | None  # of the rows in it
    is_last: bool  # nothing follows


class Receiver:
    """The copies of one run's segments in a folder; a Destination that any number of threads and processes may use."""

    def __init__(self, folder: Path, limits: ReceiverLimits | None = None) -> None:
        self.folder = folder
        self.limits = limits or ReceiverLimits()
        self._received = ReceivedList(folder)
        self._run_bytes: int | None = None

    def held(self) -> Mapping[str, int]:
        """Return how many bytes of each segment are held, by file name."""
        found = {}
        with _reported(), _entries(self.folder) as entries:
            for entry in entries:
                if SegmentFile.parse(Path(entry.name)) and entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        """Append a piece of a segment; return how many bytes of it are held then."""
        return self.add(segment, offset, data, last).held

    def add(self, segment: str, offset: int, data: bytes, last: bool = False) -> Added:
        """Append a piece as ``append`` does; return also how many of its bytes were new."""
        check_segment_name(segment)
        self._check_sizes(offset, data)
        frames = _check_piece(offset, data, last)
        with _reported():
            held, new_bytes = self._append_checked(segment, offset, data)
        return Added(held, new_bytes, newest_time(data, frames), last or ends_with_finish(data, frames))

    def describe(self, info: bytes) -> None:
        """Store the run's ``run.json``; the first one counts."""
        if len(info) > self.limits.info_bytes:
            raise _limit(f"{RUN_FILE} has {size(len(info))}; at most {size(self.limits.info_bytes)} are taken")
        self._check_info(info)
        with _reported():
            self._make_folder()
            write_first(self.folder / RUN_FILE, info)
            _sync(self.folder / RUN_FILE)
            _sync(self.folder)

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Return bytes of a segment or of ``run.json``; at most those of a piece."""
        if segment != RUN_FILE:
            check_segment_name(segment)
        if offset < 0 or length < 0:
            raise DestinationError(f"cannot read {length} bytes from {offset}", "limit")
        try:
            fd = open_regular_file(self.folder / segment, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            raise DestinationError(f"the run has no {segment}", "name") from None
        with closing_fd(fd):
            return os.pread(fd, min(length, self.limits.piece_bytes), offset)

    def _check_sizes(self, offset: int, data: bytes) -> None:
        if len(data) > self.limits.largest_piece:
            most = size(self.limits.largest_piece)
            raise _limit(f"the piece has {size(len(data))}; at most {most} are taken")
        if not 0 <= offset <= self.limits.segment_bytes - len(data):
            most = size(self.limits.segment_bytes)
            raise _limit(f"the piece ends beyond the {most} that a segment may have")

    def _check_info(self, info: bytes) -> None:
        try:
            record = fields.read_mapping(fields.parse_json(info.decode("utf-8")))
        except (ValueError, RecursionError) as problem:
            raise DestinationError(f"{RUN_FILE} cannot be read: {problem}", "broken") from None
        described = run_info(record, self.folder)
        place = self.folder.parent.name, self.folder.name
        if (folder_name(described.project), described.id) != place:
            told = f"{described.project}/{described.id}"
            message = f"{RUN_FILE} describes {told[:200]!r}, not {'/'.join(place)!r}"
            raise DestinationError(message, "name")

    def _append_checked(self, segment: str, offset: int, data: bytes) -> tuple[int, int]:
        with closing_fd(self._open(segment, offset)) as fd:
            _lock(fd)
            held = os.fstat(fd).st_size
            if offset > held:
                raise _beyond(segment, offset, held)
            if os.pread(fd, len(data), offset) != data[: held - offset]:
                message = f"{segment} has other bytes from {offset} on: another process has written it"
                raise DestinationError(message, "differs", held=held)
            if new := memoryview(data)[held - offset :]:
                self._check_room(segment, held, len(new))
                self._write(fd, new)
                os.fsync(fd)
            return held + len(new), len(new)

    def _open(self, segment: str, offset: int) -> int:
        path = self.folder / segment
        with suppress(FileNotFoundError):
            return open_regular_file(path, APPEND)
        if offset:
            raise _beyond(segment, offset, 0)
        self._make_folder()
        # Listed before it is there: a file that is not listed was recorded here, and is left alone.
        if not self._received.add(segment, self.limits.segments):
            raise _limit(f"the run has {self.limits.segments:,} segments; no more are taken")
        fd = open_regular_file(path, APPEND | os.O_CREAT)
        _sync(self.folder)
        return fd

    def _check_room(self, segment: str, held: int, new: int) -> None:
        """Raise where a segment was recorded by a process of this machine, or where the run would become too large."""
        if segment not in self._received:
            message = f"{segment} was recorded here, and is not continued from elsewhere"
            raise DestinationError(message, "differs", held=held)
        if self._run_bytes is None:
            self._run_bytes = sum(self.held().values())
        if self._run_bytes + new > self.limits.run_bytes:
            raise _limit(f"the run has {size(self._run_bytes)}; at most {size(self.limits.run_bytes)} are taken")

    def _write(self, fd: int, data: memoryview) -> None:
        """Append bytes. What a full disk takes of them stays: it is the beginning of what comes again."""
        disk = os.fstatvfs(fd)
        if disk.f_bavail * disk.f_frsize < self.limits.free_bytes + len(data):
            raise OSError(errno.ENOSPC, "the disk is full")
        while data:
            written = os.write(fd, data)
            self._run_bytes = (self._run_bytes or 0) + written
            data = data[written:]

    def _make_folder(self) -> None:
        if self.folder.is_symlink() or self.folder.parent.is_symlink():
            raise DestinationError(f"{self.folder.name} is a link here; links are not followed", "name")
        self.folder.mkdir(parents=True, exist_ok=True)


def check_segment_name(name: str) -> None:
    """Raise DestinationError unless a name is one that a writer gives to a segment."""
    segment = SegmentFile.parse(Path("/", name)) if name.isascii() and "/" not in name else None
    # As it would be written, so that two names cannot be those of one writer.
    canonical = segment and segment_path(Path(), segment.writer, segment.index).name
    if canonical != name or len(name) > MAX_NAME:
        raise DestinationError(f"{name[:80]!r} is not the name of a segment", "name")


def check_run_path(project: str, run: str) -> None:
    """Raise DestinationError unless these are the directory names of a project and of a run in it."""
    project_is_safe = folder_name(unquote(project)) == project and len(os.fsencode(project)) <= MAX_NAME
    if not project_is_safe:
        raise DestinationError(f"{project[:80]!r} is not the directory of a project", "name")
    if not ID_PATTERN.fullmatch(run):
        raise DestinationError(f"{run[:80]!r} is not the id of a run", "name")


def _check_piece(offset: int, data: bytes, last: bool) -> list[tuple[int, int]]:
    """Return the frames of a piece; raise DestinationError unless it begins and ends as a piece does."""
    if not offset and (data or not last):
        version = parse_segment_head(data)
        is_torn = last and len(data) < SEGMENT_HEAD.size
        if not is_torn and (version is None or version > FORMAT_VERSION):
            raise _broken(f"the first piece does not begin with the head of a segment of format {FORMAT_VERSION}")
    frames = list(complete_frames(data, 0 if offset else SEGMENT_HEAD.size))
    complete = frames[-1][1] if frames else 0 if offset else SEGMENT_HEAD.size
    if complete != len(data) and not last:
        raise _broken(f"the piece of {len(data):,} bytes has complete frames up to {complete:,} only")
    return frames


def _lock(fd: int) -> None:
    """Lock a segment against other threads and processes that append to it, until it is closed."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                message = "another piece of the segment is being written"
                raise DestinationError(message, "busy", retry_after=RETRY_SECONDS) from None
            time.sleep(0.01)


def _sync(path: Path) -> None:
    with closing_fd(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a directory; one that does not exist is empty."""
    try:
        with os.scandir(folder) as entries:
            yield entries
    except FileNotFoundError:
        yield iter(())


@contextmanager
def _reported() -> Iterator[None]:
    """Raise DestinationError for OSError: not a file, which stays so, or a disk that may have room later."""
    try:
        yield
    except OSError as problem:
        told = problem.strerror or str(problem)
        if problem.errno in (errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
            raise DestinationError(f"cannot be stored under this name: {told}", "name") from problem
        raise DestinationError(f"cannot be stored now: {told}", "busy", retry_after=FULL_SECONDS) from problem


def _beyond(segment: str, offset: int, held: int) -> DestinationError:
    message = f"the piece of {segment} begins at {offset:,}; {held:,} bytes are held"
    return DestinationError(message, "beyond", held=held)


def _limit(message: str) -> DestinationError:
    return DestinationError(message, "limit")


def _broken(message: str) -> DestinationError:
    return DestinationError(message, "broken")


MAX_OPEN = 4096  # receivers that are kept: each has the names of its segments


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """How much a directory takes."""

    projects: int = 1000
    runs: int = 100_000  # of a project
    of_run: ReceiverLimits = field(default_factory=ReceiverLimits)


class ReceivedRuns:
    """The receivers of a directory's runs, by project and run."""

    def __init__(self, dir: Path, limits: DirectoryLimits | None = None) -> None:
        self.dir = dir
        self.limits = limits or DirectoryLimits()
        self._open: OrderedDict[tuple[str, str], Receiver] = OrderedDict()

    def receiver(self, project: str, run: str) -> Receiver:
        """Return the receiver of a run, which need not exist; raise DestinationError if it cannot have this name."""
        key = project, run
        found = self._open.get(key)
        if found is None:
            check_run_path(project, run)
            if is_run(self.dir / project):
                raise DestinationError(f"{project} is a run here, not a project", "name")
            found = self._open[key] = Receiver(self.dir / project / run, self.limits.of_run)
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return found

    def check_room(self, receiver: Receiver) -> None:
        """Raise DestinationError where the run of a receiver is a new one, and there are too many."""
        folder = receiver.folder
        if os.path.isdir(folder):
            return
        if not os.path.isdir(folder.parent) and len(subfolders(self.dir)) >= self.limits.projects:
            raise _limit(f"the directory has {self.limits.projects:,} projects; no more are taken")
        if len(subfolders(folder.parent)) >= self.limits.runs:
            raise _limit(f"the project {folder.parent.name} has {self.limits.runs:,} runs; no more are taken")
