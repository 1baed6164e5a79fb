"""Processes beside a training.

How they are started, their logs, which are limited in size, the locks that keep two of one kind from working at
once, and their owner, which starts one again when it dies and waits for its last bytes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.model import Status
from barograph.base.process.identity import process_start
from barograph.base.secrets import is_secret_key
from barograph.journal.format.folder import closing_fd, open_regular_file, read_regular_file
from barograph.journal.read.status import segment_status
from barograph.recording.tracker import DeliveryClient


def take_lock(path: Path, wait: float = 0.0) -> IO[str] | None:
    """Take a lock that ends with the process; return None if another process has it for longer than ``wait``.

    Raise OSError if the file cannot be a lock: a FIFO, say, which would block.
    """
    path.parent.mkdir(exist_ok=True)
    # In append mode, since opening must not erase what the holder wrote. The kernel releases a flock when the last copy
    # of the file is closed, also after kill -9; a forked child has a copy.
    file = open(path, "a", encoding="utf-8", opener=open_regular_file)  # noqa: SIM115 - the caller closes it
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() >= until:
                file.close()
                return None
            time.sleep(0.05)


MAX_LOG_BYTES = 8 << 20

KEPT_BYTES = 1 << 20  # of either end, when the log is cut

READS = 20  # of the end of a log that grows, at most

NOT_A_LOG = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO)


def open_log(path: Path) -> int:
    """Return a descriptor to append to; that of the null device if something else than a file has the name."""
    path.parent.mkdir(exist_ok=True)
    try:
        return open_regular_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except OSError as problem:
        if problem.errno not in NOT_A_LOG:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class LogFile:
    """A log that another process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cut = 0

    def limit(self) -> None:
        """Cut the middle out if the log is too long; its beginning, which may have the cause, and its end stay."""
        with suppress(OSError):  # it does not exist yet, or is no file
            if self.path.stat().st_size > MAX_LOG_BYTES:
                with closing_fd(open_regular_file(self.path, os.O_RDWR | os.O_APPEND)) as fd:
                    self._cut_middle(fd)

    def _cut_middle(self, fd: int) -> None:
        size, end = _read_end(fd)
        # The other process writes in append mode too, so that it continues at the new end.
        os.ftruncate(fd, KEPT_BYTES)
        self._cut += size - KEPT_BYTES - len(end)
        # What is written between the reading and the cut is lost and not counted.
        cut = f"at least {self._cut:,} bytes were cut out here"
        text = f"\n[barograph: {cut}, since the log exceeded {MAX_LOG_BYTES:,} bytes]\n"
        os.write(fd, text.encode() + end)


def _read_end(fd: int) -> tuple[int, bytes]:
    """Return the size and the end of a file; if it grew meanwhile, the end is read again, a few times at most."""
    size = os.fstat(fd).st_size
    for _ in range(READS):
        end = os.pread(fd, KEPT_BYTES, size - KEPT_BYTES)
        before, size = size, os.fstat(fd).st_size
        if size == before:
            break
    return before, end


LOCK_SECONDS = 20.0  # to wait for a process that was asked to end and has the lock

PROBE_SECONDS = 0.2  # ``relay_is_running`` has the lock for less

EXIT_BUSY = 76  # of a process that finds another one of its kind running

_launched: list[subprocess.Popen[bytes]] = []
"""Processes that may outlive this one. Popen warns when it is collected before its process has ended."""


