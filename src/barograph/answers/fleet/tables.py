"""The rows of a run in the tables of the data set, as columns and as Arrow tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from barograph.answers.fleet.schema import TABLES, arrow_schema, pyarrow
from barograph.base.arrays import Ints
from barograph.base.formatting import encodable, flatten
from barograph.base.model import RunInfo
from barograph.catalogue.resolution import RunNames
from barograph.diagnosis.diagnose import Diagnosis
from barograph.journal.findings import Finding
from barograph.journal.format.frames import FAILED, TIMER
from barograph.journal.read.spans import SpanTable
from barograph.journal.view import View
from barograph.metrics.comparison import seed_of, setting_digest

Record = dict[str, Any]

Texts = dict[str, str | bool | None]

Cutoffs = dict[tuple[str, int], int]
"""The last step of each role and rank."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of one role and rank that share texts, by ascending steps: one metric or one phase."""

    role: str
    rank: int
    texts: Texts
    steps: Ints
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, after: int | None, upto: int | None) -> RowBlock:
        """Return the rows of the steps after one and up to another."""
        start = 0 if after is None else int(np.searchsorted(self.steps, after, "right"))
        stop = len(self.steps) if upto is None else int(np.searchsorted(self.steps, upto, "right"))
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return RowBlock(self.role, self.rank, self.texts, self.steps[start:stop], columns)

    def checksum(self, before: int) -> int:
        """Return the checksum of the rows, continued from that of the blocks before."""
        found = crc32(repr((self.role, self.rank, sorted(self.texts.items()))).encode("utf-8", "replace"), before)
        for column in (self.steps, *self.columns.values()):
            found = crc32(np.ascontiguousarray(column).tobytes(), found)
        return found


def checksum(blocks: Iterable[RowBlock]) -> tuple[int, int]:
    """Return the number of rows and their checksum. A block without rows counts for nothing."""
    rows = found = 0
    for block in blocks:
        if len(block):
            rows, found = rows + len(block), block.checksum(found)
    return rows, found


def last_steps(blocks: Iterable[RowBlock]) -> Cutoffs:
    """Return the last step of each role and rank."""
    found: Cutoffs = {}
    for block in blocks:
        if len(block):
            place, last = (block.role, block.rank), int(block.steps[-1])
            found[place] = max(last, found.get(place, last))
    return found


def settled(blocks: Sequence[RowBlock], exported: Cutoffs) -> list[RowBlock]:
    """Return the blocks of a run that goes on without the last step of each role and rank, which may still change.

    What was exported stays: a run that was over goes on.
    """
    upto = {place: max(last - 1, exported.get(place, last - 1)) for place, last in last_steps(blocks).items()}
    return [block.between(None, upto[block.role, block.rank]) if len(block) else block for block in blocks]


def value_blocks(view: View, names: RunNames, patterns: Sequence[str]) -> list[RowBlock]:
    """Return the metrics: of each role the series that ``view.series`` returns, with the ranks merged."""
    roles = list(dict.fromkeys(writer.role for writer in view.writers()))
    found = []
    for role in sorted(roles):
        for name in sorted(view.names(patterns)):
            series = view.find_series(name, role)
            if series is not None and series.writer is not None:
                match = names.match(name)
                texts: Texts = {"name": name, "metric": match.metric.id if match else None}
                columns = {"time": series.times, "value": series.values}
                found.append(RowBlock(role, series.writer.rank, texts, series.steps, columns))
    return found


def phase_blocks(view: View) -> list[RowBlock]:
    """Return the phases and timers that have ended: their sums in each step of each rank."""
    table = view.span_table()
    if not table.closed.any():
        return []
    writers = sorted({(writer.role, writer.rank) for writer in table.writers})
    number_of = np.array([writers.index((writer.role, writer.rank)) for writer in table.writers], np.int64)
    is_timer = table.has_flag(TIMER).astype(np.int64)
    keys: list[Ints] = [number_of[table.writer_numbers], table.column("name").astype(np.int64), is_timer, table.steps]
    order = np.lexsort(keys[::-1])  # by writer, phase, timer and step
    order = order[table.closed[order]]
    writer, phase, timer, steps = (key[order] for key in keys)
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(writer) != 0) | (np.diff(phase) != 0) | (np.diff(timer) != 0)
    is_row = is_new.copy()
    is_row[1:] |= np.diff(steps) != 0
    rows, begins = np.flatnonzero(is_row), np.flatnonzero(is_new[is_row])
    sums = _phase_sums(table, order, rows)
    blocks = []
    for start, stop in zip(begins.tolist(), [*begins.tolist()[1:], len(rows)], strict=True):
        at = rows[start]
        role, rank = writers[writer[at]]
        texts: Texts = {"phase": table.texts[phase[at]], "timer": bool(timer[at])}
        columns = {name: column[start:stop] for name, column in sums.items()}
        blocks.append(RowBlock(role, rank, texts, steps[rows[start:stop]], columns))
    return sorted(blocks, key=lambda block: (block.role, str(block.texts["phase"]), block.rank, block.texts["timer"]))


