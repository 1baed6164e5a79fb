"""Values that are not numbers, as other trackers take them: tables, histograms and texts, and where each goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from barograph.base.formatting import flattened
from barograph.base.model import Histogram as Counted
from barograph.base.scalars import histogram
from barograph.delivery.trackers.payload import markdown
from barograph.importers.reading.rollouts import COMPLETIONS, PROMPTS, TAKEN, samples_of
from barograph.importers.reading.values import histogram_of
from barograph.recording.run import Run

MAX_ROWS = 100  # of a table that is recorded as a text
MAX_BINS = 512
NUMBERS = {float, int, bool}
REFERENCES = ("expected", "reference", "ground_truth", "solution", "target", "gts")  # columns with the right answer
DEFAULT_COLUMNS = ("Input", "Output", "Expected")  # of W&B


class Histogram:
    """A histogram of a sequence, or of NumPy's counts and edges."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        if np_histogram is not None:
            counts, edges = (list(part) for part in np_histogram)
            self.counted = histogram_of({"values": counts, "bins": edges})
        else:
            self.counted = histogram(() if sequence is None else sequence, min(int(num_bins), MAX_BINS))

    @property
    def histogram(self) -> list[int]:
        """The counts."""
        return list(self.counted.counts) if self.counted else []

    @property
    def bins(self) -> list[float]:
        """The edges of the bins."""
        return list(self.counted.edges) if self.counted else []


class Html:
    """HTML, recorded as a text."""

    def __init__(self, data: Any, *_: Any, **__: Any) -> None:
        self.text = str(data.read() if hasattr(data, "read") else data)


class Text(Html):
    """A text."""


class Table:
    """A table of named columns. One of prompts and completions is recorded as samples, another one as a text."""

    def __init__(
        self,
        columns: Sequence[Any] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **_: Any,
    ) -> None:
        frame = dataframe if dataframe is not None else data if is_frame(data) else None
        if frame is not None:
            columns, data = list(frame.columns), frame.values.tolist()
        self.columns: list[Any] = list(DEFAULT_COLUMNS if columns is None else columns)
        given = data if data is not None else rows
        self.data: list[list[Any]] = [list(row) for row in (() if given is None else given)]

    def add_data(self, *cells: Any) -> None:
        """Add a row."""
        self.data.append(list(cells))

    add_row = add_data

    def add_column(self, name: Any, data: Sequence[Any], optional: bool = False) -> None:
        """Add a column."""
        cells = list(data)
        self.data = self.data or [[] for _ in cells]
        for row, cell in zip(self.data, cells, strict=False):
            row.append(cell)
        self.columns.append(name)

    def get_column(self, name: Any, convert_to: str | None = None) -> Any:
        """Return the cells of a column, as an array with ``convert_to="numpy"``."""
        place = self.columns.index(name)
        cells = [row[place] for row in self.data]
        if convert_to == "numpy":
            import numpy as np

            return np.array(cells)
        return cells

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the cells of each row."""
        yield from enumerate(self.data)


def record(
    run: Run,
    values: Mapping[str, Any],
    step: int | None,
    separator: str,
    new_rows: Callable[[str, Table], Table],
) -> dict[str, Any]:
    """Record each value by its kind; return the numbers. ``new_rows`` returns what is new in a table of samples."""
    if values and {*map(type, values.values())} <= NUMBERS:  # the usual case
        run.log(values, step)
        return dict(values)
    numbers: dict[str, Any] = {}
    for name, value in flattened(values, separator=separator):
        try:
            kind = _plain(value)
            if isinstance(kind, Table):
                _record_table(run, name, kind, step, new_rows)
                continue
        except Exception:  # noqa: BLE001 - the value's own methods may raise anything; the run says what it is
            kind = value
        if isinstance(kind, str):
            run.text(name, kind, step)
        else:
            numbers[name] = kind
    if numbers:
        run.log(numbers, step)
    return numbers


def _plain(value: Any) -> Any:
    """Return a value as barograph takes it; tables and histograms may also be those of the tracker's own package."""
    if isinstance(value, float | int | Counted | Table):
        return value
    if isinstance(value, Html):
        return value.text
    if isinstance(value, Histogram):
        return value.counted
    if isinstance(getattr(value, "columns", None), list) and isinstance(getattr(value, "data", None), list):
        return Table(value.columns, value.data)
    if is_frame(value):
        return Table(dataframe=value)
    if isinstance(getattr(value, "histogram", None), list) and isinstance(getattr(value, "bins", None), list):
        return histogram_of({"values": value.histogram, "bins": value.bins})
    return histogram(value) if _is_array(value) else value


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame of pandas."""
    return hasattr(type(value), "columns") and hasattr(type(value), "itertuples")


def _is_array(value: Any) -> bool:
    """Return whether a value is an array or a tensor of several numbers."""
    shape = getattr(value, "shape", ())
    return isinstance(shape, tuple) and hasattr(value, "dtype") and any(size != 1 for size in shape)


def _record_table(run: Run, name: str, table: Table, step: int | None, new_rows: Callable[[str, Table], Table]) -> None:
    columns = [_column(column) for column in table.columns]
    if "messages" in columns or (not {*PROMPTS}.isdisjoint(columns) and not {*COMPLETIONS}.isdisjoint(columns)):
        records = (dict(zip(columns, map(_cell, row), strict=False)) for row in new_rows(name, table).data)
        run.samples((sample for one in records for sample in _samples(one)), step)
    else:
        more = f"\n\n… {len(table.data) - MAX_ROWS:,} more rows" if len(table.data) > MAX_ROWS else ""
        run.text(name, markdown(([str(one) for one in table.columns], table.data[:MAX_ROWS])) + more, step)


def _samples(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a row; the right answer and other texts in it are kept with them."""
    texts = {name: value for name, value in record.items() if name not in TAKEN and isinstance(value, str)}
    reference = next((texts.pop(name) for name in REFERENCES if name in texts), None)
    for sample in samples_of(record):
        yield {**sample, "reference": reference, "columns": texts}


def _cell(value: Any) -> Any:
    """Return a number of NumPy or torch as one of Python."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _column(name: Any) -> str:
    """Return the name of a column, in lower case where that is a field of samples."""
    text, lower = str(name), str(name).lower()
    return lower if lower in TAKEN or lower in REFERENCES else text
