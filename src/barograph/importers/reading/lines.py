"""Reading text logs line by line as they grow."""

from __future__ import annotations

import codecs
import heapq
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from barograph.base.formatting import describe_error
from barograph.importers.reading.log import (
    END_BYTES,
    MAX_LINE,
    Facts,
    Line,
    Log,
    LogReader,
    RewrittenError,
    clean_line,
    decode,
    first_time,
)
from barograph.importers.recorder import Recorder

CHUNK = 4 << 20
SETTLED_SECONDS = 3.0  # without a change: the last line is complete, although no newline ends it
HEAD_BYTES, TAIL_BYTES = 256, 64  # that identify a file, up to where it was read
MAX_UTF16 = 1 << 28
MAX_REASON = 300
MAX_EXCEPTION = 1000  # characters of a line that are taken for an exception
MAX_TRACEBACK = 2000  # lines after which an exception is not looked for any more
CREATED_BYTES = 64 << 10  # at the beginning of a log, in which the time of its first line is looked for

TRACEBACK = b"Traceback (most recent call last)"
EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: )?(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)|Exception)(?::.*)?$"
)
KILLED = re.compile(r"CANCELLED AT|oom-kill|Killed process|^Killed$|DUE TO TIME LIMIT|DUE TO PREEMPTION")
JOB = re.compile(r"^Job '[\w.-]+' (succeeded|failed|was stopped)")  # what ``ray job submit`` prints last
JOB_ENDS = {"failed": "crashed", "was stopped": "killed"}
EXITED = re.compile(r"exits with return code = (-?\d{1,9})$")  # what DeepSpeed's launcher prints last
SIGNALS = ("-2", "-9", "-15")  # that end a process from outside
END_NEEDLES = (
    TRACEBACK,
    b"Job '",
    b"exits with return",
    b"CANCELLED AT",
    b"oom-kill",
    b"Killed",
    b"DUE TO TIME LIMIT",
    b"DUE TO PREEMPTION",
)
END_MARKS = tuple(needle.decode() for needle in END_NEEDLES)


def is_settled(path: Path) -> bool:
    """Return whether a file has not changed for a while: nobody is writing it."""
    return time.time() - path.stat().st_mtime > SETTLED_SECONDS


