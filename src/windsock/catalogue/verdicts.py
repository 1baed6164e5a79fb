"""Verdicts on the crucial values: the few metrics that show whether a run is healthy.

TRL's logging page lists them: the reward rises, with the score; the KL stays positive and bounded; the value loss
does not spike; the ratio stays near 1; clip fraction and approximate KL are not high together; the KL coefficient
does not keep growing. Each is a condition on a summary of the series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.config_facts import ConfigFacts
from windsock.catalogue.names import Match, candidates
from windsock.catalogue.resolution import RunNames
from windsock.catalogue.spec import Text

Judgement = tuple[str, Text]
WORDS = {
    "good": Text("good", "正常"),
    "watch": Text("watch", "留意"),
    "bad": Text("bad", "异常"),
    "unknown": Text("not clear", "无法判断"),
}
RECENT = 5  # points whose median is the current level
_SIGNIFICANT = 1.0  # a change of one standard deviation of the noise is a trend


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """Summary of a series that the conditions use; all fields but the counts are over finite values."""

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
        """Return the rise of the last third above an earlier level, in units of the noise."""
        change = self.late - since
        # Without noise, every change is a trend.
        return change / self.noise if self.noise > 0 else math.copysign(math.inf, change) if change else 0.0


def summarise(values: Iterable[float]) -> SeriesSummary | None:
    """Summarise a series; return None when it has no finite value."""
    seen = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
    finite = seen[np.isfinite(seen)]
    if not len(finite):
        return None
    third, tenth = max(1, len(finite) // 3), max(1, len(finite) // 10)
    return SeriesSummary(
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
    # Around the line and not around the mean: a trend is not noise. Centred places make the slope independent of it.
    places = np.arange(len(values)) - (len(values) - 1) / 2
    rest = values - values.mean()
    return float(np.sqrt(np.mean((rest - places * (places @ rest) / (places @ places)) ** 2)))


class Condition(Protocol):
    """Condition that a healthy series meets."""

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Return a word of ``WORDS`` and a sentence; ``others`` are the summaries of other metrics, by id."""
        ...


def _judgement(word: str, en: str, zh: str) -> Judgement:
    return word, Text(en, zh)


def _unmoved(config: ConfigFacts, level: str) -> Judgement:
    """Return that a series which is constant by construction, or may be, is not judged."""
    updates = config.updates_per_batch
    if updates is None:
        return _judgement(
            "unknown",
            f"always {level}: with one update per batch nothing is clipped and the ratio is 1",
            f"恒为 {level}：每批只更新一次时不会发生裁剪，重要性比恒为 1",
        )
    if updates.value == 1:
        return _judgement(
            "unknown",
            f"always {level}, as it must be with one update per batch ({updates.settings})",
            f"恒为 {level}：每批只更新一次（{updates.settings}），必然如此",
        )
    return _judgement(
        "unknown",
        f"always {level} over {updates.value} updates per batch ({updates.settings}): the policy hardly moves",
        f"每批更新 {updates.value} 次（{updates.settings}）仍恒为 {level}：策略几乎没有变化",
    )


