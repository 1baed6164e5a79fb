"""Reading text logs line by line as they grow."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from windsock.importers.clean_lines import Line, clean_line, decode
from windsock.importers.formats import Facts, Log, RewrittenError
from windsock.importers.recorder import Recorder
from windsock.importers.seen import MAX_LINE

CHUNK = 4 << 20
SETTLED_SECONDS = 3.0  # without a change: the last line is complete, although no newline ends it
HEAD_BYTES, TAIL_BYTES = 256, 64  # that identify a file, up to where it was read
MAX_UTF16 = 1 << 28
MAX_REASON = 300

TRACEBACK = b"Traceback (most recent call last)"
EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)|Exception|AssertionError)(?::.*)?$"
)
KILLED = re.compile(r"CANCELLED AT|oom-kill|Killed process|^Killed$|DUE TO TIME LIMIT|DUE TO PREEMPTION")
KILLED_NEEDLES = (b"CANCELLED AT", b"oom-kill", b"Killed", b"DUE TO TIME LIMIT", b"DUE TO PREEMPTION")


class LineReader:
    """Base of the readers of text logs: gives ``line`` each new line that has one of ``needles``."""

    needles: tuple[bytes, ...] = ()
    """Bytes that a line must have to be looked at; with none, every line is."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        self.log = log
        self.state = state
        state.setdefault("offset", 0)
        state.setdefault("line", 0)

    def facts(self) -> Facts:
        """Return what the log tells about its run."""
        return Facts()

    def files(self) -> list[Path]:
        """Return the files of the log."""
        return [self.log.path]

    def line(self, line: Line, out: Recorder) -> bool | None:
        """Record what is in a line; return whether it was a row of the training."""
        raise NotImplementedError

    def read(self, out: Recorder) -> None:
        """Record the lines that are new, and how the log ends."""
        for raw, number in self._new_lines(out):
            if self._wants(raw):
                text, is_valid = decode(raw)
                if not is_valid:
                    out.unread(f"line {number}", "bytes that are not UTF-8 are replaced")
                line = clean_line(text, number)
                if self.line(line, out):
                    self._went_on(out)
                else:
                    self._look_for_end(line, out)

    def _wants(self, raw: bytes) -> bool:
        if not self.needles or "traceback" in self.state:
            return True
        return (
            any(needle in raw for needle in self.needles) or TRACEBACK in raw or any(n in raw for n in KILLED_NEEDLES)
        )

    def _went_on(self, out: Recorder) -> None:
        """Forget an error that was printed: the training continued."""
        self.state.pop("traceback", None)
        if self.state.pop("ended", None):
            out.status(None)

    def _look_for_end(self, line: Line, out: Recorder) -> None:
        text = line.text.strip()
        if TRACEBACK.decode() in text:
            self.state["traceback"] = line.number
            self._end(out, "crashed", f"line {line.number}: an exception")
        elif "traceback" in self.state and EXCEPTION.match(text):
            word = "killed" if "KeyboardInterrupt" in text or "SystemExit" in text else "crashed"
            self._end(out, word, f"line {line.number}: {text[:MAX_REASON]}")
            del self.state["traceback"]
        elif KILLED.search(text):
            self._end(out, "killed", f"line {line.number}: {text[:MAX_REASON]}")

    def _end(self, out: Recorder, word: str, reason: str) -> None:
        self.state["ended"] = True
        out.status(word, reason)

    # -- lines ---------------------------------------------------------------------------------------------------

    def _new_lines(self, out: Recorder) -> Iterator[tuple[bytes, int]]:
        """Yield the new complete lines with their numbers."""
        with self.log.path.open("rb") as file:
            state = os.fstat(file.fileno())
            self._check_same(file, state.st_size)
            if self.state.get("utf-16"):
                yield from self._utf16_lines(file, out)
                return
            file.seek(self.state["offset"])
            self._after_torn_line(file)
            left = b""
            while chunk := file.read(CHUNK):
                lines = (left + chunk).split(b"\n")
                left = lines.pop()
                yield from self._numbered(lines, out)
                self.state["offset"] = file.tell() - len(left)
                if len(left) > MAX_LINE:
                    out.unread(f"line {self.state['line'] + 1}", f"a line of more than {MAX_LINE:,} bytes")
                    left = b""  # its end is taken for a line of its own, and not understood
            if left and time.time() - state.st_mtime > SETTLED_SECONDS:
                yield from self._numbered([left], out)
                self.state["offset"] += len(left)
                self.state["torn"] = True
            self._remember_end(file)

    def _after_torn_line(self, file: BinaryIO) -> None:
        """Skip the end of a line that was taken for complete; raise RewrittenError if it was longer."""
        if self.state.get("torn") and (byte := file.read(1)):
            if byte != b"\n":
                raise RewrittenError
            self.state["offset"] += 1
            del self.state["torn"]

    def _remember_end(self, file: BinaryIO) -> None:
        """Remember the last bytes that were read, by which a file that was written anew shows."""
        size = min(TAIL_BYTES, self.state["offset"])
        file.seek(self.state["offset"] - size)
        self.state["tail"] = file.read(size).hex()

    def _numbered(self, lines: list[bytes], out: Recorder) -> Iterator[tuple[bytes, int]]:
        number = self.state["line"]
        for raw in lines:
            number += 1
            if len(raw) <= MAX_LINE:
                yield raw, number
            else:
                out.unread(f"line {number}", f"a line of more than {MAX_LINE:,} bytes")
        self.state["line"] = number

    def _check_same(self, file: BinaryIO, size: int) -> None:
        """Raise RewrittenError if the file is shorter, or another one up to where it was read."""
        head = file.read(HEAD_BYTES)
        known, tail = (bytes.fromhex(self.state.get(name, "")) for name in ("head", "tail"))
        if size < self.state["offset"] or head[: len(known)] != known:
            raise RewrittenError
        if tail and not self.state.get("utf-16"):
            file.seek(self.state["offset"] - len(tail))
            if file.read(len(tail)) != tail:
                raise RewrittenError
        self.state["head"] = head.hex()
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            self.state["utf-16"] = True

    def _utf16_lines(self, file: BinaryIO, out: Recorder) -> Iterator[tuple[bytes, int]]:
        file.seek(0)
        data = file.read(MAX_UTF16)
        if self.state["offset"] not in (0, len(data)):
            raise RewrittenError  # rare enough to be read again
        if self.state["offset"] == 0:
            self.state["offset"] = len(data)
            text = data.decode("utf-16", "replace")
            yield from self._numbered([line.encode("utf-8", "replace") for line in text.splitlines()], out)
