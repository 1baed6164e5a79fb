"""Console logs of veRL: lines ``step:1 - actor/pg_loss:0.1 - …``, with the printed config and validations."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import END_BYTES, Facts, Format, Line, Seen, decode
from barograph.importers.reading.values import MAX_STEP, flat_numbers, literal_of, number_of, parse_dict
from barograph.importers.recorder import Recorder

STEP = re.compile(r"(?<![\w/])step:(-?\d{1,16}) - ")
REPEATED = re.compile(r"\s*\[repeated \d{1,9}x across cluster\].*$")
"""What Ray adds to a line that several workers have printed."""
TOTAL = re.compile(r"Total training steps: (\d{1,12})\b")
VALIDATION = re.compile(r"[(\"']{0,3}(Initial|Final) validation metrics: ")
NAMED = re.compile(r"'(project_name|experiment_name)': '([^'\n]{1,200})'")
SETTINGS = ("actor_rollout_ref", "trainer", "algorithm", "data")
"""Entries of a printed config of which it has at least two."""
"""What the beginning of a log has if the framework is one that is built on veRL."""
MAX_BLOCK = 512 << 10
MAX_NAME = 500
MAX_WIDTH = 400  # of a terminal
MAX_WRAPPED_LINES = 200
MAX_FOREIGN = 200  # lines of other processes within a text over several lines
TEXT_ENDS = ("}", "}'", '}"', "}')", '}")', "None", "None'", 'None"')


def parse_line(text: str) -> tuple[int, dict[str, float]] | None:
    """Return the step and the numbers of a line of metrics, whatever is before them; None if it is no such line."""
    found = STEP.search(text) if "step:" in text else None
    if found is None or abs(int(found[1])) > MAX_STEP:
        return None
    values = _values(text[found.end() :])
    return (int(found[1]), values) if values else None


def _values(text: str) -> dict[str, float]:
    """Return the numbers in ``name:value - name:value``; names may have colons, and dashes with spaces around them."""
    text = REPEATED.sub("", text) if "[repeated " in text else text.rstrip()
    wrapped = text.count(":np.float64(")
    if wrapped and wrapped == text.count(") - ") + text.endswith(")"):
        # Nothing else has a closing bracket, so that taking all of them off is the same, and half of the work.
        text = text.replace(":np.float64(", ":").replace(") - ", " - ").removesuffix(")")
    values: dict[str, float] = {}
    begun = ""  # a name with " - " in it, whose value comes later
    number: float | None = 0.0
    for part in text.split(" - "):
        name, colon, digits = part.rpartition(":")
        if not colon:
            is_name = number is not None and len(begun) < MAX_NAME  # else it belongs to a value that is a text
            begun = f"{begun}{part} - " if is_name else ""
            continue
        number = number_of(digits)
        if number is not None:
            values[f"{begun}{name}"] = number
        begun = ""
    return values


def _continues(lines: list[str], text: str) -> bool:
    """Return whether a text is the rest of a row that a terminal has wrapped after some lines."""
    parts = text.strip().removesuffix(" -").removeprefix("- ").split(" - ")
    if STEP.search(text) or any(not part or " " in part for part in parts) or len(lines) > MAX_WRAPPED_LINES:
        return False
    if len(parts) == 1:  # the last part of a row: the lines before it are full
        return len(lines) > 1 and len(lines[-1]) >= max(map(len, lines[1:])) - 1
    return len(lines) > 1 or any(_values(part) for part in parts[1:])


def _joined(lines: list[str]) -> str:
    """Return a row without its line breaks; a terminal also takes off the spaces before them."""
    text = lines[0].rstrip()
    for line in lines[1:]:
        space = " " if (text.endswith(" -") and line[:1] != " ") or line.startswith("- ") else ""
        text = f"{text}{space}{line.rstrip()}"
    return text


def matches(seen: Seen) -> bool:
    """Return whether the file has a line of metrics, or the config that comes before them."""
    if seen.has(b"step:") and any(parse_line(line) is not None for line in seen.lines):
        return True
    return seen.has(b"'actor_rollout_ref': {", b"TaskRunner") and not seen.is_binary


class ConsoleReader(LineReader):
    """Reads one row per line of metrics.

    A config or a validation is printed over several lines; ``state["block"]`` has those that were read of it. A row
    that is so short that a terminal may have wrapped it is in ``state["wrapped"]`` until the next line is known.
    """

    begun = ("traceback", "block", "wrapped")
    needles = (b"step:", b"validation metrics: ", b"{'", b"Total training steps: ")
    producer = "verl"
    marks = ((b"agentlightning", "agent-lightning"), (b"rllm/", "rllm"))

    def facts(self) -> Facts:
        """Return the names that the printed config has."""
        found = dict(NAMED.findall(decode(self.beginning(END_BYTES))[0]))
        return Facts(
            name=found.get("experiment_name", ""),
            project=found.get("project_name", ""),
            producer=self.framework(),
            created=self.created(),
        )

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        super().read(out)
        self._take_wrapped(out)

    def line(self, line: Line, out: Recorder) -> bool:
        """Record a row, a validation or the config."""
        wrapped = self.state.get("wrapped")
        if wrapped is not None and _continues(wrapped["lines"], line.text):
            wrapped["lines"].append(line.text)
            return False
        self._take_wrapped(out)
        found = parse_line(line.text)
        if found is not None:
            self.state.pop("block", None)
            if len(line.text) > MAX_WIDTH:
                return self._row(*found, line, out)
            self.state["wrapped"] = {"lines": [line.text], "at": line.at, "line": line.number}
            return True
        if line.text.startswith("{'"):
            self._begin("config", line.text)
        elif " validation metrics: " in line.text and (validation := VALIDATION.search(line.text)):
            self._begin("validation", line.text[validation.start() :])
        elif "Total training steps: " in line.text and (total := TOTAL.search(line.text)):
            self.state["total"] = int(total[1])
        elif "block" in self.state:
            self._continue(line)
        self._end_block(line, out)
        return False

    def _take_wrapped(self, out: Recorder) -> None:
        """Record the row that has waited for its rest."""
        wrapped = self.state.pop("wrapped", None)
        if wrapped is not None:
            line = Line(_joined(wrapped["lines"]), wrapped["at"], wrapped["line"])
            found = parse_line(line.text)
            if found is not None:
                self._row(*found, line, out)

    def _row(self, step: int, values: dict[str, float], line: Line, out: Recorder) -> bool:
        """Record a row; return whether others may follow."""
        signature = crc32(line.text[line.text.find("step:") :].partition(" [repeated ")[0].encode())
        if signature == self.state.get("row"):
            return True  # a worker's line and the driver's copy of it
        self.state["row"] = signature
        initial = self.state.pop("initial", {})
        if initial.keys() & values.keys():  # it is printed, and then logged
            values = {**initial, **values}
        elif initial:
            out.row(initial, step - 1, line.at)
        out.row(values, step, line.time(line.text[: line.text.find("step:")]), repeats=True)
        self.state["last"] = [step, [name for name in values if name.startswith("val")]]
        if step != self.state.get("total"):
            return True
        self.mark_finished(Line(f"step {step} is the last one", number=line.number), out)
        return False

    # -- texts over several lines --------------------------------------------------------------------------------

    def _begin(self, kind: str, text: str) -> None:
        self.state["block"] = {"kind": kind, "lines": [text], "size": len(text), "foreign": 0}

    def _continue(self, line: Line) -> None:
        """Add a line. pprint indents all but the first one: others are of other processes."""
        block = self.state["block"]
        if line.text[:1] == " ":
            block["lines"].append(line.text)
            block["size"] += len(line.text)
        else:
            block["foreign"] += 1

    def _end_block(self, line: Line, out: Recorder) -> None:
        block = self.state.get("block")
        if block is None:
            return
        is_complete = block["lines"][-1].rstrip().endswith(TEXT_ENDS) and self._take(block, line, out)
        if is_complete or block["size"] > MAX_BLOCK or block["foreign"] > MAX_FOREIGN:
            del self.state["block"]

    def _take(self, block: dict[str, Any], line: Line, out: Recorder) -> bool:
        """Record a text over several lines; return whether it was complete."""
        text = "\n".join(block["lines"])
        if block["kind"] == "validation":
            return self._take_validation(text, line, out)
        config = parse_dict(text)
        if config is not None and sum(name in config for name in SETTINGS) >= 2:
            out.restart()
            out.config(config)
        return config is not None

    def _take_validation(self, text: str, line: Line, out: Recorder) -> bool:
        """Record a validation: pprint prints the text as a string, over several lines if it is long."""
        printed = literal_of(text)
        found = VALIDATION.search(printed if isinstance(printed, str) else text)
        if found is None:
            return False
        content = found.string[found.end() :]
        metrics = parse_dict(content)
        if metrics is None and content.strip() != "None":
            return False
        values = {name: value for name, value in flat_numbers(metrics or {}).items() if value is not None}
        if found[1] == "Initial":
            self.state["initial"] = values
            return True
        step, known = self.state.get("last", [0, []])
        out.row({name: value for name, value in values.items() if name not in known}, step, line.at)
        self.mark_finished(Line(found[0].rstrip(": "), number=line.number), out)
        return True


FORMAT = Format("veRL console log", ConsoleReader, matches)
