"""Names with placeholders: what each may hold, and a trie by path segment that finds the patterns of a name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from windsock.catalogue.spec import Text, placeholders

Leaf = TypeVar("Leaf")
Filled = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """What stands between two braces. ``kind``: one path segment, many, digits, or one of the choices."""

    name: str
    kind: str
    about: Text
    choices: tuple[tuple[str, Text], ...] = ()


def _open(name: str, kind: str, en: str, zh: str) -> Placeholder:
    return Placeholder(name, kind, Text(en, zh))


def _choice(name: str, en: str, zh: str, *choices: tuple[str, str, str]) -> Placeholder:
    return Placeholder(name, "choice", Text(en, zh), tuple((c, Text(a, b)) for c, a, b in choices))


_ALL = (
    _open("phase", "many", "the phase of the step, usually cluster and operation", "步内的阶段，通常是“集群/操作”"),
    _open("device", "digits", "the device, by its number on the machine", "设备在本机上的编号"),
    _open("taskset", "many", "the set of tasks; the name may hold slashes", "任务集，名称中可含斜杠"),
    _open("dataset", "one", "the evaluation set", "评测集"),
    _open("metric", "one", "the metric that the task reports", "任务上报的指标"),
    _open("key", "many", "the metric that the workflow reports", "工作流上报的指标"),
    _open("k", "digits", "how many runs of a task the statistic speaks of", "该统计量针对的每个任务的运行次数"),
    _open("share", "digits", "the percentage of tasks below the value", "低于该值的任务百分比"),
    _open("operation", "one", "the timed operation", "被计时的操作"),
    _open("operator", "many", "the operator of the experience pipeline", "经验流水线中的算子"),
    _open("component", "one", "the reward function or component", "奖励函数或奖励分量"),
    _open("tag", "one", "the environment or data tag", "环境或数据标签"),
    _open("model", "one", "the model that is trained", "被训练的模型"),
    _open("env", "one", "the environment, or agg for all", "环境名，agg 表示合并"),
    _open("agent", "one", "the agent", "智能体"),
    _open("cluster", "one", "the worker cluster", "worker 集群"),
    _open("group", "digits", "the parameter group of the optimizer", "优化器参数组编号"),
    _open("reward", "one", "the reward value that the whole group shares", "整组共同的奖励值"),
    _open("trainer", "one", "the trainer class", "训练器类名"),
    _open("tool", "one", "the tool", "工具名"),
    _open("grain", "one", "token, geometric, sequence or segment", "粒度：token、geometric、sequence 或 segment"),
    _open("rule", "one", "the rejection rule", "拒绝采样规则"),
    _choice(
        "moment",
        "when in the phase the reading is taken",
        "在阶段中的采样时刻",
        ("start/offload", "on entry, before the states are loaded", "进入阶段、尚未加载状态时"),
        ("start/onload", "after the states are loaded, before the work", "状态已加载、工作开始之前"),
        ("end/onload", "after the work, while the states are still loaded", "工作完成、状态仍在显存中时"),
        ("end/offload", "on leaving, after the states are offloaded", "状态卸载之后、离开阶段时"),
    ),
    _choice(
        "when",
        "at the start or the end of the phase",
        "阶段开始或结束时",
        ("start", "on entry", "进入阶段时"),
        ("end", "on leaving", "离开阶段时"),
    ),
    _choice(
        "stat",
        "the statistic over tasks",
        "对任务求的统计量",
        ("mean", "mean over tasks", "对任务求均值"),
        ("std", "population standard deviation over tasks", "对任务求总体标准差"),
        ("max", "the best task", "最大的任务"),
        ("min", "the worst task", "最小的任务"),
    ),
    _choice(
        "subset",
        "which rollouts count",
        "统计哪些 rollout",
        ("all", "all rollouts", "全部 rollout"),
        ("effective", "those that reach training", "真正进入训练的 rollout"),
    ),
    _choice(
        "section",
        "veRL's section: core variables at the largest n, or the rest",
        "veRL 的分区：核心变量（最大 n）或其余",
        ("val-core", "the headline numbers", "主要指标"),
        ("val-aux", "everything else", "其余指标"),
    ),
)
PLACEHOLDERS = {placeholder.name: placeholder for placeholder in _ALL}

_PIECE = re.compile(r"\{(\w+)\}")
LONGEST = 20  # twice the segments of the longest pattern, and some
_GENERALITY = {"choice": 0, "digits": 1, "one": 2, "many": 3}


def kind(name: str) -> str:
    """Return what a placeholder may hold; one that is not in the table is the user's own and holds one segment."""
    placeholder = PLACEHOLDERS.get(name)
    return "one" if placeholder is None else placeholder.kind


