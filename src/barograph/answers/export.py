"""A run in other formats: one wide table with a row for each writer and step, its samples as a table, and its spans as
a trace of Chrome's format for Perfetto.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.fleet.schema import pyarrow
from barograph.answers.phases import Windows
from barograph.base.formatting import encodable, json_number, nonfinite_name, printable
from barograph.base.model import PhaseSpan, Sample, Writer
from barograph.journal.read.series import Series
from barograph.journal.view import View

FORMATS = ("csv", "jsonl", "parquet")

SAMPLE_FORMATS = ("jsonl", "parquet")

SAMPLE_BATCH = 500  # samples of a Parquet file that are in memory together

HEAD = ("role", "rank", "step", "time")

FORMULA_STARTS = tuple("=+-@＝＋－＠")  # as spreadsheets read them, also in full width


@dataclass(frozen=True, slots=True)
class WideTable:
    """The table. ``present`` is False where nothing was logged."""

    heads: list[tuple[str, int, int, float]]  # role, rank, step, time
    columns: dict[str, NDArray[np.float64]]
    present: dict[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.heads)

    def rows(self) -> Iterator[tuple[tuple[str, int, int, float], dict[str, float]]]:
        """Yield the head and the values of each row."""
        for place, head in enumerate(self.heads):
            yield (
                head,
                {name: float(c[place]) for name, c in self.columns.items() if self.present[name][place]},
            )


def wide_table(view: View, names: Sequence[str]) -> WideTable:
    """Return the table of some metrics. The first rank of a role has the values of all ranks, as in a tracker."""
    pairs = sorted({(writer.role, writer.rank) for writer in view.writers()})
    first = dict(reversed(pairs))  # the lowest rank of each role
    blocks = [_block(role, rank, _series(view, names, role, rank, rank == first[role])) for role, rank in pairs]
    return WideTable(
        [head for heads, _, _ in blocks for head in heads],
        {name: np.concatenate([columns[name] for _, columns, _ in blocks] or [np.empty(0)]) for name in names},
        {name: np.concatenate([here[name] for _, _, here in blocks] or [np.empty(0, np.bool_)]) for name in names},
    )


def _series(view: View, names: Sequence[str], role: str, rank: int, merged: bool) -> dict[str, Series | None]:
    found: dict[str, Series | None] = {}
    for name in names:
        series = view.find_series(name, role, None if merged else rank)
        found[name] = (
            series if series is not None and series.writer is not None and series.writer.rank == rank else None
        )
    return found


def _block(role: str, rank: int, series: dict[str, Series | None]) -> Any:
    """Return the rows of one writer: heads, columns and where they have values."""
    given = [s for s in series.values() if s is not None]
    steps = np.unique(np.concatenate([s.steps for s in given] or [np.empty(0, np.int64)]))
    times = np.full(len(steps), -np.inf)
    columns, present = {}, {}
    for name, one in series.items():
        column, here = np.full(len(steps), np.nan), np.zeros(len(steps), np.bool_)
        if one is not None:
            places = np.searchsorted(steps, one.steps)
            column[places], here[places] = one.values, True
            times[places] = np.maximum(times[places], one.times)
        columns[name], present[name] = column, here
    heads = [(role, rank, step, time) for step, time in zip(steps.tolist(), times.tolist(), strict=True)]
    return heads, columns, present


def write_csv(table: WideTable, file: IO[str]) -> None:
    """Write the table as CSV with a header. A text that a spreadsheet would take for a formula gets an apostrophe."""
    writer = csv.writer(file)
    writer.writerow([*HEAD, *map(_csv_text, table.columns)])
    for head, values in table.rows():
        cells = (_csv_number(values[name]) if name in values else "" for name in table.columns)
        writer.writerow([_csv_text(head[0]), *head[1:3], f"{head[3]:.6f}", *cells])


def _csv_text(text: str) -> str:
    text = printable(text)
    return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text


def _csv_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else nonfinite_name(value)


def write_jsonl(table: WideTable, file: IO[str]) -> None:
    """Write one JSON object per line, with NaN and infinities as strings."""
    for head, values in table.rows():
        record = dict(zip(HEAD, head, strict=True))
        record["metrics"] = {name: json_number(value) for name, value in values.items()}
        file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


def write_parquet(table: WideTable, path: Path) -> None:
    """Write the table as Parquet, with null where nothing was logged."""
    pa = pyarrow()
    heads = [(encodable(role), *rest) for role, *rest in table.heads]
    arrays = [pa.array([head[place] for head in heads]) for place in range(len(HEAD))]
    arrays += [pa.array(column, mask=~table.present[name]) for name, column in table.columns.items()]
    pa.parquet.write_table(pa.table(arrays, names=[*HEAD, *map(encodable, table.columns)]), path)


def sample_record(sample: Sample) -> dict[str, Any]:
    """Return the non-empty fields of a sample, with its tokens and their values as lists."""
    values = {name: getattr(sample, name) for name in ("step", *Sample.__dataclass_fields__)}
    values |= {"tokens": list(sample.tokens), "token_values": {n: list(v) for n, v in sample.token_values.items()}}
    values["top_logprobs"] = [list(map(list, one)) for one in sample.top_logprobs]
    return {name: value for name, value in values.items() if value not in (None, "", (), {}, [])}


def write_samples_parquet(samples: Sequence[Sample], path: Path) -> None:
    """Write samples as Parquet: ``reward.NAME``, ``column.NAME`` and ``token.NAME`` are columns of their own.

    Messages and alternatives of tokens are JSON. A column with numbers and names has all of them as texts.
    """
    pa = pyarrow()
    types = {"number": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
    types |= {"texts": pa.list_(pa.string()), "numbers": pa.list_(pa.float32())}
    kinds = _column_kinds(samples)
    schema = pa.schema([(encodable(name), types[kind]) for name, kind in kinds.items()])
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, len(samples), SAMPLE_BATCH):
            cells = [dict(_cells(sample)) for sample in samples[begin : begin + SAMPLE_BATCH]]
            arrays = [
                pa.array([_parquet_cell(row.get(name), kind) for row in cells], types[kind])
                for name, kind in kinds.items()
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def _column_kinds(samples: Sequence[Sample]) -> dict[str, str]:
    found: dict[str, set[str]] = {"step": {"number"}}
    for sample in samples:
        for name, value in _cells(sample):
            found.setdefault(name, set()).add(_kind(value))
    return {name: kinds.pop() if len(kinds) == 1 else "text" for name, kinds in found.items()}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "texts" if len(value) and isinstance(value[0], str) else "numbers"
    return "text" if isinstance(value, str) else "number"


def _cells(sample: Sample) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a sample with their values."""
    for name in ("step", *Sample.__dataclass_fields__):
        value = getattr(sample, name)
        if name in ("messages", "top_logprobs"):
            value = json.dumps(list(value), ensure_ascii=False, default=repr) if len(value) else None
        if isinstance(value, Mapping):
            prefix = {"rewards": "reward", "columns": "column", "token_values": "token"}[name]
            yield from ((f"{prefix}.{inner}", value[inner]) for inner in value)
        elif value not in (None, "", ()):
            yield name, value


