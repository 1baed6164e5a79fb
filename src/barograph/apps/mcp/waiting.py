"""The tool that waits until a run reaches a step, has a finding, or ends."""

from __future__ import annotations

import time
from typing import Any

import anyio
import anyio.to_thread

from barograph.answers.schemas import INTEGER, NUMBER, STATUS, TEXT, VERDICT, list_of, nullable, one_of
from barograph.apps.mcp import findings
from barograph.apps.mcp.answer import Items, ToolAnswer, answer_schema
from barograph.apps.mcp.runs import ServedRuns
from barograph.apps.mcp.tool import RUN, Arguments, Progress, Tool, number, text, texts
from barograph.journal.findings import SEVERITIES

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 5.0  # between reports of progress, which keep a client waiting
MAX_SECONDS = 600
REASONS = ("step", "finding", "end", "time limit")


async def wait_for(runs: ServedRuns, arguments: Arguments, progress: Progress) -> ToolAnswer:
    """Look at a run again and again until what is waited for has happened, or the time is up."""
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
        new = findings.serious(diagnosis.findings, wanted) if wanted is not None else []
        new = [one for one in new if one.rule not in (arguments["ignore"] or ())]
        checks = {"step": step is not None and last is not None and last >= step, "finding": new, "end": status.ended}
        return {
            "run": opened.location.key,
            "reached": next((reason for reason, is_true in checks.items() if is_true), None),
            "status": status.word,
            "last_step": last,
            "verdict": diagnosis.verdict,
            "findings": [findings.brief(one, runs.lang) for one in diagnosis.findings],
        }


WAITED = answer_schema(
    {
        "run": TEXT,
        "reached": one_of(*REASONS),
        "status": STATUS["status"],
        "last_step": nullable(INTEGER),
        "verdict": VERDICT,
        "waited_seconds": NUMBER,
        "findings": list_of(findings.BRIEF),
    }
)
TOOLS = (
    Tool(
        "wait_for",
        "Wait for a run",
        "Wait until a run that goes on has done a step, has a finding, or has ended, whichever comes first, or until "
        "the time is up; without step and finding, until it has ended. 'reached' says which. Other calls are answered "
        "meanwhile, and the call can be cancelled.",
        {
            "run": RUN,
            "step": number("until this step is done"),
            "finding": text("until there is an open finding of at least this severity", SEVERITIES[1:]),
            "ignore": texts("rules whose findings are known already and not waited for"),
            "seconds": number("time limit", 0, MAX_SECONDS, 45),
        },
        1,
        WAITED,
        wait=wait_for,
    ),
)
