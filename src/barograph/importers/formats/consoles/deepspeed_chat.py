"""Logs of DeepSpeed-Chat's RLHF step: ``epoch: 0|step: 0|ppo_ep: 1|act_loss: 0.2|…``, then rewards and times.

Names are those that the log prints. What is printed between two such lines belongs to the step of the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from zlib import crc32

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Format, Line, Seen, time_in
from barograph.importers.reading.values import MAX_STEP, number_of
from barograph.importers.recorder import Recorder

STEP = re.compile(r"(?P<epoch>epoch: (\d{1,9})) ?\| ?step: (\d{1,12}) ?\|(?P<rest>.*)", re.IGNORECASE)
OLD_TIMES = re.compile(r"\|([A-Za-z][\w ]{0,60})=([-+\d.einfa]{1,60})s?\b")
NEW_TIMES = re.compile(r"(End-to-End|Generation|Training) *=> (.+)")
NEW_TIME = re.compile(r"([A-Z][\w/. -]{0,60}?):? ([-+]?\d[\d.e+-]{0,60}|nan|-?inf)(?: ?(?:s|ms|GB/sec))?(?:,|$)")
ENGINE = re.compile(r"\bstep=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^\],]+)")
TIMER = re.compile(r"global_step=\d+, (.+)")
TIMER_VALUE = re.compile(r"\b(\w{1,60})=([-+\d.einfa]{1,60})(?:GB)?(?:, |$)")
FAILED = re.compile(r"exits with return code = (-?\d{1,9})\b")
SUCCEEDED = "exits successfully"
ENGINES = ("actor", "critic")
"""The order in which the trainer lets its engines step."""
STAMP_CHARACTERS = 40


def matches(seen: Seen) -> bool:
    """Return whether the file has a line of the losses."""
    return seen.has(b"tep: ") and any(STEP.search(line) and _items(line) for line in seen.lines)


def _items(text: str) -> dict[str, float]:
    """Return the numbers in ``name: value|name: value``."""
    found = {}
    for part in text.split("|"):
        name, colon, digits = part.partition(": ")
        number = number_of(digits) if colon else None
        if number is not None:
            found[name.strip()] = number
    return found


class ConsoleReader(LineReader):
    """Reads one row per line; several lines are of the same step."""

    needles = (b"tep: ", b"reward score: ", b"latency=", b"=> Latency", b"[INFO] [", b"exits ", b"cmd = ")
    producer = "deepspeed-chat"

    def line(self, line: Line, out: Recorder) -> bool:
        """Record what is in a line."""
        text = line.text
        if line.at is not None or text[:3] == "[20":
            out.clock(line.at or time_in(text[:STAMP_CHARACTERS]))
        if "tep: " in text and (found := STEP.search(text)):
            self._begin_step(int(found[2]), int(found[3]), crc32(text.encode()), out)
            out.row(_items(f"{found['epoch']}|{found['rest']}"), self.state["step"], keeps_attempt=True)
            return True
        if "cmd = " in text:
            self._begin_training(line, out)
        elif SUCCEEDED in text:
            self.mark_finished(line, out)
        elif "exits with" in text and not self.state.get("ended") and (failed := FAILED.search(text)):
            self._end(out, "killed" if int(failed[1]) < 0 else "crashed", f"line {line.number}: {failed[0]}")
        elif "step" in self.state and (values := self._values(text)):
            out.row(values, self.state["step"], keeps_attempt=True)
        return False

    def _begin_training(self, line: Line, out: Recorder) -> None:
        out.restart()
        out.config(dict(_options(line.text)))
        for name in ("last", "step"):
            self.state.pop(name, None)

    def _begin_step(self, epoch: int, number: int, line: int, out: Recorder) -> None:
        """Find the step of the whole training: the number that is printed begins anew in each epoch."""
        last_epoch, last_number, last_line = self.state.get("last", (epoch, number - 1, None))
        if line == last_line:
            return  # it was printed twice
        step = self.state.get("step", number - 1)
        if (epoch, number) <= (last_epoch, last_number):
            out.restart()
            step = number
        else:
            step += number - last_number if epoch == last_epoch else number + 1
        self.state.update(last=[epoch, number, line], step=step, engine=None)

    def _values(self, text: str) -> dict[str, float]:
        if "reward score: " in text:
            return _items(text)
        pairs: list[tuple[str, str]] = []
        if "latency=" in text:
            pairs = OLD_TIMES.findall(text)
        elif "skipped=" in text and (engine := ENGINE.search(text)):
            return self._engine_values(engine)
        elif "global_step=" in text and (timer := TIMER.search(text)):
            pairs = TIMER_VALUE.findall(timer[1])
        elif "=> " in text and (times := NEW_TIMES.match(text.strip())):
            pairs = [(f"{times[1]}/{name}", digits) for name, digits in NEW_TIME.findall(times[2])]
        return {name: number for name, digits in pairs if (number := number_of(digits)) is not None}

    def _engine_values(self, found: re.Match[str]) -> dict[str, float]:
        """Return what an engine prints, under its own name as well: both print the same names, one after the other."""
        before = self.state.get("engine")
        place = before[1] + 1 if before and before[0] == found[1] else 0
        self.state["engine"] = [found[1], place]
        skipped, rate = number_of(found[2]), number_of(found[3])
        values = {"skipped": skipped, "lr": rate}
        if place < len(ENGINES):
            values |= {f"{ENGINES[place]}/skipped": skipped, f"{ENGINES[place]}/lr": rate}
        return {name: value for name, value in values.items() if value is not None}


def _options(text: str) -> Iterator[tuple[str, str | float | bool]]:
    """Yield the options of the command that the launcher prints."""
    words = text.partition("cmd = ")[2].split()
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[place + 1] if place + 1 < len(words) else "--"
            if not equals and following.startswith("--"):
                yield name, True
            else:
                value = value if equals else following
                number = number_of(value)
                yield (
                    name,
                    value if number is None else int(number) if value.isdecimal() and number < MAX_STEP else number,
                )


FORMAT = Format("DeepSpeed-Chat log", ConsoleReader, matches)