def _parquet_cell(value: Any, kind: str) -> Any:
    if value is None or kind not in ("text", "texts"):
        return value
    return [encodable(one) for one in value] if kind == "texts" else encodable(str(value))


NANO = 1e9

FIRST_THREAD = 100_001  # Perfetto treats thread 0, and a thread with its process's number, specially

STEPS = "steps"  # name of the lane that shows the steps


def trace(spans: Sequence[PhaseSpan], windows: Windows, name: str, id: str) -> dict[str, Any]:
    """Return the trace: a process per writer, a thread per lane, a slice per span and stage."""
    starts = [span.start for span in spans] + [began for w in windows.values() for began, _ in w.values()]
    # Times are relative: as a double in microseconds, Unix time has no room for nanoseconds.
    origin = min(starts, default=0.0)
    return {
        "traceEvents": list(_events(spans, windows, origin)),
        "displayTimeUnit": "ms",
        "otherData": {"run": name, "id": id, "origin": f"{origin:.6f}", "producer": "barograph"},
    }


def _events(spans: Sequence[PhaseSpan], windows: Windows, origin: float) -> Iterator[dict[str, Any]]:
    writers = sorted({span.writer for span in spans} | set(windows))
    threads = itertools.count(FIRST_THREAD)
    for process, writer in enumerate(writers, 1):
        thread = next(threads)
        yield _meta("process_name", process, thread, str(writer) + _attempt(writer))
        yield _meta("thread_name", process, thread, STEPS)
        for step, (began, ended) in sorted(windows.get(writer, {}).items()):
            yield _slice_event(f"step {step}", process, thread, began - origin, ended - origin, {"step": step})
        for lane, of_lane in _lanes([span for span in spans if span.writer == writer]):
            thread = next(threads)
            yield _meta("thread_name", process, thread, lane)
            for span in of_lane:
                yield from _span(span, process, thread, origin)


