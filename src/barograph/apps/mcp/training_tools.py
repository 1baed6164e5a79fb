"""Tools about a training that goes on: one waits for it. Others write, which ``barograph mcp --write`` adds: notes,
tags, and the request to stop a training.
"""

from __future__ import annotations

import time
from typing import Any

import anyio
import anyio.to_thread

from barograph.answers.schemas import INTEGER, NUMBER, STATUS, TEXT, VERDICT, list_of, nullable, one_of
from barograph.apps.mcp.run_tools import BRIEF, brief, serious
from barograph.apps.mcp.runs import ServedRuns, tags_of
from barograph.apps.mcp.tool import (
    RUN,
    Arguments,
    Items,
    Progress,
    ToolAnswer,
    ToolError,
    answer_schema,
    number,
    plain_text,
    text,
    texts,
    tool,
)
from barograph.journal.findings import SEVERITIES, ask_to_stop

POLL_SECONDS = 0.5

PROGRESS_SECONDS = 5.0  # between reports of progress, which keep a client waiting

MAX_SECONDS = 600

REASONS = ("step", "finding", "end", "time limit")

WAITED = answer_schema(
    {
        "run": TEXT, "reached": one_of(*REASONS), "status": STATUS["status"], "last_step": nullable(INTEGER),
        "verdict": VERDICT, "waited_seconds": NUMBER, "findings": list_of(BRIEF),
    }
)  # fmt: skip


@tool(
    "Wait for a run",
    {
        "run": RUN,
        "step": number("until this step is done"),
        "finding": text("until there is an open finding of at least this severity", SEVERITIES[1:]),
        "ignore": texts("rules whose findings are known already and not waited for"),
        "seconds": number("time limit", 0, MAX_SECONDS, 45),
    },
    1,
    WAITED,
)
async def wait_for(runs: ServedRuns, arguments: Arguments, progress: Progress) -> ToolAnswer:
    """Wait until a run that goes on has done a step, has a finding, or has ended, whichever comes first, or until the
    time is up; without step and finding, until it has ended.

    'reached' says which. Other calls are answered meanwhile, and the call can be cancelled.
    """
    began = time.monotonic()
    reported = began
    while True:
        state = await anyio.to_thread.run_sync(_look, runs, arguments)
        waited = time.monotonic() - began
        left = arguments["seconds"] - waited
        if state["reached"] is not None or left <= 0:
            found = state.pop("findings")
            data = {**state, "reached": state["reached"] or "time limit", "waited_seconds": round(waited, 1)}
            return ToolAnswer(data, [Items("findings", found, f"run_findings with run={state['run']}")])
        if time.monotonic() - reported >= PROGRESS_SECONDS:
            reported = time.monotonic()
            await progress(waited, float(arguments["seconds"]), f"{state['status']} at step {state['last_step']}")
        await anyio.sleep(min(POLL_SECONDS, left))


def _look(runs: ServedRuns, arguments: Arguments) -> dict[str, Any]:
    with runs.use(arguments["run"]) as opened:
        view, diagnosis = opened.view, opened.diagnosis()
        status, last = view.status, view.newest_step
        wanted, step = arguments["finding"], arguments["step"]
        new = serious(diagnosis.findings, wanted) if wanted is not None else []
        new = [one for one in new if one.rule not in (arguments["ignore"] or ())]
        checks = {"step": step is not None and last is not None and last >= step, "finding": new, "end": status.ended}
        return {
            "run": opened.location.key,
            "reached": next((reason for reason, is_true in checks.items() if is_true), None),
            "status": status.word,
            "last_step": last,
            "verdict": diagnosis.verdict,
            "findings": [brief(one, runs.lang) for one in diagnosis.findings],
        }


TOOLS = (wait_for,)

MAX_NOTE = 4000  # characters

MAX_TAG = 60

MAX_TAGS = 20

HEARD = (
    "The training ends if its loop reads run.should_stop, as barograph.watch does; nothing is killed. "
    "wait_for tells when it has ended."
)


@tool(
    "Write a note about a run",
    {"run": RUN, "note": text(f"at most {MAX_NOTE} characters")},
    2,
    answer_schema({"run": TEXT, "note": TEXT, "before": TEXT}),
    writes=True,
)
def set_note(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Replace the note of one run, which the page and list_runs show; an empty one removes it.

    The earlier note is in the answer.
    """
    key, note = runs.key_of(arguments["run"]), plain_text(arguments["note"])
    if len(note) > MAX_NOTE:
        raise ToolError(f"a note has at most {MAX_NOTE} characters; got {len(note)}")
    before = runs.annotations.get(key)["note"]
    runs.annotations.set(key, {"note": note})
    return ToolAnswer({"run": key, "note": note, "before": before})


@tool(
    "Tag a run",
    {
        "run": RUN,
        "add": texts("tags to add", most=MAX_TAGS),
        "remove": texts("tags to remove", most=MAX_TAGS),
    },
    1,
    answer_schema({"run": TEXT, "tags": list_of(TEXT), "before": list_of(TEXT)}),
    writes=True,
)
def set_tags(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Add tags to one run or remove some, as the page shows them."""
    added = [plain_text(tag).strip() for tag in arguments["add"] or ()]
    for tag in added:
        if not tag or "," in tag or len(tag) > MAX_TAG:
            raise ToolError(f"a tag has 1 to {MAX_TAG} characters and no comma; got {tag[:MAX_TAG]!r}")
    with runs.use(arguments["run"]) as opened:
        key, info = opened.location.key, opened.view.info
    before = tags_of(info, runs.annotations.get(key))
    removed = set(arguments["remove"] or ())
    tags = [tag for tag in dict.fromkeys([*before, *added]) if tag not in removed]
    runs.annotations.set(key, {"tags": ", ".join(tags)})
    return ToolAnswer({"run": key, "tags": tags, "before": before})


@tool(
    "Ask a training to stop",
    {"run": RUN, "reason": text("why; the training prints it")},
    2,
    answer_schema({"run": TEXT, "after_step": INTEGER, "reason": TEXT, "next": TEXT}),
    writes=True,
)
def stop_run(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Ask the processes of a training that goes on to end: run.should_stop becomes true in all of them after the same
    step.

    Use it only where the user wants the training to end.
    """
    with runs.use(arguments["run"]) as opened:
        request = ask_to_stop(opened.view, plain_text(arguments["reason"]))
        data = {"run": opened.location.key, "after_step": request.step, "reason": request.reason, "next": HEARD}
        return ToolAnswer(data)


WRITE_TOOLS = (set_note, set_tags, stop_run)
