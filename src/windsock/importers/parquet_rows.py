"""Rows of Parquet files, a few at a time. They need pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "pyarrow"
INSTALL = "Parquet files need pyarrow: pip install 'windsock[parquet]'"
ROWS_AT_ONCE = 64
MAX_ROWS = 1_000_000
MAX_UNPACKED = 2 << 30  # bytes of a file, as it says itself


class UnreadableTableError(ValueError):
    """A file that is not read, with the reason."""


def parquet_rows(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file in lists; raise ImportError without pyarrow, else UnreadableTableError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            check_size(file.metadata)
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as problem:
        text = str(problem).strip().partition("\n")[0]
        raise UnreadableTableError(text or type(problem).__name__) from None


def check_size(metadata: Any) -> None:
    """Raise UnreadableTableError for a table that does not fit into the memory."""
    unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or unpacked > MAX_UNPACKED:
        raise UnreadableTableError(f"it has {metadata.num_rows:,} rows and {unpacked:,} bytes, which is too much")


def column_names(path: Path) -> list[str]:
    """Return the names of the columns; none if the file cannot be read."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return []
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):
        return []
