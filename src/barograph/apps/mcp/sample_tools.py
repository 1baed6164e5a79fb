"""Tools about samples: find them by filters, and read one whole, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from barograph.answers.open_run import OpenRun
from barograph.answers.schemas import ANY, INTEGER, NUMBER, TEXT, VALUE, list_of, mapping_of, record
from barograph.answers.views.samples import sample_view, samples_view
from barograph.apps.mcp.runs import ServedRuns
from barograph.apps.mcp.tool import (
    OFFSET,
    RUN,
    Arguments,
    Items,
    ToolAnswer,
    ToolError,
    answer_schema,
    number,
    plain_text,
    shortened,
    size_of,
    text,
    tool,
)
from barograph.journal.samples.query import Query

PAGE = 4000  # characters of a sample, and bytes of their JSON

REGEX_SECONDS = 5.0

MAX_TURNS = 4  # of a sample in a list: the first one and the last ones


FILTERS = ("min_reward", "max_reward", "grep", "regex", "task", "group", "finish_reason", "where")

SHOWN = {
    "step": INTEGER, "reward": VALUE, "rewards": mapping_of(ANY), "advantage": VALUE, "length": INTEGER,
    "finish_reason": TEXT, "task": TEXT, "group": TEXT, "answer": TEXT, "reference": TEXT, "discarded": TEXT,
    "columns": mapping_of(ANY),
}  # fmt: skip

TURNS = list_of(record({"role": TEXT, "text": TEXT}))

SAMPLES = answer_schema(
    {
        "run": TEXT, "matched": INTEGER, "kept": INTEGER, "submitted": INTEGER, "columns": list_of(TEXT),
        "samples": list_of(record({"place": TEXT, "turns": TURNS}, {**SHOWN, "turns_in_all": INTEGER})),
    }
)  # fmt: skip

SAMPLE_PAGE = answer_schema({"run": TEXT, "place": TEXT, "characters": INTEGER, "turns": TURNS}, SHOWN)


@tool(
    "Find samples",
    {
        "run": RUN,
        "first_step": number("first step"),
        "last_step": number("last step, included"),
        "min_reward": {**NUMBER, "description": "lowest reward"},
        "max_reward": {**NUMBER, "description": "highest reward"},
        "grep": text("text that it contains, ignoring case"),
        "regex": text("regular expression that it matches"),
        "task": text("exact task"),
        "group": text("exact group"),
        "finish_reason": text("such as stop or length"),
        "where": text("conditions on any column: 'reward.format < 0.5 and correct = false'"),
        "sort": {
            "type": "string",
            "default": "-step",
            "description": "step, reward, advantage, length, time or a column; '-reward' is highest first",
        },
        "characters": number("characters of each turn", 40, 3000, 300),
        "limit": number("samples in an answer", 1, 50, 10),
        "offset": OFFSET,
    },
    1,
    SAMPLES,
)
def find_samples(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """Prompts and completions of one run with rewards, filtered and sorted.

    All filters must match. 'columns' in the answer are names for where and sort. Texts are shortened: get_sample
    reads one whole.
    """
    offset, limit = arguments["offset"], arguments["limit"]
    with runs.use(arguments["run"]) as opened:
        found = samples_view(opened, _query(arguments), offset, limit, "turns")
        census = found["census"]
        data = {
            "run": opened.location.key,
            "matched": found["matched"],
            "kept": census["kept"],
            "submitted": census["seen"],
            "columns": list(census["columns"]),
        }
    if found["unknown"]:
        columns = ", ".join(data["columns"]) or "none"
        raise ToolError(f"no sample has {', '.join(found['unknown'])}; columns are {columns}")
    rows = [_listed(one, arguments["characters"]) for one in found["samples"]]
    more = "call again with offset={next}, fewer characters or a narrower filter"
    shown = Items("samples", rows, more, offset, found["matched"], max_text=arguments["characters"] + 40)
    return ToolAnswer(data, [shown])


def _query(arguments: Arguments) -> Query:
    steps = arguments["first_step"], arguments["last_step"]
    given = {name: arguments[name] for name in FILTERS if arguments[name] is not None}
    try:
        return Query(
            step=None if steps == (None, None) else steps, sort=arguments["sort"], regex_seconds=REGEX_SECONDS, **given
        )
    except ValueError as problem:
        raise ToolError(str(problem)) from None


def _listed(sample: dict[str, Any], characters: int) -> dict[str, Any]:
    turns = [_turn(one, characters) for one in sample["turns"]]
    shown = turns if len(turns) <= MAX_TURNS else [turns[0], *turns[len(turns) - MAX_TURNS + 1 :]]
    return {
        "place": sample["place"],
        **_fields(sample),
        **({"turns_in_all": len(turns)} if len(shown) < len(turns) else {}),
        "turns": shown,
    }


def _fields(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: sample[name] for name in SHOWN if sample.get(name) not in (None, "", {})}


def _turn(turn: dict[str, Any], characters: int) -> dict[str, Any]:
    said = plain_text("\n".join(_part_text(part) for part in turn["parts"]))
    return {"role": turn["role"], "text": shortened(said, characters)}


def _part_text(part: dict[str, Any]) -> str:
    label = " ".join(filter(None, (part["kind"], part["name"])))
    return part["text"] if part["kind"] == "text" else f"[{label}] {part['text']}"


@tool(
    "Read one sample",
    {
        "run": RUN,
        "place": text("'place' of a sample that find_samples gave"),
        "offset": {**OFFSET, "description": "characters of the text to skip: the next page"},
    },
    2,
    SAMPLE_PAGE,
)
def get_sample(runs: ServedRuns, arguments: Arguments) -> ToolAnswer:
    """One sample of a run with its whole text, a page at a time."""
    offset = arguments["offset"]
    with runs.use(arguments["run"]) as opened:
        sample = _sample(opened, arguments["place"])
    turns = [(turn["role"], plain_text("\n".join(map(_part_text, turn["parts"])))) for turn in sample["turns"]]
    length = sum(len(said) for _, said in turns)
    if offset and offset >= length:
        raise ToolError(f"offset must be below the {length} characters of the sample; got {offset}")
    size = PAGE
    pieces = list(_pieces(turns, offset, size))
    while size_of(pieces) > PAGE and size > 1:  # characters of several bytes, and those that JSON escapes
        size //= 2
        pieces = list(_pieces(turns, offset, size))
    left_out = [f"{sample['tokens_count']:,} tokens with their values: 'barograph samples --tokens' shows them"]
    left_out = left_out if sample["tokens_count"] else []
    if offset + size < length:
        left_out.append(f"{length - offset - size:,} of {length:,} characters: call again with offset={offset + size}")
    data = {"run": opened.location.key, "place": arguments["place"], **_fields(sample), "characters": length}
    return ToolAnswer(data, [Items("turns", pieces, "call again with a larger offset", max_text=PAGE)], left_out)


def _sample(opened: OpenRun, place: str) -> dict[str, Any]:
    found = sample_view(opened, place)
    return {**found, "tokens_count": len(found["tokens"])}


def _pieces(turns: Sequence[tuple[str, str]], offset: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield the parts of turns that lie in a page of their joined texts."""
    begin = 0
    for role, said in turns:
        part = said[max(0, offset - begin) : max(0, offset + size - begin)]
        if part:
            yield {"role": role, "text": part}
        begin += len(said)


TOOLS = (find_samples, get_sample)
