"""Choice of the samples of a step that are stored, made while they are submitted.

The most informative are kept, within a budget of samples and of bytes (of JSON, before compression). Of both,

- a quarter is for extremes: a sixteenth each for the highest rewards, the lowest rewards and the largest advantages by
  absolute value, a thirty-second each for the longest and the shortest completions. NaN is the most extreme of all;
- an eighth is for completions that were truncated (``finish_reason`` is ``length``);
- a half is for complete groups: samples that share ``group``, else ``task``, else the prompt. They are chosen by a hash
  of the task's or the group's name, so that every process, and every step with the same prompts, keeps the same ones;
- the rest, an eighth or more, is for random samples, so that ordinary ones are seen too.

The first sample of each kind of extreme is kept whatever its size. The unused part of a share goes to random samples,
and a step within its budget is kept completely. Extremes, truncated samples and groups do not depend on the order of
arrival: a share contains the first samples of a fixed ranking that fit, and a sample that once did not fit excludes all
that rank behind it. Memory is bounded by a small multiple of the budget.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import takewhile
from operator import itemgetter
from typing import Any
from zlib import crc32

from barograph.base.files.compression import MAX_DIRECT, MAX_VALUES, count_values
from barograph.base.model import Sample, total_reward
from barograph.journal.format.samples import MAX_SAMPLE_BYTES, encode, is_readable, to_json

MIN_CHARACTERS = 64  # of a shortened text; if that is still too long, all texts are left out
SHRINK = 0.7
TOKENS = ("tokens", "token_values", "top_logprobs")


def shortened(text: str, limit: int) -> str:
    """Return the beginning and the end of a text, about ``limit`` characters together, with a note between them."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - 40)  # the note takes about as much
    head = kept - kept // 2
    return f"{text[:head]}\n{_note(len(text) - kept)}\n{text[len(text) - kept // 2 :]}"


def shortened_sample(text: bytes, size: int) -> bytes:
    """Return a sample's JSON with its longest texts shortened until it has at most ``size`` bytes.

    Its tokens are left out: a part of them would not be of the text that is left. Messages and components of the reward
    are left out if they have more values than readers accept. If all that is not enough, only its numbers and a note
    are left, which may still be larger.
    """
    record = {name: value for name, value in json.loads(text).items() if name not in TOKENS}
    text = to_json(record)
    if len(text) > MAX_DIRECT and count_values(text) >= MAX_VALUES:
        flat = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
        record = {"completion": _note(len(text)), **flat}
        text = to_json(record)
    limit = size
    # By trial: escapes and characters of several bytes make the JSON longer than the texts by an unknown factor.
    while len(text) > size and limit >= MIN_CHARACTERS:
        text = to_json(_limited(record, limit))
        limit = int(limit * SHRINK)
    return text if len(text) <= size else _without_texts(record, len(text))


def _limited(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, list):
        return [_limited(inner, limit) for inner in value]
    if isinstance(value, Mapping):
        return {name: _limited(inner, limit) for name, inner in value.items()}
    return value


def _without_texts(record: Mapping[str, Any], size: int) -> bytes:
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    return to_json({"completion": _note(size), **numbers})


def _note(left_out: int) -> str:
    return f"… {left_out:,} characters left out …"


Key = tuple[float, int, int]  # a value, or 0; a hash that breaks ties; the place of arrival

GroupKey = tuple[int, int]  # hash of the task's name, which lasts over steps, and of the group's own

NO_GROUP: GroupKey = (0, 0)  # the sample has no group, task or prompt

TRUNCATED = "length"

MASK = 2**64 - 1

_rank = itemgetter(0)