@dataclass(frozen=True, slots=True)
class Rising:
    """The last third is above the beginning by more than the noise. It needs enough points.

    A series that rose steeply at the start and is flat since has risen.
    """

    points: int = 20

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Compare the series with the condition."""
        change = f"{series.early:.3g} → {series.late:.3g}"
        if series.count < self.points:
            return _judgement(
                "unknown",
                f"{change}; {series.count} points are too few to see a trend",
                f"{change}；只有 {series.count} 个点，还看不出趋势",
            )
        if series.effect(series.early) > _SIGNIFICANT:
            return _judgement("good", f"rising, {change}", f"在上升，{change}")
        if series.effect(series.early) < -_SIGNIFICANT:
            return _judgement("bad", f"falling, {change}", f"在下降，{change}")
        if series.effect(series.start) > _SIGNIFICANT:
            whole = f"{series.start:.3g} → {series.late:.3g}"
            return _judgement("good", f"has risen, {whole}, and is flat now", f"已上升，{whole}，目前持平")
        return _judgement("watch", f"no clear trend, {change}", f"没有明显趋势，{change}")


@dataclass(frozen=True, slots=True)
class Within:
    """The current level is within a band; beyond the alarms it is bad.

    With ``diluted``, a level of 1/num_mini_batches is recognised as an artefact of TRL's PPO. ``unmoved`` is the value
    before the first update of a batch: a series that never leaves it says nothing.
    """

    low: float
    high: float
    alarm_low: float
    alarm_high: float
    diluted: bool = False
    unmoved: float | None = None

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Compare the series with the condition."""
        now, band, band_zh = series.now, f"{self.low:g} to {self.high:g}", f"{self.low:g} 到 {self.high:g}"
        if series.low == series.high == self.unmoved:
            return _unmoved(config, f"{now:g}")
        parts = self._parts(series.median, config)  # the median: single steps may deviate from 1/m
        if parts:
            return _judgement(
                "unknown",
                f"{now:.3g} = 1/{parts}: TRL's PPO logs this in a healthy run with num_mini_batches = {parts}",
                f"{now:.3g}，恰为 1/{parts}：num_mini_batches = {parts} 时，TRL 的 PPO 在正常实验中也会记录这个值",
            )
        if self.low <= now <= self.high:
            if series.high >= self.alarm_high:
                return _judgement(
                    "watch",
                    f"{now:.3g}, within {band}, after a spike to {series.high:.3g}",
                    f"{now:.3g}，在 {band_zh} 之内，此前曾突增到 {series.high:.3g}",
                )
            return _judgement("good", f"{now:.3g}, within {band}", f"{now:.3g}，在 {band_zh} 之内")
        word = "bad" if now <= self.alarm_low or now >= self.alarm_high else "watch"
        side, side_zh = ("below", "低于") if now < self.low else ("above", "高于")
        return _judgement(word, f"{now:.3g}, {side} {band}", f"{now:.3g}，{side_zh} {band_zh}")

    def _parts(self, level: float, config: ConfigFacts) -> int:
        given = config.settings.get("num_mini_batches", "")
        likely = (int(given),) if given.isdecimal() else (2, 3, 4, 8, 16)
        return next((m for m in likely if self.diluted and m > 1 and abs(level * m - 1) < 0.03), 0)


@dataclass(frozen=True, slots=True)
class NoSpike:
    """No point is many times the median, and the series has not collapsed to exactly 0."""

    times: float = 10.0
    warm_up: int = 20

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Compare the series with the condition."""
        if series.now == 0.0 and series.high > 0.0:
            return _judgement("bad", f"collapsed to 0 from {series.high:.3g}", f"从 {series.high:.3g} 降为 0")
        if series.count < self.warm_up:
            return _judgement("unknown", f"{series.now:.3g}; too few points to judge", f"{series.now:.3g}；点数还太少")
        if series.now > self.times * series.median > 0.0:
            return _judgement(
                "bad",
                f"{series.now:.3g}, {series.now / series.median:.0f} times its median",
                f"{series.now:.3g}，是中位数的 {series.now / series.median:.0f} 倍",
            )
        # An untrained critic starts with a high loss, which is not a spike.
        if series.high > self.times * max(series.median, series.first) > 0.0:
            return _judgement(
                "watch",
                f"{series.now:.3g} now, after a spike to {series.high:.3g}",
                f"当前 {series.now:.3g}，此前曾突增到 {series.high:.3g}",
            )
        return _judgement("good", f"{series.now:.3g}, no spike", f"{series.now:.3g}，没有突增")


@dataclass(frozen=True, slots=True)
class NotBothHigh:
    """Not high together with the KL: both high means that update steps are too large."""

    high: float
    partners: tuple[str, ...]
    partner_high: float

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Compare the series with the condition."""
        if series.low == series.high == 0.0:
            return _unmoved(config, "0")
        beside = next((others[partner] for partner in self.partners if partner in others), None)
        kl, kl_zh = (f", KL {beside.now:.3g}", f"，KL {beside.now:.3g}") if beside else ("", "")
        moved = beside is None or abs(beside.now) > self.partner_high
        if series.now <= self.high:
            return _judgement("good", f"{series.now:.3g}{kl}", f"{series.now:.3g}{kl_zh}")
        if moved and beside is not None:  # without a KL, a high clip fraction alone is no proof
            return _judgement(
                "bad",
                f"{series.now:.3g}{kl}: both high, update steps are too large",
                f"{series.now:.3g}{kl_zh}：两者都高，更新步长过大",
            )
        return _judgement(
            "watch", f"{series.now:.3g}{kl}: above {self.high:g}", f"{series.now:.3g}{kl_zh}：高于 {self.high:g}"
        )


