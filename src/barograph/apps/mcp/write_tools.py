"""Tools that write, which ``barograph mcp --write`` adds: notes, tags, and the request to stop a training."""

from __future__ import annotations

from barograph.answers.schemas import INTEGER, TEXT, list_of
from barograph.apps.mcp.answer import ToolAnswer, answer_schema, plain_text
from barograph.apps.mcp.runs import ServedRuns, ToolError, tags_of
from barograph.apps.mcp.tool import RUN, Arguments, Tool, text, texts
from barograph.journal.findings import ask_to_stop

MAX_NOTE = 4000  # characters
MAX_TAG = 60
MAX_TAGS = 20
HEARD = (
    "The training ends if its loop reads run.should_stop, as barograph.watch does; nothing is killed. "
    "wait_for tells when it has ended."
)


def set_note(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Replace the note of a run, as the page does."""
    key, note = runs.key_of(arguments["run"]), plain_text(arguments["note"])
    if len(note) > MAX_NOTE:
        raise ToolError(f"a note has at most {MAX_NOTE} characters; got {len(note)}")
    before = runs.annotations.get(key)["note"]
    runs.annotations.set(key, {"note": note})
    return ToolAnswer({"run": key, "note": note, "before": before})


def set_tags(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Add tags to a run and remove others, as the page does."""
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


def stop_run(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Ask a training to end."""
    with runs.use(arguments["run"]) as opened:
        request = ask_to_stop(opened.view, plain_text(arguments["reason"]))
        data = {"run": opened.location.key, "after_step": request.step, "reason": request.reason, "next": HEARD}
        return ToolAnswer(data)


TOOLS = (
    Tool(
        "set_note",
        "Write a note about a run",
        "Replace the note of one run, which the page and list_runs show; an empty one removes it. The earlier note is "
        "in the answer.",
        {"run": RUN, "note": text(f"at most {MAX_NOTE} characters")},
        2,
        answer_schema({"run": TEXT, "note": TEXT, "before": TEXT}),
        set_note,
        writes=True,
    ),
    Tool(
        "set_tags",
        "Tag a run",
        "Add tags to one run or remove some, as the page shows them.",
        {
            "run": RUN,
            "add": texts("tags to add", most=MAX_TAGS),
            "remove": texts("tags to remove", most=MAX_TAGS),
        },
        1,
        answer_schema({"run": TEXT, "tags": list_of(TEXT), "before": list_of(TEXT)}),
        set_tags,
        writes=True,
    ),
    Tool(
        "stop_run",
        "Ask a training to stop",
        "Ask the processes of a training that goes on to end: run.should_stop becomes true in all of them after the "
        "same step. Use it only where the user wants the training to end.",
        {"run": RUN, "reason": text("why; the training prints it")},
        2,
        answer_schema({"run": TEXT, "after_step": INTEGER, "reason": TEXT, "next": TEXT}),
        stop_run,
        writes=True,
    ),
)
