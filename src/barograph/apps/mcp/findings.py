"""What the doctor says about a run, in one language and few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barograph.answers.schemas import INTEGER, TEXT, list_of, nullable, one_of, record
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import Diagnosis, Note, short_reasons
from barograph.journal.findings import SEVERITIES, Finding

MAX_EXPLAINED = 10
SEVERITY = one_of(*SEVERITIES[1:])
BRIEF = record({"rule": TEXT, "severity": SEVERITY, "title": TEXT, "since": INTEGER, "until": nullable(INTEGER)})
SHORT = record({**BRIEF["properties"], "text": TEXT, "evidence": list_of(TEXT)})
FULL = record(
    {
        **SHORT["properties"], "confidence": TEXT, "against": list_of(TEXT), "advice": list_of(TEXT),
        "explains": list_of(BRIEF),
    }
)  # fmt: skip
SIGN = record({"name": TEXT, "word": TEXT, "text": TEXT})
NOT_JUDGED = record({"reason": TEXT, "rules": list_of(TEXT)})


def brief(finding: Finding, lang: str) -> dict[str, Any]:
    """Return a finding with its title and its steps; ``until`` is None as long as it holds."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title.get(lang),
        "since": finding.onset,
        "until": None if finding.is_open else finding.last,
    }


def short(finding: Finding, lang: str) -> dict[str, Any]:
    """Return a finding with what was seen and the metrics that show it."""
    return {**brief(finding, lang), "text": finding.text.get(lang), "evidence": list(finding.evidence)}


def full(finding: Finding, lang: str) -> dict[str, Any]:
    """Return a finding with how sure it is, what speaks against it, what it explains, and what to do."""
    return {
        **short(finding, lang),
        "confidence": finding.confidence,
        "against": [text.get(lang) for text in finding.against],
        "advice": [text.get(lang) for text in finding.advice],
        "explains": [brief(one, lang) for one in finding.explains[:MAX_EXPLAINED]],
    }


def signs(diagnosis: Diagnosis, lang: str) -> list[dict[str, str]]:
    """Return the vital signs, each with a word and its value, or with the rule whose finding says more."""
    rules = {finding.text: finding.rule for finding in diagnosis.findings}
    return [
        {
            "name": sign.name,
            "word": sign.word,
            "text": f"see {rules[sign.text]}" if sign.text in rules else sign.text.get(lang),
        }
        for sign in diagnosis.signs
    ]


def not_judged(diagnosis: Diagnosis, lang: str) -> list[dict[str, Any]]:
    """Return why rules could not look, each reason once, the one of the most rules first."""
    by_reason: dict[Text, list[Note]] = {}
    for note, reason in zip(diagnosis.unmeasured, short_reasons(diagnosis.unmeasured), strict=True):
        by_reason.setdefault(reason, []).append(note)
    found = sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
    return [{"reason": reason.get(lang), "rules": [note.rule for note in notes]} for reason, notes in found]


def serious(findings: Sequence[Finding], least: str) -> list[Finding]:
    """Return the findings that are open and at least as severe."""
    return [one for one in findings if one.is_open and SEVERITIES.index(one.severity) >= SEVERITIES.index(least)]
