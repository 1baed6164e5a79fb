"""The tool that lists and finds runs."""

from __future__ import annotations

import time
from typing import Any

from barograph.answers.questions import answer, parse_question
from barograph.answers.records import STATUS_SYMBOLS
from barograph.answers.schemas import INTEGER, STATUS, TEXT, VERDICT, list_of, nullable, record
from barograph.apps.mcp.runs import Listed, ServedRuns, moment
from barograph.apps.mcp.tool import OFFSET, Arguments, Items, ToolAnswer, answer_schema, number, text, tool
from barograph.base.errors import ExpressionError
from barograph.base.formatting import counted
from barograph.diagnosis.diagnose import VERDICTS
from barograph.diagnosis.health import Health

LOOK_SECONDS = 15.0  # for judging and asking the runs of a list

MAX_LISTED = 100

LISTED = record(
    {
        "run": TEXT, "name": TEXT, "project": TEXT, "status": STATUS["status"], "verdict": nullable(VERDICT),
        "last_step": nullable(INTEGER), "began": TEXT, "last_heard": TEXT,
    },
    {"finding": TEXT, "tags": list_of(TEXT), "note": TEXT},
)  # fmt: skip


@tool(
    "List and find runs",
    {
        "text": text("part of the id, name, project, tags or note; ignores case"),
        "project": text("exact name of the project"),
        "status": text("status of the training", tuple(STATUS_SYMBOLS)),
        "verdict": text("the doctor's verdict", tuple(VERDICTS)),
        "where": text(
            "a question as for query_run that must be true of a run, for example "
            "'last(val/score) > 0.5 and config.actor.lr < 1e-5'"
        ),
        "hidden": {"type": "boolean", "default": False, "description": "also runs that were hidden on the page"},
        "limit": number("runs in an answer", 1, MAX_LISTED, 20),
        "offset": OFFSET,
    },
    0,
    answer_schema({"total": INTEGER, "runs": list_of(LISTED)}),
)
def list_runs(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """List training runs, the newest first, each with status, the doctor's verdict (healthy, watch, sick, cannot tell)
    and its most important finding.

    All filters must match. Begin here.
    """
    listed = runs.listed()
    found = [one for one in listed if _is_listed(one, arguments)]
    hidden = sum(one.annotations["hidden"] for one in listed) if not arguments["hidden"] else 0
    left_out = [f"{counted(hidden, 'run')} hidden on the page: hidden=true lists them too"] if hidden else []
    look = _ListLook(runs)
    if arguments["verdict"] is not None:
        found = [one for one in found if look.verdict(one) == arguments["verdict"]]
    if arguments["where"] is not None:
        parse_question(arguments["where"])
        found = [one for one in found if look.holds(one, arguments["where"])]
    offset, limit = arguments["offset"], arguments["limit"]
    rows = [_row(one, look.health(one), runs.lang) for one in found[offset : offset + limit]]
    more = "call again with offset={next}, or narrow with text, project, status, verdict or where"
    shown = Items("runs", rows, more, offset, len(found))
    return ToolAnswer({"total": len(found)}, [shown], [*left_out, *look.finish()])


class _ListLook:
    """The verdicts on runs and the answers to a question, for a limited time."""

    def __init__(self, runs: ServedRuns) -> None:
        self._runs = runs
        self._until = time.monotonic() + LOOK_SECONDS
        self._health = runs.health()
        self._verdicts: dict[str, Health | None] = {}
        self._late: set[str] = set()
        self._unanswered: dict[str, str] = {}

    def health(self, run: Listed) -> Health | None:
        if run.key not in self._verdicts:
            known = self._health.known(run.glance)
            is_late = known is None and self._is_late(run)
            self._verdicts[run.key] = known if known is not None or is_late else self._health.judge(run.glance)
        return self._verdicts[run.key]

    def verdict(self, run: Listed) -> str | None:
        found = self.health(run)
        return None if found is None else found.verdict

    def holds(self, run: Listed, question: str) -> bool:
        if self._is_late(run):
            return False
        try:
            with self._runs.use(run.key) as opened:
                return answer(opened.view, question, opened.meanings()).holds
        except ExpressionError as problem:
            self._unanswered[run.key] = str(problem)
            return False

    def _is_late(self, run: Listed) -> bool:
        is_late = time.monotonic() > self._until
        if is_late:
            self._late.add(run.key)
        return is_late

    def finish(self) -> list[str]:
        """Keep the verdicts; return what could not be said, and why."""
        self._health.save()
        said = []
        if self._late:
            what = counted(len(self._late), "run was", "runs were")
            said.append(f"{what} not looked at for want of time: call again, or narrow with text, project or status")
        if self._unanswered:
            key, reason = next(iter(self._unanswered.items()))
            what = counted(len(self._unanswered), "run")
            said.append(f"{what} for which 'where' cannot be answered, such as {key}: {reason}")
        return said


def _is_listed(run: Listed, arguments: Arguments) -> bool:
    info, wanted = run.glance.info, arguments["text"]
    return (
        (arguments["hidden"] or not run.annotations["hidden"])
        and (wanted is None or wanted.lower() in run.search_text)
        and arguments["project"] in (None, info.project)
        and arguments["status"] in (None, run.glance.status.word)
    )


def _row(run: Listed, health: Health | None, lang: str) -> dict[str, Any]:
    glance, first = run.glance, health.first if health is not None else None
    row = {
        "run": run.key,
        "name": run.name,
        "project": glance.info.project,
        "status": glance.status.word,
        "verdict": None if health is None else health.verdict,
        "finding": f"{first.rule} since step {first.onset}: {first.title.get(lang)}" if first is not None else "",
        "last_step": glance.last_step,
        "began": moment(glance.began),
        "last_heard": moment(glance.last_heard),
        "tags": run.tags,
        "note": run.annotations["note"],
    }
    return {key: value for key, value in row.items() if key not in ("finding", "tags", "note") or value}


TOOLS = (list_runs,)
