"""Queries of samples and their results: the columns of samples beside their fixed fields (components of the reward,
answers, and what the trainer added), and conditions on them as people write them, such as
``reward.format < 0.5 and correct = false``.

A regular expression is searched in another process, which is stopped when it takes too long: a few characters of
one can make Python search for years, and a thread that searches cannot be interrupted.
"""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from barograph.base import expressions
from barograph.base.expressions import ORDERS, Condition, Conditions
from barograph.base.model import Sample
from barograph.journal.samples.transcript import CALL, Turn, to_bytes, tool_calls, turns_of

if TYPE_CHECKING:
    from barograph.journal.samples.blocks import SampleBlock


Kind = Literal["number", "truth", "name"]

MAX_COLUMNS = 128  # of a block of samples; further ones can be read, but not searched

MAX_NAME_BYTES = 256  # of a text in a column; longer ones are found by a search of texts only

MAX_NAMES = 12  # that a summary lists

NAME_FIELDS = ("id", "answer", "reference", "discarded")


def columns_of(sample: Sample, turns: list[Turn]) -> Iterator[tuple[str, float | bool | str]]:
    """Yield the columns of a sample with their values; ``turns`` are those of its messages."""
    yield from ((f"reward.{name}", float(value)) for name, value in sample.rewards.items())
    for name in NAME_FIELDS:
        if (value := getattr(sample, name)) is not None:
            yield name, value
    if sample.messages:
        yield "turns", float(len(turns))
    calls = tool_calls(turns) + _calls_in(sample.completion)
    if (sample.messages or calls) and "tool_calls" not in sample.columns:
        yield "tool_calls", float(calls)
    if len(sample.tokens):
        yield "tokens", float(len(sample.tokens))
    yield from sample.columns.items()


def shown_columns(sample: Sample) -> dict[str, float | bool | str]:
    """Return the columns that the trainer added, and the number of calls of tools if there are any."""
    turns = turns_of(replace(sample, prompt="", completion="")) if sample.messages else []
    calls = tool_calls(turns) + _calls_in(sample.completion)
    return ({"tool_calls": calls} if calls else {}) | dict(sample.columns)


def _calls_in(completion: str) -> int:
    # Most completions have none, and the index is made of many: looking for the mark is quicker than making turns.
    return tool_calls(turns_of(Sample(completion=completion))) if CALL in completion else 0


def kind_of(value: float | bool | str) -> Kind:
    """Return the kind of a column that a value belongs to."""
    return "truth" if isinstance(value, bool) else "name" if isinstance(value, str) else "number"


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What a column has: its kind, the range of its numbers, and the first of its names."""

    kind: Kind
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()

    def with_numbers(self, values: NDArray[Any]) -> ColumnSummary:
        """Return the summary with further numbers; NaN is none."""
        finite = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        if not len(finite):
            return self
        low, high = float(finite.min()), float(finite.max())
        return replace(
            self,
            low=low if self.low is None else min(low, self.low),
            high=high if self.high is None else max(high, self.high),
        )

    def with_names(self, names: list[bytes]) -> ColumnSummary:
        """Return the summary with further names."""
        if len(self.names) >= MAX_NAMES:
            return self
        texts = (name.decode("utf-8", "surrogatepass") for name in names)
        return replace(self, names=tuple(dict.fromkeys((*self.names, *texts)))[:MAX_NAMES])


Flags = NDArray[np.bool_]

EXAMPLE = "reward.format < 0.5 and correct = false"

ALIASES = {"version": "weight_version", "finish": "finish_reason"}


def parse_conditions(text: str) -> Conditions:
    """Return the conditions on samples in a text; raise ExpressionError with what is expected."""
    return expressions.parse_conditions(text, EXAMPLE, ALIASES)


def mask(condition: Condition, block: SampleBlock) -> Flags:
    """Return which samples of a block fulfil a condition."""
    numbers, known = block.numbers(condition.name)
    if condition.order in ORDERS:
        with np.errstate(invalid="ignore"):
            found: Flags = known & ORDERS[condition.order](numbers, condition.number)
        return found
    if condition.asks_for_absence:
        has = block.has(condition.name)
        return has if condition.order == "!=" else ~has
    is_part = condition.order.endswith("~")
    equal = _contains(condition, block) if is_part else _equals(condition, block, numbers, known)
    return block.has(condition.name) & ~equal if condition.order.startswith("!") else equal


def _equals(condition: Condition, block: SampleBlock, numbers: NDArray[Any], known: Flags) -> Flags:
    found: Flags = block.named(condition.name, condition.value.encode("utf-8", "surrogatepass"))
    if condition.number is not None and not condition.is_quoted:
        found = found | (known & (numbers == condition.number))
    return found


def _contains(condition: Condition, block: SampleBlock) -> Flags:
    wanted = condition.value.lower()
    texts = (name.decode("utf-8", "surrogatepass").lower() for name in block.names)
    matching = [number for number, text in enumerate(texts, 1) if wanted in text]
    found: Flags = np.isin(block.name_numbers(condition.name), matching)
    return found


TEXT_HEAD = struct.Struct("<I")

REGEX_CHILD = r"""
import re, struct, sys
take, put = sys.stdin.buffer.read, sys.stdout.buffer
def text():
    head = take(4)
    return take(struct.unpack("<I", head)[0]) if len(head) == 4 else None
