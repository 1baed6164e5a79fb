"""Which process this is, in words that another process on this machine can check."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any


def process_identity() -> dict[str, Any]:
    """Tell which process this is, so that another one on this machine can look whether it lives."""
    pid = os.getpid()
    return {"host": platform.node(), "machine": machine_id(), "pid": pid, "born": process_start(pid)}


@functools.cache
def machine_id() -> str:
    """Name this boot of this machine and, in a container, its own process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def process_start(pid: int) -> float | None:
    """Return when a process began, on a clock that nobody sets; None where no such process lives."""
    try:
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