def fill(pattern: str, filled: Filled) -> str:
    """Put values in for placeholders; those without a value stay as they are."""
    for name, value in filled:
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def expand(pattern: str) -> Iterator[tuple[str, Filled]]:
    """Yield the pattern once per combination of its choices, with what was chosen."""
    choices = [PLACEHOLDERS[name] for name in placeholders(pattern) if kind(name) == "choice"]
    if not choices:
        yield pattern, ()
        return
    for values in itertools.product(*([value for value, _ in choice.choices] for choice in choices)):
        chosen = tuple(zip((choice.name for choice in choices), values, strict=True))
        yield fill(pattern, chosen), chosen


def rank(pattern: str) -> tuple[int, tuple[int, ...]]:
    """Say how general a pattern is; the smaller rank is the more specific one.

    Where a placeholder may hold any number of segments, every further segment of the pattern leaves it less to hold.
    """
    if "{" not in pattern:
        return 0, (0,) * (pattern.count("/") + 1)
    segments = pattern.split("/")
    kinds = tuple(_generality(segment) for segment in segments)
    room = max(LONGEST - 2 * len(segments), 0) if any(map(_is_many, segments)) else 0
    return sum(kinds) + room, kinds


def _generality(segment: str) -> int:
    if "{" not in segment:
        return 0
    whole = _PIECE.fullmatch(segment)
    if whole is None:
        return 1
    return _GENERALITY[kind(whole[1])]


_NO_LIMIT = 1 << 30


def _is_many(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}") and kind(segment[1:-1]) == "many"


class _Node(Generic[Leaf]):
    """A place in the trie. ``least`` and ``most`` say how many segments a name may still have behind it."""

    __slots__ = ("digits", "least", "leaves", "literal", "many", "mixed", "most", "one")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[Leaf]] = {}
        self.mixed: dict[str, tuple[re.Pattern[str], _Node[Leaf]]] = {}
        self.digits: dict[str, _Node[Leaf]] = {}
        self.one: dict[str, _Node[Leaf]] = {}
        self.many: dict[str, _Node[Leaf]] = {}
        self.leaves: list[tuple[Leaf, Filled]] = []
        self.least, self.most = _NO_LIMIT, 0

    def admit(self, behind: int, endless: bool) -> None:
        """Take note of a pattern that has so many segments behind this place."""
        if behind < self.least:
            self.least = behind
        if endless:
            self.most = _NO_LIMIT
        elif behind > self.most:
            self.most = behind

    def child(self, segment: str) -> _Node[Leaf]:
        """Return the node behind one segment of a pattern, made when it is not there."""
        if "{" not in segment:
            found = self.literal.get(segment)
            if found is None:
                found = self.literal[segment] = _Node()
            return found
        whole = _PIECE.fullmatch(segment)
        if whole is None:
            return self.mixed.setdefault(segment, (_mixed(segment), _Node()))[1]
        branches = {"many": self.many, "digits": self.digits}.get(kind(whole[1]), self.one)
        return branches.setdefault(whole[1], _Node())


class Trie(Generic[Leaf]):
    """Patterns by path segment. A look-up follows the name's segments, so its cost hardly grows with the patterns."""

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
                node.admit(len(segments) - at, at <= endless)
                node = node.child(segment)
            node.admit(0, False)
            node.leaves.append((leaf, chosen))

    def find(self, name: str) -> list[tuple[Leaf, Filled]]:
        """Return every leaf whose pattern the name fits, with what the placeholders hold."""
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
    if not node.least <= end - at <= node.most:
        return
    if at == end:
        found.extend([(leaf, filled + chosen) for leaf, chosen in node.leaves])
        return
    segment = segments[at]
    child = node.literal.get(segment)
    if child is not None:
        _walk(child, segments, at + 1, end, filled, found)
    if node.mixed:
        for expression, child in node.mixed.values():
            fits = expression.fullmatch(segment)
            if fits:
                _walk(child, segments, at + 1, end, filled + tuple(fits.groupdict().items()), found)
    if node.digits and segment.isdecimal():
        for name, child in node.digits.items():
            _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    if node.one and segment:
        for name, child in node.one.items():
            _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    for name, child in node.many.items():
        for stop in range(max(at + 1, end - child.most), end - child.least + 1):
            _walk(child, segments, stop, end, (*filled, (name, "/".join(segments[at:stop]))), found)
