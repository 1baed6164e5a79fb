"""Processes that tests fork, and that end in the middle of their work."""

import os
import signal
from collections.abc import Callable
from typing import Any

from barograph.journal.write.segment import SegmentWriter


def kill_after(frames: int) -> None:
    """Kill this process when it has written so many frames."""
    append, left = SegmentWriter.append, [frames]

    def counted(self: SegmentWriter, frame: bytes) -> bool:
        written = append(self, frame)
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    SegmentWriter.append = counted  # type: ignore[method-assign]


def in_process(work: Callable[[], Any]) -> None:
    """Run a function in a process of its own, and wait for it; it must return, or be killed."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
