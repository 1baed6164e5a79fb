"""Python dicts in a console log, as TRL, transformers and Unsloth print them: ``{'loss': 0.0, 'reward': 1.2, …}``.

The step is not printed. It is that of the trainer's progress bar, if the log has the bar; else the rows are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Format, Line, Seen, look_at
from barograph.importers.reading.values import TRL_TRAINERS, flat_numbers, number_of, parse_dict, step_of
from barograph.importers.recorder import COUNTED_NOTE, Recorder

FLAT = re.compile(r"\{'[^{}]*\}")
BAR = re.compile(r"(?:^|[\r\n\]]) *\d{1,3}%(?:\|[^|\r\n]*\|)? *(\d{1,12})/(\d{1,12}) \[")
"""A progress bar without a title: bars of downloads and of generation have one, that of the trainer has none."""
STEP_BEFORE = re.compile(r"\b(?:global_)?(?:step|iteration|iter)\W{0,3}(\d{1,12})\b[^{]{0,40}$", re.IGNORECASE)
LOGGING_STEPS = re.compile(r"logging_steps['\"]?\s{0,3}[=: ]\s{0,3}(\d{1,9})\b(?!\.)")
TRAINING = frozenset(("loss", "reward", "grad_norm", "train/loss", "train_loss", "objective/kl", "kl"))
HALLMARKS = TRAINING | {"epoch", "train_runtime", "eval_loss", "eval_runtime", "eval_reward", "step", "global_step"}
FAMILIES = ("rewards/", "completions/", "objective/", "eval_", "eval/", "train/", "val/", "loss/", "policy/")
SUMMARY = "train_runtime"
BAR_NOTE = "steps are read from the progress bar before a row"
ROW_MARKS = ("'loss':", "'reward':", "'train_runtime':", "'eval_loss':")
TRAINER = re.compile(rb"\b([A-Z]\w{1,9}?)(?:Trainer|Config)\b")
TRL_NAMES = ("completions/", "rewards/", "frac_reward_zero_std", "objective/")
MAX_WRAPPED_LINES = 200
MAX_WRAPPED = 64 << 10
MAX_FAILURES = 100  # dicts of one line that cannot be read; the rest is no log of a trainer


def matches(seen: Seen) -> bool:
    """Return whether the file has a dict of metrics."""
    return seen.has(b"{'") and not seen.has(b'"nbformat"') and next(_rows_seen(seen), None) is not None


def _rows_seen(seen: Seen) -> Iterator[dict[str, Any]]:
    """Yield the rows at both ends of a file."""
    begun = ""
    for line in seen.lines:
        text, begun = begun + line if begun and not line.startswith("{'") else line, ""
        for start, end, found in dicts_in(text):
            if found is not None and is_row(found):
                yield found
            elif end is None and len(text) < MAX_WRAPPED:
                begun = text[start:]


def dicts_in(text: str) -> Iterator[tuple[int, int | None, dict[str, Any] | None]]:
    """Yield the dicts in a text with their places; one that only begins there has no end, one without sense is None."""
    start, closing, failures = text.find("{'"), text.rfind("}") + 1, 0
    last = closing
    while start >= 0 and failures < MAX_FAILURES:
        if closing <= start and text.find("{", start + 1) < 0:  # wrapped by a terminal: metrics have no braces within
            yield start, None, None
            return
        end, found = _dict_at(text, start, last)
        yield start, end, found
        if found is None:
            last, failures = 0, failures + 1  # a long text is not tried again and again
        start = text.find("{'", end)


def _dict_at(text: str, start: int, last: int) -> tuple[int, dict[str, Any] | None]:
    """Return the end of a dict, at the first brace or, if that is in a value, the last one; and the dict."""
    flat = FLAT.match(text, start)
    if flat and (found := parse_dict(flat[0])) is not None:
        return flat.end(), found
    found = parse_dict(text[start:last])
    if found is not None:
        return last, found
    return flat.end() if flat else len(text), None


def is_row(found: Mapping[str, Any]) -> bool:
    """Return whether a dict is one of metrics: it has a name that trainers print, with a number."""
    known = HALLMARKS & found.keys() or [name for name in found if name.startswith(FAMILIES)]
    return any(_number(found[name]) is not None for name in known)


def numbers_of(found: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers in a dict, also those that are printed as texts, as newer versions of transformers do."""
    values: dict[str, float | None] = {}
    for name, value in found.items():
        if type(value) is float:
            values[name] = value
        elif isinstance(value, str):
            if (number := _number(value)) is not None:
                values[name] = number
        else:
            values |= flat_numbers({name: value})
    return values


def _number(value: Any) -> Any:
    """Return a number, or what a text is as one; None for others."""
    if isinstance(value, str):
        return number_of(value) if len(value) < 64 else None
    return value if isinstance(value, int | float) else None