@dataclass(frozen=True, slots=True)
class SampleBudget:
    """Number of samples and bytes of a step that are kept."""

    count: int
    bytes: int

    def share(self, parts: int, least: int = 0) -> SampleBudget:
        """Return one of ``parts`` equal shares, of at least ``least`` samples."""
        return SampleBudget(max(least, self.count // parts), self.bytes // parts)

    def fits(self, count: int, size: int) -> bool:
        """Return whether so many samples and bytes are within the budget."""
        return count <= self.count and size <= self.bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """A sample in at least one share: its JSON, its number in the order of arrival, its group, and its id if any."""

    text: bytes
    place: int
    group: GroupKey
    id: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the budget that it takes, with a comma."""
        return len(self.text) + 1


class Best:
    """The first samples of a ranking that fit the budget, and the very first in any case."""

    def __init__(self, budget: SampleBudget) -> None:
        self._budget = budget
        self._ranked: list[tuple[Key, Kept]] = []
        self._size = 0
        # The rank of a sample that did not fit. Samples behind it stay out even where room is left: with them the
        # choice would depend on the order of arrival.
        self._bar: Key | None = None

    def __iter__(self) -> Iterator[Kept]:
        return (kept for _, kept in self._ranked)

    def wants(self, key: Key) -> bool:
        """Return whether a sample of that rank might be kept; its size is not known yet."""
        return self._budget.count > 0 and (self._bar is None or key < self._bar)

    def add(self, key: Key, kept: Kept) -> None:
        """Add a sample, and drop the last ones that no longer fit."""
        self._ranked.insert(bisect_right(self._ranked, key, key=_rank), (key, kept))
        self._size += kept.size
        while not self._budget.fits(len(self._ranked), self._size) and len(self._ranked) > 1:
            self._bar, last = self._ranked.pop()
            self._size -= last.size


class SampleGroup:
    """The members of a group: their number, and those that fit one budget."""

    def __init__(self, budget: SampleBudget) -> None:
        self.count = self.size = 0
        self.members = Best(budget)


class Groups:
    """The complete groups that come first by their hash; if the first alone is too large, a part of it."""

    def __init__(self, budget: SampleBudget) -> None:
        self._budget = budget
        self._groups: dict[GroupKey, SampleGroup] = {}
        self._order: list[GroupKey] = []
        self._count = self._size = 0
        self._bar: GroupKey | None = None

    def __iter__(self) -> Iterator[list[Kept]]:
        return (list(self._groups[key].members) for key in self._order)

    def wants(self, group: GroupKey, member: Key) -> bool:
        """Count a member, and return whether it might be kept."""
        if group == NO_GROUP or (self._bar is not None and group >= self._bar):
            return False
        if group not in self._groups:
            self._groups[group] = SampleGroup(self._budget)
            insort(self._order, group)
        found = self._groups[group]
        # Members that are not kept count too: a group fits or does not fit as a whole.
        found.count += 1
        self._count += 1
        self._drop_last()
        return group in self._groups and (found.count <= self._budget.count or found.members.wants(member))

    def add(self, group: GroupKey, member: Key, kept: Kept) -> None:
        """Add a member that might be kept."""
        found = self._groups[group]
        found.size += kept.size
        self._size += kept.size
        if found.members.wants(member):
            found.members.add(member, kept)
        self._drop_last()

    def _drop_last(self) -> None:
        while not self._budget.fits(self._count, self._size) and len(self._order) > 1:
            self._bar = self._order.pop()
            last = self._groups.pop(self._bar)
            self._count -= last.count
            self._size -= last.size


class SampleChoice:
    """The samples of one step that are kept."""

    def __init__(self, budget: SampleBudget) -> None:
        self.seen = 0
        self.too_large = 0  # samples that no reader would accept; they are shortened
        self._budget = budget
        sixteenth, smaller = budget.share(16, 1), budget.share(32, 1)
        self._highest, self._lowest, self._steepest = Best(sixteenth), Best(sixteenth), Best(sixteenth)
        self._longest, self._shortest = Best(smaller), Best(smaller)
        self._truncated = Best(budget.share(8))
        self._groups = Groups(budget.share(2, 1))
        self._random = Best(budget)

    @property
    def _extremes(self) -> tuple[Best, ...]:
        return self._highest, self._lowest, self._steepest, self._longest, self._shortest

    def consider(self, sample: Sample, place: int) -> None:
        """Add a sample to the shares that want it; ``place`` is its number in the order of arrival."""
        tie, group = _content_hash(sample), _group_key(sample)
        self.seen += 1
        wanted = [(share, key) for share, key in self._ranks(sample, tie, place) if share.wants(key)]
        member = (0.0, tie, place)
        in_group = self._groups.wants(group, member)
        if not wanted and not in_group:
            return
        # Encoded only here: no share wants most samples of a large step.
        kept = Kept(self._encoded(sample), place, group, sample.id)
        for share, key in wanted:
            share.add(key, kept)
        if in_group:
            self._groups.add(group, member, kept)

    def chosen(self, without: Container[str | None] = ()) -> list[bytes]:
        """Return the kept samples as JSON, groups together, in the order of arrival, but for some ids."""
        picked = self._first_extremes()
        count, size = len(picked), sum(kept.size for kept in picked.values())
        for some in self._in_turn():
            fresh = {kept.place: kept for kept in some if kept.place not in picked}
            more = sum(kept.size for kept in fresh.values())
            if self._budget.fits(count + len(fresh), size + more):
                picked.update(fresh)
                count, size = count + len(fresh), size + more
        return [kept.text for kept in _together(picked.values()) if kept.id not in without]

    def _ranks(self, sample: Sample, tie: int, place: int) -> Iterator[tuple[Best, Key]]:
        """Yield every share that a sample may be in, with its rank there."""
        reward, advantage = total_reward(sample), sample.advantage
        # Characters stand in for tokens where the length is not given.
        length = len(sample.completion) if sample.length is None else sample.length
        if reward is not None:
            yield self._highest, (_descending(reward), tie, place)
            # NaN is among the highest already.
            if not math.isnan(reward):
                yield self._lowest, (reward, tie, place)
        if advantage is not None:
            yield self._steepest, (_descending(abs(advantage)), tie, place)
        yield self._longest, (-length, tie, place)
        yield self._shortest, (length, tie, place)
        if sample.finish_reason == TRUNCATED:
            yield self._truncated, (0.0, tie, place)
        # Not by ``random``: a seeded training would draw other numbers.
        yield self._random, (0.0, _scrambled(place), place)

    def _encoded(self, sample: Sample) -> bytes:
        text = encode(sample)
        if len(text) < self._budget.bytes and is_readable(text):
            return text
        self.too_large += not is_readable(text)
        return shortened_sample(text, min(self._budget.bytes - 1, MAX_SAMPLE_BYTES))

    def _first_extremes(self) -> dict[int, Kept]:
        """Return the first sample of every kind of extreme; if they do not fit together, with their texts shortened."""
        firsts = {kept.place: kept for share in self._extremes for kept in list(share)[:1]}
        picked = dict(list(firsts.items())[: self._budget.count])
        if sum(kept.size for kept in picked.values()) <= self._budget.bytes:
            return picked
        room = self._budget.bytes // len(picked) - 1
        shortened = (replace(kept, text=shortened_sample(kept.text, room)) for kept in picked.values())
        return {kept.place: kept for kept in shortened if kept.size <= room + 1}

    def _in_turn(self) -> Iterator[list[Kept]]:
        """Yield lists of samples, the most wanted first; a list is added completely or not at all."""
        for number, group in enumerate(self._groups):
            yield from [group] if number else [group, *_one_by_one(group)]
        for share in (*self._extremes, self._truncated, self._random):
            yield from _one_by_one(share)


def _together(some: Iterable[Kept]) -> list[Kept]:
    """Return samples in the order of arrival, with those of a group behind its first."""
    firsts: dict[GroupKey, int] = {}
    ordered = sorted(some, key=lambda kept: kept.place)
    for kept in ordered:
        firsts.setdefault(kept.group, kept.place)
    return sorted(ordered, key=lambda kept: kept.place if kept.group == NO_GROUP else firsts[kept.group])


def _one_by_one(some: Iterable[Kept]) -> list[list[Kept]]:
    return [[kept] for kept in some]


def _descending(value: float) -> float:
    """Return a rank with the largest value first; NaN ranks like infinity."""
    return -math.inf if math.isnan(value) else -value


def _content_hash(sample: Sample) -> int:
    """Return a hash of a sample's texts, which depends neither on the process nor on the order of arrival."""
    texts = (sample.task, sample.group, sample.run, sample.prompt, sample.completion, str(sample.messages or ""))
    # A short hash is enough, as it only decides between equals; it is computed for every sample.
    return crc32("\0".join(text or "" for text in texts).encode("utf-8", "surrogatepass"))


def _group_key(sample: Sample) -> GroupKey:
    """Return the hashes by which a group is ranked and identified; the task's comes first, as it lasts over steps."""
    own = sample.group or sample.task or sample.prompt
    if not own:
        own = "".join(str(message) for message in takewhile(_is_prompt, sample.messages))
    return (_hash(sample.task or own), _hash(own)) if own else NO_GROUP


def _is_prompt(message: Mapping[str, Any]) -> bool:
    return message.get("role") != "assistant"


def _hash(text: str) -> int:
    # Python's own hash of a string differs from process to process.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _scrambled(number: int) -> int:
    """Return a pseudo-random number for a number (the finaliser of SplitMix64)."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31
