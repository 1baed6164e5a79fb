"""Console logs of prime-rl: ``12:00:05 SUCCESS Step 12 | Time: 1.20s | Loss: 0.0123 | …``, of trainer or orchestrator.

Read in prime-rl at 559b447 (August 2026), whose labels have no colon, and in versions since July 2025. The labels are
made for people; they become the names under which prime-rl logs the same numbers, and stay as they are where those
differ between versions. Lines have the time of day only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Format, Line, Seen
from barograph.importers.reading.values import as_time
from barograph.importers.recorder import Recorder

PREFIX = re.compile(r"^(?:[A-Z]{3,4} )?\d\d:\d\d:\d\d +(?:SUCCESS|INFO) (?:\[[^\]]*\] )*")
STEP = re.compile(r"Step (\d{1,15}) \| ")
ENVIRONMENT = re.compile(r"^\s*╰─ (\S+) +\| ")
EVALUATION = re.compile(r"Evaluated (\S+) \(Step (\d{1,15})\) \| ")
OLD_EVALUATION = re.compile(r"Evaluated (\S+) in ([\d.]+)s \((.*)\)")
SCORE = re.compile(r"([\w@^.-]{1,200})[=:] ?(-?\d{1,40}\.?\d{0,40})")
NUMBER = re.compile(
    r"^(?P<label>[A-Z][A-Za-z .-]*?):? (?P<number>[-+]?\d{1,40}+\.?+\d{0,40}+(?:e[-+]?\d{1,9}+)?|nan|inf|-inf)(?![\w.])"
)
DURATION = re.compile(r"(\d{1,40}(?:\.\d{1,40})?)(ms|[dhms])\b")
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
NAMES = {
    "Loss": "loss/mean", "Entropy": "entropy/mean", "Importance Ratio": "importance_ratio/mean",
    "Mismatch KL": "mismatch_kl/all/mean", "Grad. Norm": "optim/grad_norm", "LR": "optim/lr",
    "Throughput": "perf/throughput", "MFU": "perf/mfu", "Peak Mem.": "perf/peak_memory", "Max Vio": "max_vio/mean",
    "Reward": "reward/mean", "Val. Reward": "val_reward/mean", "Seq. Length": "seq_len/mean",
}  # fmt: skip
FINISHED = ("RL trainer finished!", "Orchestrator finished.", "Training finished!", "SFT training finished!")
MARKS = {"loss/mean", "reward/mean"}


def parse_line(text: str) -> tuple[int, dict[str, float | None]] | None:
    """Return step and values of a line; None if it is no line of a step."""
    found = STEP.match(text)
    if found is None:
        return None
    values: dict[str, float | None] = dict(_values(text[found.end() :]))
    return (int(found[1]), values) if MARKS & values.keys() else None


def _values(text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers between bars, with the name of each; a time has no label in newer versions."""
    for part in text.split(" | "):
        part = part.strip()
        if part[:1].isdigit() or part.startswith("Time: "):
            yield "time/step", sum(float(number) * SECONDS[unit] for number, unit in DURATION.findall(part))
        elif found := NUMBER.match(part.replace("% ", " ").rstrip("%")):
            yield NAMES.get(found["label"], found["label"]), float(found["number"])


def message_of(text: str) -> tuple[str, float | None] | None:
    """Return what a line of prime-rl says, and its time if that has a date; None if it is none of its lines."""
    if text[:1] == "{" and '"message"' in text:
        try:
            entry = json.loads(text)
            return str(entry["message"]), as_time(entry.get("timestamp"))
        except (ValueError, KeyError, RecursionError):
            return None
    found = PREFIX.match(text)
    return (text[found.end() :], None) if found is not None else None


def matches(seen: Seen) -> bool:
    """Return whether a line is that of a step."""
    if not seen.has(b"Step ", b" | "):
        return False
    messages = (message_of(line) for line in seen.lines if " | " in line)
    return any(message is not None and parse_line(message[0]) is not None for message in messages)


class ConsoleReader(LineReader):
    """Reads one row per step, with those of environments and evaluations."""

    needles = (b"Step ", "╰─".encode(), b"Evaluated ", b"finished")
    producer = "prime-rl"

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the numbers of a line."""
        if found := ENVIRONMENT.match(line.text):
            self._environment(found[1], line.text[found.end() :], out)
            return False
        text, at = message_of(line.text) or ("", None)
        at = line.at if line.at is not None else at
        step = parse_line(text)
        if step is not None:
            self.state["step"], self.state["at"] = step[0], at
            out.row(step[1], step[0], at, repeats=True)
            for rest in text.split("\n")[1:]:  # of a JSON entry
                if found := ENVIRONMENT.match(rest):
                    self._environment(found[1], rest[found.end() :], out)
            return True
        if text.startswith("Evaluated "):
            self._evaluation(text, at, out)
        elif text.startswith(FINISHED):
            self.mark_finished(line, out)
        return False

    def _environment(self, name: str, text: str, out: Recorder) -> None:
        """Record the part of the last step that one environment has."""
        values: dict[str, float | None] = {
            f"reward/{name}/mean" if label == "reward/mean" else f"{name}/{label}": value
            for label, value in _values(text)
        }
        if "step" in self.state:
            out.row(values, self.state["step"], self.state["at"])

    def _evaluation(self, text: str, at: float | None, out: Recorder) -> None:
        if found := EVALUATION.match(text):
            values = {f"eval/{found[1]}/{name}": value for name, value in _values(text[found.end() :])}
            out.row(values, int(found[2]), at)
        elif (found := OLD_EVALUATION.match(text)) and "step" in self.state:
            scores = {f"eval/{found[1]}/{name.lower()}": float(number) for name, number in SCORE.findall(found[3])}
            out.row({**scores, f"eval/{found[1]}/time": float(found[2])}, self.state["step"], at)


FORMAT = Format("prime-rl console log", ConsoleReader, matches)