class ConsoleReader(LineReader):
    """Reads one row per dict. ``state["begun"]`` is a dict that a terminal has wrapped, as far as it was read."""

    begun = ("traceback", "begun")
    needles = (b"{'", b"it/s", b"s/it", b"logging_steps")

    def facts(self) -> Facts:
        """Return the trainer, where the names or a class in the log prove it."""
        seen = look_at(self.log.path)
        return Facts(producer=_producer(seen) if seen is not None else "", created=self.created())

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the dicts in a line."""
        self._notice_steps(line)
        begun = self._begun(line, out)
        text = begun["text"] + line.text if begun else line.text
        is_training, before = False, 0
        for start, end, found in dicts_in(text):
            if end is None:
                first, lines = (begun["line"], begun["lines"] + 1) if begun else (line.number, 1)
                self.state["begun"] = {"text": text[start:], "line": first, "lines": lines}
            elif found is None:
                self._report(text[start:end], line.number, "a dict that cannot be read", out)
            elif is_row(found):
                is_training |= self._row(found, text[before:start], line, out)
            before = end or before
        return is_training

    def _begun(self, line: Line, out: Recorder) -> dict[str, Any] | None:
        """Return the dict that this line continues; None if there is none."""
        begun: dict[str, Any] | None = self.state.pop("begun", None)
        if begun is None or not (
            line.text.startswith("{'")
            or begun["lines"] >= MAX_WRAPPED_LINES
            or len(begun["text"]) + len(line.text) > MAX_WRAPPED
        ):
            return begun
        self._report(begun["text"], begun["line"], "a dict that does not end", out)
        return None

    def _report(self, text: str, number: int, reason: str, out: Recorder) -> None:
        if any(mark in text for mark in ROW_MARKS):
            out.unread(f"line {number}", reason)

    def _row(self, found: dict[str, Any], before: str, line: Line, out: Recorder) -> bool:
        """Record a dict; return whether it is of the training, not of an evaluation or the summary at its end."""
        is_training = not TRAINING.isdisjoint(found) and SUMMARY not in found
        epoch = _number(found.get("epoch"))
        if is_training and self._begins_again(epoch):
            out.restart()
            self.state.update(step=0, by_bar=False)
            self.state.pop("total", None)
        own, step_name = step_of(found)
        step = own if own is not None else self._step(before, is_training, out)
        values = numbers_of(found)
        values.pop(step_name, None)
        out.row(values, step, line.time(before), repeats=is_training)
        self.state.update(step=step, epoch=epoch if epoch is not None else self.state.get("epoch"))
        if SUMMARY in found:
            self.state["summary"] = True
            self.mark_finished(Line("the trainer printed its summary", number=line.number), out)
        return is_training

    # -- steps ---------------------------------------------------------------------------------------------------

    def _begins_again(self, epoch: float | None) -> bool:
        """Return whether a row of the training is the first one of another training."""
        last = self.state.get("epoch")
        is_earlier = epoch is not None and last is not None and epoch < last
        return bool(self.state.pop("summary", False)) or is_earlier

    def _notice_steps(self, line: Line) -> None:
        """Remember the progress of the trainer's bar, and how often it logs."""
        for text in (line.before, line.text):
            for bar in (
                BAR.finditer(text, 0, max(text.find("{'"), 0) or len(text)) if "% " in text or "%|" in text else ()
            ):
                done, total = int(bar[1]), int(bar[2])
                if self.state.get("total", total) == total:
                    self.state["bar"] = [done, total]
        if "logging_steps" in line.text and (stride := LOGGING_STEPS.search(line.text)):
            self.state["logging_steps"] = int(stride[1]) or 1

    def _step(self, before: str, is_training: bool, out: Recorder) -> int:
        """Return the step of a row that does not have it: from the text before it, from the bar, or counted."""
        if found := STEP_BEFORE.search(before[-200:]):
            return int(found[1])
        last = int(self.state.get("step", 0))
        done, total = self.state.get("bar", (0, 0))
        if (done > last or self.state.get("by_bar")) and not (is_training and done == last):
            self.state.update(by_bar=True, total=total)  # the bar of an evaluation has another total
            out.note(BAR_NOTE)
            return int(done)
        stride = self.state.get("logging_steps")
        if stride is None:
            out.note(COUNTED_NOTE)
            return last + 1
        out.note(f"the log has no steps: they are counted with logging_steps = {stride}")
        return last + int(stride) if is_training else last


def _producer(seen: Seen) -> str:
    """Return the source of the names: a trainer of TRL, or of transformers."""
    ends = seen.head + seen.tail
    found = {name.decode() for name in TRAINER.findall(ends)}
    named = {f"trl/{TRL_TRAINERS[name]}" for name in found & TRL_TRAINERS.keys()}
    first = next(_rows_seen(seen), {})
    if "global_step/max_steps" in first:
        return "ms-swift"
    if len(named) == 1:
        return named.pop()
    if named or any(name.startswith(TRL_NAMES) for name in first):
        return "trl"
    return "transformers" if {"loss", "learning_rate", "epoch"} <= first.keys() else ""


FORMAT = Format("Python dicts in a console log", ConsoleReader, matches)
