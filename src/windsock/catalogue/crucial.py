"""The crucial values: the few metrics that tell whether a run is alive, with their conditions as data.

TRL's logging page names them: the reward rises, with the score; the KL stays positive and bounded; the value loss
does not spike; the ratio floats around 1; clip fraction and approximate KL are not high together; the KL coefficient
does not run away. Here each is a condition on a few numbers of a series, judged to a plain verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.names import Match, recognise
from windsock.catalogue.spec import Text

Judgement = tuple[str, Text]
WORDS = {
    "good": Text("good", "正常"),
    "watch": Text("watch", "留意"),
    "bad": Text("bad", "异常"),
    "unknown": Text("not clear", "无法判断"),
}
RECENT = 5  # the points whose median stands for "now"
_SIGNIFICANT = 1.0  # a change of one standard deviation of the noise counts as a trend


@dataclass(frozen=True, slots=True)
class Digest:
    """The few numbers of a series that the conditions look at; all but the counts are over finite values."""

    count: int
    nonfinite: int
    first: float
    last: float
    now: float  # median of the last few
    median: float
    low: float
    high: float
    start: float  # mean of the first tenth
    early: float  # mean of the first third
    late: float  # mean of the last third
    noise: float  # standard deviation around the straight line through the series

    def effect(self, since: float) -> float:
        """How far the last third lies above an earlier level, in units of the noise."""
        change = self.late - since
        return change / self.noise if self.noise > 0 else math.copysign(math.inf, change) if change else 0.0


def digest(values: Iterable[float]) -> Digest | None:
    """Take the few numbers of a series; None when it has no finite value."""
    seen = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
    finite = seen[np.isfinite(seen)]
    if not len(finite):
        return None
    third, tenth = max(1, len(finite) // 3), max(1, len(finite) // 10)
    return Digest(
        count=len(seen),
        nonfinite=len(seen) - len(finite),
        first=float(finite[0]),
        last=float(finite[-1]),
        now=float(np.median(finite[-RECENT:])),
        median=float(np.median(finite)),
        low=float(finite.min()),
        high=float(finite.max()),
        start=float(finite[:tenth].mean()),
        early=float(finite[:third].mean()),
        late=float(finite[-third:].mean()),
        noise=_noise(finite),
    )


def _noise(values: NDArray[np.float64]) -> float:
    """Return the standard deviation around the straight line through the values."""
    if values.min() == values.max():
        return 0.0
    places = np.arange(len(values)) - (len(values) - 1) / 2
    rest = values - values.mean()
    return float(np.sqrt(np.mean((rest - places * (places @ rest) / (places @ places)) ** 2)))


class Condition(Protocol):
    """What a series should do."""

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Return a word of ``WORDS`` and a sentence; ``others`` holds the other metrics by id."""
        ...


def _say(word: str, en: str, zh: str) -> Judgement:
    return word, Text(en, zh)


@dataclass(frozen=True, slots=True)
class Rising:
    """The last third lies above the beginning by more than the noise; told only after enough points.

    What rose steeply and is flat since, at the top of what can be had, has risen.
    """

    points: int = 20

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Judge."""
        change = f"{series.early:.3g} → {series.late:.3g}"
        if series.count < self.points:
            return _say(
                "unknown",
                f"{change}; {series.count} points are too few to see a trend",
                f"{change}；只有 {series.count} 个点，还看不出趋势",
            )
        if series.effect(series.early) > _SIGNIFICANT:
            return _say("good", f"rising, {change}", f"在上升，{change}")
        if series.effect(series.early) < -_SIGNIFICANT:
            return _say("bad", f"falling, {change}", f"在下降，{change}")
        if series.effect(series.start) > _SIGNIFICANT:
            whole = f"{series.start:.3g} → {series.late:.3g}"
            return _say("good", f"has risen, {whole}, and is flat now", f"已上升，{whole}，目前持平")
        return _say("watch", f"no clear trend, {change}", f"没有明显趋势，{change}")


@dataclass(frozen=True, slots=True)
class Within:
    """The recent level lies in a band; beyond the alarms it is bad. ``diluted`` knows TRL's 1/num_mini_batches."""

    low: float
    high: float
    alarm_low: float
    alarm_high: float
    diluted: bool = False

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Judge."""
        now, band, band_zh = series.now, f"{self.low:g} to {self.high:g}", f"{self.low:g} 到 {self.high:g}"
        parts = self._parts(series.median)
        if parts:
            return _say(
                "unknown",
                f"{now:.3g}, just 1/{parts}: TRL's PPO logs that for a healthy run with num_mini_batches = {parts}",
                f"{now:.3g}，恰为 1/{parts}：TRL 的 PPO 在 num_mini_batches = {parts} 时，健康的实验也会如此",
            )
        if self.low <= now <= self.high:
            if series.high >= self.alarm_high:
                return _say(
                    "watch",
                    f"{now:.3g}, within {band}, after a spike to {series.high:.3g}",
                    f"{now:.3g}，在 {band_zh} 之内，但曾冲到 {series.high:.3g}",
                )
            return _say("good", f"{now:.3g}, within {band}", f"{now:.3g}，在 {band_zh} 之内")
        word = "bad" if now <= self.alarm_low or now >= self.alarm_high else "watch"
        side, side_zh = ("below", "低于") if now < self.low else ("above", "高于")
        return _say(word, f"{now:.3g}, {side} {band}", f"{now:.3g}，{side_zh} {band_zh}")

    def _parts(self, level: float) -> int:
        return next((m for m in (2, 3, 4, 8, 16) if self.diluted and abs(level * m - 1) < 0.03), 0)


@dataclass(frozen=True, slots=True)
class NoSpike:
    """No point is many times the median, and the series has not collapsed to exactly 0."""

    times: float = 10.0
    warm_up: int = 20

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Judge."""
        if series.now == 0.0 and series.high > 0.0:
            return _say("bad", f"collapsed to 0 from {series.high:.3g}", f"从 {series.high:.3g} 塌到 0")
        if series.count < self.warm_up:
            return _say("unknown", f"{series.now:.3g}; still warming up", f"{series.now:.3g}；仍在预热")
        if series.now > self.times * series.median > 0.0:
            return _say(
                "bad",
                f"{series.now:.3g}, {series.now / series.median:.0f} times its median",
                f"{series.now:.3g}，是中位数的 {series.now / series.median:.0f} 倍",
            )
        if series.high > self.times * max(series.median, series.first) > 0.0:
            return _say(
                "watch",
                f"{series.now:.3g} now, after a spike to {series.high:.3g}",
                f"现为 {series.now:.3g}，曾冲到 {series.high:.3g}",
            )
        return _say("good", f"{series.now:.3g}, no spike", f"{series.now:.3g}，没有尖峰")


