"""Tools about whole runs: sum one up, what the doctor says, its config, a question, a comparison."""

from __future__ import annotations

from collections.abc import Mapping
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
    record,
)
from barograph.apps.mcp import findings
from barograph.apps.mcp.answer import Items, ToolAnswer, answer_schema
from barograph.apps.mcp.runs import ServedRuns, ToolError, moment, tags_of
from barograph.apps.mcp.tool import OFFSET, RUN, Arguments, Tool, is_match, number, text, texts
from barograph.apps.terminal.doctor import looked
from barograph.base.formatting import flatten, lasted
from barograph.diagnosis.diagnose import Diagnosis
from barograph.importers.summary import run_warnings
from barograph.journal.view import View

MAX_COMPARED = 50

MAX_MOMENTS = 5  # of each kind

MAX_REASONS = 3  # why rules could not look, in a summary


def run_summary(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Sum a run up."""
    with runs.use(arguments["run"]) as opened:
        view, diagnosis, lang = opened.view, opened.diagnosis(), runs.lang
        notes = runs.annotations.get(opened.location.key)
        details = f"run_findings with run={opened.location.key}"
        unjudged = findings.not_judged(diagnosis, lang)
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
            Items("findings", [findings.short(one, lang) for one in diagnosis.findings], details, share=0.5),
            Items("vital_signs", findings.signs(diagnosis, lang), "list_metrics has all values", share=0.3),
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


def run_findings(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Return everything that the doctor says about a run."""
    with runs.use(arguments["run"]) as opened:
        diagnosis, lang = opened.diagnosis(), runs.lang
        data = {"run": opened.location.key, "verdict": diagnosis.verdict, "rules": looked(diagnosis, lang)}
        more = "call again with offset={next}"
        offset = arguments["offset"]
        found = [findings.full(one, lang) for one in diagnosis.findings[offset:]]
        lists = [
            Items("findings", found, more, offset, len(diagnosis.findings), share=0.6),
            Items("past", _past(diagnosis, lang), "earlier ones, which 'barograph doctor' prints", share=0.2),
            Items(
                "not_judged", findings.not_judged(diagnosis, lang), "'barograph doctor --all' prints them", share=0.2
            ),
            Items("not_found", [note.rule for note in diagnosis.fine], "'barograph doctor' prints them", share=0.2),
        ]
        return ToolAnswer(data, lists)


def _past(diagnosis: Diagnosis, lang: str) -> list[dict[str, Any]]:
    """Return the findings that are over, the latest first."""
    return [findings.brief(one, lang) for one in sorted(diagnosis.past, key=lambda one: -one.onset)]


def run_config(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Return the settings of a run whose names match."""
    with runs.use(arguments["run"]) as opened:
        settings = dict(flatten(opened.view.config))
        found = [{"key": key, "value": one} for key, one in settings.items() if is_match(key, arguments["match"])]
        offset = arguments["offset"]
        shown = Items("settings", found[offset:], "call again with offset={next} or match", offset, len(found))
        return ToolAnswer({"run": opened.location.key, "total": len(found)}, [shown])


def query_run(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Say whether something is true of a run."""
    with runs.use(arguments["run"]) as opened:
        found = answer(opened.view, arguments["expression"], opened.meanings())
        record = question_record(arguments["expression"], found)
        parts = Items("comparisons", record.pop("comparisons"), "ask for fewer at a time")
        return ToolAnswer({"run": opened.location.key, **record}, [parts])


def compare_runs(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Compare runs, those that differ only in the seed as one group, with the first group."""
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


COMPARED_METRIC = record(
    {
        **{key: COMPARED["properties"][key] for key in ("name", "direction", "steps")},
        "title": TEXT,
        "last": mapping_of(ANY),
    }
)

SUMMARY = answer_schema(
    {
        "run": TEXT,
        "name": TEXT,
        "project": TEXT,
        "status": STATUS["status"],
        "steps": STEPS,
        "verdict": VERDICT,
        "rules": TEXT,
        "past_findings": INTEGER,
        "metrics": INTEGER,
        "settings": INTEGER,
        "samples": INTEGER,
        "moments": list_of(TEXT),
        "findings": list_of(findings.SHORT),
        "vital_signs": list_of(findings.SIGN),
        "not_judged": list_of(findings.NOT_JUDGED),
        "warnings": list_of(TEXT),
        "began": TEXT,
        "last_heard": TEXT,
    },
    {
        "why_no_verdict": list_of(TEXT),
        "lasted": TEXT,
        "reason": TEXT,
        "source": TEXT,
        "tags": list_of(TEXT),
        "note": TEXT,
    },
)

FINDINGS = answer_schema(
    {
        "run": TEXT,
        "verdict": VERDICT,
        "rules": TEXT,
        "findings": list_of(findings.FULL),
        "past": list_of(findings.BRIEF),
        "not_judged": list_of(findings.NOT_JUDGED),
        "not_found": list_of(TEXT),
    }
)

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

TOOLS = (
    Tool(
        "run_summary",
        "Summary of a run",
        "Sum up one run in a few hundred tokens: status, verdict, findings with the step since which each holds and "
        "the metrics that show it, vital signs, what could not be judged and why, warnings, notes.",
        {"run": RUN},
        1,
        SUMMARY,
        run_summary,
    ),
    Tool(
        "run_findings",
        "Findings of the doctor",
        "Everything that the doctor says about one run: open findings with evidence, confidence, what speaks against "
        "them, what they explain and what to do next; findings that are over; rules that found nothing; rules that "
        "could not look. The names in 'evidence' are metrics for get_series.",
        {"run": RUN, "offset": OFFSET},
        1,
        FINDINGS,
        run_findings,
    ),
    Tool(
        "run_config",
        "Config of a run",
        "The settings of one run with dotted names, such as actor.lr.",
        {"run": RUN, "match": text("part of a name, or a pattern such as 'actor.*'"), "offset": OFFSET},
        1,
        CONFIG,
        run_config,
    ),
    Tool(
        "query_run",
        "Ask whether something is true of a run",
        "Say whether a question is true of one run, with the values that decided. A question compares last(M), "
        "first(M), min(M), max(M), mean(M), median(M), slope(M), count(M), nonfinite(M) or at(M, STEP) of a metric M, "
        "or status, step, seconds, verdict, finding, name, project, tag, config.KEY with =, !=, <, <=, >, >=, ~ "
        "(contains), joined by and, or, not and parentheses. mean(M, 50) is of the last 50 points. M is a name of any "
        "framework. Example: last(val/score) > 0.5 and max(grad_norm) < 10",
        {"run": RUN, "expression": text("the question")},
        2,
        QUERY,
        query_run,
    ),
    Tool(
        "compare_runs",
        "Compare runs",
        "Compare runs with the first one: settings that differ, metrics at the last common step, verdicts, seconds per "
        "step of phases. Runs that differ only in the seed are one group, with 95 % intervals over seeds; a "
        "difference is better or worse only with three seeds in each group, else too few or undecided. "
        "Metrics are joined by meaning, whatever framework wrote their names.",
        {
            "runs": texts("two or more runs, the baseline first, named as in the other tools", 2, MAX_COMPARED),
            "metrics": texts("patterns such as 'val/*'; without them the vital metrics are compared"),
            "limit": number("metrics, and phases, in an answer", 1, 100, 10),
            "offset": {**OFFSET, "description": "metrics to skip: the next page"},
        },
        1,
        COMPARISON,
        compare_runs,
    ),
)
