"""The crucial values of a run, each with a word from the findings of the rules that look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.catalogue.headline import crucial_values
from barograph.catalogue.spec import Headline, Text
from barograph.diagnosis.rule import Case, number
from barograph.journal.findings import SEVERITIES, Finding
from barograph.metrics.tracks import Track

if TYPE_CHECKING:
    from barograph.diagnosis.diagnose import Note

WORDS = {
    "good": Text("good", "正常"),
    "watch": Text("watch", "留意"),
    "bad": Text("bad", "异常"),
    "unknown": Text("not clear", "无法判断"),
}

OF_SEVERITY = {"critical": "bad", "warning": "watch"}

RECENT = 5  # rows whose median is the current level

REWARDS = ("reward_constant", "no_signal", "reward_falling", "reward_flat", "proxy_gold_gap")

RULES_OF: Mapping[str, tuple[str, ...]] = {
    "reward": REWARDS,
    "score": REWARDS,
    "kl": ("kl_drift", "kl_spike", "kl_negative", "kl_offset_start"),
    "value_loss": ("value_loss_spike",),
    "ratio": ("ratio_drift",),
    "clip": ("clipfrac_high", "clipfrac_zero"),
    "kl_now": ("ppo_kl_high",),
    "kl_coef": ("kl_coef_growing",),
}
"""The rules that judge a crucial value, besides the one on values that are not finite."""


@dataclass(frozen=True)
class Sign:
    """A crucial value of a run: its name, and what the doctor says about it.

    ``note`` is the difference between the logged number and the metric.
    """

    key: str
    title: Text
    name: str
    metric: str
    word: str
    text: Text
    note: Text | None = None

    def record(self) -> dict[str, Any]:
        """Return the sign as JSON."""
        return {
            "key": self.key,
            "title": asdict(self.title),
            "name": self.name,
            "metric": self.metric,
            "word": self.word,
            "verdict": asdict(WORDS[self.word]),
            "text": asdict(self.text),
            "note": None if self.note is None else asdict(self.note),
        }


def signs_of(case: Case, found: Sequence[Finding], unmeasured: Iterable[Note]) -> tuple[Sign, ...]:
    """Return the crucial values that a run logs; each metric is listed once."""
    by_metric = {track.metric: track for track in case.tracks.values() if len(track)}
    reasons = {note.rule: note.text for note in unmeasured}
    signs: list[Sign] = []
    for crucial in crucial_values():
        track = next((by_metric[id] for id in crucial.metrics if id in by_metric), None)
        if track is not None and all(sign.metric != track.metric for sign in signs):
            word, text = _judged(crucial, track, list(_about(crucial, track, found)), reasons)
            signs.append(
                Sign(crucial.key, crucial.title, track.name, track.metric, word, text, case.notes.get(track.name))
            )
    return tuple(signs)


def _about(crucial: Headline, track: Track, found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings about a crucial value, the worst first."""
    for finding in sorted(found, key=lambda one: (-SEVERITIES.index(one.severity), one.onset)):
        if finding.rule in RULES_OF[crucial.key] or (finding.rule == "nonfinite" and track.name in finding.evidence):
            yield finding


def _judged(crucial: Headline, track: Track, about: Sequence[Finding], reasons: Mapping[str, Text]) -> tuple[str, Text]:
    serious = [finding for finding in about if finding.is_open and finding.severity in OF_SEVERITY]
    if serious:
        text = _nonfinite(track) if serious[0].rule == "nonfinite" else serious[0].text
        return OF_SEVERITY[serious[0].severity], text
    rules = RULES_OF[crucial.key]
    if all(rule in reasons for rule in rules):
        return "unknown", reasons[rules[0]]
    word, text = _trend(track) if crucial.key in ("reward", "score") else ("good", _level(track))
    over = next((finding for finding in about if not finding.is_open and finding.severity in OF_SEVERITY), None)
    return word, text if over is None else _with_past(text, over)


def _nonfinite(track: Track) -> Text:
    bad = np.flatnonzero(~np.isfinite(track.values))
    rows, step = len(track) - bad[0], track.steps[bad[0]]
    return Text(
        f"NaN or infinite in {len(bad)} of {rows} rows since step {step}",
        f"从第 {step} 步起，{rows} 行中有 {len(bad)} 行为 NaN 或无穷",
    )


def _level(track: Track) -> Text:
    now = number(float(np.nanmedian(track.finite[-RECENT:])))
    return Text(now, now)


def _trend(track: Track) -> tuple[str, Text]:
    """Return whether a reward rises, with its mean in the first and the last third."""
    third = max(1, len(track) // 3)
    early, late = (float(np.nanmean(part)) for part in (track.finite[:third], track.finite[-third:]))
    change = f"{number(early)} → {number(late)}"
    effect, chance = float(track.trend.effect[-1]), float(track.trend.chance[-1])
    if effect > 0 and chance < 0.01:
        return "good", Text(f"rising, {change}", f"在上升，{change}")
    start = track.first(RECENT)
    if late - start > 3 * float(np.nanstd(track.finite[-third:])):
        whole = f"{number(start)} → {number(late)}"
        return "good", Text(f"has risen, {whole}, and is flat now", f"已上升，{whole}，目前持平")
    return "unknown", Text(f"no clear trend, {change}", f"没有明显趋势，{change}")


def _with_past(text: Text, finding: Finding) -> Text:
    steps = f"{finding.onset}–{finding.last}" if finding.last > finding.onset else f"{finding.onset}"
    earlier = Text(f"{finding.title.en} (step {steps})", f"{finding.title.zh}（第 {steps} 步）")
    return Text(f"{text.en}; earlier: {earlier.en}", f"{text.zh}；此前：{earlier.zh}")
