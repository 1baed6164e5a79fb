"""Tools about whole runs: sum one up, what the doctor says, its config, a question, a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barograph.answers.comparison import compare_views
from barograph.answers.moments import moments
from barograph.answers.questions import answer, question_record
from barograph.answers.schemas import (
    ANY,
    COMPARED,
    FLAG,
    GROUP,
    INTEGER,
    PART,
    STATUS,
    STEPS,
    TEXT,
    VERDICT,
    list_of,
    mapping_of,
    nullable,
    one_of,
    record,
)
from barograph.apps.mcp.runs import ServedRuns, moment, tags_of
from barograph.apps.mcp.tool import (
    OFFSET,
    RUN,
    Arguments,
    Items,
    ToolAnswer,
    ToolError,
    answer_schema,
    is_match,
    number,
    text,
    texts,
    tool,
)
from barograph.apps.terminal.doctor import looked
from barograph.base.formatting import flatten, lasted
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import Diagnosis, Note, short_reasons
from barograph.importers.summary import run_warnings
from barograph.journal.findings import SEVERITIES, Finding
from barograph.journal.view import View

MAX_COMPARED = 50

MAX_MOMENTS = 5  # of each kind

MAX_REASONS = 3  # why rules could not look, in a summary

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

COMPARED_METRIC = record(
    {
        **{key: COMPARED["properties"][key] for key in ("name", "direction", "steps")},
        "title": TEXT,
        "last": mapping_of(ANY),
    }
)

SUMMARY = answer_schema(
    {
        "run": TEXT, "name": TEXT, "project": TEXT, "status": STATUS["status"], "steps": STEPS, "verdict": VERDICT,
        "rules": TEXT, "past_findings": INTEGER, "metrics": INTEGER, "settings": INTEGER, "samples": INTEGER,
        "moments": list_of(TEXT), "findings": list_of(SHORT), "vital_signs": list_of(SIGN),
        "not_judged": list_of(NOT_JUDGED), "warnings": list_of(TEXT), "began": TEXT, "last_heard": TEXT,
    },
    {
        "why_no_verdict": list_of(TEXT), "lasted": TEXT, "reason": TEXT, "source": TEXT, "tags": list_of(TEXT),
        "note": TEXT,
    },
)  # fmt: skip

FINDINGS = answer_schema(
    {
        "run": TEXT, "verdict": VERDICT, "rules": TEXT, "findings": list_of(FULL), "past": list_of(BRIEF),
        "not_judged": list_of(NOT_JUDGED), "not_found": list_of(TEXT),
    }
)  # fmt: skip

QUERY = answer_schema({"run": TEXT, "expression": TEXT, "answer": FLAG, "comparisons": list_of(PART)})

CONFIG = answer_schema({"run": TEXT, "total": INTEGER, "settings": list_of(record({"key": TEXT, "value": ANY}))})

COMPARISON = answer_schema(
    {
        "baseline": TEXT,
        "groups": list_of(GROUP),
        "runs": list_of(
            record({"run": TEXT, "name": TEXT, "group": TEXT, "verdict": VERDICT, "findings": list_of(TEXT)})
        ),
        "config": list_of(record({"key": TEXT, "values": mapping_of(ANY)})),
        "metrics": list_of(COMPARED_METRIC),
        "phases": list_of(record({"name": TEXT, "seconds": mapping_of(ANY)})),
    }
)


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


@tool("Summary of a run", {"run": RUN}, 1, SUMMARY)
def run_summary(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Sum up one run in a few hundred tokens: status, verdict, findings with the step since which each holds and the
    metrics that show it, vital signs, what could not be judged and why, warnings, notes.
    """
    with runs.use(arguments["run"]) as opened:
        view, diagnosis, lang = opened.view, opened.diagnosis(), runs.lang
        notes = runs.annotations.get(opened.location.key)
        details = f"run_findings with run={opened.location.key}"
        unjudged = not_judged(diagnosis, lang)
        data = {
            "run": opened.location.key,
            **_facts(view, notes),
            "verdict": diagnosis.verdict,
            "rules": looked(diagnosis, lang),
            **({"why_no_verdict": [reason.get(lang) for reason in diagnosis.reasons]} if diagnosis.reasons else {}),
            "past_findings": len(diagnosis.past),
            "metrics": len(view.names()),
            "settings": sum(1 for _ in flatten(view.config)),
            "samples": view.sample_census().kept,
            "moments": _moments(view),
        }
        lists = [
            Items("findings", [short(one, lang) for one in diagnosis.findings], details, share=0.5),
            Items("vital_signs", signs(diagnosis, lang), "list_metrics has all values", share=0.3),
            Items("not_judged", unjudged[:MAX_REASONS], details, total=len(unjudged), share=0.2),
            Items("warnings", run_warnings(view), "'barograph show' prints them", share=0.1),
        ]
        return ToolAnswer(data, lists)


