"""Rows as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from windsock.fleet.rows import Block, Record
from windsock.fleet.schema import TABLES, arrow_schema, pyarrow
from windsock.formatting import encodable
from windsock.model import RunInfo


def block_table(table: str, partition: Sequence[str], info: RunInfo, blocks: Sequence[Block]) -> Any:
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
