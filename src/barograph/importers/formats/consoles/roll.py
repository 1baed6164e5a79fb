"""Logs of ROLL: ``metrics_tag: {"step": 0, "metrics": {…}}`` of its stdout tracker, else what its pipelines print."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import END_BYTES, Facts, Format, Line, Seen, decode
from barograph.importers.reading.values import as_step, flat_numbers, object_of
from barograph.importers.recorder import Recorder

TAG = "metrics_tag: "
LOGGED = re.compile(r"^\[.{10,40}?\] \[[\w.]+ \(\d+\)\] \[[A-Z]+\] \[.{0,200}?\] ?\[PID \d+\] ")
"""What ROLL's logger puts before a message."""
FINISHED = re.compile(r"\bpipeline step (\d{1,12}) finished")
COMPLETE = "pipeline complete!"
CONFIG_BEGINS, CONFIG_ENDS = "====== Pipeline Config ======", "====== End Config ======"
ALIAS = re.compile(r"(?:^|[\s:,\[{-])[&*]\w")
NAME = re.compile(r"^exp_name: ['\"]?([^'\"\n]{1,200})", re.MULTILINE)
MAX_CONFIG = 512 << 10


def matches(seen: Seen) -> bool:
    """Return whether the file has a line of the tracker, or one of a pipeline."""
    if seen.has(TAG.encode()) and any(_tagged(line) is not None for line in seen.lines):
        return True
    return seen.has(b"[PID ", b"pipeline step ") and any(_logged(line) is not None for line in seen.lines)


def _tagged(text: str) -> dict[str, Any] | None:
    """Return what the tracker has printed; None if it is another line."""
    _, tag, content = text.partition(TAG)
    found = object_of(content) if tag else None
    return found if found is not None and isinstance(found.get("metrics"), dict) else None


def _logged(text: str) -> dict[str, Any] | None:
    """Return the metrics that a pipeline has printed without their step; None if it is another line."""
    prefix = LOGGED.match(text)
    found = object_of(text[prefix.end() :]) if prefix else None
    return found if found and flat_numbers(found) else None


class ConsoleReader(LineReader):
    """Reads one row per step.

    A pipeline prints its metrics before the tracker does, and not in each step. They are kept in ``state["waiting"]``
    until the step has finished, and recorded if there is no tracker.
    """

    begun = ("traceback", "config")
    needles = (TAG.encode(), b'] {"', b"pipeline step ", b"pipeline complete", CONFIG_BEGINS.encode())

    def facts(self) -> Facts:
        """Return the name that the printed config has."""
        name = NAME.search(decode(self.beginning(END_BYTES))[0])
        return Facts(name=name[1].strip() if name else "", producer="roll", created=self.created())

    def line(self, line: Line, out: Recorder) -> bool:
        """Record a row or the config."""
        if "config" in self.state:
            self._add_to_config(line, out)
        elif TAG in line.text:
            return self._tagged_row(line, out)
        elif (found := _logged(line.text)) is not None:
            self.state["waiting"] = {**self.state.get("waiting", {}), **found}
        elif finished := FINISHED.search(line.text):
            return self._finished_step(int(finished[1]), line, out)
        elif COMPLETE in line.text:
            self.mark_finished(Line(COMPLETE, number=line.number), out)
        elif CONFIG_BEGINS in line.text:
            self.state["config"] = ""
        return False

    def _tagged_row(self, line: Line, out: Recorder) -> bool:
        found = _tagged(line.text)
        if found is None:
            out.unread(f"line {line.number}", "metrics that are no JSON")
            return False
        signature = crc32(line.text.partition(TAG)[2].encode())
        if signature == self.state.get("row"):
            return True  # a worker's line and the driver's copy of it
        self.state["row"] = signature
        step = as_step(found.get("step"))
        out.row(flat_numbers(found["metrics"]), step, line.time(line.text[:64]), repeats=True)
        self.state["tagged"] = step
        return True

    def _finished_step(self, step: int, line: Line, out: Recorder) -> bool:
        waiting = self.state.pop("waiting", None)
        if waiting is None or self.state.get("tagged") == step:
            return False
        out.row(flat_numbers(waiting), step, line.time(line.text[:64]), repeats=True)
        return True

    def _add_to_config(self, line: Line, out: Recorder) -> None:
        text = self.state["config"]
        if CONFIG_ENDS not in line.text and len(text) < MAX_CONFIG:
            self.state["config"] = f"{text}{line.text}\n"
            return
        del self.state["config"]
        config = _yaml(text.partition("------\n")[2] or text)
        if config is None:
            out.unread(f"line {line.number}", "a config that is no YAML")
        else:
            out.restart()
            out.config(config)


def _yaml(text: str) -> dict[str, Any] | None:
    if ALIAS.search(text):  # a small text with aliases may stand for a very large one
        return None
    from omegaconf import OmegaConf

    try:
        found = OmegaConf.to_container(OmegaConf.create(text))
    except Exception:  # noqa: BLE001 - of the YAML parser or of OmegaConf
        return None
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else None


FORMAT = Format("ROLL log", ConsoleReader, matches)