@dataclass(frozen=True, slots=True)
class NotGrowing:
    """The current value is not many times the first one."""

    times: float = 2.0

    def judge(self, series: SeriesSummary, others: Mapping[str, SeriesSummary], config: ConfigFacts) -> Judgement:
        """Compare the series with the condition."""
        change = f"{series.first:.3g} → {series.now:.3g}"
        if series.first > 0 and series.now > self.times * series.first:
            return _judgement(
                "watch", f"keeps growing, {change}: it fails to limit the KL", f"持续增大，{change}：控制不住 KL"
            )
        return _judgement("good", f"{change}", f"{change}")


@dataclass(frozen=True, slots=True)
class CrucialValue:
    """One crucial value and the metrics it can be taken from, the best first, each with its condition."""

    key: str
    title: Text
    meaning: Text
    conditions: tuple[tuple[str, Condition], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one crucial value of a run; ``note`` is the difference between the logged number and the metric."""

    key: str
    title: Text
    name: str
    metric: str
    word: str
    text: Text
    note: Text | None = None


Logged = tuple[str, Match, SeriesSummary | None]

_RISING = Rising()
_POSITIVE_KL = Within(0.0, 1.0, alarm_low=-1e-3, alarm_high=2.0)
_SIGNED_KL = Within(-0.05, 1.0, alarm_low=-0.2, alarm_high=2.0)
CRUCIAL: tuple[CrucialValue, ...] = (
    CrucialValue(
        "reward",
        Text("Reward", "奖励"),
        Text("The reward that training maximises should rise.", "训练所最大化的奖励应当上升。"),
        (("reward/rlhf/mean", _RISING), ("reward/score/mean", _RISING), ("reward/score_not_aborted/mean", _RISING)),
    ),
    CrucialValue(
        "score",
        Text("Score", "得分"),
        Text(
            "The score itself should rise, not only the reward after penalties.",
            "得分本身应当上升，而不只是加上惩罚项后的奖励。",
        ),
        (("reward/score/mean", _RISING), ("reward/score_not_aborted/mean", _RISING)),
    ),
    CrucialValue(
        "kl",
        Text("KL to the reference", "对参考模型的 KL"),
        Text(
            "Positive and bounded: it neither keeps growing nor is clearly negative.",
            "为正且有界：既不持续增大，也不明显为负。",
        ),
        (
            ("policy/ref_kl_sum", Within(-0.5, 10.0, alarm_low=-1.0, alarm_high=100.0)),
            ("policy/kl_loss", _POSITIVE_KL),
            ("policy/ref_kl_k1", _SIGNED_KL),
        ),
    ),
    CrucialValue(
        "value_loss",
        Text("Value loss", "价值损失"),
        Text("It spikes or turns NaN when training goes wrong.", "训练出问题时它会突增或变成 NaN。"),
        (("value/loss", NoSpike()),),
    ),
    CrucialValue(
        "ratio",
        Text("Ratio", "重要性比"),
        Text("Stays near 1; at 2 or 0.1 updates are too large.", "在 1 附近波动；到 2 或 0.1 说明更新幅度过大。"),
        (("policy/ratio/mean", Within(0.8, 1.2, alarm_low=0.1, alarm_high=2.0, diluted=True, unmoved=1.0)),),
    ),
    CrucialValue(
        "clip",
        Text("Clip fraction with KL", "裁剪比例与 KL"),
        Text(
            "A high clip fraction together with a high approximate KL means that update steps are too large.",
            "裁剪比例与近似 KL 同时偏高，说明更新步长过大。",
        ),
        (
            (
                "policy/clip_fraction",
                NotBothHigh(0.3, ("policy/kl_k2", "policy/kl_k1", "policy/kl_k3", "policy/kl_exact"), 0.02),
            ),
        ),
    ),
    CrucialValue(
        "kl_now",
        Text("Approximate KL", "近似 KL"),
        Text(
            "Change of the policy in one step: at most about 0.01 to 0.02.",
            "一步更新中策略的变化量：一般不超过 0.01 到 0.02。",
        ),
        (
            ("policy/kl_k2", Within(0.0, 0.02, alarm_low=-1.0, alarm_high=0.1, unmoved=0.0)),
            ("policy/kl_k1", Within(-0.02, 0.02, alarm_low=-0.1, alarm_high=0.1, unmoved=0.0)),
        ),
    ),
    CrucialValue(
        "kl_coef",
        Text("KL coefficient", "KL 系数"),
        Text(
            "An adaptive coefficient that keeps growing fails to limit the KL.",
            "自适应系数若持续增大，说明它控制不住 KL。",
        ),
        (("reward/kl_coef", NotGrowing()),),
    ),
)


# The last two have no verdict of their own, but the clip fraction is judged together with them.
_JUDGED = {id for crucial in CRUCIAL for id, _ in crucial.conditions} | {"policy/kl_k3", "policy/kl_exact"}


@np.errstate(over="ignore", invalid="ignore")  # of values near the largest float
def judge_crucial_values(series: Mapping[str, Iterable[float]], names: RunNames | str | None = None) -> list[Verdict]:
    """Return verdicts on the crucial values that a run logs; each metric is judged once.

    ``series`` maps logged names to their values over steps; ``names`` has their meanings, or is the source of the
    names. A name whose meaning is ambiguous is not judged.
    """
    if not isinstance(names, RunNames):
        names = RunNames(series, source=names, series=lambda name: series[name])
    logged = _logged(series, names)
    summaries = {id: summary for id, (_, _, summary) in logged.items() if summary is not None}
    verdicts: list[Verdict] = []
    for crucial in CRUCIAL:
        id, condition = next(((id, rule) for id, rule in crucial.conditions if id in logged), (None, None))
        if id is not None and condition is not None and all(verdict.metric != id for verdict in verdicts):
            name, match, summary = logged[id]
            word, text = _verdict(condition, match, summary, summaries, names.config)
            note = match.name.difference.note if match.name.difference else None
            verdicts.append(Verdict(crucial.key, crucial.title, name, id, word, text, note))
    return verdicts


def judged_names(names: RunNames) -> list[str]:
    """Return the names of which a verdict needs the series."""
    return [name for name in names.names if _judged_match(name, names) is not None]


def _judged_match(name: str, names: RunNames) -> Match | None:
    if not names.is_taught(name) and not any(one.match.metric.id in _JUDGED for one in candidates(name)):
        return None
    match = names.judged(name)
    return None if match is None or match.evaluated or match.metric.id not in _JUDGED else match


def _logged(
    series: Mapping[str, Iterable[float]], names: RunNames
) -> dict[str, tuple[str, Match, SeriesSummary | None]]:
    found: dict[str, tuple[str, Match, SeriesSummary | None]] = {}
    for name, values in series.items():
        match = _judged_match(name, names)
        if match is not None and match.metric.id not in found:
            logged = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
            found[match.metric.id] = (name, match, summarise(logged * _factor(match)))
    return found


def _factor(match: Match) -> float:
    """Return the factor from a logged number to the one that is judged."""
    difference = match.name.difference
    if difference is None or difference.factor is not None:
        return match.name.factor or 1.0
    # Without a factor only the sign is known; the note of the difference is printed beside the verdict.
    return -1.0 if "sign" in difference.kinds else 1.0


def _verdict(
    condition: Condition,
    match: Match,
    summary: SeriesSummary | None,
    others: Mapping[str, SeriesSummary],
    config: ConfigFacts,
) -> Judgement:
    if match.name.difference is not None and not match.name.difference.comparable:
        return "unknown", match.name.difference.note
    if summary is None:
        return _judgement("bad", "no finite value", "没有有限值")
    # Before any condition: one NaN in a loss or a KL is a fault, however good the other values are.
    if summary.nonfinite:
        return _judgement(
            "bad",
            f"{summary.nonfinite} of {summary.count} values are NaN or infinite",
            f"{summary.count} 个值中有 {summary.nonfinite} 个是 NaN 或无穷",
        )
    if condition in (_POSITIVE_KL, _SIGNED_KL):
        return _judge_reference_kl(condition, match, summary, config)
    return condition.judge(summary, others, config)


def _judge_reference_kl(condition: Condition, match: Match, series: SeriesSummary, config: ConfigFacts) -> Judgement:
    """Judge a KL to the reference by the estimator that is configured; where it is not known, the values show it."""
    off = config.reference_kl_off
    if series.low == series.high == 0.0 and off:
        return _judgement("unknown", f"always 0: it is not computed with {off}", f"恒为 0：在 {off} 时不计算")
    difference = match.name.difference
    if difference is None or "estimator" not in difference.kinds:
        return condition.judge(series, {}, config)
    configured = config.kl_estimator(match.metric.id)
    signed = configured.value == "k1" if configured else condition is _SIGNED_KL or series.low < 0.0
    word, text = (_SIGNED_KL if signed else _POSITIVE_KL).judge(series, {}, config)
    if configured is None:
        return word, text
    return word, Text(f"{text.en} ({configured.settings})", f"{text.zh}（{configured.settings}）")
