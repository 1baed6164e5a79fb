"""What is looked at in a run: its case, made from the meanings of its names with the metrics that each signal can be
taken from, the best first; and its crucial values, each with a word from the findings of the rules that look at it.
"""

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
from collections.abc import Callable

from barograph.base.arrays import Floats, Ints
from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import RunNames

SIGNALS: dict[str, tuple[str, ...]] = {
    "reward": (
        "reward/score/mean", "reward/score_not_aborted/mean", "reward/rlhf/mean", "reward/shaped/mean",
        "reward/shaped_not_aborted/mean", "reward/token/mean",
    ),
    "trained_reward": ("reward/rlhf/mean", "reward/shaped/mean", "reward/shaped_not_aborted/mean"),
    "reward_std": ("reward/score/std",),
    "reward_min": ("reward/score/min", "reward/score_not_aborted/min"),
    "reward_max": ("reward/score/max", "reward/score_not_aborted/max"),
    "dead_groups": ("reward/zero_std_groups",),
    "solved_none": ("reward/groups/solved_none",),
    "solved_all": ("reward/groups/solved_all",),
    "advantage_mean": ("reward/advantages/mean",),
    "advantage_std": ("reward/advantages/std",),
    "advantage_min": ("reward/advantages/min",),
    "advantage_max": ("reward/advantages/max",),
    "loss": ("policy/loss/total", "policy/loss/pg", "training/loss"),
    "gradient": ("policy/grad_norm",),
    "entropy": ("policy/entropy/mean", "evaluation/entropy/mean"),
    "kl": ("policy/kl_loss", "policy/ref_kl_k3", "policy/ref_kl_exact", "policy/ref_kl_k1"),
    "kl_sum": ("policy/ref_kl_sum",),
    "kl_coef": ("reward/kl_coef",),
    "entropy_coef": ("policy/entropy_coef",),
    "step_kl": ("policy/kl_k2", "policy/kl_k3", "policy/kl_exact", "policy/kl_k1"),
    "ratio": ("policy/ratio/mean", "verl/actor/prefix_ratio_mean"),
    "clipped": ("policy/clip_fraction",),
    "length": ("tokens/response_length/mean", "tokens/response_length_not_aborted/mean", "tokens/total_length/mean"),
    "length_max": ("tokens/response_length/max", "tokens/response_length_not_aborted/max"),
    "length_min": ("tokens/response_length/min", "tokens/response_length_not_aborted/min"),
    "truncated": ("tokens/response_truncated", "tokens/response_length_not_aborted/truncated"),
    "ended": ("tokens/contains_eos",),
    "end_tokens": ("tokens/eos_count",),
    "repetition": ("tokens/repetition",),
    "aborted": ("tokens/aborted",),
    "runs_failed": ("rollout/coverage/runs_failed",),
    "runs_expected": ("rollout/coverage/runs_expected",),
    "learning_rate": ("policy/lr",),
    "value_loss": ("value/loss",),
    "explained_variance": ("value/explained_variance",),
    "value_gradient": ("value/grad_norm",),
    "mismatch": ("policy/mismatch/probability_difference/mean",),
    "mismatch_log": ("policy/mismatch/log_prob_difference/mean",),
    "mismatch_kl": ("policy/mismatch/kl_k3", "policy/mismatch/kl_k1"),
    "sample_size": ("policy/mismatch/effective_sample_size", "policy/mismatch/is_weight/effective_sample_size"),
    "weight": ("policy/mismatch/is_weight/mean", "policy/mismatch/ratio/mean"),
    "weight_std": ("policy/mismatch/is_weight/std", "policy/mismatch/ratio/std"),
    "staleness": ("sample/staleness/mean",),
    "evaluated": ("validation/coverage/runs_observed",),
    "step_time": ("time/step",),
    "throughput": ("system/tokens_per_second", "system/tokens_per_second_per_device"),
    "host_memory": ("memory/host/used",),
}  # fmt: skip
"""The metrics that a signal can be taken from, by their ids, the best first."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "component": ("reward/component/{component}/mean",),
    "component_std": ("reward/component/{component}/std",),
    "validation": (
        "validation/score/mean", "validation/accuracy", "validation/correct", "eval/{taskset}/{metric}/mean@{k}",
        "eval/{taskset}/{metric}/mean",
    ),
    "rss": ("memory/cpu/{phase}/{when}/rss",),
    "device_memory": ("memory/{phase}/end/onload/max_allocated_frac/{device}",),
    "phase": ("time/{phase}/total",),
    "per_token": ("time/per_token/{phase}",),
    "slowest_rank": ("time/{phase}/ranks/max",),
    "mean_rank": ("time/{phase}/ranks/mean",),
}  # fmt: skip
"""Signals of which a run can have several, such as the components of its reward."""

SCORES = ("score", "reward", "acc", "correct", "pass", "success", "solved", "win", "em", "f1")
"""Words in the name of an evaluated metric that is higher where tasks are solved better."""

Read = Callable[[str], tuple[Ints, Floats]]


def collect(names: RunNames, read: Read, known: dict[str, Track] | None = None, **facts: Any) -> Case:
    """Return the case of a run from the meanings of its names; ``read`` returns steps and values of a name.

    An ambiguous name is not used, and neither is one whose number is not comparable. ``known`` are the tracks of an
    earlier case by their names; those of this one take their places.
    """
    known = {} if known is None else known
    by_id: dict[str, list[tuple[str, Match]]] = {}
    refused: dict[str, Text] = {}
    notes: dict[str, Text] = {}
    for name in names.names:
        match = names.judged(name)
        if match is None:
            refused |= _undecided(names, name)
        elif not match.evaluated and _is_comparable(match):
            by_id.setdefault(match.metric.id, []).append((name, match))
            notes |= {name: match.name.difference.note} if match.name.difference is not None else {}
        elif not match.evaluated and match.name.difference is not None:
            refused |= dict.fromkeys(_KEYS.get(match.metric.id, ()), match.name.difference.note)
    kept: dict[str, Track] = {}

    def track(key: str, id: str, name: str, match: Match) -> Track:
        if name not in kept:
            steps, values = read(name)
            before = known.get(name)
            if before is None or (before.key, before.metric) != (key, id):
                before = Track(key, name, id, steps[:0], values[:0])
            kept[name] = known[name] = before.extended(steps, values * _factor(match))
        return kept[name]

    tracks = {
        key: track(key, id, *by_id[id][0])
        for key, ids in SIGNALS.items()
        for id in [next((id for id in ids if id in by_id), None)]
        if id is not None
    }
    families = {key: [track(key, id, *one) for id in ids for one in by_id.get(id, ())] for key, ids in FAMILIES.items()}
    families["validation"] = [found for found in families["validation"] if _is_score(names.judged(found.name))]
    refused = {key: reason for key, reason in refused.items() if key not in tracks}
    places = {name: dict(match.filled) for found in by_id.values() for name, match in found if match.filled}
    return Case(tracks, families, refused=refused, notes=notes, places=places, **facts)


_KEYS = {id: [key for key, ids in SIGNALS.items() if id in ids] for ids in SIGNALS.values() for id in ids}
"""The signals that a metric can be taken for."""


def _undecided(names: RunNames, name: str) -> dict[str, Text]:
    """Return the signals that an ambiguous name may be, with the reason why it is not used."""
    keys = {key: id for id in names.resolve(name).meanings for key in _KEYS.get(id, ())}
    if not keys:
        return {}
    titles = [REGISTRY.metric(id).title for id in names.resolve(name).meanings]
    reason = Text(
        f"{name} may be {' or '.join(title.en for title in titles)}; --source decides",
        f"{name} 可能是 {'，或 '.join(title.zh for title in titles)}；用 --source 指定",
    )
    return dict.fromkeys(keys, reason)


def _is_score(match: Match | None) -> bool:
    """Return whether an evaluated metric says how well tasks are solved; others may well fall."""
    metric = dict(match.filled if match is not None else ()).get("metric", "score").lower()
    return any(word in metric for word in SCORES)


def _is_comparable(match: Match) -> bool:
    return match.name.difference is None or match.name.difference.comparable


def _factor(match: Match) -> float:
    """Return the factor from a logged number to the one that is judged."""
    difference = match.name.difference
    if difference is None or difference.factor is not None:
        return match.name.factor or 1.0
    return -1.0 if "sign" in difference.kinds else 1.0


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
        record = asdict(self)
        texts = {name: record.pop(name) for name in ("text", "note")}
        return {**record, "verdict": asdict(WORDS[self.word]), **texts}


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
