"""Identity of a process, by which another process on this machine can check whether it still runs."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any


def process_identity() -> dict[str, Any]:
    """Return the identity of this process: host, machine, pid and start time."""
    pid = os.getpid()
    return {"host": platform.node(), "machine": machine_id(), "pid": pid, "born": process_start(pid)}


@functools.cache
def machine_id() -> str:
    """Return an id of this boot of the machine and of its namespace of process ids: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def process_start(pid: int) -> float | None:
    """Return the start time of a process by a clock that is never set; None if it does not run."""
    try:
        # The second field is the command in parentheses, which may contain spaces and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] == b"Z" else float(fields[19])  # ticks since boot
    except OSError:
        return _process_start_elsewhere(pid) if not Path("/proc/self/stat").exists() else None


def _process_start_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time(), 2)
    except psutil.Error:
        return None
