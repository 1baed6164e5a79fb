"""What a rule judges: the case of a run.

What a rule is, how its levels over the rows of a run become findings, and the checks that several rules share.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.catalogue.evidence import ConfigFacts
from barograph.catalogue.spec import Text
from barograph.journal.findings import SEVERITIES
from barograph.metrics.tracks import Levels, Track


@dataclass(frozen=True)
class LoggedAttempt:
    """One start of the training: the steps that it logged."""

    first_step: int
    last_step: int

    @property
    def rows(self) -> int:
        """The number of steps."""
        return self.last_step - self.first_step + 1


@dataclass(frozen=True)
class Case:
    """What a doctor can look at.

    ``refused`` says why a signal is not used although the run logs it. By name, ``notes`` has what a framework
    computes otherwise and ``places`` the part of a name that differs within a family, such as the phase. While a run
    goes on, ``silence`` has the seconds since its last row, and ``pace`` those between two rows.
    """

    tracks: Mapping[str, Track]
    families: Mapping[str, Sequence[Track]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    attempts: Sequence[LoggedAttempt] = ()
    refused: Mapping[str, Text] = field(default_factory=dict)
    notes: Mapping[str, Text] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    silence: float | None = None
    pace: float = math.nan

    def get(self, key: str) -> Track | None:
        """Return a signal; None if the run does not log it."""
        track = self.tracks.get(key)
        return track if track is not None and len(track) else None

    def need(self, *keys: str, reason: str = "not_logged", **facts: Any) -> Track:
        """Return the first of some signals that the run logs; raise UnmeasuredError with the reason if it logs none."""
        track = next((track for key in keys if (track := self.get(key)) is not None), None)
        if track is None:
            raise UnmeasuredError(reason, **facts)
        return track

    def family(self, key: str, part: str) -> dict[str, Track]:
        """Return the signals of a family by a part of their names, such as the phase."""
        return {self.places.get(track.name, {}).get(part, track.name): track for track in self.families.get(key, ())}

    def at(self, key: str, steps: Ints) -> Floats:
        """Return the last value of a signal at or before each step; NaN where there is none."""
        track = self.get(key)
        return np.full(len(steps), math.nan) if track is None else values_at(track.steps, track.finite, steps)

    @cached_property
    def settings(self) -> ConfigFacts:
        """What the config says about the numbers."""
        return ConfigFacts(self.config)

    def setting(self, *names: str) -> Any:
        """Return the value of the first of some settings that the config has, at any depth; None if it has none."""
        return next((value for name in names for value in _settings(self.config, name)), None)

    def upto(self, step: int) -> Case:
        """Return the case as it was when a step was the last one."""
        cut = {key: _before(track, step) for key, track in self.tracks.items()}
        families = {key: [_before(track, step) for track in many] for key, many in self.families.items()}
        return replace(self, tracks=cut, families=families)


def values_at(known: Ints, values: Floats, steps: Ints) -> Floats:
    """Return the last value at or before each step; NaN before the first."""
    if np.array_equal(known, steps):  # as where all signals are logged at every step
        return values.copy()
    places = np.searchsorted(known, steps, "right") - 1
    return np.where(places >= 0, values[np.maximum(places, 0)], math.nan)


def _before(track: Track, step: int) -> Track:
    return track.upto(int(np.searchsorted(track.steps, step, "right")))


def _settings(config: Mapping[str, Any], name: str, depth: int = 0) -> Iterator[Any]:
    if name in config and not isinstance(config[name], Mapping):
        yield config[name]
    for inner in config.values() if depth < 6 else ():
        if isinstance(inner, Mapping):
            yield from _settings(inner, name, depth + 1)


WINDOW = 20  # rows over which a share is taken

MIN_WINDOW = 15  # rows of many groups each, which show it sooner

TINY_GRADIENT = 1e-8

STUCK_STEPS = 300  # without a trend


def spread_of(case: Case) -> tuple[Track, Floats] | None:
    """Return how much the rewards, or advantages, of a batch differ at each row; 0 where they are equal."""
    std = case.get("reward_std")
    if std is not None:
        return std, std.finite
    for low, high in (("reward_min", "reward_max"), ("advantage_min", "advantage_max")):
        least, most = case.get(low), case.get(high)
        if least is not None and most is not None:
            return most, most.finite - values_at(least.steps, least.finite, most.steps)
    return None


def share_without_signal(case: Case) -> tuple[Track, Floats] | None:
    """Return the share of groups, else of batches, with equal rewards over the last rows."""
    groups = case.get("dead_groups")
    if groups is not None:
        return groups, full_window(groups.mean(WINDOW), MIN_WINDOW)
    none, whole = case.get("solved_none"), case.get("solved_all")
    if none is not None and whole is not None:
        both = none.replaced(none.finite + values_at(whole.steps, whole.finite, none.steps))
        return both, full_window(both.mean(WINDOW), MIN_WINDOW)
    spread = spread_of(case)
    return None if spread is None else (spread[0], spread[0].share(spread[1] == 0, WINDOW))


NONE = 0  # the level of rows in which nothing is wrong

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
class RuleReading:
    """What a rule reads from a case: its level at each row of the signal that it is about.

    ``facts`` returns the numbers of a stretch that the rule's sentence has; ``onset`` the row where it began, if that
    is not the first with a level. ``beside`` are further signals to show.
    """

    track: Track
    levels: Levels
    facts: Callable[[Spell], Mapping[str, Any]] = lambda spell: {}
    onset: Callable[[Spell], int] | None = None
    beside: tuple[Track | None, ...] = ()


class UnmeasuredError(Exception):
    """A rule cannot judge a run: ``reason`` names one of its texts or of the common ones, which has ``facts``."""

    def __init__(self, reason: str, **facts: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.facts = facts


Judge = Callable[[Case], RuleReading]


@dataclass(frozen=True)
class Rule:
    """A rule: how it judges, what it needs, and what its findings explain. Its words are in ``rules.toml``.

    A rule that finds nothing in fewer than ``rows`` rows has not looked at enough to call it fine. One that needs no
    signal looks at the rows of any.
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


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((resources.files("barograph.diagnosis") / "rules.toml").read_text("utf-8"))


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


