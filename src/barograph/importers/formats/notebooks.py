"""Jupyter notebooks whose outputs hold a training: the trainer's table, or lines that a text log would have.

The table is that of transformers' `NotebookProgressCallback`, with the columns that TRL and Unsloth add; printed
lines are read by the format of text logs that knows them. A notebook is always read as a whole: what it gives is
kept until it is known which of it is new.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

from barograph.importers.formats import FORMATS, format_of
from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Format, Log, LogReader, RewrittenError, Seen, look_at
from barograph.importers.reading.notebook_cells import HtmlTable, html_tables, setup_in
from barograph.importers.reading.values import as_step, as_time, flat_numbers, number_of, parse_dict
from barograph.importers.recorder import Recorder


class RecorderCall(NamedTuple):
    """One call of a method of a recorder."""

    method: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}


class KeptCalls:
    """Takes the calls that a recorder takes, and keeps them, for documents that are always read as a whole."""

    def __init__(self) -> None:
        self.calls: list[RecorderCall] = []
        self.end: tuple[str | None, str] = (None, "")

    def row(
        self,
        values: Mapping[str, float | None],
        step: int | None = None,
        at: float | None = None,
        repeats: bool = False,
    ) -> None:
        """Keep a row."""
        self.calls.append(RecorderCall("row", (dict(values), step, at, repeats)))

    def status(self, word: str | None, reason: str = "") -> None:
        """Keep how it ended: the last word counts."""
        self.end = word, reason

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that keeps calls of another method."""
        if name.startswith("_") or not hasattr(Recorder, name):
            raise AttributeError(name)
        return lambda *arguments, **keywords: self.calls.append(RecorderCall(name, arguments, keywords))

    def steps(self) -> list[int | None]:
        """Return the steps of the rows."""
        return [call.arguments[1] for call in self.calls if call.method == "row"]

    def record_new(self, out: Recorder, state: dict[str, Any]) -> None:
        """Record what comes after the calls of an earlier state; raise RewrittenError if those are not the same."""
        known = state.get("calls", 0)
        if known > len(self.calls) or (known and _digest(self.calls[:known]) != state["digest"]):
            raise RewrittenError
        for call in self.calls[known:]:
            getattr(out, call.method)(*call.arguments, **call.keywords)
        out.status(*self.end)
        state["calls"], state["digest"] = len(self.calls), _digest(self.calls)


def _digest(calls: list[RecorderCall]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for call in calls:
        digest.update(repr(call).encode("utf-8", "replace"))
    return digest.hexdigest()


MAX_BYTES = 256 << 20

MAX_OUTPUT = 64 << 20  # characters of one output

MAX_TRAIN_OUTPUT = 20_000

NOT_PRINTED = ("tables",)
"""Formats of files: what a cell prints may look like one by chance."""

TIMES = (
    ("execution", "iopub.execute_input", "shell.execute_reply"),
    ("papermill", "start_time", "end_time"),
    ("executionInfo", "", "timestamp"),
)
"""Where a cell has its times, and their names."""

NAMES = {"Training Loss": "loss", "Validation Loss": "eval_loss", "Epoch": "epoch"}

TRAINING = re.compile(
    rb"""<th>(?:Step|Epoch)</th>|'(?:loss|reward)': |\\"(?:step|loss|reward)\\": |step:\d+ - |Train step \d"""
    rb"""|(?:step|rollout) \d+: \{|Step \d+ \||metrics_tag"""
)

TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]')

CLOSING = {"{": "}", "[": "]"}

PROGRESS = re.compile(r"\[\s*(\d{1,15})/(\d{1,15}) ")

TRAIN_OUTPUT = re.compile(r"TrainOutput\(global_step=(\d{1,15}), training_loss=[^,]+, metrics=(\{.*\})\)", re.DOTALL)


def matches(seen: Seen) -> bool:
    """Return whether a file is a notebook with something in it that may be a training."""
    is_notebook = seen.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and seen.has(b'"cells"', b'"cell_type"')
    if not is_notebook or seen.size > MAX_BYTES:
        return False
    try:
        return TRAINING.search(seen.path.read_bytes()) is not None
    except OSError:
        return False


class Reader(LogReader):
    """Reads the outputs of all cells, and records what is new since the last time."""

    def facts(self) -> Facts:
        """Return the trainer that the code uses, else what the printed lines prove."""
        return Facts(producer=self._found.producer, created=self._found.created)

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        self._found.calls.record_new(out, self.state)

    @cached_property
    def _found(self) -> _Outputs:
        found = _Outputs()
        with self.log.path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8-sig", "replace")
        cells, problem = _cells(text)
        for number, cell in enumerate(cells, 1):
            found.add(number, cell)
        found.add_setup(cells)
        if problem:
            found.calls.unread(self.log.path.name, problem)
        return found


