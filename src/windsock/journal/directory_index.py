"""Side indexes of a directory of runs: what readers found out about each run, for the next reader.

An index is a file in ``.page/``, written whole by a reader and put in place at once. Each line has its own checksum. An
entry counts only while the files that it was made from are the same, so that an index can be deleted, damaged or old
without changing an answer.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from windsock import __version__
from windsock.journal import decoding
from windsock.journal.folder import PAGE_FOLDER, FileStates
from windsock.journal.regular_files import open_regular_file

FORMAT = 1
MAX_BYTES = 1 << 30
Entries = dict[str, tuple[str, Any]]
"""By the path of a run below the directory: the digest of its files, and what was found out."""


def files_digest(states: FileStates) -> str:
    """Return a digest of the names, sizes, times and inodes of a run's files."""
    return blake2b(repr(sorted(states.items())).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


class DirectoryIndex:
    """One index of a directory: ``kind`` says what it has about each run, and names the file."""

    def __init__(self, dir: Path, kind: str, folder: str = PAGE_FOLDER) -> None:
        self._path = dir / folder / f"{kind}.index"
        # Another version may find out other things from the same files.
        self._head = json.dumps({"format": FORMAT, "windsock": __version__, "kind": kind})

    def load(self) -> Entries:
        """Return the entries; without those that are damaged, and none of another version."""
        head, *lines = self._read().split(b"\n")
        if _checked(head) != self._head.encode("ascii"):
            return {}
        found: Entries = {}
        for line in lines:
            with suppress(ValueError, TypeError):  # a damaged line, or the last one, cut off
                run, digest, record = decoding.parse_json(_checked(line))
                found[run] = digest, record
        return found

    def save(self, entries: Mapping[str, tuple[str, Any]]) -> bool:
        """Replace the index; return whether it could be written."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(exist_ok=True)
            with draft.open("xb") as file:  # before the lines are made, which takes time where nothing can be written
                file.writelines(self._lines(entries))
            os.replace(draft, self._path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        return True

    def _lines(self, entries: Mapping[str, tuple[str, Any]]) -> Iterator[bytes]:
        for text in chain([self._head], (json.dumps([run, *entry]) for run, entry in entries.items())):
            line = text.encode("ascii")
            yield b"%08x %s\n" % (crc32(line), line)

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb", opener=open_regular_file) as file:
                return file.read() if os.fstat(file.fileno()).st_size <= MAX_BYTES else b""
        except OSError:
            return b""


def _checked(line: bytes) -> bytes:
    """Return the content of a line; nothing where its checksum is wrong."""
    check, _, content = line.partition(b" ")
    return content if check == b"%08x" % crc32(content) else b""
