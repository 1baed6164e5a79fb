"""Patterns: names with placeholders, and a trie by path segment that finds the patterns that a name fits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from windsock.catalogue.compiled import load
from windsock.catalogue.spec import Placeholder, Text, placeholders

Leaf = TypeVar("Leaf")
Filled = tuple[tuple[str, str], ...]


_PIECE = re.compile(r"\{(\w+)\}")
MAX_GENERALITY = 20  # more than twice the segments of any pattern
_GENERALITY = {"choice": 0, "digits": 1, "one": 2, "many": 3}


def declared_placeholder(name: str) -> Placeholder | None:
    """Return a placeholder of ``placeholders.toml``; None for one that a user's own metric has."""
    return load().placeholders.get(name)


def kind(name: str) -> str:
    """Return the kind of a placeholder; a user's own stands for one segment."""
    placeholder = declared_placeholder(name)
    return "one" if placeholder is None else placeholder.kind


def choices(name: str) -> dict[str, Text]:
    """Return the values that a placeholder of kind choice may have, with their meaning."""
    placeholder = declared_placeholder(name)
    return {} if placeholder is None else dict(placeholder.choices)


def fill(pattern: str, filled: Filled) -> str:
    """Replace placeholders with values; those without a value stay."""
    for name, value in filled:
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def expand(pattern: str) -> Iterator[tuple[str, Filled]]:
    """Yield the pattern once per combination of its choices, with the chosen values."""
    names = [name for name in placeholders(pattern) if kind(name) == "choice"]
    if not names:
        yield pattern, ()
        return
    # Choices are written out as literal segments, which a look-up finds with one access to a dict.
    for values in itertools.product(*map(choices, names)):
        chosen = tuple(zip(names, values, strict=True))
        yield fill(pattern, chosen), chosen


def rank(pattern: str) -> tuple[int, tuple[int, ...]]:
    """Return how general a pattern is; the smaller rank is the more specific one.

    Where a placeholder may stand for any number of segments, a pattern with more segments is more specific.
    """
    if "{" not in pattern:
        return 0, (0,) * (pattern.count("/") + 1)
    segments = pattern.split("/")
    kinds = tuple(_generality(segment) for segment in segments)
    room = max(MAX_GENERALITY - 2 * len(segments), 0) if any(map(_is_many, segments)) else 0
    return sum(kinds) + room, kinds


def _generality(segment: str) -> int:
    if "{" not in segment:
        return 0
    whole = _PIECE.fullmatch(segment)
    if whole is None:
        return 1
    return _GENERALITY[kind(whole[1])]


@lru_cache(maxsize=1 << 12)
def is_open(pattern: str) -> bool:
    """Return whether the last segment of a pattern may be anything."""
    whole = _PIECE.fullmatch(pattern.rpartition("/")[2])
    return whole is not None and kind(whole[1]) in ("one", "many")


_NO_LIMIT = 1 << 30


def _is_many(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}") and kind(segment[1:-1]) == "many"


class _Node(Generic[Leaf]):
    """A node of the trie. A name has at least ``least`` and at most ``most`` segments below it."""

    __slots__ = ("digits", "has_placeholders", "least", "leaves", "literal", "many", "mixed", "most", "one")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[Leaf]] = {}
        # By the first character of the segment, which spares most expressions; "" where it is a placeholder's.
        self.mixed: dict[str, dict[str, tuple[re.Pattern[str], _Node[Leaf]]]] = {}
        self.digits: dict[str, _Node[Leaf]] = {}
        self.one: dict[str, _Node[Leaf]] = {}
        self.many: dict[str, _Node[Leaf]] = {}
        self.leaves: list[tuple[Leaf, Filled]] = []
        self.least, self.most = _NO_LIMIT, 0
        self.has_placeholders = False

    def widen(self, below: int, endless: bool) -> None:
        """Widen the limits for a pattern with so many segments below this node."""
        if below < self.least:
            self.least = below
        if endless:
            self.most = _NO_LIMIT
        elif below > self.most:
            self.most = below

    def child(self, segment: str) -> _Node[Leaf]:
        """Return the node below, for one segment of a pattern; make it when it is missing."""
        if "{" not in segment:
            found = self.literal.get(segment)
            if found is None:
                found = self.literal[segment] = _Node()
            return found
        self.has_placeholders = True
        whole = _PIECE.fullmatch(segment)
        if whole is None:
            start = "" if segment[0] == "{" else segment[0]
            return self.mixed.setdefault(start, {}).setdefault(segment, (_mixed(segment), _Node()))[1]
        branches = {"many": self.many, "digits": self.digits}.get(kind(whole[1]), self.one)
        return branches.setdefault(whole[1], _Node())


class Trie(Generic[Leaf]):
    """Patterns by path segment. A look-up follows the segments of the name: its cost hardly grows with the patterns."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[Leaf] = _Node()

    def add(self, pattern: str, leaf: Leaf) -> None:
        """Store a leaf under a pattern."""
        for spelled, chosen in expand(pattern):
            segments = spelled.split("/")
            endless = max((at for at, segment in enumerate(segments) if _is_many(segment)), default=-1)
            node = self._root
            for at, segment in enumerate(segments):
                node.widen(len(segments) - at, at <= endless)
                node = node.child(segment)
            node.widen(0, False)
            node.leaves.append((leaf, chosen))

    def find(self, name: str) -> list[tuple[Leaf, Filled]]:
        """Return every leaf whose pattern the name fits, with the values of the placeholders."""
        found: list[tuple[Leaf, Filled]] = []
        segments = name.split("/")
        _walk(self._root, segments, 0, len(segments), (), found)
        return found


def _mixed(segment: str) -> re.Pattern[str]:
    parts = _PIECE.split(segment)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else _group(p) for i, p in enumerate(parts)))


def _group(name: str) -> str:
    return rf"(?P<{name}>\d+)" if kind(name) == "digits" else f"(?P<{name}>[^/]+?)"


def _walk(
    node: _Node[Leaf], segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Leaf, Filled]]
) -> None:
    # Without the limits a placeholder for many segments would try every split of the name.
    while node.least <= end - at <= node.most:
        if at == end:
            found.extend([(leaf, filled + chosen) for leaf, chosen in node.leaves])
            return
        if node.has_placeholders:
            _walk_placeholders(node, segments, at, end, filled, found)
        child = node.literal.get(segments[at])
        if child is None:
            return
        node, at = child, at + 1


def _mixed_of(node: _Node[Leaf], segment: str) -> list[tuple[re.Pattern[str], _Node[Leaf]]]:
    """Return the expressions of a node that a segment may fit, by its first character."""
    found: list[tuple[re.Pattern[str], _Node[Leaf]]] = []
    for start in ("", segment[:1]):
        if start in node.mixed and segment:
            found.extend(node.mixed[start].values())
    return found


def _walk_placeholders(
    node: _Node[Leaf], segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Leaf, Filled]]
) -> None:
    segment = segments[at]
    for expression, child in _mixed_of(node, segment) if node.mixed else ():
        fits = expression.fullmatch(segment)
        if fits:
            _walk(child, segments, at + 1, end, filled + tuple(fits.groupdict().items()), found)
    if node.digits and segment.isdecimal():
        for name, child in node.digits.items():
            _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    if node.one and segment:
        left = end - at - 1
        for name, child in node.one.items():
            if child.least <= left <= child.most:
                _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    for name, child in node.many.items():
        # The limits of the child leave few ends that are worth a try.
        for stop in range(max(at + 1, end - child.most), end - child.least + 1):
            _walk(child, segments, stop, end, (*filled, (name, "/".join(segments[at:stop]))), found)
