"""Console logs whose metrics of a step stand in several lines: SkyRL, NeMo-RL, and tables of Tinker and rLLM."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Format, Line, Seen
from barograph.importers.reading.values import flat_numbers, number_of, parse_dict
from barograph.importers.recorder import Recorder

SKYRL_STEP = re.compile(r"(?:^| - )Step (\d{1,15}): *$")
SKYRL_MAX_LINES = 20_000  # of one dict


def is_skyrl(seen: Seen) -> bool:
    """Return whether a dict follows the line of a step."""
    if not seen.has(b"Step ", b"{'"):
        return False
    return any(SKYRL_STEP.search(line) and following.startswith("{'") for line, following in pairwise(seen.lines))


class SkyRLReader(LineReader):
    """Reads SkyRL: ``Step 3:`` and then a dict over several lines, whose numbers are texts of four decimals.

    ``state["block"]`` has what was read of the dict that is open. Read in SkyRL at a956457 (August 2026,
    ``skyrl/train/utils/tracking.py``).
    """

    begun = ("traceback", "block")
    needles = (b"Step ",)
    producer = "skyrl"

    def line(self, line: Line, out: Recorder) -> bool:
        """Begin, continue or record a dict."""
        if found := SKYRL_STEP.search(line.text):
            self.state["block"] = {"step": int(found[1]), "at": line.time(), "lines": [], "number": line.number}
        elif "block" in self.state:
            return self._continue(self.state["block"], line, out)
        return False

    def _continue(self, block: dict[str, Any], line: Line, out: Recorder) -> bool:
        """Take a line: all but the first one are indented, and others are of other processes."""
        text = line.text.rstrip()
        lines = block["lines"]
        if not text.startswith(" " if lines else "{"):
            return False
        lines.append(text)
        if text.endswith("}"):
            values = parse_dict("\n".join(lines))
            if values is not None:
                del self.state["block"]
                out.row(flat_numbers(values), block["step"], block["at"], repeats=True)
                return True
        if len(lines) > SKYRL_MAX_LINES:
            del self.state["block"]
            out.unread(f"line {block['number']}", "a dict without its end")
        return False


SKYRL = Format("SkyRL console log", SkyRLReader, is_skyrl)


NEMO_STEP = re.compile(r"(?<!=)={10,}+ Step (\d{1,12})/(\d{1,12}) ={10,}")
NEMO_EPOCH = re.compile(r"(?<!=)={10,}+ Epoch (\d{1,9})/\d{1,9} ={10,}")
NEMO_HEADING = re.compile(r"(Training Results|Validation Results|Validation Timing|Timing|Performance Metrics):\s*$")
NEMO_ITEM = re.compile(r"^\s+• ([^:]{1,200}): ([-+]?\d{1,40}+\.?+\d{0,40}+(?:e[-+]?\d{1,9}+)?|nan|inf|-inf)(?![\w.])")
NEMO_TIMED_ITEM = re.compile(r"^\s+• ([^:]{1,200}): (\d{1,40}+\.?+\d{0,40}+)s\b")
NEMO_GROUPS = {
    "Training Results": "train", "Timing": "timing/train", "Validation Results": "validation",
    "Validation Timing": "timing/validation", "Performance Metrics": "performance",
}  # fmt: skip
NEMO_NAMES = {
    "train/Loss": "train/loss", "train/Draft Loss": "train/draft_loss",
    "train/Generation KL Error": "train/gen_kl_error", "train/Avg Reward": "train/reward",
    "train/Mean Generation Length": "train/mean_gen_tokens_per_sample",
    "timing/train/Total step time": "timing/train/total_step_time", "validation/Accuracy": "validation/accuracy",
    "validation/Average response length": "validation/avg_length",
    "timing/validation/Total validation time": "timing/validation/total_validation_time",
}  # fmt: skip


def is_nemo_rl(seen: Seen) -> bool:
    """Return whether there are results, and a step that they belong to."""
    if not seen.has(b"Training Results:", "•".encode()):
        return False
    return any(NEMO_STEP.search(line) for line in seen.lines)


class NemoRLReader(LineReader):
    """Reads NeMo-RL: results, timings and validations as lists under the heading of each step.

    The labels become the names under which it logs the same numbers; others stay as they are. Read in NeMo-RL at
    7ea279a (August 2026, ``nemo_rl/algorithms/grpo.py``).
    """

    needles = ("•".encode(), b" Step ", b" Epoch ", b"Results:", b"Timing:", b"Metrics:")
    producer = "nemo-rl"

    def line(self, line: Line, out: Recorder) -> bool:
        """Record an item, or remember what the next ones belong to."""
        if found := NEMO_EPOCH.search(line.text):
            self.state["epoch"] = int(found[1])
        elif found := NEMO_STEP.search(line.text):  # it counts anew in each epoch
            self.state["step"] = (self.state.get("epoch", 1) - 1) * int(found[2]) + int(found[1])
            self.state.pop("group", None)
        elif found := NEMO_HEADING.search(line.text):
            self.state["group"] = NEMO_GROUPS[found[1]]
        elif "group" in self.state and (found := NEMO_ITEM.match(line.text) or NEMO_TIMED_ITEM.match(line.text)):
            name = f"{self.state['group']}/{found[1]}"
            is_first = name == "train/Loss"
            out.row({NEMO_NAMES.get(name, name): float(found[2])}, self.state.get("step", 0), line.at, repeats=is_first)
            return True
        return False


NEMO_RL = Format("NeMo-RL console log", NemoRLReader, is_nemo_rl)


TABLE_STEP = re.compile(r"^\s*Step (\d{1,15})\s*$")
TABLE_HEADER = re.compile(r"[┃│|] Metric\s+[┃│|] +Value\s+[┃│|]")
TABLE_ROW = re.compile(r"│ (\S[^│]*+)│([^│]*+)│\s*$")
TABLE_END = "└"


def is_metric_tables(seen: Seen) -> bool:
    """Return whether there is a table of metrics, and the step of one."""
    if not seen.has(b"Metric", b"Value", b"Step ", "│".encode()):
        return False
    return any(TABLE_HEADER.search(line) for line in seen.lines) and any(TABLE_STEP.match(line) for line in seen.lines)


class TableReader(LineReader):
    """Reads tables of two columns, Metric and Value, under the title ``Step 3``: rich prints them for Tinker and rLLM.

    ``state["values"]`` has what was read of the table that is open. Read in tinker-cookbook at 9dfcc3a and rLLM at
    9beb6e0 (August 2026).
    """

    marks = ((b"rllm", "rllm"), (b"tinker", "tinker"))
    needles = tuple(word.encode() for word in ("Step ", "Metric", "│", TABLE_END))

    def line(self, line: Line, out: Recorder) -> bool:
        """Take the metric of a line; a table is recorded at its end."""
        if (at := line.time()) is not None:
            self.state["at"] = at
        if found := TABLE_STEP.match(line.text):
            self.state["step"] = int(found[1])
        elif TABLE_HEADER.search(line.text):
            self.state["values"] = []
        elif "values" in self.state and (found := TABLE_ROW.search(line.text)):
            self._take(found[1].rstrip(), found[2].strip())
        elif TABLE_END in line.text and "values" in self.state:
            numbers = {name: number_of(text) for name, text in self.state.pop("values")}
            values = {name: number for name, number in numbers.items() if number is not None}
            out.row(values, self.state.pop("step", None), self.state.get("at"), repeats=True)
            return True
        return False

    def _take(self, name: str, text: str) -> None:
        """Take a name and a value; a name that is too long goes on in the next line, beside an empty value."""
        values = self.state["values"]
        if text or not values:
            values.append([name, text])
        else:
            values[-1][0] += name


METRIC_TABLES = Format("console log with tables of metrics", TableReader, is_metric_tables)
