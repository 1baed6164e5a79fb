"""The diagnosis of a run: findings with their causes and how sure they are, what is fine, and what could not be
judged.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.base.formatting import counted
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import Text
from barograph.diagnosis.rule import (
    MIN_ROWS,
    RISING_EFFECT,
    Case,
    LoggedAttempt,
    Rule,
    RuleReading,
    Spell,
    UnmeasuredError,
    filled,
    is_learning,
    signal_words,
    spells,
    topic_of,
)
from barograph.diagnosis.rules import RULES
from barograph.diagnosis.signals import Sign, collect, signs_of
from barograph.importers.summary import run_names
from barograph.journal.findings import SEVERITIES, Finding
from barograph.journal.view import View
from barograph.metrics.tracks import MIN_TREND, Track, kendall_chance, rise

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


MAX_GAP = 50  # steps between the end of a cause and what it has left

HELPFUL = (
    "gradient", "kl", "kl_sum", "entropy", "truncated", "length", "dead_groups", "reward_std", "loss", "ratio",
    "value_loss",
)  # fmt: skip

SENSORS = ("entropy", "kl", "kl_sum", "ratio", "loss")  # move in every training, if they are computed

LEARNT_FROM = ("gradient", "dead_groups", "solved_none", "reward_std", "reward_max", "advantage_max")

VERDICTS = {
    "healthy": Text("healthy", "正常"),
    "watch": Text("watch", "留意"),
    "sick": Text("sick", "异常"),
    "cannot tell": Text("cannot tell", "无法判断"),
}


@dataclass(frozen=True)
class Note:
    """What a rule says that found nothing: that it is fine, or why it cannot judge.

    ``topic`` is what the reason has in common with those of other rules.
    """

    rule: str
    title: Text
    text: Text
    topic: Text | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor says about a run."""

    verdict: str
    findings: tuple[Finding, ...]  # open ones, the most important first
    past: tuple[Finding, ...] = ()  # closed again
    fine: tuple[Note, ...] = ()
    unmeasured: tuple[Note, ...] = ()
    reasons: tuple[Text, ...] = ()
    signs: tuple[Sign, ...] = ()  # the crucial values, each with a word

    def record(self, id: str, name: str) -> dict[str, Any]:
        """Return the diagnosis as JSON; ``id`` and ``name`` are those of the run."""
        return {
            "run": id,
            "name": name,
            "verdict": self.verdict,
            "findings": [finding.record() for finding in self.findings],
            "past": [finding.record() for finding in self.past],
            "fine": [note.rule for note in self.fine],
            "unmeasured": [{"rule": note.rule, "reason": asdict(note.text)} for note in self.unmeasured],
            "reasons": [asdict(reason) for reason in self.reasons],
            "signs": [sign.record() for sign in self.signs],
        }


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of values near the largest float
def diagnose(case: Case) -> Diagnosis:
    """Judge a case by all rules."""
    found: list[Finding] = []
    fine: list[Note] = []
    unjudged: list[Note] = []
    for rule in RULES.values():
        if not rule.needs and not case.tracks:
            continue
        try:
            own = findings_by(rule, case)
        except UnmeasuredError as why:
            unjudged.append(_cannot(rule, case, why))
            continue
        found += own
        if not any(finding.is_open for finding in own):
            fine.append(Note(rule.id, rule.words.title, rule.words.sees))
    now = [finding for finding in found if finding.is_open]
    open_rules = {finding.rule for finding in now}  # which need no earlier finding of theirs as a cause
    over = [finding for finding in found if not finding.is_open and finding.rule not in open_rules]
    causes = [finding for finding in over if any(_left(finding, later) for later in now)]
    past = tuple(finding for finding in found if not finding.is_open and finding not in causes)
    findings = tuple(weighed(case, finding) for finding in merged([*causes, *now]))
    verdict, reasons = _verdict(case, findings)
    signs = signs_of(case, found, unjudged)
    return Diagnosis(verdict, findings, past, tuple(fine), tuple(unjudged), reasons, signs)


