"""Following one segment as rows: what trackers and ``windsock tail`` need, in the order it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windsock.journal.frames import OPEN_STEP
from windsock.journal.reader import SegmentReader
from windsock.model import Row, Writer


class Follower:
    """Yields the rows of one segment as they are appended; open rows unite when their step is committed."""

    def __init__(self, path: Path, writer: Writer, ends: int | None = None) -> None:
        """``ends``: of what is there already, read only so many bytes at the beginning and at the end."""
        self.path = path
        self._reader = SegmentReader(path)
        if ends is not None:
            self._reader.read_ends(ends)
        self._writer = writer
        self._open: dict[str, float] = {}
        self._open_time = 0.0
        self._last_step = -1

    def new_rows(self) -> list[Row]:
        """Return the rows that were completed since the last call."""
        self._reader.poll()
        rows = list(self._rows())
        self._reader.forget()
        return rows

    def take_unfinished(self) -> Row | None:
        """Return, once, what was logged after the last commit, as the step that would come next."""
        if not self._open:
            return None
        row = Row(self._last_step + 1, self._open_time, dict(self._open), self._writer)
        self._open.clear()
        return row

    def _rows(self) -> Iterator[Row]:
        for step, time, values in self._in_order():
            if values is None:
                if self._open:
                    yield Row(step, time, dict(self._open), self._writer)
                    self._open.clear()
            elif step == OPEN_STEP:
                self._open.update(values)
                self._open_time = time
                continue
            else:
                yield Row(step, time, values, self._writer)
            self._last_step = max(self._last_step, step)

    def _in_order(self) -> Iterator[tuple[int, float, dict[str, float] | None]]:
        """Yield rows, and commits as rows without values, in the order of the file."""
        found: list[tuple[int, int, float, dict[str, float] | None]] = [
            (offset, step, time, None) for offset, step, time in self._reader.commits
        ]
        for schema, table in self._reader.tables.items():
            names = self._reader.schemas.get(schema)
            if names is None or len(names) != table.width:
                continue
            for chunk in table.chunks:
                columns = (
                    chunk.offsets.tolist(),
                    chunk.steps.tolist(),
                    chunk.times.tolist(),
                    chunk.values.tolist(),
                )
                for offset, step, time, values in zip(*columns, strict=True):
                    found.append((offset, step, time, dict(zip(names, values, strict=True))))
        for _, step, time, row in sorted(found, key=lambda item: item[0]):
            yield step, time, row