def _phase_sums(table: SpanTable, order: Ints, rows: Ints) -> dict[str, NDArray[Any]]:
    """Return the sums over the spans of each row; ``rows`` are the places in ``order`` where one begins."""
    tokens = table.column("tokens")[order]
    return {
        "count": np.diff([*rows, len(order)]),
        "failed": np.add.reduceat(table.has_flag(FAILED)[order].astype(np.int64), rows),
        "seconds": np.add.reduceat(table.seconds[order], rows),
        "tokens": np.where(
            np.logical_and.reduceat(np.isnan(tokens), rows), np.nan, np.add.reduceat(np.nan_to_num(tokens), rows)
        ),
        "peak_bytes": np.fmax.reduceat(table.column("peak")[order], rows),
    }


def run_record(view: View, names: RunNames, diagnosis: Diagnosis) -> Record:
    """Return the row of a run in the table of runs."""
    info, status, steps = view.info, view.status, view.steps or (None, None)
    config = dict(flatten(view.config))
    began, heard = view.span
    return {
        **_key(info),
        "name": info.name,
        "path": str(view.location.absolute()),
        "status": status.word,
        "reason": status.reason or None,
        "verdict": diagnosis.verdict,
        "created": info.created,
        "ended": heard if status.ended else None,
        "duration": heard - began or None,  # a log without times has none
        "first_step": steps[0],
        "last_step": steps[1],
        "attempts": max((writer.attempt for writer in view.writers()), default=0),
        "group": info.group,
        "tags": list(info.tags),
        "notes": info.notes,
        "seed": seed_of(config),
        "setting": setting_digest(config),
        "source": names.source,
        "removed": None,
    }


def config_records(view: View) -> Iterator[Record]:
    """Yield the leaves of the config: each as text, JSON where it is none, and as a number where it is one."""
    for key, value in flatten(view.config):
        is_number = isinstance(value, bool | int | float)
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        yield {**_key(view.info), "key": key, "value": text, "number": float(value) if is_number else None}


def finding_records(info: RunInfo, diagnosis: Diagnosis) -> Iterator[Record]:
    """Yield the findings of a diagnosis: those of its verdict, those that they explain, and those that are over."""
    for finding in diagnosis.findings:
        yield _finding(info, finding, "open", None)
        yield from (_finding(info, one, "explained", finding.rule) for one in finding.explains)
    yield from (_finding(info, finding, "past", None) for finding in diagnosis.past)


def _finding(info: RunInfo, finding: Finding, state: str, cause: str | None) -> Record:
    return {
        **_key(info),
        **{name: getattr(finding, name) for name in ("rule", "severity", "onset", "last", "name")},
        "state": state,
        "cause": cause,
        "metric": finding.metric or None,
        "confidence": finding.confidence or None,
        "title": finding.title.en,
        "text": finding.text.en,
    }


def _key(info: RunInfo) -> Record:
    return {"project": info.project, "run": info.id}


def block_table(table: str, partition: Sequence[str], info: RunInfo, blocks: Sequence[RowBlock]) -> Any:
    """Return the rows of a run: block by block, so that those of a metric are together."""
    pa = pyarrow()
    schema = arrow_schema(table, partition)
    shared = [{"project": info.project, "run": info.id, "role": b.role, "rank": b.rank, **b.texts} for b in blocks]
    of_block = pa.array(np.repeat(np.arange(len(blocks)), [len(block) for block in blocks]))
    columns = []
    for field in schema:
        if field.name == "step":
            column = pa.array(np.concatenate([block.steps for block in blocks]), field.type)
        elif field.name in blocks[0].columns:
            numbers = np.concatenate([block.columns[field.name] for block in blocks])
            # In values NaN is a value; of phases it says that there is none.
            column = pa.array(numbers, field.type, from_pandas=table != "values")
        else:
            column = pa.array([_cell(texts[field.name]) for texts in shared], field.type).take(of_block)
        columns.append(column)
    return pa.table(columns, schema=schema)


def record_table(table: str, partition: Sequence[str], records: Sequence[Record]) -> Any:
    """Return the rows of records."""
    names = [name for name in TABLES[table] if name not in partition]
    rows = [{name: _cell(record[name]) for name in names} for record in records]
    return pyarrow().Table.from_pylist(rows, schema=arrow_schema(table, partition))


def _cell(value: Any) -> Any:
    """Return a value that Arrow takes: texts without lone surrogates."""
    if isinstance(value, list):
        return [_cell(one) for one in value]
    return encodable(value) if isinstance(value, str) else value
