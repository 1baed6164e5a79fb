"""Search with a regular expression in another process, which is stopped when it takes too long.

A few characters of an expression can make Python search for years, and a thread that searches cannot be interrupted.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

HEAD = struct.Struct("<I")
CHILD = r"""
import re, struct, sys
take, put = sys.stdin.buffer.read, sys.stdout.buffer
def text():
    head = take(4)
    return take(struct.unpack("<I", head)[0]) if len(head) == 4 else None
search = re.compile(text().decode("utf-8", "surrogatepass")).search
while (texts := text()) is not None:
    found = any(map(search, texts.decode("utf-8", "surrogatepass").split("\0")))
    put.write(b"1" if found else b"0")
    put.flush()
"""


class TooSlowError(ValueError):
    """A regular expression that takes longer than it may."""


class RegexProcess:
    """A process that tests texts against a regular expression, for at most some seconds in all."""

    def __init__(self, regex: str, seconds: float) -> None:
        self._seconds = seconds
        # Isolated and without site packages: it starts in a few milliseconds, and sees nothing of this process.
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._end = time.monotonic() + seconds
        self._send([regex.encode("utf-8", "surrogatepass")])

    def matches(self, texts: Sequence[bytes]) -> list[bool]:
        """Return which texts match; raise TooSlowError when the time is over."""
        stopper = threading.Timer(max(0.0, self._end - time.monotonic()), self._child.kill)
        stopper.start()
        try:
            # From a thread: neither pipe holds all texts or all answers.
            sender = threading.Thread(target=self._send, args=(texts,), daemon=True)
            sender.start()
            assert self._child.stdout is not None
            found = self._child.stdout.read(len(texts))
            sender.join()
        finally:
            stopper.cancel()
        if len(found) < len(texts):
            raise TooSlowError(f"the regular expression takes more than {self._seconds:g} s")
        return [answer == ord("1") for answer in found]

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.communicate()

    def _send(self, texts: Sequence[bytes]) -> None:
        assert self._child.stdin is not None
        try:
            for text in texts:
                self._child.stdin.write(HEAD.pack(len(text)) + text)
            self._child.stdin.flush()
        except (BrokenPipeError, ValueError):  # it was stopped
            return