search = re.compile(text().decode("utf-8", "surrogatepass")).search
while (texts := text()) is not None:
    found = any(map(search, texts.decode("utf-8", "surrogatepass").split("\0")))
    put.write(b"1" if found else b"0")
    put.flush()
"""


class TooSlowError(ValueError):
    """A regular expression that takes longer than it may."""


class RegexProcess:
    """A process that tests texts against a regular expression, for at most some seconds in all."""

    def __init__(self, regex: str, seconds: float) -> None:
        self._seconds = seconds
        # Isolated and without site packages: it starts in a few milliseconds, and sees nothing of this process.
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", REGEX_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._end = time.monotonic() + seconds
        self._send([regex.encode("utf-8", "surrogatepass")])

    def matches(self, texts: Sequence[bytes]) -> list[bool]:
        """Return which texts match; raise TooSlowError when the time is over."""
        stopper = threading.Timer(max(0.0, self._end - time.monotonic()), self._child.kill)
        stopper.start()
        try:
            # From a thread: neither pipe holds all texts or all answers.
            sender = threading.Thread(target=self._send, args=(texts,), daemon=True)
            sender.start()
            assert self._child.stdout is not None
            found = self._child.stdout.read(len(texts))
            sender.join()
        finally:
            stopper.cancel()
        if len(found) < len(texts):
            raise TooSlowError(f"the regular expression takes more than {self._seconds:g} s")
        return [answer == ord("1") for answer in found]

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.communicate()

    def _send(self, texts: Sequence[bytes]) -> None:
        assert self._child.stdin is not None
        try:
            for text in texts:
                self._child.stdin.write(TEXT_HEAD.pack(len(text)) + text)
            self._child.stdin.flush()
        except (BrokenPipeError, ValueError):  # it was stopped
            return


Steps = int | range | tuple[int | None, int | None]

MAX_CASED_LETTERS = 2  # letters beyond ASCII of which every case is tried

SORTS = ("step", "reward", "advantage", "length", "time")

FIXED = {*SORTS, "weight_version", "finish_reason", "task", "group", "run"}


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions on samples; all that are given must be true.

    ``step`` is a step, a range, or a pair of the first and the last one, both included, either None for no bound. The
    reward of a sample without a total is its only component. ``grep`` ignores case, ``regex`` does not; both search
    prompt, completion, messages and answers. ``where`` are conditions on any column, joined by ``and``, ``or`` and
    ``not``. ``sort`` is one of ``SORTS`` or a column, with a minus for the largest first; samples without the value
    come last. ``place`` is one of ``Found.places``. With ``regex_seconds`` the expression is searched in another
    process, for at most that long. With ``spread`` a limit keeps matches at even distances in that order, with the
    last, instead of the first ones. With ``by_step`` all matches are counted by their steps.
    """

    step: Steps | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    task: str | None = None
    group: str | None = None
    run: str | None = None
    finish_reason: str | None = None
    weight_version: int | None = None
    grep: str | None = None
    regex: str | None = None
    where: str | None = None
    place: str | None = None
    regex_seconds: float | None = None
    sort: str = "step"
    spread: bool | None = None
    by_step: bool | None = None

    def __post_init__(self) -> None:
        if not self.sort.removeprefix("-"):
            raise ValueError(f"sort: expected {', '.join(SORTS)} or another column, got {self.sort!r}")
        parse_conditions(self.where or "")
        if self.regex is not None:
            compiled(self.regex)

    @property
    def conditions(self) -> Conditions:
        """The conditions of ``where``."""
        return parse_conditions(self.where or "")

    def mask(self, block: SampleBlock) -> NDArray[np.bool_]:
        """Return which samples of a block fulfil the conditions on numbers and names."""
        rows, (first, last) = block.rows, step_range(self.step)
        found = np.ones(len(block), bool)
        for name, low, high in (
            ("step", first, last),
            ("reward", _number(self.min_reward, float), _number(self.max_reward, float)),
            ("length", _number(self.min_length), _number(self.max_length)),
            ("weight_version", _number(self.weight_version), _number(self.weight_version)),
        ):
            if low is not None:
                found &= block.known(name) & (rows[name] >= low)
            if high is not None:
                found &= block.known(name) & (rows[name] <= high)
        if isinstance(self.step, range) and abs(self.step.step) != 1:
            found &= (rows["step"] - self.step.start) % abs(self.step.step) == 0
        for name in ("task", "group", "run", "finish_reason"):
            if (wanted := getattr(self, name)) is not None:
                found &= block.named(name, to_bytes(str(wanted)))
        found &= self.conditions.evaluate(lambda condition: mask(condition, block))
        return found

    def columns(self) -> set[str]:
        """Return the columns that the query names, beside the fixed fields."""
        named = self.conditions.names() | {self.sort.removeprefix("-")}
        return named - FIXED

    def text_filter(self) -> TextFilter | None:
        """Return a search of texts as the index stores them; None if no text is searched for."""
        tests = [_substring(self.grep)] if self.grep else []
        if self.regex is None:
            return TextFilter(tests) if tests else None
        quick, exact = _expression(compiled(self.regex))
        if self.regex_seconds is None:
            return TextFilter([*tests, (quick, exact)])
        return TextFilter([*tests, (quick, lambda _: True)], RegexProcess(self.regex, self.regex_seconds))