def _facts(view: View, notes: dict[str, Any]) -> dict[str, Any]:
    info, status, (began, heard) = view.info, view.status, view.span
    facts = {
        "name": notes["name"] or info.name,
        "project": info.project,
        "status": status.word,
        "reason": status.reason,
        "steps": view.steps,
        "lasted": lasted(began, heard),
        "began": moment(began),
        "last_heard": moment(heard),
        "source": view.source or info.vocabulary,
        "tags": tags_of(info, notes),
        "note": notes["note"] or info.notes or "",
    }
    return {key: value for key, value in facts.items() if value not in ("", []) or key in ("name", "project")}


def _moments(view: View) -> list[str]:
    """Return what else happened, of each kind the last few."""
    by_kind: dict[str, list[str]] = {}
    for one in moments(view):
        line = f"{one.kind} at step {one.step}" + (f": {one.text}" if one.text else "")
        by_kind.setdefault(one.kind, []).append(line)
    return [line for lines in by_kind.values() for line in lines[-MAX_MOMENTS:]]


@tool("Findings of the doctor", {"run": RUN, "offset": OFFSET}, 1, FINDINGS)
def run_findings(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Everything that the doctor says about one run: open findings with evidence, confidence, what speaks against
    them, what they explain and what to do next; findings that are over; rules that found nothing; rules that could
    not look.

    The names in 'evidence' are metrics for get_series.
    """
    with runs.use(arguments["run"]) as opened:
        diagnosis, lang = opened.diagnosis(), runs.lang
        data = {"run": opened.location.key, "verdict": diagnosis.verdict, "rules": looked(diagnosis, lang)}
        more = "call again with offset={next}"
        offset = arguments["offset"]
        found = [full(one, lang) for one in diagnosis.findings[offset:]]
        past = [brief(one, lang) for one in sorted(diagnosis.past, key=lambda one: -one.onset)]
        lists = [
            Items("findings", found, more, offset, len(diagnosis.findings), share=0.6),
            Items("past", past, "earlier ones, which 'barograph doctor' prints", share=0.2),
            Items("not_judged", not_judged(diagnosis, lang), "'barograph doctor --all' prints them", share=0.2),
            Items("not_found", [note.rule for note in diagnosis.fine], "'barograph doctor' prints them", share=0.2),
        ]
        return ToolAnswer(data, lists)


@tool(
    "Config of a run",
    {"run": RUN, "match": text("part of a name, or a pattern such as 'actor.*'"), "offset": OFFSET},
    1,
    CONFIG,
)
def run_config(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """The settings of one run with dotted names, such as actor.lr."""
    with runs.use(arguments["run"]) as opened:
        settings = dict(flatten(opened.view.config))
        found = [{"key": key, "value": one} for key, one in settings.items() if is_match(key, arguments["match"])]
        offset = arguments["offset"]
        shown = Items("settings", found[offset:], "call again with offset={next} or match", offset, len(found))
        return ToolAnswer({"run": opened.location.key, "total": len(found)}, [shown])


@tool("Ask whether something is true of a run", {"run": RUN, "expression": text("the question")}, 2, QUERY)
def query_run(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Say whether a question is true of one run, with the values that decided.

    A question compares last(M), first(M), min(M), max(M), mean(M), median(M), slope(M), count(M), nonfinite(M) or
    at(M, STEP) of a metric M, or status, step, seconds, verdict, finding, name, project, tag, config.KEY with =,
    !=, <, <=, >, >=, ~ (contains), joined by and, or, not and parentheses. mean(M, 50) is of the last 50 points. M
    is a name of any framework. Example: last(val/score) > 0.5 and max(grad_norm) < 10
    """
    with runs.use(arguments["run"]) as opened:
        found = answer(opened.view, arguments["expression"], opened.meanings())
        record = question_record(arguments["expression"], found)
        parts = Items("comparisons", record.pop("comparisons"), "ask for fewer at a time")
        return ToolAnswer({"run": opened.location.key, **record}, [parts])


@tool(
    "Compare runs",
    {
        "runs": texts("two or more runs, the baseline first, named as in the other tools", 2, MAX_COMPARED),
        "metrics": texts("patterns such as 'val/*'; without them the vital metrics are compared"),
        "limit": number("metrics, and phases, in an answer", 1, 100, 10),
        "offset": {**OFFSET, "description": "metrics to skip: the next page"},
    },
    1,
    COMPARISON,
)
def compare_runs(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Compare runs with the first one: settings that differ, metrics at the last common step, verdicts, seconds per
    step of phases.

    Runs that differ only in the seed are one group, with 95 % intervals over seeds; a difference is better or worse
    only with three seeds in each group, else too few or undecided. Metrics are joined by meaning, whatever
    framework wrote their names.
    """
    with runs.use_several(arguments["runs"]) as opened:
        if len(opened) < 2:
            raise ToolError("expected at least two different runs to compare; got one")
        compared = compare_views([one.view for one in opened], arguments["metrics"] or ())
        keys = {one.view.id: one.location.key for one in opened}
    lang = runs.lang
    offset, limit, fewer = arguments["offset"], arguments["limit"], "compare fewer runs"
    metrics = [_metric_record(one, lang) for one in compared["metrics"]]
    phases = [_phase_record(*one) for one in compared["phases"].items()]
    groups = [{**group, "runs": [keys[id] for id in group["runs"]]} for group in compared["groups"]]
    lists = [
        Items("groups", groups, fewer, share=0.15),
        Items("runs", [_judged_record(one, keys, lang) for one in compared["runs"]], fewer, share=0.2),
        Items("config", [{"key": key, "values": one} for key, one in compared["config"].items()],
              "run_config has the settings of one run", share=0.15),
        Items("metrics", metrics[offset : offset + limit],
              "call again with offset={next}, or ask for some, such as metrics=['val/*']", offset, len(metrics), 0.4),
        Items("phases", phases[:limit], "run_phases has those of one run", total=len(phases), share=0.1),
    ]  # fmt: skip
    return ToolAnswer({"baseline": compared["groups"][0]["name"]}, lists)


def _judged_record(run: dict[str, Any], keys: Mapping[str, str], lang: str) -> dict[str, Any]:
    said = [f"{one['rule']} since step {one['onset']}: {one['title'][lang]}" for one in run["findings"]]
    return {"run": keys[run["run"]], **{key: run[key] for key in ("name", "group", "verdict")}, "findings": said}


def _phase_record(name: str, groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {"name": name, "seconds": {group: _compact(one) for group, one in groups.items()}}


def _metric_record(metric: dict[str, Any], lang: str) -> dict[str, Any]:
    groups = {name: _compact(one["last"]) for name, one in metric["groups"].items()}
    title = metric["title"][lang] if metric["title"] else ""
    return {**{key: metric[key] for key in ("name", "direction", "steps")}, "title": title, "last": groups}


def _compact(interval: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean with its interval where it has one, and the difference from the first group."""
    known = {key: value for key, value in interval.items() if value is not None and key not in ("values", "runs")}
    return {**known, "difference": _compact(known["difference"])} if "difference" in known else known


TOOLS = (run_summary, run_findings, run_config, query_run, compare_runs)
