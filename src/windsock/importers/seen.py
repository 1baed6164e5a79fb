"""What is seen of a file before its format is known: its name, its size, and both of its ends."""

from __future__ import annotations

import codecs
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from windsock.importers.clean_lines import clean_line, decode

END_BYTES = 256 << 10
MAX_LINE = 1 << 20
CONTROLS = bytes({*range(32)} - set(b"\a\b\t\n\v\f\r\x1b"))


@dataclass(frozen=True)
class Seen:
    """The ends of a regular file. A large log may begin with much that is no metric, so its end counts as well."""

    path: Path
    size: int
    head: bytes
    tail: bytes  # empty if the head is everything

    @cached_property
    def lines(self) -> list[str]:
        """The complete lines of both ends, clean; none of a binary file."""
        if self.is_binary:
            return []
        head, tail = self.head.splitlines(), self.tail.splitlines()[1:]
        return [clean_line(decode(line)[0]).text for line in (*head, *tail) if len(line) <= MAX_LINE]

    @property
    def is_binary(self) -> bool:
        """Whether the file is no text: more than one in fifty bytes is one that no text has, except in UTF-16."""
        head = self.head[: 1 << 16]
        controls = len(head) - len(head.translate(None, CONTROLS))  # some are left where a machine crashed
        return controls * 50 > len(head) and head[:2] not in (b"\xff\xfe", b"\xfe\xff")

    @property
    def is_pickle(self) -> bool:
        """Whether the file is a pickle, or an archive of torch.save with one."""
        is_archive = self.head[:4] == b"PK\3\4" and b"/data.pkl" in self.head[:1024]
        return is_archive or (self.head[:1] == b"\x80" and self.head[1:2] in b"\2\3\4\5")

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def has(self, *needles: bytes) -> bool:
        """Return whether each of some bytes is in either end."""
        return all(needle in self.head or needle in self.tail for needle in needles)


def look_at(path: Path) -> Seen | None:
    """Return what is seen of a file; None if it is none that can be read: opening a FIFO would block."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                return None
            head = file.read(END_BYTES)
            tail = b""
            if state.st_size > len(head):
                file.seek(max(len(head), state.st_size - END_BYTES))
                tail = file.read(END_BYTES)
            return Seen(path, state.st_size, *_as_utf8(head, tail))
    except OSError:
        return None


def _as_utf8(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Return both ends in UTF-8, if the file begins as one in UTF-16 does, and without the mark of the encoding."""
    if head[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return head.removeprefix(codecs.BOM_UTF8), tail
    encoding = "utf-16-le" if head[:2] == codecs.BOM_UTF16_LE else "utf-16-be"
    whole, rest = (part.decode(encoding, "replace").encode("utf-8", "replace") for part in (head[2:], tail))
    return whole, rest