@dataclass(frozen=True, slots=True)
class NotBothHigh:
    """Not high together with any of the partners: that is what too large steps look like."""

    high: float
    partners: tuple[str, ...]
    partner_high: float

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Judge."""
        if series.low == series.high == 0.0:
            return _say(
                "unknown",
                "always 0: with one update per batch nothing can be clipped",
                "恒为 0：每批只更新一次时不会发生裁剪",
            )
        beside = next((others[partner] for partner in self.partners if partner in others), None)
        kl, kl_zh = (f", KL {beside.now:.3g}", f"，KL {beside.now:.3g}") if beside else ("", "")
        moved = beside is None or abs(beside.now) > self.partner_high
        if series.now <= self.high:
            return _say("good", f"{series.now:.3g}{kl}", f"{series.now:.3g}{kl_zh}")
        if moved and beside is not None:
            return _say(
                "bad",
                f"{series.now:.3g}{kl}: both high, steps are too large",
                f"{series.now:.3g}{kl_zh}：两者都高，步子太大",
            )
        return _say(
            "watch", f"{series.now:.3g}{kl}: above {self.high:g}", f"{series.now:.3g}{kl_zh}：高于 {self.high:g}"
        )


@dataclass(frozen=True, slots=True)
class NotGrowing:
    """Not many times its start."""

    times: float = 2.0

    def judge(self, series: Digest, others: Mapping[str, Digest]) -> Judgement:
        """Judge."""
        change = f"{series.first:.3g} → {series.now:.3g}"
        if series.first > 0 and series.now > self.times * series.first:
            return _say("watch", f"keeps growing, {change}: the KL is not held", f"持续增大，{change}：压不住 KL")
        return _say("good", f"{change}", f"{change}")


@dataclass(frozen=True, slots=True)
class Crucial:
    """One crucial value: the metrics it can be read from, the best first, each with its condition."""

    key: str
    title: Text
    meaning: Text
    conditions: tuple[tuple[str, Condition], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run's numbers say about one crucial value; ``note`` tells how the logged number differs."""

    key: str
    title: Text
    name: str
    metric: str
    word: str
    text: Text
    note: Text | None = None


