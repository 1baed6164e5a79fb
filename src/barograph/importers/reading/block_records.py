"""The record files of W&B and SwanLab, and the directories that they are in.

The format is that of LevelDB's log, behind seven bytes that tell whose file it is.

A block has 32 KiB. A piece of a record is ``u32 checksum, u16 length, u8 kind`` and its bytes; the kind tells whether
it is a whole record or the first, a middle or the last piece of one. A piece never crosses the end of a block, so that
reading goes on at the next block where one is damaged.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from barograph.importers.reading.events import UndecodableError
from barograph.importers.reading.log import FoundLogs, Log, LogReader, RewrittenError, Seen, first_bytes
from barograph.importers.recorder import Recorder

BLOCK = 32768
HEAD = struct.Struct("<IHB")
DAMAGED, WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3, 4
SEEDS = {kind: crc32(bytes([kind])) for kind in (WHOLE, FIRST, MIDDLE, LAST)}  # the checksum includes the kind
MAX_RECORD = 64 << 20
FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")
"""Name of a run's directory: when it was begun, and the run's id. A run that is resumed has another one."""
FIRST_RECORDS = 50  # in which the description of the run is
IDENTITY_BYTES = 256  # of a file: it is the same as long as they are


def block_records(file: BinaryIO, start: int, damaged: Callable[[int, str], object]) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records from a place on, each with the place of the next; a torn end is left."""
    record: list[bytes] = []
    for place, kind, data in _pieces(file, start):
        if kind == DAMAGED:
            damaged(place, "a record is damaged")
        elif kind == WHOLE:
            yield place, data
        if kind == FIRST:
            record = [data]
        elif kind in (MIDDLE, LAST) and record:  # without a first piece it is the rest of a damaged record
            record.append(data)
            if kind == LAST:
                yield place, b"".join(record)
                record = []
            elif len(record) * BLOCK > MAX_RECORD:
                damaged(place, f"a record of more than {MAX_RECORD:,} bytes")
                record = []
        else:
            record = []


def _pieces(file: BinaryIO, place: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the pieces of records, each with the place behind it and its kind; behind damage with the next block."""
    file.seek(place)
    while True:
        left = BLOCK - place % BLOCK
        if left < HEAD.size:  # too little for a piece: it is padded
            file.seek(left, os.SEEK_CUR)
            place += left
            continue
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        checksum, length, kind = HEAD.unpack(head)
        is_intact = kind in SEEDS and length <= left - HEAD.size
        if is_intact:
            data = file.read(length)
            if len(data) < length:
                return
            is_intact = crc32(data, SEEDS[kind]) == checksum
        if is_intact:
            place += HEAD.size + length
            yield place, kind, data
        else:
            yield place, DAMAGED, b""
            place += left
            file.seek(place)


def new_records(path: Path, state: dict[str, Any], out: Recorder) -> Iterator[bytes]:
    """Yield the records of a file that were not read before; a further file of a run is another attempt.

    ``state`` has how far each file was read, and what it began with.
    """
    if state and path.parent.name not in state:
        out.restart()
    known = state.setdefault(path.parent.name, {})
    with path.open("rb") as file:
        head = file.read(IDENTITY_BYTES)
        if os.fstat(file.fileno()).st_size < known.get("offset", 0) or not head.startswith(
            bytes.fromhex(known.get("head", ""))
        ):
            raise RewrittenError
        known["head"] = head.hex()

        def damaged(place: int, reason: str) -> None:
            out.unread(f"{path.name} byte {place}", reason)

        for place, record in block_records(file, known.get("offset", HEAD.size), damaged):
            yield record
            known["offset"] = place


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How a tracker arranges the files of its runs."""

    format: str
    suffix: str
    signature: bytes
    inner: frozenset[str]  # other names in the directory of a run
    beside: frozenset[str]  # other names beside the directories of runs

    def matches(self, seen: Seen) -> bool:
        """Return whether a file begins with the tracker's signature."""
        return seen.head.startswith(self.signature)

    def logs_in(self, folder: Path, names: Sequence[str]) -> FoundLogs:
        """Return the runs whose directories are in a directory, or the one whose own directory it is."""
        own = [name for name in names if name.endswith(self.suffix) and self._is_own(folder / name)]
        if own:
            return FoundLogs([Log(folder / name, self.format) for name in own], {*own, *self.inner} & set(names))
        found = FoundLogs()
        for id, files in self._runs_in(folder, names).items():
            found.logs.append(Log(files[0], self.format) if len(files) == 1 else Log(folder, self.format, id))
            found.taken.update(file.parent.name for file in files)
        if found.logs:
            found.taken.update(self.beside & set(names))
        return found

    def files(self, log: Log) -> list[Path]:
        """Return the files of a run, oldest first: of several ones the later ones resumed it."""
        if not log.member:
            return [log.path]
        return self._runs_in(log.path, [path.name for path in log.path.glob("*run-*")]).get(log.member, [])

    def _runs_in(self, folder: Path, names: Sequence[str]) -> dict[str, list[Path]]:
        runs: dict[str, list[Path]] = {}
        for name in sorted(names, key=lambda name: name.removeprefix("offline-")):
            found = FOLDER.fullmatch(name)
            if found and not (folder / name).is_symlink():
                for file in sorted((folder / name).glob(f"*{self.suffix}")):
                    if self._is_own(file):
                        runs.setdefault(found[1], []).append(file)
        return runs

    def _is_own(self, path: Path) -> bool:
        return first_bytes(path, len(self.signature)) == self.signature


class RecordFileReader(LogReader):
    """Base of the readers of one run: gives ``content`` what each new record has."""

    layout: FileLayout

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("files", {})

    def files(self) -> list[Path]:
        """Return the files of the run, oldest first."""
        return self.layout.files(self.log)

    def contents(self, record: bytes) -> Iterator[tuple[int, Any]]:
        """Yield what a record has, by the field of its kind."""
        raise NotImplementedError

    def content(self, kind: int, data: Any, out: Recorder) -> None:
        """Record what a record has."""
        raise NotImplementedError

    def first_contents(self, path: Path) -> Iterator[tuple[int, Any]]:
        """Yield what the first records of a file have: the description of the run is among them."""
        with path.open("rb") as file:
            for _, record in islice(block_records(file, HEAD.size, lambda *_: None), FIRST_RECORDS):
                yield from self.contents(record)

    def read_file(self, path: Path, out: Recorder) -> None:
        """Record what is new in a file."""
        for record in new_records(path, self.state["files"], out):
            try:
                for kind, data in self.contents(record):
                    self.content(kind, data, out)
            except UndecodableError as problem:
                out.unread(path.name, str(problem))
