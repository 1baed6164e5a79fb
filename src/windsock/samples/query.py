"""Queries of samples and their results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from windsock.model import Sample

Steps = int | range | tuple[int | None, int | None]
PLAIN = re.compile(r"[^\\.^$*+?{}\[\]()|]|\\[^A-Za-z0-9]", re.DOTALL)  # one literal character
LITERALS = re.compile(f"(?:{PLAIN.pattern})*", re.DOTALL)
MAX_CASED_LETTERS = 2  # letters beyond ASCII of which every case is tried
SORTS = ("step", "reward", "advantage", "length", "time")


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions on samples; all that are given must be true.

    ``step`` is a step, a range, or a pair of the first and the last one, both included, either None for no bound. The
    reward of a sample without a total is its only component. ``grep`` ignores case, ``regex`` does not; both search
    prompt, completion and messages. ``sort`` is one of ``SORTS``, with a minus for the largest first; samples without
    the value come last.
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
    sort: str = "step"

    def __post_init__(self) -> None:
        if self.sort.removeprefix("-") not in SORTS:
            raise ValueError(f"sort: expected one of {', '.join(SORTS)}, or one with a minus, got {self.sort!r}")
        if self.regex is not None:
            compiled(self.regex)

    def conditions(self) -> Iterator[tuple[str, Any]]:
        """Yield the conditions on the index's columns, as SQL with its value."""
        first, last = step_range(self.step)
        yield from _given("step >= ?", first)
        yield from _given("step <= ?", last)
        if isinstance(self.step, range) and abs(self.step.step) != 1:
            yield f"(step - ?) % {abs(self.step.step)} = 0", self.step.start
        yield from _given("reward >= ?", self.min_reward, float)
        yield from _given("reward <= ?", self.max_reward, float)
        yield from _given("length >= ?", self.min_length)
        yield from _given("length <= ?", self.max_length)
        yield from _given("weight_version = ?", self.weight_version)
        for name in ("task", "group", "run", "finish_reason"):
            yield from _given(f'"{name}" = ?', getattr(self, name), lambda value: to_bytes(str(value)))

    def text_filter(self) -> Callable[[bytes], bool] | None:
        """Return a function that searches texts as the index stores them; None if no text is searched for."""
        tests = []
        if self.grep:
            tests.append(_substring(self.grep))
        if self.regex is not None:
            tests.append(_expression(compiled(self.regex)))
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else lambda texts: all(test(texts) for test in tests)


@dataclass(frozen=True, slots=True)
class Census:
    """Number of samples that a run stored and was given, and the ranges of their steps and rewards."""

    kept: int = 0
    seen: int = 0
    steps: tuple[int, int] | None = None
    rewards: tuple[float, float] | None = None
    damage: tuple[str, ...] = ()  # frames that could not be read


@dataclass(frozen=True, slots=True)
class Found:
    """Samples that match, the number of all matches, and the census of the run."""

    samples: list[Sample] = field(default_factory=list)
    matched: int = 0
    census: Census = field(default_factory=Census)


def compiled(regex: str) -> re.Pattern[str]:
    """Compile a regular expression; a wrong one raises ValueError."""
    try:
        return re.compile(regex)
    except re.error as error:
        raise ValueError(f"regex {regex!r}: {error}") from None


def to_bytes(text: str) -> bytes:
    """Encode a text, lone surrogates included, as the index stores it."""
    return text.encode("utf-8", "surrogatepass")


def step_range(step: Steps | None) -> tuple[int | None, int | None]:
    """Return the first and the last step, both included."""
    if isinstance(step, range):
        # For an empty range, bounds that no step meets.
        return (min(step[0], step[-1]), max(step[0], step[-1])) if len(step) else (1, 0)
    return step if isinstance(step, tuple) else (step, step)


def _given(condition: str, value: Any, convert: Callable[[Any], Any] = int) -> Iterator[tuple[str, Any]]:
    """Yield a condition if it has a value, converted to a type of SQLite."""
    if value is not None:
        yield condition, convert(value)


def _substring(wanted: str) -> Callable[[bytes], bool]:
    """Return a search for a text that ignores case.

    ``bytes.lower`` changes ASCII only, and ``str.lower`` of all texts takes five times as long. So the beginning of the
    wanted text is searched for as bytes, with its first few letters beyond ASCII in every case.
    """
    begin, rest = _beginning(wanted)
    spelled = [to_bytes("".join(letters)).lower() for letters in itertools.product(*map(_cases, begin))]
    if len(spelled) == 1 and not rest:
        return lambda texts, needle=spelled[0]: needle in texts.lower()  # type: ignore[misc]
    lowered = wanted.lower() if rest else ""
    # A letter beyond ASCII may have an ASCII case, as the dotless i has: its lead is empty, which every text contains.
    leads = {bytes(byte for byte in needle if byte > 127)[:1] for needle in spelled}

    def contains(texts: bytes) -> bool:
        if not any(lead in texts for lead in leads):  # no letter of that script: by far the fastest check
            return False
        small = texts.lower()
        found = any(needle in small for needle in spelled)
        return found and (not rest or lowered in texts.decode("utf-8", "surrogatepass").lower())

    return contains


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


def _expression(pattern: re.Pattern[str]) -> Callable[[bytes], bool]:
    search, begin = pattern.search, to_bytes(leading_literal(pattern.pattern))

    def contains(texts: bytes) -> bool:
        if begin not in texts:  # much faster, and enough for most texts
            return False
        # One text at a time, so that ^ and $ are its own ends.
        return any(search(text) for text in texts.decode("utf-8", "surrogatepass").split("\0"))

    return contains


def leading_literal(regex: str) -> str:
    """Return a text with which every match of a regular expression begins; empty if none is obvious."""
    # Another branch may begin differently, wherever the bar is.
    if "|" in regex:
        return ""
    plain = LITERALS.match(regex)
    characters = PLAIN.findall(plain[0]) if plain else []
    if plain and regex[plain.end() : plain.end() + 1] in tuple("*+?{"):  # the last character may be repeated or absent
        characters = characters[:-1]
    return "".join(character[-1] for character in characters)
