"""Writing a segment: one ``os.write`` per frame, and recovery when that fails.

A frame that cannot be written (full disk, file-size limit, directory gone or read-only) waits in memory, up to
``BACKLOG_LIMIT`` bytes, and goes out in order as soon as there is room again; what exceeds the limit is dropped and
counted, and so are failed writes and syncs. ``maintain`` does that work, from the background thread, so that ``append``
never does more than one system call.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from barograph.base.model import Writer
from barograph.journal.format import frames
from barograph.journal.format.folder import segment_path

BACKLOG_LIMIT = 64 << 20
FLUSH_BATCH = 256  # frames that are written in one hold of the lock while the backlog drains
COPY_CHUNK = 4 << 20
DRAIN_ATTEMPTS = 3  # of one frame, before the backlog waits for the next call of ``maintain``
SYNC_ATTEMPTS = 3  # at the end of the segment
RETRY_SECONDS = (0.02, 0.5)  # first and longest pause between the attempts of ``close``
SEGMENT_FLAGS = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)


class SegmentWriter:
    """The only writer of one segment file. Thread-safe; after a fork the child writes to a segment of its own.

    ``prepare`` is called before a file is created, and makes the directory (and what else belongs there).
    ``on_new_segment`` is called, under the lock, after a fork or when a file had to be begun anew: what readers need
    at the head of a segment has to be appended again. ``claimed``: the first file exists; it is empty (see ``claim``),
    or has frames of an earlier writer that has ended.
    """

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        prepare: Callable[[], object] = lambda: None,
        on_new_segment: Callable[[], None] = lambda: None,
        claimed: bool = False,
    ) -> None:
        self.folder = folder
        self.writer = writer
        self.dropped = 0  # frames that were lost since the start
        self.failed_writes = 0
        self.failed_syncs = 0
        self.trouble: str | None = None  # why nothing can be written now
        self.sync_trouble: str | None = None  # why a sync failed; a later one does not make up for it on Linux
        self._prepare = prepare
        self._on_new_segment = on_new_segment
        self._claimed = claimed
        self._lock = threading.RLock()  # re-entrant: a signal handler may append while append runs
        self._fd: int | None = None
        self._path: Path | None = None
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._first_frame = 0  # offset behind the frames that every further segment begins with
        self._notices: list[str] = []
        self._noticed_move = False
        self._dirty = False
        self._forked = False
        self._closed = False
        self._begin()
        _writers.add(self)

    @property
    def path(self) -> Path | None:
        """The path of the segment, once it was created."""
        return self._path

    @property
    def waiting(self) -> int:
        """The number of frames in the backlog."""
        return len(self._backlog)

    @property
    def counts(self) -> dict[str, int]:
        """The frames that were dropped and that wait, and the failed writes and syncs, as events have them."""
        return {
            "dropped": self.dropped,
            "waiting": self.waiting,
            "failed_writes": self.failed_writes,
            "failed_syncs": self.failed_syncs,
        }

    def take_notices(self) -> list[str]:
        """Return, once, what happened to the file and should be reported."""
        notices, self._notices = self._notices, []
        return notices

    def append(self, frame: bytes) -> bool:
        """Write one frame; return False if it was dropped and counted, or the segment is closed."""
        with self._lock:
            if self._fd is None or self._backlog:
                return self._append_to_backlog(frame)
            if self._write(frame) is None:
                self._dirty = True  # after the write: a sync that runs meanwhile may not contain it
                return True
            return self._keep_for_later(frame)

    def _append_to_backlog(self, frame: bytes) -> bool:
        if self._closed:
            return False
        if self._forked:
            self._begin_after_fork()
            return self.append(frame)
        return self._keep_for_later(frame)

    def maintain(self) -> None:
        """Recover from errors, write the backlog and sync: work that is too slow for ``append``."""
        with self._lock:
            if self._forked:
                return
            if self._fd is None:
                self._begin()
        self._restore_if_removed()
        self._drain()
        self._sync()

    def close(self, timeout: float = 0.0) -> int:
        """Write the backlog, sync and close; return the number of frames that could not be written.

        Frames that cannot be written are tried again until the timeout, a sync a few times.
        """
        self._retry(time.monotonic() + timeout)
        with self._lock:
            self._closed = True
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
            _writers.discard(self)
            return len(self._backlog)

    def _retry(self, deadline: float) -> None:
        pause, longest = RETRY_SECONDS
        for attempt in itertools.count(1):
            self.maintain()
            written = not self._backlog and (not self._dirty or attempt >= SYNC_ATTEMPTS)
            if written or time.monotonic() >= deadline:
                return
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 2, longest)

    def _begin(self) -> None:
        """Create this writer's segment with the next free index."""
        try:
            self._prepare()
            self._path, self._fd = self._create()
        except OSError as problem:
            self._failed(problem)
            return
        is_new = os.fstat(self._fd).st_size == 0
        if is_new and self._write(frames.segment_head()) is not None:
            os.close(self._fd)
            self._fd = None
            with suppress(OSError):
                self._path.unlink()
        self._first_frame = frames.SEGMENT_HEAD.size

    def _create(self) -> tuple[Path, int]:
        """Create the next free segment: index 0 of a new attempt, later the next index of the same one.

        Processes that start at once may have chosen the same attempt: the file belongs to the one that creates it, and
        the others take the next attempt.
        """
        while self._path is None:
            path = segment_path(self.folder, self.writer, 0)
            if self._claimed:
                return path, os.open(path, SEGMENT_FLAGS & ~os.O_EXCL, 0o644)
            with suppress(FileExistsError):
                return path, os.open(path, SEGMENT_FLAGS, 0o644)
            self.writer = replace(self.writer, attempt=self.writer.attempt + 1)
        for index in itertools.count():
            path = segment_path(self.folder, self.writer, index)
            with suppress(FileExistsError):
                return path, os.open(path, SEGMENT_FLAGS, 0o644)
        raise AssertionError  # count() has no end

    def _write(self, data: bytes) -> OSError | None:
        """Write all of the data, or nothing; count and return the error."""
        assert self._fd is not None
        written = 0
        try:
            written = os.write(self._fd, data)
            while written < len(data):  # rare: the second call completes the frame or raises the error
                more = os.write(self._fd, memoryview(data)[written:])
                if more == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += more
        except OSError as problem:
            if written:  # no other process writes to the file, so its end is the end of the torn frame
                with suppress(OSError):
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            self._failed(problem)
            return problem
        return None

    def _failed(self, problem: OSError) -> None:
        self.failed_writes += 1
        self.trouble = _reason(problem)

    def _keep_for_later(self, frame: bytes) -> bool:
        if self._backlog_bytes + len(frame) > BACKLOG_LIMIT:
            self.dropped += 1
            return False
        self._backlog.append(frame)
        self._backlog_bytes += len(frame)
        return True

    def _drain(self) -> None:
        """Write the backlog in order, a batch per hold of the lock; stop when a frame fails several times."""
        failures = 0
        while self._backlog:
            with self._lock:
                waiting = len(self._backlog)
                if self._fd is None:
                    return
                problem = self._write_batch()
                if problem is not None and problem.errno == errno.EFBIG and not self._begin_next():
                    return
                failures = failures + 1 if len(self._backlog) >= waiting else 0
                if failures >= DRAIN_ATTEMPTS:
                    return
        self.trouble = None

    def _write_batch(self) -> OSError | None:
        """Write the first frames of the backlog; return the error of the first that fails."""
        for _ in range(min(FLUSH_BATCH, len(self._backlog))):
            problem = self._write(self._backlog[0])
            if problem is not None:
                return problem
            self._remove_first()
            self._dirty = True
        return None

    def _remove_first(self) -> None:
        self._backlog_bytes -= len(self._backlog.popleft())

    def _begin_next(self) -> bool:
        """Continue in another segment because this file may not grow; return False if that does not help.

        A frame that does not fit in an empty segment either is dropped: it would hold up all others.
        """
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if size <= frames.SEGMENT_HEAD.size:
            return False  # not even the first frame fits
        if size <= self._first_frame:
            self._remove_first()
            self.dropped += 1
            return True
        self._sync()
        os.close(self._fd)
        self._fd = None
        waiting, self._backlog = self._backlog, deque()
        self._begin()
        self._on_new_segment()
        if self._fd is not None:
            self._first_frame = os.fstat(self._fd).st_size
        self._backlog.extend(waiting)
        return self._fd is not None

    def _begin_after_fork(self) -> None:
        self._forked = False
        self._begin()
        self._on_new_segment()

    def _restore_if_removed(self) -> None:
        """If the file was unlinked, put a copy in its place, or in a further segment, and continue there."""
        if self._fd is None or self._path is None:
            return
        try:
            if os.fstat(self._fd).st_nlink > 0:
                self._notice_if_moved()
                return
            self._prepare()
            path, new = self._create_copy()
        except OSError as problem:
            self._failed(problem)
            return
        try:
            copied = _copy(self._fd, new, 0)
            with self._lock:  # others wait only while the bytes that were appended meanwhile are copied
                _copy(self._fd, new, copied)
                os.close(self._fd)
                self._fd, self._dirty = new, True
        except OSError as problem:
            self._failed(problem)
            os.close(new)
            with suppress(OSError):
                path.unlink()
            return
        self._notices.append(f"{self._path} was removed while it was written; it is restored as {path}")
        self._path = path

    def _create_copy(self) -> tuple[Path, int]:
        assert self._path is not None
        with suppress(FileExistsError):
            return self._path, os.open(self._path, SEGMENT_FLAGS, 0o644)
        return self._create()  # another file has the name: the directory was made again

    def _notice_if_moved(self) -> None:
        """Report, once, that another file has the segment's path; the bytes go to wherever the file was moved."""
        assert self._fd is not None
        assert self._path is not None
        if self._noticed_move:
            return
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.stat(self._path), os.fstat(self._fd)):
                self._noticed_move = True
                self._notices.append(
                    f"{self._path} was moved while it was written, and another file has its name; "
                    "this process continues in the file that was moved"
                )

    def _sync(self) -> None:
        if not self._dirty or self._fd is None:
            return
        self._dirty = False
        try:
            os.fsync(self._fd)
        except OSError as problem:
            if problem.errno == errno.EINVAL:  # a filesystem without fsync
                return
            self._dirty = True
            self.failed_syncs += 1
            self.sync_trouble = _reason(problem)

    def after_fork_in_child(self) -> None:
        """Forget the parent's file and backlog; the child's own segment is created with its first frame."""
        self._lock = threading.RLock()
        self._backlog.clear()
        self._backlog_bytes = self.dropped = self.failed_writes = self.failed_syncs = 0
        self.sync_trouble = None
        self._notices.clear()
        self._dirty = False
        self._forked = True
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None


def _copy(source: int, target: int, start: int) -> int:
    """Append ``source`` from ``start`` on to ``target``; return the last offset."""
    while chunk := os.pread(source, COPY_CHUNK, start):
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]
        start += len(chunk)
    return start


def _reason(problem: OSError) -> str:
    return problem.strerror or os.strerror(problem.errno or 0)


_writers: weakref.WeakSet[SegmentWriter] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
