"""What to look for among samples, and what was found."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from windsock.model import Sample

Steps = int | range | tuple[int | None, int | None]
PLAIN = re.compile(r"[^\\.^$*+?{}\[\]()|]|\\[^A-Za-z0-9]", re.DOTALL)  # one character that stands for itself
LITERALS = re.compile(f"(?:{PLAIN.pattern})*", re.DOTALL)
FEW_LETTERS = 2  # of which every spelling is tried
SORTS = ("step", "reward", "advantage", "length", "time")


@dataclass(frozen=True, slots=True)
class Query:
    """Which samples are wanted; all that is given must hold.

    ``step`` is one, a range, or a pair of a first and a last one, both included and either of them None for open.
    Where a sample has no reward, its only component counts. ``grep`` is looked for regardless of case, ``regex`` as it
    stands, in prompt, completion and messages. ``sort`` is one of ``SORTS``, with a minus for the largest first; what
    has no such value comes last.
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
        """Yield what must hold of the columns of the index, as SQL with its value."""
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

    def holds(self) -> Callable[[bytes], bool] | None:
        """Return what tells whether texts, as the index keeps them, hold what is looked for; None: all do."""
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
    """What samples of a run there are: how many, of how many offered, and over which steps and rewards."""

    kept: int = 0
    seen: int = 0
    steps: tuple[int, int] | None = None
    rewards: tuple[float, float] | None = None
    damage: tuple[str, ...] = ()  # what could not be read


@dataclass(frozen=True, slots=True)
class Found:
    """The samples asked for, how many match in all, and what there is."""

    samples: list[Sample] = field(default_factory=list)
    matched: int = 0
    census: Census = field(default_factory=Census)


def compiled(regex: str) -> re.Pattern[str]:
    """Return a regular expression, or say what is wrong with it."""
    try:
        return re.compile(regex)
    except re.error as problem:
        raise ValueError(f"regex {regex!r}: {problem}") from None


def to_bytes(text: str) -> bytes:
    """Return any text, lone surrogates included, as the index keeps it."""
    return text.encode("utf-8", "surrogatepass")


def step_range(step: Steps | None) -> tuple[int | None, int | None]:
    """Return the first and the last step that are meant, both included."""
    if isinstance(step, range):
        return (min(step[0], step[-1]), max(step[0], step[-1])) if len(step) else (1, 0)
    return step if isinstance(step, tuple) else (step, step)


def _given(condition: str, value: Any, convert: Callable[[Any], Any] = int) -> Iterator[tuple[str, Any]]:
    """Yield a condition where there is a value for it, as a type that SQLite knows."""
    if value is not None:
        yield condition, convert(value)


def _substring(wanted: str) -> Callable[[bytes], bool]:
    """Look for a text regardless of case.

    Bytes know the case of ASCII alone, and asking Unicode for that of a whole text takes five times as long. So the
    beginning of what is wanted is looked for as bytes, in every case that its first few other letters can have.
    """
    begin, rest = _beginning(wanted)
    spelled = [to_bytes("".join(letters)).lower() for letters in itertools.product(*map(_cases, begin))]
    if len(spelled) == 1 and not rest:
        return lambda texts, needle=spelled[0]: needle in texts.lower()  # type: ignore[misc]
    lowered = wanted.lower() if rest else ""
    # A letter beyond ASCII may have a case within it, as the dotless i has: its lead is empty, and lies in every text.
    leads = {bytes(byte for byte in needle if byte > 127)[:1] for needle in spelled}

    def holds(texts: bytes) -> bool:
        if not any(lead in texts for lead in leads):  # no letter of that script: by far the fastest to tell
            return False
        small = texts.lower()
        found = any(needle in small for needle in spelled)
        return found and (not rest or lowered in texts.decode("utf-8", "surrogatepass").lower())

    return holds


def _beginning(wanted: str) -> tuple[str, str]:
    """Cut a text before its third letter beyond ASCII that has a case."""
    places = [place for place, char in enumerate(wanted) if len(_cases(char)) > 1]
    cut = places[FEW_LETTERS] if len(places) > FEW_LETTERS else len(wanted)
    return wanted[:cut], wanted[cut:]


def _cases(char: str) -> list[str]:
    """Return a letter beyond ASCII in each of its cases; any other character, and what grows in one, as it is."""
    if char.isascii():
        return [char]
    return sorted({case for case in (char, char.lower(), char.upper(), char.title()) if len(case) == 1})


def _expression(pattern: re.Pattern[str]) -> Callable[[bytes], bool]:
    search, begin = pattern.search, to_bytes(leading_literal(pattern.pattern))

    def holds(texts: bytes) -> bool:
        if begin not in texts:  # much faster to tell, and enough for most
            return False
        return any(search(text) for text in texts.decode("utf-8", "surrogatepass").split("\0"))

    return holds


def leading_literal(regex: str) -> str:
    """Return a text with which every match of a regular expression begins; empty where none is plain to see."""
    if "|" in regex:
        return ""
    plain = LITERALS.match(regex)
    characters = PLAIN.findall(plain[0]) if plain else []
    if plain and regex[plain.end() : plain.end() + 1] in tuple("*+?{"):  # of the last, it may be none or many
        characters = characters[:-1]
    return "".join(character[-1] for character in characters)
