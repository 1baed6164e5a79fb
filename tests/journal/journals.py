"""Reading of the segments that a test has written."""

from pathlib import Path
from typing import Any

import numpy as np

from barograph.base.model import Writer
from barograph.journal.format.folder import segments
from barograph.journal.read.attempt import Attempt, poll_all
from barograph.journal.segments.contents import RowTable, split_payloads, united_heads
from barograph.journal.segments.reader import SegmentReader

WRITER = Writer("trainer", 0, 1)


def read(folder: Path) -> Attempt:
    """Return the attempt of ``WRITER``, read from all its segments."""
    attempt = Attempt(WRITER)
    for segment in segments(folder):
        attempt.add(segment)
    poll_all([attempt])
    return attempt


def contents(reader: SegmentReader) -> dict[str, Any]:
    """Return everything that a reader has read, to be compared with what another has; NaN is equal to itself."""
    reader.check_records()
    steps = reader.steps
    return {
        "offset": reader.offset,
        "schemas": reader.schemas,
        "tables": [(schema, *_columns(table)) for schema, table in reader.tables.items()],
        "states": [(layout, *_columns(table)) for layout, table in reader.states.items()],
        "sparse": [
            (layout, *_columns(table), split_payloads(*table.joined_payloads(np.arange(len(table)))))
            for layout, table in reader.sparse_states.items()
        ],
        "records": [(record.kind, record.offset, record.payload) for record in reader.records],
        "heartbeats": [(record.offset, record.payload) for record in reader.heartbeats],
        "samples": list(map(repr, reader.samples)),
        "commits": (steps.offsets.tolist(), steps.steps.tolist(), steps.times.tolist()),
        "steps": (steps.highest, steps.highest_commit, steps.first_row, steps.row_span, steps.open_until),
        "damage": list(map(str, reader.damage)),
    }


def _columns(table: RowTable) -> tuple[int, list[bytes]]:
    columns = [*united_heads(table.chunks), *(table.column(number) for number in range(table.width))]
    return table.width, [column.tobytes() for column in columns]