class LineReader(LogReader):
    """Base of the readers of text logs: gives ``line`` each new line that has one of ``needles``."""

    needles: tuple[bytes, ...] = ()
    """Bytes that a line must have to be looked at; with none, every line is."""

    begun: tuple[str, ...] = ("traceback",)
    """Entries of the state that are there while a text over several lines is read."""

    producer = ""
    """The framework that prints such lines."""

    marks: tuple[tuple[bytes, str], ...] = ()
    """Frameworks that print the same lines, each with bytes that the beginning of its logs has."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("offset", 0)
        state.setdefault("line", 0)

    def facts(self) -> Facts:
        """Return what the log tells about its run: the framework, and the first time in it."""
        return Facts(producer=self.framework(), created=self.created())

    def framework(self) -> str:
        """Return the framework that the beginning of the log names, else the one that prints such lines."""
        head = self.beginning(END_BYTES) if self.marks else b""
        return next((name for mark, name in self.marks if mark in head), self.producer)

    def created(self) -> float | None:
        """Return the first time at the beginning of the log; None if there is none."""
        return first_time(decode(self.beginning(CREATED_BYTES))[0])

    def beginning(self, size: int) -> bytes:
        """Return the first bytes of the log."""
        with self.log.path.open("rb") as file:
            return file.read(size)

    def line(self, line: Line, out: Recorder) -> bool | None:
        """Record what is in a line; return whether it was a row of the training."""
        raise NotImplementedError

    @property
    def wants_all(self) -> bool:
        """Whether the next line is looked at whatever it has: a text over several lines has begun."""
        return not self.needles or not self.state.keys().isdisjoint(self.begun)

    def read(self, out: Recorder) -> None:
        """Record the lines that are new, and how the log ends."""
        if self.state["offset"] == 0:
            out.clock(self.created())
        for raw, number in self._new_lines(out):
            text, is_valid = decode(raw)
            if not is_valid:
                out.unread(f"line {number}", "bytes that are not UTF-8 are replaced")
            line = clean_line(text, number)
            if self._read_line(line, out):
                self._went_on(out)
            else:
                self._look_for_end(line, out)

    def _read_line(self, line: Line, out: Recorder) -> bool | None:
        try:
            return self.line(line, out)
        except OSError:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever is in a line, the others are read
            out.unread(f"line {line.number}", f"cannot be read: {describe_error(problem)}")
            return False

    def _went_on(self, out: Recorder) -> None:
        """Forget an error that was printed: the training continued."""
        if {"ended", "traceback"} & self.state.keys():
            self.state.pop("ended", None)
            self.state.pop("traceback", None)
            out.status(None)

    def mark_finished(self, line: Line, out: Recorder) -> None:
        """Say that the training has finished, whatever was printed before; errors of what comes after it are no end."""
        self.state.pop("traceback", None)
        self.state["ended"] = True
        out.status("finished", f"line {line.number}: {line.text.strip()[:MAX_REASON]}")

    def _look_for_end(self, line: Line, out: Recorder) -> None:
        """Notice an exception or a signal. The first one counts: others are often its consequences."""
        if not ("traceback" in self.state or _may_be_end(line.text)):
            return
        text = line.text.strip()
        job = JOB.match(text)
        if job is not None and job[1] == "succeeded":
            self.mark_finished(line, out)
        elif self.state.get("ended"):
            return
        elif job is not None:
            self._end(out, JOB_ENDS[job[1]], f"line {line.number}: {text[:MAX_REASON]}")
        elif (code := EXITED.search(text)) is not None:
            self._end(out, "killed" if code[1] in SIGNALS else "crashed", f"line {line.number}: {code[0]}")
        elif TRACEBACK.decode() in text:
            self.state["traceback"] = line.number
            out.status("crashed", f"line {line.number}: an exception")
        elif "traceback" in self.state and EXCEPTION.match(text[:MAX_EXCEPTION]):
            word = "killed" if "KeyboardInterrupt" in text or "SystemExit" in text else "crashed"
            del self.state["traceback"]
            self._end(out, word, f"line {line.number}: {text[:MAX_REASON]}")
        elif KILLED.search(text):
            self.state.pop("traceback", None)
            self._end(out, "killed", f"line {line.number}: {text[:MAX_REASON]}")
        elif line.number - self.state.get("traceback", line.number) > MAX_TRACEBACK:
            del self.state["traceback"]

    def _end(self, out: Recorder, word: str, reason: str) -> None:
        self.state["ended"] = True
        out.status(word, reason)

    # -- lines ---------------------------------------------------------------------------------------------------

    def _new_lines(self, out: Recorder) -> Iterator[tuple[bytes, int]]:
        """Yield the new complete lines that are to be looked at, with their numbers."""
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
                complete, newline, left = (left + chunk).rpartition(b"\n")
                if newline:
                    yield from self._wanted(complete, out)
                if len(left) > MAX_LINE:
                    left = self._shortened(left, self.state["line"] + 1, out)
                self.state["offset"] = file.tell() - len(left)
            if left and time.time() - state.st_mtime > SETTLED_SECONDS:
                yield from self._wanted(left, out)
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

    def _wanted(self, block: bytes, out: Recorder) -> Iterator[tuple[bytes, int]]:
        """Yield those of some complete lines that are to be looked at.

        Most lines of a large log are none of these. They are skipped without being made an object each: the places of
        all needles are known ahead.
        """
        places = [(-1, needle) for needle in (*self.needles, *END_NEEDLES)]
        number, place = self.state["line"], 0
        while place <= len(block):
            start = place
            if not self.wants_all:
                found = _next_place(block, place, places)
                if found == len(block):
                    break
                start = block.rfind(b"\n", place, found) + 1 or place
                number += block.count(b"\n", place, start)
            end = block.find(b"\n", start)
            end = end if end >= 0 else len(block)
            number, place = number + 1, end + 1
            raw = block[start:end]
            yield raw if len(raw) <= MAX_LINE else self._shortened(raw, number, out), number
        self.state["line"] = number + (block.count(b"\n", place) + 1 if place <= len(block) else 0)

    def _shortened(self, line: bytes, number: int, out: Recorder) -> bytes:
        """Return what a progress bar has left of a line that is too long: the part that is visible at last."""
        last = line[line.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(last) <= MAX_LINE:
            return last
        out.unread(f"line {number}", f"a line of more than {MAX_LINE:,} bytes")
        return b""  # the end of a line that is not complete is taken for a line of its own, and not understood

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
            lines = "\n".join(data.decode("utf-16", "replace").splitlines())
            yield from self._wanted(lines.encode("utf-8", "replace"), out)


def _next_place(block: bytes, place: int, places: list[tuple[int, bytes]]) -> int:
    """Return where the next needle is, at or after a place; the length of the block if none is.

    ``places`` is a heap of where each needle was found: only those that were passed are looked for again.
    """
    while places[0][0] < place:
        needle = places[0][1]
        found = block.find(needle, place)
        heapq.heapreplace(places, (found if found >= 0 else len(block), needle))
    return places[0][0]


def _may_be_end(text: str) -> bool:
    for mark in END_MARKS:  # noqa: SIM110 - a generator would take most of the time of a line
        if mark in text:
            return True
    return False
