"""A reader of a segment that keeps what it has read in the side index, and goes on from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from windsock.journal.frames import SEGMENT_HEAD, Kind
from windsock.journal.reader import FileState, SampleFrame, SegmentReader
from windsock.journal.row_tables import RowChunk, RowTable
from windsock.journal.side_index import (
    SAMPLE,
    UNUSABLE,
    Contents,
    Covered,
    StalePartError,
    StoredPart,
    index_path,
    remove_parts,
    write_part,
)

PART_BYTES = 7 << 20  # of a segment make a part: two reads
MIN_BYTES = 256 << 10  # fewer are read as quickly as an index
FEW_TABLES, TABLE_BYTES = 1000, 1 << 10  # more tables have a part only where each has so many bytes on average
FEW_COLUMNS, COLUMN_BYTES = 20_000, 64  # and so have more columns
QUIET_SECONDS = 60.0  # without a change, after which the rest of a segment becomes a part
LONG_SECONDS = 3600.0  # the same, where the rest is less than a quarter of what the parts have
FINISH = bytes((Kind.EVENT,)) + b'{"event":"finish"'
LAST_RECORDS = 16  # that are searched for the end of the process


class IndexedReader(SegmentReader):
    """Reader of one segment with its side index.

    It writes a part when enough was read since the last one, and forgets the columns: they are read again when they
    are asked for. Where no index can be written, everything stays in memory.
    """

    def __init__(self, path: Path, schemas: dict[int, tuple[str, ...]] | None = None) -> None:
        super().__init__(path, schemas)
        self._stored_to = SEGMENT_HEAD.size  # the offset up to which there are parts
        self._stored_commits = 0
        self._stored_samples = 0
        self._can_write = True

    def _next_bytes(self, fd: int, size: int) -> bytes:
        """Add the parts that begin at the offset, and return the bytes behind them."""
        if self.offset == self._stored_to:
            try:
                parts = list(self._next_parts())
            except StalePartError:  # the segment was replaced, so that no part of it can be trusted
                remove_parts(self.path)
                parts = []
            for part in parts:
                self._take(part)
        return super()._next_bytes(fd, size)

    def _next_parts(self) -> Iterator[StoredPart]:
        start = self.offset
        while (path := index_path(self.path, start)).exists():
            try:
                part = self._open(path, start)
            except StalePartError:
                raise
            except UNUSABLE:
                return
            yield part
            start = part.covered.end

    def _open(self, path: Path, start: int) -> StoredPart:
        return StoredPart(path, self.path, start, partial(read_contents, self.path))

    def _take(self, part: StoredPart) -> None:
        """Add what a part has."""
        for id, names in part.schemas.items():
            self._add_schema(id, names)
        if len(part.commits[0]):
            self.steps.add_commits(*part.commits)
        if part.rows is not None:
            self.steps.add_summary(part.rows)
        self.samples += (SampleFrame(*one) for one in part.samples.tolist())
        self._damage_before.add(part.damage)
        for heartbeat in part.heartbeats:
            self._heartbeats.add(heartbeat)
        self.offset = part.covered.end
        self._replace_by(part)

    def _replace_by(self, part: StoredPart) -> None:
        """Have the rows and records of a part on disk, and no longer in memory."""
        for rows in part.tables:
            _tables(self)[rows.kind].setdefault(rows.key, RowTable(rows.width)).store(rows)
        self.records.store(part.records)
        part.release()
        self._checked = 0
        self._stored_to, self._stored_commits, self._stored_samples = self.offset, len(self.steps), len(self.samples)
        self._new_schemas = {}  # the names of the known ones stay: they are not stored again

    def _after_read(self, whole: bool, state: FileState) -> None:
        """Write a part if enough was read since the last one."""
        size = self.offset - self._stored_to
        is_rest = whole and size >= MIN_BYTES
        if self._can_write and (size >= PART_BYTES or (is_rest and self._is_over(size, state))) and self._pays(size):
            self._store(state)

    def _pays(self, size: int) -> bool:
        """Return whether a part is worth its reads and blocks: very small tables and columns are quicker to parse."""
        found = [table for tables in _tables(self).values() for table in tables.values()]
        columns = sum(table.width for table in found)
        enough_of_tables = len(found) <= FEW_TABLES or size >= TABLE_BYTES * len(found)
        return enough_of_tables and (columns <= FEW_COLUMNS or size >= COLUMN_BYTES * columns)

    def _is_over(self, size: int, state: FileState) -> bool:
        """Return whether the segment seems to be complete."""
        if any(payload.startswith(FINISH) for payload in self.records.fresh.payloads[-LAST_RECORDS:]):
            return True
        # A run that is read in its pauses must not have thousands of small parts.
        quiet = QUIET_SECONDS if 4 * size >= self._stored_to else LONG_SECONDS
        return time.time() - state.changed / 1e9 > quiet

    def _store(self, state: FileState) -> None:
        self.check_records()
        covered = Covered(self._stored_to, self.offset, self._last_frame, state.size, state.changed)
        contents = contents_of(self, self._stored_commits, self._stored_samples)
        try:
            write_part(self.path, covered, contents)
            part = self._open(index_path(self.path, covered.start), covered.start)
        except UNUSABLE:  # the folder cannot be written, or another process replaces the segment
            self._can_write = False
            return
        self._damage_before.add(self.new_damage())
        self._damage.clear()
        self._replace_by(part)


def _tables(reader: SegmentReader) -> dict[int, dict[int, RowTable]]:
    return {Kind.ROW: reader.tables, Kind.STATE: reader.states, Kind.SPARSE_STATE: reader.sparse_states}


def contents_of(reader: SegmentReader, commits: int = 0, samples: int = 0) -> Contents:
    """Return what a reader has in memory, without the first commits and sample frames."""
    rows: dict[tuple[int, int], RowChunk] = {}
    for kind, tables in _tables(reader).items():
        rows |= {(kind, key): fresh for key, table in tables.items() if (fresh := table.fresh()) is not None}
    steps = reader.steps
    return Contents(
        rows,
        reader.records.fresh,
        np.array([(one.offset, one.step, one.time, one.kept, one.seen) for one in reader.samples[samples:]], SAMPLE),
        (
            np.array(steps.offsets[commits:], np.int64),
            np.array(steps.steps[commits:], np.int64),
            np.array(steps.times[commits:], np.float64),
        ),
        reader.new_schemas(),
        reader.new_damage(),
        reader.heartbeats,
    )


def read_contents(path: Path, start: int, end: int) -> Contents:
    """Read some whole frames of a segment again."""
    reader = SegmentReader(path)
    reader.read_range(start, end)
    return contents_of(reader)
