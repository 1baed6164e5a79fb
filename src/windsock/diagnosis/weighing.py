"""How sure a finding is: how long it has held, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from windsock.catalogue.spec import Text
from windsock.diagnosis.case import Case
from windsock.diagnosis.rules.shared import RISING_EFFECT
from windsock.diagnosis.tracks import MIN_TREND, Track, kendall_chance, rise
from windsock.findings import Finding

FACTS = frozenset(("nonfinite", "restart", "crash_loop", "kl_spike", "kl_offset_start", "lr_implausible", "lr_zero"))
"""Rules that say what is in the log: one row is enough."""
DOUBTED = frozenset(("proxy_gold_gap", "component_tradeoff", "format_only_gain", "val_train_gap"))
"""Rules that doubt the reward itself: that it rises does not speak against them."""
SHORT_ROWS, LONG_ROWS = 10, 30
MAX_CHANCE = 0.01  # that a reward without a trend rises as much


def weighed(case: Case, finding: Finding) -> Finding:
    """Return a finding with its confidence and what speaks against it."""
    track = _track(case, finding.name)
    if track is None:
        return finding
    against = tuple(_against(case, finding, track))
    return replace(finding, confidence=_confidence(finding, track, bool(against)), against=against)


def _track(case: Case, name: str) -> Track | None:
    tracks = (*case.tracks.values(), *(one for many in case.families.values() for one in many))
    return next((track for track in tracks if track.name == name), None)


def _against(case: Case, finding: Finding, track: Track) -> Iterator[Text]:
    reward = case.get("reward")
    is_doubt = finding.rule in DOUBTED or (reward is not None and track.name == reward.name)
    if reward is not None and finding.severity != "info" and not is_doubt and _rises(reward, finding.onset):
        yield Text("the reward still rises", "奖励仍在上升")
    since = int(np.count_nonzero(track.steps > finding.last))
    if finding.is_open and since:
        yield Text(f"it does not show in the last logged steps ({since})", f"最近记录的 {since} 步中没有出现")


def _rises(reward: Track, onset: int) -> bool:
    """Return whether the reward rises in the later half of the rows since an onset."""
    since = reward.finite[reward.steps >= onset]
    recent = since[-max(MIN_TREND, len(since) // 2) :]
    return len(recent) >= MIN_TREND and rise(recent) > RISING_EFFECT and kendall_chance(recent) < MAX_CHANCE


def _confidence(finding: Finding, track: Track, is_disputed: bool) -> str:
    if finding.rule in FACTS:
        return "high"
    held = int(np.count_nonzero((track.steps >= finding.onset) & (track.steps <= finding.last)))
    if held < SHORT_ROWS:
        return "low"
    return "medium" if is_disputed or held < LONG_ROWS else "high"