Flags = NDArray[np.bool_]

MIN_DEAD_ROWS = 20  # in which a sensor does not move

MIN_MOVES = 5  # rows in which an update must have moved a signal

MIN_LAG = 30  # rows of the reward before which it is too early to miss a rise

ALMOST_ALL = 0.97  # of the answers: a run may learn although many are cut

RISING_EFFECT = 0.5  # of the reward, in units of its noise

RISING_CHANCE = 0.001


def living(case: Case, key: str) -> Track:
    """Return a signal that is logged and moves; raise UnmeasuredError if it cannot be judged."""
    track = case.need(key)
    if is_dead(case, track):
        raise UnmeasuredError("dead", name=track.name, value=float(track.values[0]))
    return track


def check_moves(case: Case, track: Track, value: float) -> None:
    """Raise UnmeasuredError if a signal that only several updates of a batch can move has always the same value."""
    if len(track) < MIN_MOVES or not track.is_constant or track.values[0] != value:
        return
    updates = case.settings.updates_per_batch
    if updates is None:
        raise UnmeasuredError("one_update", name=track.name, value=value)
    reason = "one_update_set" if updates.value == 1 else "unmoved"
    raise UnmeasuredError(reason, name=track.name, value=value, updates=updates.value, settings=updates.settings)


def is_dead(case: Case, track: Track) -> bool:
    """Return whether a sensor never moves while the reward does: it is not computed, or cannot move by design."""
    reward = case.get("reward")
    return len(track) >= MIN_DEAD_ROWS and track.is_constant and reward is not None and not reward.is_constant


def of_reward(case: Case, steps: Ints, condition: Callable[[Track], Flags]) -> Flags:
    """Return whether a condition on the rows of the reward held, at each step; nowhere if it is not logged."""
    reward = case.get("reward")
    return np.zeros(len(steps), bool) if reward is None else held_at(reward, condition(reward), steps)


def is_learning(case: Case, steps: Ints) -> Flags:
    """Return whether the reward had clearly risen, at each step."""
    return of_reward(
        case, steps, lambda reward: (reward.trend.effect > RISING_EFFECT) & (reward.trend.chance < RISING_CHANCE)
    )


def lags(case: Case, steps: Ints) -> Flags:
    """Return whether the reward should have risen by now and has not, at each step."""
    reward = case.get("reward")
    rows = np.full(len(steps), MIN_LAG) if reward is None else np.searchsorted(reward.steps, steps, "right")
    found: Flags = (rows >= MIN_LAG) & ~is_learning(case, steps)
    return found


def is_falling(case: Case, steps: Ints) -> Flags:
    """Return whether the reward had clearly fallen, at each step."""
    return of_reward(case, steps, lambda reward: (reward.trend.effect < -1.0) & (reward.trend.chance < 0.01))


def has_lost(case: Case, steps: Ints) -> Flags:
    """Return whether the reward has lost half of what it had clearly gained, at each step."""

    def lost(reward: Track) -> Flags:
        level, start = reward.mean(10), reward.first(5)
        best = np.fmax.accumulate(level)
        return (best - level > 0.5 * (best - start)) & (best - start > 3 * noise(reward.finite))

    return of_reward(case, steps, lost)


def noise(values: Floats) -> float:
    """Return the standard deviation of single rows around their neighbours."""
    differences = np.diff(values)
    differences = differences[np.isfinite(differences)]
    return float(np.std(differences) / np.sqrt(2)) if len(differences) else 0.0


def held_at(track: Track, condition: Flags, steps: Ints) -> Flags:
    """Return whether a condition on the rows of a track held at the last of them, at each step."""
    found: Flags = values_at(track.steps, condition.astype(np.float64), steps) == 1
    return found


def began(condition: Flags, spell: Spell) -> int:
    """Return the row since which a weaker condition has held without a break until the spell."""
    broken = np.flatnonzero(~condition[: spell.first])
    return int(broken[-1]) + 1 if len(broken) else 0


def full_window(values: Floats, rows: int) -> Floats:
    """Return a rolling statistic without the first rows, whose windows are not full."""
    found = values.copy()
    found[: min(rows - 1, len(found))] = np.nan
    return found


def after(rows: int, start: int) -> Flags:
    """Return which of some rows come after the first ``start``."""
    return np.arange(rows) >= start


NOTHING = Text("", "")


def sign_note(case: Case, key: str, en: str, zh: str) -> Text:
    """Return a sentence about a coefficient that is negative, and so rewards what it should limit; else nothing."""
    track = case.get(key)
    value = np.nan if track is None else track.first(len(track))
    if track is None or not value < 0:
        return NOTHING
    return Text(f" {track.name} is {value:.3g}: {en}.", f"{track.name} 为 {value:.3g}：{zh}。")


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
