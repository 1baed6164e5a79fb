"""Console logs of NeMo-RL: results, timings and validations as lists under the heading of each step.

Read in NeMo-RL at 7ea279a (August 2026, ``nemo_rl/algorithms/grpo.py``). The labels become the names under which it
logs the same numbers; others stay as they are.
"""

from __future__ import annotations

import re

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Line, Seen
from barograph.importers.recorder import Recorder

TITLE = "NeMo-RL console log"

STEP = re.compile(r"(?<!=)={10,}+ Step (\d{1,12})/(\d{1,12}) ={10,}")
EPOCH = re.compile(r"(?<!=)={10,}+ Epoch (\d{1,9})/\d{1,9} ={10,}")
HEADING = re.compile(r"(Training Results|Validation Results|Validation Timing|Timing|Performance Metrics):\s*$")
ITEM = re.compile(r"^\s+• ([^:]{1,200}): ([-+]?\d{1,40}+\.?+\d{0,40}+(?:e[-+]?\d{1,9}+)?|nan|inf|-inf)(?![\w.])")
TIMED_ITEM = re.compile(r"^\s+• ([^:]{1,200}): (\d{1,40}+\.?+\d{0,40}+)s\b")
GROUPS = {
    "Training Results": "train", "Timing": "timing/train", "Validation Results": "validation",
    "Validation Timing": "timing/validation", "Performance Metrics": "performance",
}  # fmt: skip
NAMES = {
    "train/Loss": "train/loss", "train/Draft Loss": "train/draft_loss",
    "train/Generation KL Error": "train/gen_kl_error", "train/Avg Reward": "train/reward",
    "train/Mean Generation Length": "train/mean_gen_tokens_per_sample",
    "timing/train/Total step time": "timing/train/total_step_time", "validation/Accuracy": "validation/accuracy",
    "validation/Average response length": "validation/avg_length",
    "timing/validation/Total validation time": "timing/validation/total_validation_time",
}  # fmt: skip


def matches(seen: Seen) -> bool:
    """Return whether there are results, and a step that they belong to."""
    if not seen.has(b"Training Results:", "•".encode()):
        return False
    return any(STEP.search(line) for line in seen.lines)


class Reader(LineReader):
    """Reads the items of each list."""

    needles = ("•".encode(), b" Step ", b" Epoch ", b"Results:", b"Timing:", b"Metrics:")

    def facts(self) -> Facts:
        """Return NeMo-RL."""
        return Facts(producer="nemo-rl", created=self.created())

    def line(self, line: Line, out: Recorder) -> bool:
        """Record an item, or remember what the next ones belong to."""
        if found := EPOCH.search(line.text):
            self.state["epoch"] = int(found[1])
        elif found := STEP.search(line.text):  # it counts anew in each epoch
            self.state["step"] = (self.state.get("epoch", 1) - 1) * int(found[2]) + int(found[1])
            self.state.pop("group", None)
        elif found := HEADING.search(line.text):
            self.state["group"] = GROUPS[found[1]]
        elif "group" in self.state and (found := ITEM.match(line.text) or TIMED_ITEM.match(line.text)):
            name = f"{self.state['group']}/{found[1]}"
            is_first = name == "train/Loss"
            out.row({NAMES.get(name, name): float(found[2])}, self.state.get("step", 0), line.at, repeats=is_first)
            return True
        return False