def _cells(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the cells of a notebook, and what is wrong with it; of one that is damaged, what comes before that."""
    problem = ""
    try:
        try:
            notebook = json.loads(text, strict=False)
        except json.JSONDecodeError as error:
            problem = f"the notebook is damaged or cut, and read up to there: {error}"
            notebook = json.loads(_closed(text[: error.pos]), strict=False)
    except (ValueError, RecursionError) as error:
        return [], f"the notebook cannot be read: {error}"
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    return [cell if isinstance(cell, dict) else {} for cell in _list(cells)], problem


def _closed(text: str) -> str:
    """Return JSON that is cut up to its last complete element, with what is open closed."""
    stack: list[str] = []
    end, closing = 0, ""
    for token in TOKENS.finditer(text):
        mark = token[0]
        if mark in CLOSING:
            stack.append(CLOSING[mark])
        elif mark == ",":
            end, closing = token.start(), "".join(reversed(stack))
        elif mark in ("}", "]") and stack:
            stack.pop()
    return text[:end] + closing


class _Outputs:
    """The trainings in the outputs of a notebook, in the order of its cells."""

    def __init__(self) -> None:
        self.calls = KeptCalls()
        self.producer = ""
        self.created: float | None = None
        self._table: list[str] = []  # the rows of the last one
        self._last_step = 0

    def add(self, number: int, cell: Mapping[str, Any]) -> None:
        """Take the outputs of a cell."""
        where = f"cell {number}"
        before, place = len(self.calls.steps()), len(self.calls.calls)
        outputs = [output for output in _list(cell.get("outputs")) if isinstance(output, dict)]
        has_table = False
        for output in outputs:
            data = output.get("data")
            html = _text(data.get("text/html")) if isinstance(data, dict) else ""
            if "<table" in html:
                has_table |= self._add_tables(where, html)
        if not has_table:
            self._add_lines(where, "".join(_printed(outputs)))
        if len(self.calls.steps()) > before:
            self._add_end(where, outputs)
            self._add_times(cell, place)
        for output in outputs:
            data = output.get("data")
            if isinstance(data, dict):
                self._add_result(_text(data.get("text/plain")))

    def _add_times(self, cell: Mapping[str, Any], place: int) -> None:
        """Take the times at which a cell began and ended, where the notebook has them; ``place`` is its first call."""
        start, end = _times(cell)
        self.created = self.created if self.created is not None else start
        if start is not None:
            self.calls.calls.insert(place, RecorderCall("clock", (start,)))
        if end is not None:
            self.calls.clock(end)

    def add_setup(self, cells: list[dict[str, Any]]) -> None:
        """Take trainer and settings of the code."""
        setup = setup_in(_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "code")
        self.producer = setup.producer or self.producer
        if setup.config and self.calls.steps():
            self.calls.calls.insert(0, RecorderCall("config", (setup.config,)))

    # -- tables --------------------------------------------------------------------------------------------------

    def _add_tables(self, where: str, html: str) -> bool:
        """Record the tables of steps in an output; return whether there is one."""
        tables = [table for table in html_tables(html) if _has_steps(table)]
        for table in tables:
            rows = [row for row in map(_TableColumns(table.names).row, table.rows) if row[0]]
            self._add_table(where, rows)
            total = PROGRESS.search(html)
            if total and rows and rows[-1][1] == int(total[2]):
                self.calls.status("finished", f"{where}: step {total[2]} of {total[2]}")
        return bool(tables)

    def _add_table(self, where: str, rows: list[tuple[dict[str, float | None], int | None]]) -> None:
        """Record the rows that are new: a table may be shown again after each step."""
        texts = [repr(row) for row in rows]  # unlike a NaN, its text is equal to itself
        known = len(self._table) if texts[: len(self._table)] == self._table else 0
        if self._table[: len(rows)] == texts:
            return
        if not known:
            self._begin(where, rows[0][1])
        self._table = texts
        for values, step in rows[known:]:
            self.calls.row(values, step)
            self._last_step = max(self._last_step, step or 0)

    def _begin(self, where: str, step: int | None) -> None:
        """Begin a training: it is another one if it does not continue the steps of the last one."""
        if self.calls.steps() and (step is None or step <= self._last_step):
            self.calls.restart()
            self.calls.note(f"{where} has another training: each is an attempt")
            self._last_step = 0
        self.calls.status(None)

    # -- printed lines -------------------------------------------------------------------------------------------

    def _add_lines(self, where: str, text: str) -> None:
        """Record what a text format finds in the printed lines of a cell."""
        if not text.strip():
            return
        with tempfile.TemporaryDirectory(prefix="barograph-") as folder:
            path = Path(folder) / "output.log"
            path.write_text(f"{text}\n", encoding="utf-8", errors="replace", newline="\n")
            found, facts = _read_lines(path)
        steps = found.steps()
        if steps:
            self._begin(where, steps[0])
            self._table = []
            self._last_step = max((step for step in steps if step is not None), default=0)
            self.producer = facts.producer or self.producer
            self.created = self.created if self.created is not None else facts.created
            self.calls.calls.extend(_at(where, call) for call in found.calls)
            self.calls.status(*found.end)

    def _add_result(self, text: str) -> None:
        """Record the summary that ``trainer.train()`` returns, at the last step."""
        found = TRAIN_OUTPUT.search(text) if "TrainOutput(" in text[:MAX_TRAIN_OUTPUT] else None
        if found is None or not self.calls.steps():
            return
        self.calls.status("finished", f"TrainOutput(global_step={found[1]}, …")
        self.calls.row(flat_numbers(parse_dict(found[2]) or {}), int(found[1]))

    def _add_end(self, where: str, outputs: list[dict[str, Any]]) -> None:
        """Take the exception that ended a cell with a training."""
        for output in outputs:
            if output.get("output_type") == "error":
                name, reason = str(output.get("ename"))[:100], str(output.get("evalue"))[:300]
                word = "killed" if name in ("KeyboardInterrupt", "SystemExit") else "crashed"
                self.calls.status(word, f"{where}: {name}: {reason}")


class _TableColumns:
    """The columns of a trainer's table: names of metrics, and which one is the step."""

    def __init__(self, names: list[str]) -> None:
        self._names = [NAMES.get(name, name.replace(" / ", "/")) for name in names]
        self._step = names.index("Step") if "Step" in names else None

    def row(self, cells: list[str]) -> tuple[dict[str, float | None], int | None]:
        """Return values and step of a row; "No log" is no value."""
        values: dict[str, float | None] = {}
        step = None
        for place, (name, cell) in enumerate(zip(self._names, cells, strict=False)):
            number = number_of(cell)
            if place == self._step:
                step = as_step(number)
            elif number is not None:
                values[name] = number
        return ({}, None) if self._step is not None and step is None else (values, step)


def _times(cell: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return when a cell began and ended, as JupyterLab, papermill or Colab keep it."""
    metadata = cell.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    for group, start, end in TIMES:
        times = found.get(group)
        if isinstance(times, dict):
            return as_time(times.get(start)), as_time(times.get(end))
    return None, None


def _has_steps(table: HtmlTable) -> bool:
    return bool({"Step", "Epoch"} & set(table.names[:1])) and len(table.names) > 1


def _printed(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the texts that a cell has printed, those of each stream together: a line may be cut between two."""
    for stream in ("stdout", "stderr"):
        yield _as_lines("".join(_text(output.get("text")) for output in outputs if output.get("name") == stream))
    for output in outputs:  # as which some notebooks keep long streams
        data = output.get("data")
        if output.get("output_type") == "display_data" and isinstance(data, dict):
            yield _as_lines(_text(data.get("text/plain")))


def _as_lines(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _read_lines(path: Path) -> tuple[KeptCalls, Facts]:
    """Return what the first format of text logs that knows a file finds in it, and what it tells as a whole."""
    found = KeptCalls()
    seen = look_at(path)
    for name in FORMATS:
        format = format_of(name)
        if seen is None or name in NOT_PRINTED or format.matches is None:
            continue
        is_text = isinstance(format.reader, type) and issubclass(format.reader, LineReader)
        if is_text and format.matches(seen):
            reader = format.reader(Log(path, name), {})
            facts = reader.facts()
            reader.read(cast("Recorder", found))
            return found, facts
    return found, Facts()


def _at(where: str, call: RecorderCall) -> RecorderCall:
    """Return a call with the cell before the line."""
    if call.method != "unread":
        return call
    line, *reason = call.arguments
    return RecorderCall("unread", (f"{where}, {line}", *reason), call.keywords)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return a text of a notebook, which may be a list of lines."""
    parts = value if isinstance(value, list) else [value]
    return "".join(part for part in parts if isinstance(part, str))[:MAX_OUTPUT]


FORMAT = Format("Jupyter notebook", Reader, matches)