def _cannot(rule: Rule, case: Case, why: UnmeasuredError) -> Note:
    """Return why a rule cannot judge; of what it needs, the sentence can name what is missing.

    What is logged and not used is a better reason than that it is not there.
    """
    refused = [case.refused[key] for key in rule.needs if key in case.refused]
    if refused and all(case.get(key) is None for key in rule.needs):
        return Note(rule.id, rule.words.title, refused[0])
    missing = [key for key in rule.needs if case.get(key) is None and not case.families.get(key)] or rule.needs
    text = filled(rule.words.cannot[why.reason], {"missing": signal_words(missing), **why.facts})
    return Note(rule.id, rule.words.title, text, topic_of(why.reason, missing))


def short_reasons(notes: Sequence[Note]) -> list[Text]:
    """Return a reason for each note: its topic where the notes of that topic differ, else its own text."""
    texts: dict[Text | None, set[Text]] = {}
    for note in notes:
        texts.setdefault(note.topic, set()).add(note.text)
    return [note.text if note.topic is None or len(texts[note.topic]) == 1 else note.topic for note in notes]


def _left(cause: Finding, later: Finding) -> bool:
    """Return whether a finding that is over has left one that is not: it explains it and came shortly before."""
    near = cause.onset <= later.onset <= cause.last + max(MAX_GAP, (cause.last - cause.onset) // 2)
    return later.rule in RULES[cause.rule].explains and later.severity != "info" and near and _can_cause(cause, later)


def findings_by(rule: Rule, case: Case) -> list[Finding]:
    """Return what a rule finds in a case; raise UnmeasuredError if it cannot judge."""
    reading = rule.judge(case)
    found = findings_of(rule, reading)
    if not found and len(reading.track) < rule.rows:
        raise UnmeasuredError("early", count=len(reading.track), needed=rule.rows)
    return found


def findings_of(rule: Rule, reading: RuleReading) -> list[Finding]:
    """Return the findings of a rule, in the order in which they began."""
    return [_finding(rule, reading, spell) for spell in spells(reading.levels, rule.persist)]


def _finding(rule: Rule, reading: RuleReading, spell: Spell) -> Finding:
    track = reading.track
    row = spell.first if reading.onset is None else reading.onset(spell)
    beside = (other.name for other in reading.beside if other is not None)
    return Finding(
        rule=rule.id,
        severity=SEVERITIES[spell.level],
        title=rule.words.title,
        text=filled(rule.words.says, reading.facts(spell)),
        name=track.name,
        metric=track.metric,
        onset=int(track.steps[row]),
        last=int(track.steps[spell.last]),
        is_open=spell.is_open,
        advice=rule.words.advice,
        evidence=tuple(dict.fromkeys((track.name, *beside))),
    )


def merged(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put the findings that another one explains under it, and order by importance."""
    under: dict[str, list[Finding]] = {}
    top = []
    for finding in found:
        causes = [other for other in found if finding.rule in RULES[other.rule].explains and _can_cause(other, finding)]
        cause = _root(causes)
        if cause is None:
            top.append(finding)
        else:
            under.setdefault(cause.rule, []).append(finding)
    complete = [_with(finding, _all_under(finding.rule, under, set())) for finding in top]
    return tuple(sorted(complete, key=lambda one: (-SEVERITIES.index(one.severity), one.onset)))


def _can_cause(cause: Finding, symptom: Finding) -> bool:
    """Return whether a finding can explain another: an info explains no warning."""
    return SEVERITIES.index(cause.severity) >= min(2, SEVERITIES.index(symptom.severity))


def _root(causes: Iterable[Finding]) -> Finding | None:
    """Return the first cause."""
    return min(causes, key=lambda one: (one.onset, -SEVERITIES.index(one.severity)), default=None)


def _all_under(rule: str, under: dict[str, list[Finding]], seen: set[str]) -> list[Finding]:
    found = []
    for finding in under.get(rule, ()):
        if finding.rule not in seen:
            seen.add(finding.rule)
            found += [finding, *_all_under(finding.rule, under, seen)]
    return found


def _with(finding: Finding, explained: Sequence[Finding]) -> Finding:
    """Return a finding that is as severe as what it explains."""
    worst = max((finding, *explained), key=lambda one: SEVERITIES.index(one.severity)).severity
    return replace(finding, explains=tuple(explained), severity=worst)


def _verdict(case: Case, found: Sequence[Finding]) -> tuple[str, tuple[Text, ...]]:
    worst = max((SEVERITIES.index(finding.severity) for finding in found), default=0)
    if worst >= 2:
        return ("sick" if worst == 3 else "watch"), ()
    reason = _too_little(case)
    return ("healthy", ()) if reason is None else ("cannot tell", (reason,))


def _is_helpful(case: Case, key: str) -> bool:
    """Return whether a signal is logged and measured: an entropy that never moves says nothing."""
    track = case.get(key)
    return track is not None and not (key in SENSORS and track.is_constant)


def _too_little(case: Case) -> Text | None:
    """Return why a run without a warning cannot be called healthy: what would show its trouble is not there."""
    reward = case.get("reward")
    if reward is None:
        return Text("no reward is logged", "没有记录奖励")
    if len(reward) < MIN_ROWS:
        return Text(
            f"{counted(len(reward), 'logged step is', 'logged steps are')} too few: a verdict needs {MIN_ROWS}",
            f"只记录了 {len(reward)} 步，太少：需要 {MIN_ROWS} 步",
        )
    if sum(_is_helpful(case, key) for key in HELPFUL) < 2:
        return Text("little besides the reward is logged", "除奖励外几乎没有记录")
    if not is_learning(case, reward.steps[-1:]).any() and all(case.get(key) is None for key in LEARNT_FROM):
        return Text(
            "the reward does not rise, and neither the gradient norm nor the spread of rewards is logged: "
            "a run that learns nothing would look the same",
            "奖励没有上升，而梯度范数和奖励的离散程度都没有记录：什么也没学到的实验看起来也是这样",
        )
    return None


GROWN = 1.2  # times as many steps as when the meanings of names were last decided


def doctor(view: View) -> Diagnosis:
    """Return what is wrong with a run, since when, what is fine, and what could not be judged."""
    return Visit().diagnose(view)


class Visit:
    """A doctor who stays with a run: a further diagnosis computes what is new."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._names: RunNames | None = None
        self._named_at = 0

    def diagnose(self, view: View, names: RunNames | None = None) -> Diagnosis:
        """Return the diagnosis of the run as it is now; ``names`` has the meanings of its names, if known."""
        return diagnose(self.case_of(view, names))

    def case_of(self, view: View, names: RunNames | None = None) -> Case:
        """Return what the rules look at."""
        rows: list[Floats] = []

        def read(name: str) -> tuple[Ints, Floats]:
            series = view.series(name)
            rows.append(series.times)
            return np.asarray(series.steps, np.int64), np.asarray(series.values, np.float64)

        case = collect(names or self._meanings(view), read, self._tracks, config=view.config)
        reward = case.get("reward")
        # In a notebook, a supervised training may come first: it is not an earlier start of this one.
        attempts = view.attempt_steps(reward.name if reward is not None else None)
        case = replace(case, attempts=[LoggedAttempt(*steps) for steps in attempts])
        is_live = view.origin is None and not view.status.ended
        return _with_pulse(case, max(rows, key=len, default=np.empty(0))) if is_live else case

    def _meanings(self, view: View) -> RunNames:
        """Return the meanings of the names. Values can decide some: they are looked at again as the run grows."""
        last = view.steps[1] if view.steps else 0
        if self._names is None or self._names.names != view.names() or last > GROWN * self._named_at:
            self._names, self._named_at = run_names(view), last
        return self._names


def _with_pulse(case: Case, times: Floats) -> Case:
    """Return the case of a run that goes on, with the seconds since its last row and between rows."""
    if len(times) < 2:
        return case
    return replace(case, silence=time.time() - float(times[-1]), pace=float(np.median(np.diff(times))))
