"""Processes beside a training: how they are started, and the lock that keeps two of one kind from working at once."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from windsock.journal.glance import segment_status
from windsock.journal.regular_files import read_regular_file
from windsock.process import process_start
from windsock.redaction import is_secret_key
from windsock.relay.delivery_state import take_lock
from windsock.relay.log_file import open_log

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
    environment: Mapping[str, str],
    directory: str | None = None,
    detached: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a module as a process, with its options on standard input and its output in a log file.

    Secrets are in the options, so that they are never a command-line argument. ``-P`` and ``PYTHONPATH`` let it import
    what this process imports, and not modules of its working directory.
    """
    modules = os.pathsep.join(directory or os.getcwd() for directory in sys.path)
    output = open_log(log)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=detached,  # Ctrl-C is for the training; the process goes on with its last rows
            cwd=directory,
            env={**environment, "PYTHONPATH": modules},
        )
    finally:
        os.close(output)
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