def launch(
    module: str,
    *arguments: str,
    log: Path,
    options: Any,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
    detached: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a module as a process, with its options on standard input and its output in a log file.

    Secrets are in the options, so that they are never a command-line argument. ``-P`` and ``PYTHONPATH`` let it import
    what this process imports, and not modules of its working directory. The ``environment`` is by default that of this
    process, without secrets.
    """
    environment = without_secrets(os.environ) if environment is None else environment
    modules = os.pathsep.join(directory or os.getcwd() for directory in sys.path)
    with closing_fd(open_log(log)) as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=detached,  # Ctrl-C is for the training; the process goes on with its last rows
            cwd=directory,
            env={**environment, "PYTHONPATH": modules},
        )
    _launched[:] = [one for one in _launched if one.poll() is None] + [process]
    assert process.stdin is not None
    try:
        process.stdin.write(pickle.dumps(options))
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has died already, which its exit code shows
    return process


def given_options() -> Any:
    """Return the options that this process was started with."""
    # They may contain any objects. The pipe comes from the parent, which is trusted.
    return pickle.load(sys.stdin.buffer)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets."""
    return {name: value for name, value in environment.items() if not is_secret_key(name, value)}


def take_process_lock(path: Path, segment: str) -> IO[str] | None:
    """Take the lock of a process that serves a run; return None if another process has it.

    ``segment`` is that of the training process which started this one; the lock is in a folder of the run's directory.
    A holder whose training process has ended is asked to end: it would go on with the old options, which may name
    another target or an outdated key.
    """
    lock = take_lock(path, PROBE_SECONDS)
    if lock is None and _terminate_outdated(path):
        lock = take_lock(path, LOCK_SECONDS)
    if lock is not None:
        lock.truncate(0)
        # For the process of a later attempt, which asks this one to end. The start time tells a reused pid apart.
        json.dump([os.getpid(), process_start(os.getpid()), segment], lock)
        lock.flush()
    return lock


def _terminate_outdated(path: Path) -> bool:
    """Ask the holder of a lock to end if the training process that started it has; return whether it was asked."""
    try:
        pid, born, segment = json.loads(read_regular_file(path))
    except (OSError, ValueError):
        return False
    if not segment or not segment_status(path.parent.parent / segment).ended or process_start(pid) != born:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return True


WAIT_SECONDS = 0.05

MAX_RESTART_PAUSE = 30.0


def restart_pause(failures: int, first: float = 1.0, most: float = MAX_RESTART_PAUSE) -> float:
    """Return the seconds until the next attempt: twice as long after each failure, but not longer than ``most``."""
    return min(first * 2.0 ** min(failures, 10), most)


class HelperProcess:
    """A process beside this one, which its owner starts again where it exits too early."""

    def __init__(self, launch: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._launch = launch
        self._owner = os.getpid()
        self.again_at = 0.0  # the end of the last pause
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; raise OSError if that cannot be."""
        self.process = self._launch()

    def pause(self, seconds: float) -> None:
        """Let ``exit_code`` return None for some seconds."""
        self.again_at = time.monotonic() + seconds

    def exit_code(self) -> int | None:
        """Return the exit code of the process; None while it runs, during a pause, and in a forked child.

        Without a process it is that of one which found another of its kind.
        """
        # A forked child has a copy of the Popen object, but is not the parent of the process.
        if os.getpid() != self._owner or time.monotonic() < self.again_at:
            return None
        return EXIT_BUSY if self.process is None else self.process.poll()


class TransferClient(DeliveryClient, ABC):
    """Base of the clients whose process carries bytes: it starts the process again and waits for the last bytes."""

    what: ClassVar[str]
    """What the process does, in messages."""

    log_name: ClassVar[str]
    """The log of the process, in the folder."""

    def __init__(
        self, folder: Path, lock: Path, warn: Callable[[str], None], *arguments: str, options: Any = None
    ) -> None:
        self._folder = folder  # of the segments
        self._lock = lock  # that the process takes
        self._warn = warn
        self._log = folder / self.log_name
        self._helper = HelperProcess(
            lambda: launch("barograph.delivery.relay", *arguments, log=self._log, options=options, detached=True)
        )
        self._restarts = 0

    @abstractmethod
    def left(self) -> int:
        """Return how many bytes are still to be carried."""

    @abstractmethod
    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""

    def start(self) -> None:
        """Start the process."""
        try:
            self._helper.start()
        except OSError as problem:
            raise TrackerError(f"cannot start the process that {self.what}: {problem}") from problem

    def maintain(self) -> None:
        """Start the process again if it has died; after longer and longer pauses if it does not live long."""
        code = self._helper.exit_code()
        if code is None or (code == EXIT_BUSY and self._is_locked()):
            return  # it runs, or that of another process of this machine does
        lived = time.monotonic() - self._helper.again_at
        self._restarts = 1 if lived > MAX_RESTART_PAUSE else self._restarts + 1
        self._helper.pause(restart_pause(self._restarts - 1))
        self._warn(f"the process that {self.what} had exited and was started again; no byte is lost (see {self._log})")
        self.start()

    def _is_locked(self) -> bool:
        with suppress(OSError):
            lock = take_lock(self._lock)
            if lock is not None:
                lock.close()
            return lock is None
        return False

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all bytes are carried; return a message if some are left."""
        until = time.monotonic() + timeout
        self._helper.again_at = 0.0
        while self._folder.exists() and (left := self.left()):
            if time.monotonic() >= until:
                return [self.describe_left(left)]
            with suppress(TrackerError):  # it is tried again
                self.maintain()
            time.sleep(WAIT_SECONDS)
        return []
