"""What rules say about judged runs, at their end and before, and whether it is right."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barograph.diagnosis.diagnose import findings_of
from barograph.diagnosis.rule import Case, Rule, RuleReading, UnmeasuredError
from barograph.journal.findings import SEVERITIES
from judged_runs.runs import HEALTHY, UNHEALTHY, WARNING, JudgedRun

EARLY = (0.1, 0.25, 0.5)  # of a healthy run
END = 1.0


@dataclass(frozen=True)
class Said:
    """The worst severity that a rule gives at a time: of findings that are open then, and of all until then."""

    now: int = 0
    ever: int = 0
    could_judge: bool = True


Answers = Mapping[float, Mapping[str, Said]]
"""What each rule says about a run, by the share of the run that it has seen."""


def answers(run: JudgedRun, rules: Mapping[str, Rule]) -> Answers:
    """Ask rules about a run; about a healthy one also before its end."""
    times = (*EARLY, END) if run.verdict == HEALTHY else (END,)
    return {share: said_by(rules.values(), part(run.case, share)) for share in times}


def part(case: Case, share: float) -> Case:
    """Return the first part of a run, by its steps.

    It has tracks of its own, also at the end: a track keeps what a rule has computed, with the thresholds of that rule.
    """
    steps = [int(step) for track in case.tracks.values() if len(track) for step in (track.steps[0], track.steps[-1])]
    if share == END or not steps:
        return case.upto(sys.maxsize)
    return case.upto(int(min(steps) + share * (max(steps) - min(steps))))


def said_by(rules: Iterable[Rule], case: Case) -> dict[str, Said]:
    """Return what each rule says about a case."""
    found = {}
    for rule in rules:
        try:
            reading = rule.judge(case)
        except UnmeasuredError:
            reading = None
        if isinstance(reading, RuleReading):
            own = [(SEVERITIES.index(finding.severity), finding.is_open) for finding in findings_of(rule, reading)]
            now = max((level for level, is_open in own if is_open), default=0)
            found[rule.id] = Said(now, max((level for level, _ in own), default=0))
        else:
            found[rule.id] = Said(could_judge=False)
    return found


def rule_outcome(rule: str, run: JudgedRun, found: Answers) -> str:
    """Return the outcome of a rule on a run: hit, miss, false alarm, silent, cannot judge, or not known."""
    said = found[END].get(rule, Said(could_judge=False))
    if is_false_alarm(rule, run, found):
        return "false alarm"
    if rule in run.expected:
        return "hit" if said.ever >= run.expected[rule] else "miss"
    if run.verdict == HEALTHY or rule in run.forbidden:
        return "silent" if said.could_judge else "cannot judge"
    return "not known"  # what people wrote about a sick run need not be all that is wrong with it


def is_false_alarm(rule: str, run: JudgedRun, found: Answers) -> bool:
    """Return whether a rule warns on a healthy run, at its end or before, or although it must not."""
    if run.verdict == HEALTHY:
        return any(rule in alarms(found, share) for share in found)
    return rule in run.forbidden and found[END].get(rule, Said()).ever >= WARNING


def alarms(found: Answers, share: float) -> set[str]:
    """Return the rules with an open warning or worse after a share of the run."""
    return {rule for rule, said in found.get(share, {}).items() if said.now >= WARNING}


def run_outcome(run: JudgedRun, found: Answers) -> str:
    """Return the outcome of all rules on a run."""
    if run.verdict == HEALTHY:
        return "false alarm" if any(alarms(found, share) for share in found) else "silent"
    ever = {rule for rule, said in found[END].items() if said.ever >= WARNING}
    if run.verdict == UNHEALTHY:
        return "hit" if ever & set(run.causes) else "another cause" if ever else "miss"
    if ever & run.forbidden:
        return "false alarm"
    return "hit" if all(said_enough(rule, run, found) for rule in run.expected) else "miss"


def said_enough(rule: str, run: JudgedRun, found: Answers) -> bool:
    """Return whether an expected rule fired with its severity."""
    return found[END].get(rule, Said()).ever >= run.expected[rule]


@dataclass(frozen=True)
class Rates:
    """How often one rule, or all, were right."""

    counts: Mapping[str, int]
    early: Mapping[float, int]  # healthy runs with an alarm, by the share that was seen

    def __getitem__(self, outcome: str) -> int:
        return self.counts.get(outcome, 0)


def rates_of_rule(rule: str, runs: Sequence[JudgedRun], found: Mapping[str, Answers]) -> Rates:
    """Return how often a rule was right."""
    healthy = [run for run in runs if run.verdict == HEALTHY]
    early = {share: sum(rule in alarms(found[run.id], share) for run in healthy) for share in (*EARLY, END)}
    return Rates(Counter(rule_outcome(rule, run, found[run.id]) for run in runs), early)


def rates_of_runs(runs: Sequence[JudgedRun], found: Mapping[str, Answers]) -> Rates:
    """Return how often all rules together were right."""
    healthy = [run for run in runs if run.verdict == HEALTHY]
    early = {share: sum(bool(alarms(found[run.id], share)) for run in healthy) for share in (*EARLY, END)}
    return Rates(Counter(run_outcome(run, found[run.id]) for run in runs), early)
