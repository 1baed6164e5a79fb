"""Tables of AReaL in console logs.

AReaL prints ``Epoch 1/5 Step 1/935 Train step 1/4675 done.`` and then the metrics of that step as a table, with the
names and values of four metrics per line (``areal/utils/stats_logger.py``, versions 0.3.1 to 1.0). Up to version 0.3.0
the line before the tables is ``The next step is epoch 1/5 step 1/935 (global step 1).`` (``realhf/system``).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from barograph.importers.reading.lines import CREATED_BYTES, LineReader
from barograph.importers.reading.log import Facts, Format, Line, Log, Seen, decode, look_at
from barograph.importers.recorder import Recorder

_INT = r"(\d{1,15})"
STEP = re.compile(rf"Epoch {_INT}/{_INT} Step {_INT}/{_INT} Train step {_INT}/{_INT} done")
OLD_STEP = re.compile(rf"The next step is epoch {_INT}/{_INT} step {_INT}/{_INT} \(global step {_INT}\)")
OLD_END = re.compile(rf"\(global step {_INT}\) finishes\. #End to end# execution time: \*(\d{{1,20}}\.?\d{{0,20}})\*s")
NEXT_TABLE = re.compile(r"(?:Stats|RPC name \S+ returns) \((?:[2-9]|\d\d+)/\d+\)")
LAUNCH = re.compile(r"Launcher: experiment_name=([^,]+), trial_name=([^,]+),")
VERSION = re.compile(r"\bareal(?:==|-)(\d+(?:\.\d+)+)")
STAMP = re.compile(r"(?<!\d)(\d{8}-\d\d:\d\d:\d\d)\.(\d{3}) ")
_NUMBER = r"(?:[-+]?\d{1,40}+\.?+\d{0,40}+(?:e[-+]?\d{1,9}+)?|[-+]?inf|nan)"
CELLS = re.compile(rf"│ *(?!{_NUMBER} *│)([^│]*[^│ ]) *│ *({_NUMBER}) *(?=│)")
BEGIN, END = "╒", "╘"
FINISHED = ("StatsLogger INFO: Training completes!", "Experiment Completes!")


def matches(seen: Seen) -> bool:
    """Return whether a line tells that a train step is done, or there is a table of metrics."""
    if (seen.has(b"Train step ") or seen.has(b"(global step ")) and any(
        STEP.search(line) or OLD_STEP.search(line) for line in seen.lines
    ):
        return True
    return seen.has(BEGIN.encode(), "│".encode()) and any(len(CELLS.findall(line)) > 1 for line in seen.lines)


class ConsoleReader(LineReader):
    """Reads one row per table. What is there of the last table is recorded, and the rest when the log has it."""

    needles = tuple(
        word.encode()
        for word in ("Train step ", "(global step ", "│", BEGIN, END, "Stats (", "returns (", "Launcher: ", *FINISHED)
    )

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self._values: dict[str, float | None] = {}  # of the open table
        state.setdefault("table", {"step": None, "epoch": None, "at": None, "is_open": False, "is_begun": False})

    def facts(self) -> Facts:
        """Return AReaL with its version, and experiment and trial as project and name, where the log has them."""
        seen = look_at(self.log.path)
        lines = seen.lines if seen is not None else []
        version = next((found[1] for line in lines if (found := VERSION.search(line))), "")
        project, name = next((found.groups() for line in lines if (found := LAUNCH.search(line))), ("", ""))
        producer = f"areal/{version}" if version else "areal"
        return Facts(name=name, project=project, producer=producer, created=self.created())

    def created(self) -> float | None:
        """Return the first time in the log, of the container or of AReaL."""
        found = super().created()
        return found if found is not None else _moment(decode(self.beginning(CREATED_BYTES))[0])

    def read(self, out: Recorder) -> None:
        """Record the tables that are new."""
        super().read(out)
        self._record(out)

    def line(self, line: Line, out: Recorder) -> bool:
        """Take what a line has; a table is recorded at its end."""
        text = line.text
        if "│" in text:
            return self._cells(line, out)
        if BEGIN in text or END in text:
            self._record(out)
            self.state["table"]["is_open"] = BEGIN in text
        elif found := STEP.search(text) or OLD_STEP.search(text):
            self._begin(found, line, out)
            return found.re is STEP
        elif found := OLD_END.search(text):
            out.row({"timeperf/e2e": float(found[2])}, int(found[1]), _time(line))
            return True
        elif NEXT_TABLE.search(text):
            out.note("the log has several tables per step: the last value of a metric counts")
        elif found := LAUNCH.search(text):
            self.state["launch"] = {"experiment_name": found[1], "trial_name": found[2]}
        elif any(word in text for word in FINISHED):
            self.mark_finished(line, out)
        return False

    def _begin(self, found: re.Match[str], line: Line, out: Recorder) -> None:
        """Begin a train step."""
        self._record(out)
        epoch, epochs, _, per_epoch, step, *rest = map(int, found.groups())
        self.state["table"] = {"step": step, "epoch": epoch, "at": _time(line), "is_open": False, "is_begun": False}
        self.state["totals"] = {
            "total_train_epochs": epochs,
            "steps_per_epoch": per_epoch,
            "total_train_steps": rest[0] if rest else epochs * per_epoch,
        }

    def _cells(self, line: Line, out: Recorder) -> bool:
        """Take the metrics of a line; one outside of tables may be anything."""
        cells = CELLS.findall(line.text)
        if not self.state["table"]["is_open"]:
            if len(cells) > 1:
                out.unread(f"line {line.number}", "a table without its beginning")
            return False
        self._values.update((name, float(number)) for name, number in cells)
        is_full = line.text.rstrip().endswith("│") and line.text.count("│") == 2 * len(cells) + 1
        if not is_full and _filled(line.text) != 2 * len(cells):
            out.unread(f"line {line.number}", "a line of a table is cut, or has values that are no numbers")
        return bool(cells)

    def _record(self, out: Recorder) -> None:
        """Record what was read of the open table."""
        if not self._values:
            return
        table = self.state["table"]
        if not table["is_begun"] and table["epoch"] is not None:
            self._values["epoch"] = float(table["epoch"])
        out.row(self._values, table["step"], table["at"], repeats=not table["is_begun"])
        table["is_begun"] = True
        self._values = {}
        config = {**self.state.get("launch", {}), **self.state.get("totals", {})}
        self.record_config(config, out)  # after the row, which may begin another attempt


def _filled(text: str) -> int:
    """Return how many cells of a line are not empty; the last columns may end earlier."""
    return sum(bool(cell.strip()) for cell in text.partition("│")[2].split("│"))


def _time(line: Line) -> float | None:
    return line.at if line.at is not None else _moment(line.text)


def _moment(text: str) -> float | None:
    """Return the time that AReaL prints before its lines; it has no zone."""
    stamp = STAMP.search(text)
    try:
        moment = datetime.strptime(stamp[1], "%Y%m%d-%H:%M:%S") if stamp else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).timestamp() + int(stamp[2]) / 1e3 if stamp and moment else None


FORMAT = Format("AReaL console log", ConsoleReader, matches)
