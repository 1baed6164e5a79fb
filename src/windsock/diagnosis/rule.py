"""What a rule is, and how its levels over the rows of a run become findings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.spec import Text
from windsock.diagnosis.case import Case
from windsock.diagnosis.tracks import Levels, Track
from windsock.findings import SEVERITIES

NONE, INFO, WARNING, CRITICAL = range(4)
CLEAN_ROWS = 10  # after which a finding is closed
MIN_ROWS = 20  # before something can be called fine


@dataclass(frozen=True)
class Spell:
    """A stretch of rows in which a rule has a level. It is open if it lasts until now."""

    first: int
    last: int
    level: int
    is_open: bool

    @property
    def rows(self) -> slice:
        """Its rows, to select them."""
        return slice(self.first, self.last + 1)


@dataclass(frozen=True)
class Reading:
    """What a rule reads from a case: its level at each row of the signal that it is about.

    ``facts`` returns the numbers of a stretch that the rule's sentence has; ``onset`` the row where it began, if that
    is not the first with a level. ``beside`` are further signals to show.
    """

    track: Track
    levels: Levels
    facts: Callable[[Spell], Mapping[str, Any]] = lambda spell: {}
    onset: Callable[[Spell], int] | None = None
    beside: tuple[Track | None, ...] = ()


@dataclass(frozen=True)
class Unmeasured:
    """Why a rule cannot judge a run: a reason of the rule's texts, and what that sentence has."""

    reason: str
    facts: Mapping[str, Any]


Judge = Callable[[Case], Reading | Unmeasured | None]


@dataclass(frozen=True)
class Rule:
    """A rule: how it judges, what it needs, and what its findings explain. Its words are in ``rules.toml``.

    A rule that finds nothing in fewer than ``rows`` rows has not looked at enough to call it fine.
    """

    id: str
    needs: tuple[str, ...]
    judge: Judge
    explains: tuple[str, ...]
    persist: int
    words: Words
    rows: int = MIN_ROWS

    def record(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        words = self.words
        return {
            "rule": self.id,
            "title": asdict(words.title),
            "sees": asdict(words.sees),
            "advice": [asdict(text) for text in words.advice],
            "needs": list(self.needs),
            "explains": list(self.explains),
            "sources": list(words.sources),
        }


@dataclass(frozen=True)
class Words:
    """The texts of a rule: its title, what it sees, its sentence about a finding, reasons, advice and sources."""

    title: Text
    sees: Text
    says: Text
    cannot: Mapping[str, Text]
    advice: tuple[Text, ...]
    sources: tuple[str, ...]


RULES: dict[str, Rule] = {}


def rule(
    id: str, *needs: str, explains: tuple[str, ...] = (), persist: int = 5, rows: int = MIN_ROWS
) -> Callable[[Judge], Judge]:
    """Register a function as a rule. It counts after ``persist`` rows in a row with a level."""

    def register(judge: Judge) -> Judge:
        RULES[id] = Rule(id, needs, judge, explains, persist, words_of(id), rows)
        return judge

    return register


def unmeasured(reason: str, **facts: Any) -> Unmeasured:
    """Return that a rule cannot judge, by a reason in its texts or in the common ones."""
    return Unmeasured(reason, facts)


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((resources.files("windsock.diagnosis") / "rules.toml").read_text("utf-8"))


def words_of(id: str) -> Words:
    """Return the texts of a rule."""
    found = _texts()["rules"][id]
    common = _texts()["cannot"]
    return Words(
        title=_text(found["title"]),
        sees=_text(found["sees"]),
        says=_text(found["says"]),
        cannot={name: _text(one) for name, one in {**common, **found.get("cannot", {})}.items()},
        advice=tuple(_text(one) for one in found.get("advice", ())),
        sources=tuple(found.get("sources", ())),
    )


def _text(pair: list[str]) -> Text:
    return Text(*pair)


def signal_words(keys: Iterable[str]) -> Text:
    """Return the words for signals, as in "the entropy or the KL"."""
    words = [_text(_texts()["signals"][key]) for key in keys]
    return Text(_either([one.en for one in words], ", ", " or "), _either([one.zh for one in words], "、", "或"))


def topic_of(reason: str, missing: Collection[str]) -> Text | None:
    """Return what a reason has in common with others; of signals that are not logged, ``missing`` are the keys."""
    keys = set(missing) if reason == "not_logged" else set()
    for topic in _texts()["topics"]:
        if reason in topic.get("reasons", ()) or keys.intersection(topic.get("signals", ())):
            return _text(topic["text"])
    return None


def _either(words: list[str], comma: str, last: str) -> str:
    return last.join([comma.join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def filled(text: Text, facts: Mapping[str, Any]) -> Text:
    """Return a sentence with its numbers, in both languages."""
    return Text(*(sentence.format(**_shown(facts, lang)) for sentence, lang in ((text.en, "en"), (text.zh, "zh"))))


def _shown(facts: Mapping[str, Any], lang: str) -> dict[str, Any]:
    shown = {name: number(value) if isinstance(value, float) else value for name, value in facts.items()}
    return {name: value.get(lang) if isinstance(value, Text) else value for name, value in shown.items()}


def number(value: float) -> str:
    """Return a number with three digits."""
    return f"{value + 0.0:.3g}"  # -0.0 is 0


def spells(levels: Levels, persist: int, clean: int = CLEAN_ROWS) -> Iterator[Spell]:
    """Yield the stretches in which a level holds for ``persist`` rows, each until ``clean`` rows are without one."""
    if not levels.any():
        return
    edges = np.flatnonzero(np.diff(levels != NONE, prepend=False, append=False)).tolist()
    first = last = -1
    for start, stop in zip(edges[::2], edges[1::2], strict=True):  # rows with a level, one after the other
        if first >= 0 and start - last > clean:
            yield Spell(first, last, int(levels[first : last + 1].max()), False)
            first = -1
        if first < 0 and stop - start >= persist:
            first = start
        if first >= 0:
            last = stop - 1
    if first >= 0 and len(levels) - last > clean:
        yield Spell(first, last, int(levels[first : last + 1].max()), False)
    elif first >= 0:  # how bad it is now, not how bad it was
        yield Spell(first, last, int(levels[max(first, last - clean + 1) :].max()), True)


def graded(rows: int, **conditions: NDArray[np.bool_]) -> Levels:
    """Return the levels of rows by conditions named ``info``, ``warning`` and ``critical``; the highest counts."""
    found = np.zeros(rows, np.int8)
    for level, name in enumerate(SEVERITIES):
        if name in conditions:
            found[np.asarray(conditions[name], bool)] = level
    return found
