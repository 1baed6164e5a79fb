"""How sure a finding is: how long it has held, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from windsock.catalogue.spec import Text
from windsock.diagnosis.case import Case
from windsock.diagnosis.rules.shared import is_learning
from windsock.diagnosis.tracks import Track
from windsock.findings import Finding

FACTS = frozenset(("nonfinite", "restart", "crash_loop", "kl_spike", "kl_offset_start", "lr_implausible", "lr_zero"))
"""Rules that say what is in the log: one row is enough."""
DOUBTED = frozenset(("proxy_gold_gap", "component_tradeoff", "format_only_gain", "val_train_gap"))
"""Rules that doubt the reward itself: that it rises does not speak against them."""
SHORT_ROWS, LONG_ROWS = 10, 30


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
    is_doubt = finding.rule in DOUBTED or reward is None or track.name == reward.name
    if finding.severity != "info" and not is_doubt and is_learning(case, track.steps[-1:]).any():
        yield Text("the reward still rises", "奖励仍在上升")
    since = int(np.count_nonzero(track.steps > finding.last))
    if finding.is_open and since:
        yield Text(f"it does not show in the last logged steps ({since})", f"最近记录的 {since} 步中没有出现")


def _confidence(finding: Finding, track: Track, is_disputed: bool) -> str:
    if finding.rule in FACTS:
        return "high"
    held = int(np.count_nonzero((track.steps >= finding.onset) & (track.steps <= finding.last)))
    if held < SHORT_ROWS:
        return "low"
    return "medium" if is_disputed or held < LONG_ROWS else "high"
