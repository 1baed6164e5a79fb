"""The tables of the data set: columns and types. A version gets further columns, and never loses or changes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barograph.base.errors import BarographError
from barograph.base.installation import install_command

VERSION = 1
KEYS = ("project", "run")  # what files can be partitioned by, as in Hive: project=NAME/run=ID
RUN_KEY = {"project": "text", "run": "text"}
TABLES: dict[str, dict[str, str]] = {
    "values": {
        **RUN_KEY, "role": "text", "rank": "int32", "step": "int64", "time": "double", "name": "text",
        "metric": "text", "value": "double",
    },
    "phases": {
        **RUN_KEY, "role": "text", "rank": "int32", "step": "int64", "phase": "text", "timer": "bool",
        "count": "int32", "failed": "int32", "seconds": "double", "tokens": "double", "peak_bytes": "double",
    },
    "runs": {
        **RUN_KEY, "name": "text", "path": "text", "status": "text", "reason": "text", "verdict": "text",
        "created": "double", "ended": "double", "duration": "double", "first_step": "int64", "last_step": "int64",
        "attempts": "int32", "group": "text", "tags": "texts", "notes": "text", "seed": "text", "setting": "text",
        "source": "text", "removed": "double",
    },
    "configs": {**RUN_KEY, "key": "text", "value": "text", "number": "double"},
    "findings": {
        **RUN_KEY, "rule": "text", "severity": "text", "state": "text", "cause": "text", "onset": "int64",
        "last": "int64", "name": "text", "metric": "text", "confidence": "text", "title": "text", "text": "text",
    },
}  # fmt: skip
"""By table: the columns in their order. In files, those that they are partitioned by are only in the path."""
GROWING = ("values", "phases")  # have files of each run, to which others are added
WHOLE = ("configs", "findings", "runs")  # have one file of each project, which is replaced


def pyarrow() -> Any:
    """Return the package; raise BarographError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet  # so that pa.parquet exists
    except ImportError:
        raise BarographError(f"parquet needs pyarrow: {install_command('parquet')}") from None
    return pa


def arrow_schema(table: str, partition: Sequence[str]) -> Any:
    """Return the Arrow schema of a table's files: without the columns that are in their paths."""
    pa = pyarrow()
    types: Mapping[str, Any] = {
        "text": pa.string(), "texts": pa.list_(pa.string()), "int32": pa.int32(), "int64": pa.int64(),
        "double": pa.float64(), "bool": pa.bool_(),
    }  # fmt: skip
    fields = [(name, types[kind]) for name, kind in TABLES[table].items() if name not in partition]
    return pa.schema(fields, metadata={"barograph.fleet": f"{table}/{VERSION}"})


def partition_of(table: str, partition: Sequence[str]) -> list[str]:
    """Return what the files of a table are partitioned by: one of a whole project has several runs."""
    return [key for key in partition if table in GROWING or key == "project"]