_RISING = Rising()
CRUCIAL: tuple[Crucial, ...] = (
    Crucial(
        "reward",
        Text("Reward", "奖励"),
        Text("What the run maximises should rise.", "训练所最大化的量应当上升。"),
        (("reward/rlhf/mean", _RISING), ("reward/score/mean", _RISING), ("reward/score_not_aborted/mean", _RISING)),
    ),
    Crucial(
        "score",
        Text("Score", "得分"),
        Text(
            "The score itself should rise, not only the reward after penalties.",
            "得分本身应当上升，而不只是扣罚后的奖励。",
        ),
        (("reward/score/mean", _RISING), ("reward/score_not_aborted/mean", _RISING)),
    ),
    Crucial(
        "kl",
        Text("KL to the reference", "对参考模型的 KL"),
        Text(
            "Positive and bounded: neither drifting away nor clearly negative.", "为正且有界：既不飘远，也不明显为负。"
        ),
        (
            ("policy/ref_kl_sum", Within(-0.5, 10.0, alarm_low=-1.0, alarm_high=100.0)),
            ("policy/kl_loss", Within(0.0, 1.0, alarm_low=-1e-3, alarm_high=2.0)),
            ("policy/ref_kl_k1", Within(-0.05, 1.0, alarm_low=-0.2, alarm_high=2.0)),
        ),
    ),
    Crucial(
        "value_loss",
        Text("Value loss", "价值损失"),
        Text("It spikes or turns NaN when training goes wrong.", "训练出问题时它会突增或变成 NaN。"),
        (("value/loss", NoSpike()),),
    ),
    Crucial(
        "ratio",
        Text("Ratio", "重要性比"),
        Text(
            "Floats around 1; 2 or 0.1 means that updates are too drastic.", "在 1 附近浮动；到 2 或 0.1 说明更新过猛。"
        ),
        (("policy/ratio/mean", Within(0.8, 1.2, alarm_low=0.1, alarm_high=2.0, diluted=True)),),
    ),
    Crucial(
        "clip",
        Text("Clip fraction with KL", "裁剪比例与 KL"),
        Text(
            "A high clip fraction together with a high approximate KL means too large steps.",
            "裁剪比例与近似 KL 同时偏高，说明步子太大。",
        ),
        (
            (
                "policy/clip_fraction",
                NotBothHigh(0.3, ("policy/kl_k2", "policy/kl_k1", "policy/kl_k3", "policy/kl_exact"), 0.02),
            ),
        ),
    ),
    Crucial(
        "kl_now",
        Text("Approximate KL", "近似 KL"),
        Text(
            "How far one step moves the policy: about 0.01 to 0.02 at most.",
            "一步使策略移动多远：至多 0.01 到 0.02 左右。",
        ),
        (
            ("policy/kl_k2", Within(0.0, 0.02, alarm_low=-1.0, alarm_high=0.1)),
            ("policy/kl_k1", Within(-0.02, 0.02, alarm_low=-0.1, alarm_high=0.1)),
        ),
    ),
    Crucial(
        "kl_coef",
        Text("KL coefficient", "KL 系数"),
        Text(
            "An adaptive coefficient that keeps growing is losing against the KL.",
            "自适应系数若一路增大，说明它压不住 KL。",
        ),
        (("reward/kl_coef", NotGrowing()),),
    ),
)


_WANTED = {id for crucial in CRUCIAL for id, _ in crucial.conditions} | {"policy/kl_k3", "policy/kl_exact"}


def crucial_values(series: Mapping[str, Iterable[float]], source: str | None = None) -> list[Verdict]:
    """Judge the crucial values that a run logs; those it does not log are left out, and no metric is judged twice.

    ``series`` maps logged names to their values over steps; ``source`` says who wrote them (see ``recognise``).
    """
    logged = _logged(series, source)
    digests = {id: taken for id, (_, _, taken) in logged.items() if taken is not None}
    verdicts: list[Verdict] = []
    for crucial in CRUCIAL:
        id, condition = next(((id, rule) for id, rule in crucial.conditions if id in logged), (None, None))
        if id is not None and condition is not None and all(verdict.metric != id for verdict in verdicts):
            name, match, taken = logged[id]
            word, text = _judged(condition, match, taken, digests)
            note = match.name.difference.note if match.name.difference else None
            verdicts.append(Verdict(crucial.key, crucial.title, name, id, word, text, note))
    return verdicts


def is_wanted(name: str, source: str | None = None) -> bool:
    """Tell whether a name stands for a metric that a crucial value is read from, or judged with."""
    return _wanted(name, source) is not None


def _wanted(name: str, source: str | None) -> Match | None:
    match = next((match for match in recognise(name, source).matches if match.metric.id in _WANTED), None)
    return None if match is None or match.evaluated else match


def _logged(series: Mapping[str, Iterable[float]], source: str | None) -> dict[str, tuple[str, Match, Digest | None]]:
    found: dict[str, tuple[str, Match, Digest | None]] = {}
    for name, values in series.items():
        match = _wanted(name, source)
        if match is not None and match.metric.id not in found:
            factor = match.name.factor
            logged = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
            found[match.metric.id] = (name, match, digest(logged * (1.0 if factor is None else factor)))
    return found


def _judged(condition: Condition, match: Match, taken: Digest | None, others: Mapping[str, Digest]) -> Judgement:
    if match.name.difference is not None and match.name.difference.refuse:
        return "unknown", match.name.difference.note
    if taken is None:
        return _say("bad", "not a single finite value", "没有一个有限值")
    if taken.nonfinite:
        return _say(
            "bad",
            f"{taken.nonfinite} of {taken.count} values are NaN or infinite",
            f"{taken.count} 个值中有 {taken.nonfinite} 个是 NaN 或无穷",
        )
    return condition.judge(taken, others)