Test = Callable[[bytes], bool]


class TextFilter:
    """A search in texts: each test is a quick one, of many texts at once, and an exact one."""

    def __init__(self, tests: Sequence[tuple[Test, Test]], process: RegexProcess | None = None) -> None:
        self._tests = tests
        self._process = process

    def may_match(self, joined: bytes) -> bool:
        """Return whether one of some joined texts may match; quickly."""
        return all(quick(joined) for quick, _ in self._tests)

    def matching(self, texts: Sequence[bytes]) -> list[int]:
        """Return the places of the samples whose texts match."""
        found = [
            place
            for place, text in enumerate(texts)
            if all(quick(text) and exact(text) for quick, exact in self._tests)
        ]
        if self._process is None or not found:
            return found
        matched = self._process.matches([texts[place] for place in found])
        return [place for place, is_match in zip(found, matched, strict=True) if is_match]

    def close(self) -> None:
        """Release what the search needed."""
        if self._process is not None:
            self._process.close()


@dataclass(frozen=True, slots=True)
class Census:
    """Number of samples that a run stored and was given, and the ranges of their steps and rewards."""

    kept: int = 0
    seen: int = 0
    steps: tuple[int, int] | None = None
    rewards: tuple[float, float] | None = None
    damage: tuple[str, ...] = ()  # frames that could not be read
    columns: Mapping[str, ColumnSummary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleStepCounts:
    """Number of samples, mean reward and share solved by step, and the share of all; None where it is not known."""

    steps: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    reward: list[float | None] = field(default_factory=list)
    solved: list[float | None] = field(default_factory=list)
    share: float | None = None


@dataclass(frozen=True, slots=True)
class FoundSamples:
    """Samples that match with their places in the journal, the number of all matches, and the census of the run.

    ``unknown`` are columns of the query that no sample has; ``by_step`` is there if the query asks for it.
    """

    samples: list[Sample] = field(default_factory=list)
    matched: int = 0
    census: Census = field(default_factory=Census)
    places: list[str] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    by_step: SampleStepCounts | None = None


def compiled(regex: str) -> re.Pattern[str]:
    """Compile a regular expression; a wrong one raises ValueError."""
    try:
        return re.compile(regex)
    except re.error as error:
        raise ValueError(f"regex {regex!r}: {error}") from None


def step_range(step: Steps | None) -> tuple[int | None, int | None]:
    """Return the first and the last step, both included."""
    if isinstance(step, range):
        # For an empty range, bounds that no step meets.
        return (min(step[0], step[-1]), max(step[0], step[-1])) if len(step) else (1, 0)
    return step if isinstance(step, tuple) else (step, step)


def _number(value: Any, convert: Callable[[Any], Any] = int) -> Any:
    return None if value is None else convert(value)


def _substring(wanted: str) -> tuple[Test, Test]:
    """Return a search for a text that ignores case.

    ``bytes.lower`` changes ASCII only, and ``str.lower`` of all texts takes five times as long. So the beginning of the
    wanted text is searched for as bytes, with its first few letters beyond ASCII in every case.
    """
    begin, rest = _beginning(wanted)
    spelled = [to_bytes("".join(letters)).lower() for letters in itertools.product(*map(_cases, begin))]
    lowered = wanted.lower() if rest else ""
    # A letter beyond ASCII may have an ASCII case, as the dotless i has: its lead is empty, which every text contains.
    leads = {bytes(byte for byte in needle if byte > 127)[:1] for needle in spelled}

    def has_beginning(texts: bytes) -> bool:
        if not any(lead in texts for lead in leads):  # no letter of that script: by far the fastest check
            return False
        small = texts.lower()
        return any(needle in small for needle in spelled)

    return has_beginning, lambda texts: not rest or lowered in texts.decode("utf-8", "surrogatepass").lower()


def _beginning(wanted: str) -> tuple[str, str]:
    """Split a text before its third letter beyond ASCII that has cases."""
    places = [place for place, char in enumerate(wanted) if len(_cases(char)) > 1]
    split = places[MAX_CASED_LETTERS] if len(places) > MAX_CASED_LETTERS else len(wanted)
    return wanted[:split], wanted[split:]


def _cases(char: str) -> list[str]:
    """Return a letter beyond ASCII in each of its one-character cases; other characters as they are."""
    if char.isascii():
        return [char]
    return sorted({case for case in (char, char.lower(), char.upper(), char.title()) if len(case) == 1})


def _expression(pattern: re.Pattern[str]) -> tuple[Test, Test]:
    search, literal = pattern.search, to_bytes(required_literal(pattern))

    def matches(texts: bytes) -> bool:
        # One text at a time, so that ^ and $ are its own ends.
        return any(search(text) for text in texts.decode("utf-8", "surrogatepass").split("\0"))

    return (lambda texts: literal in texts), matches


def required_literal(pattern: re.Pattern[str]) -> str:
    """Return a text that every match of a regular expression contains; empty if none is obvious."""
    if pattern.flags & re.IGNORECASE:
        return ""
    try:
        # The parser of the standard library has no public name.
        return _literals(import_module("re._parser").parse(pattern.pattern, pattern.flags & re.VERBOSE))
    except Exception:  # noqa: BLE001 - another version of Python may have another parser
        return ""


def _literals(parsed: Any) -> str:
    """Return the longest text of characters that follow each other in a parsed expression, outside of all choices."""
    runs = [""]
    for operator, argument in parsed:
        name = str(operator)
        if name == "LITERAL":
            runs[-1] += chr(argument)
        elif name == "SUBPATTERN" and not argument[1] and not argument[2]:  # a group that changes no flags
            runs += [_literals(argument[3]), ""]
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and argument[0] > 0:
            runs += [_literals(argument[2]), ""]
        elif name != "AT":  # a place, such as ^, has no characters
            runs.append("")
    return max(runs, key=len)