def _attempt(writer: Writer) -> str:
    return f" (attempt {writer.attempt})" if writer.attempt > 1 else ""


def _lanes(spans: Sequence[PhaseSpan]) -> list[tuple[str, list[PhaseSpan]]]:
    """Split spans into lanes in which they nest; a span that overlaps without nesting gets another lane."""
    lanes: dict[tuple[str, int], list[PhaseSpan]] = {}
    open_ends: dict[tuple[str, int], list[float]] = {}
    # Of spans that start together the longest is first, so that the others nest in it.
    for span in sorted(spans, key=lambda span: (span.start, -_end(span))):
        for number in itertools.count(1):
            ends = open_ends.setdefault((span.lane, number), [])
            while ends and ends[-1] <= span.start:
                ends.pop()
            if not ends or _end(span) <= ends[-1]:
                break
        ends.append(_end(span))
        lanes.setdefault((span.lane, number), []).append(span)
    return [(lane if n == 1 else f"{lane} ({n})", of_lane) for (lane, n), of_lane in lanes.items()]


def _end(span: PhaseSpan) -> float:
    return math.inf if span.end is None else span.end


def _span(span: PhaseSpan, process: int, thread: int, origin: float) -> Iterator[dict[str, Any]]:
    facts = {
        "step": span.step,
        "clock": span.clock,
        "tokens": span.tokens,
        "token kind": span.token_kind or None,
        "failed": span.failed or None,
        "seconds": span.seconds,
        "peak bytes": span.peak,
        "rss bytes": span.rss,
    }
    given = {key: value for key, value in facts.items() if value is not None}
    start = span.start - origin
    if span.end is None:
        begin = _slice_event(span.name, process, thread, start, start, {**given, "open": True})
        del begin["dur"]
        yield {**begin, "ph": "B"}  # a begin event without an end: viewers draw it to the end of the trace
        return
    yield _slice_event(span.name, process, thread, start, span.end - origin, given)
    if span.onload is not None or span.offload is not None:
        for stage, (begin_at, end_at) in stages(span).items():
            yield _slice_event(stage, process, thread, begin_at - origin, end_at - origin, {})


def stages(span: PhaseSpan) -> dict[str, tuple[float, float]]:
    """Return start and end of a closed span's onload, execute and offload stages.

    They are scaled to fill the time between entry and exit: stage times may be from the device's clock.
    """
    assert span.end is not None
    total = span.seconds
    scale = (span.end - span.start) / total if total else 0.0
    loaded = span.start + (span.onload or 0.0) * scale
    worked = span.end - (span.offload or 0.0) * scale
    bounds = {"onload": (span.start, loaded), "execute": (loaded, max(loaded, worked)), "offload": (worked, span.end)}
    return {name: both for name, both in bounds.items() if getattr(span, name) is not None}


def _slice_event(
    name: str, process: int, thread: int, start: float, end: float, facts: dict[str, Any]
) -> dict[str, Any]:
    first, last = round(start * NANO), round(end * NANO)  # rounded to nanoseconds, so that nesting is preserved
    times = {"ts": first / 1000, "dur": (last - first) / 1000}
    return {"ph": "X", "name": name, "cat": "phase", "pid": process, "tid": thread, **times, "args": facts}


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
