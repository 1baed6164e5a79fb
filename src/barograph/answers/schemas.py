"""The JSON schemas of what commands print with ``--json``; ``python -m barograph.answers.schemas DIR`` writes them.

``docs/schema`` has them as files. Records may have further fields: a reader ignores those that it does not know.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from barograph.answers.moments import Moment
from barograph.answers.phases import PhaseSummary
from barograph.answers.questions import JudgedComparison
from barograph.answers.records import STATUS_SYMBOLS, VERSION
from barograph.base.model import RunInfo, Writer
from barograph.catalogue.describe import NameMeaning
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import VERDICTS
from barograph.diagnosis.fleet import GroupSum
from barograph.diagnosis.health import FirstFinding, Health
from barograph.diagnosis.signals import Sign
from barograph.journal.findings import SEVERITIES, Finding

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
VALUE: Schema = {"anyOf": [NUMBER, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
ANY: Schema = {}


def one_of(*words: str) -> Schema:
    """Return the schema of one of some words."""
    return {"enum": list(words)}


def nullable(schema: Schema) -> Schema:
    """Return the schema of what may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def mapping_of(schema: Schema) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": schema}


def record(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with fields."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def document(kind: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of a record that names its schema."""
    return record({"schema": {"const": f"barograph/{kind}/{VERSION}"}, **required}, optional)


BILINGUAL = record({"en": TEXT, "zh": TEXT})
PLAIN: dict[Any, Schema] = {str: TEXT, bool: FLAG, int: INTEGER, float: NUMBER, Any: ANY, Text: BILINGUAL, Writer: TEXT}


def schema_of(kind: type, /, *names: str, **own: Schema) -> Schema:
    """Return the schema of a dataclass as a record, of all fields or those named, by their types.

    ``own`` has the schemas of fields that are stricter than their types, and of those that only the record has.
    """
    types = get_type_hints(kind)
    shown = names or [field.name for field in fields(kind)]
    return record({name: own[name] if name in own else _schema(types[name]) for name in shown})


def _schema(type: Any) -> Schema:
    """Return the schema of a type: of plain values, dataclasses, lists and objects of one type, and optional ones."""
    inner = [_schema(one) for one in get_args(type) if one not in (NoneType, Ellipsis)]
    origin = get_origin(type)
    if origin in (tuple, list, Sequence):
        return list_of(inner[0])
    if origin in (dict, Mapping):
        return mapping_of(inner[-1])
    if inner:
        return nullable(inner[0])
    return PLAIN[type] if type in PLAIN else schema_of(type)


STEPS = nullable({"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2})
NAMED = {"run": TEXT, "name": TEXT, "path": TEXT}
STATUS = {"status": one_of(*STATUS_SYMBOLS), "reason": TEXT}
VERDICT = one_of(*VERDICTS)
ERROR = document("error", {"error": TEXT}, {"run": TEXT})
INFO = schema_of(RunInfo)["properties"]
FIRST_FINDING = schema_of(FirstFinding)
HEALTH = schema_of(Health, "verdict", "word", "step", "findings", "first", verdict=VERDICT, word=TEXT)
LS = document(
    "ls",
    {
        **INFO, **STATUS, "health": nullable(HEALTH), "last_step": nullable(INTEGER), "last_heard": NUMBER,
        "bytes": INTEGER, "writers": INTEGER, "attempts": INTEGER, "path": TEXT,
    },
)  # fmt: skip
FINDING = schema_of(
    Finding, "rule", "severity", "onset", "last", "is_open", "name", "title", "text", "advice", "evidence",
    "confidence", "against", "explains", severity=one_of(*SEVERITIES), explains=list_of({"type": "object"}),
)  # fmt: skip
SIGN = schema_of(Sign, "key", "title", "name", "metric", "word", "verdict", "text", "note", verdict=BILINGUAL)
DIAGNOSIS = document(
    "doctor",
    {
        **NAMED, "steps": STEPS, "verdict": VERDICT, "findings": list_of(FINDING), "past": list_of(FINDING),
        "fine": list_of(TEXT), "unmeasured": list_of(record({"rule": TEXT, "reason": BILINGUAL})),
        "reasons": list_of(BILINGUAL), "signs": list_of(SIGN),
    },
)  # fmt: skip
GROUP_SUM = schema_of(GroupSum, value={"anyOf": [VALUE, TEXT, FLAG, {"type": "null"}]})
FLEET = document(
    "fleet",
    {
        "path": TEXT, "by": nullable(TEXT), "runs": INTEGER, "groups": list_of(GROUP_SUM),
        "unreadable": list_of(record({"path": TEXT, "error": TEXT})),
    },
)  # fmt: skip
RULE = document(
    "rules",
    {
        "rule": TEXT, "title": BILINGUAL, "sees": BILINGUAL, "advice": list_of(BILINGUAL), "needs": list_of(TEXT),
        "explains": list_of(TEXT), "sources": list_of(TEXT),
    },
)  # fmt: skip
ORIGIN = record({"path": TEXT, "format": TEXT, "title": TEXT, "notes": list_of(TEXT), "unread": list_of(ANY)})
MOMENT = schema_of(Moment, kind=one_of("annotation", "restart", "checkpoint", "config"))
LAST = record({"step": INTEGER, "value": VALUE, "points": INTEGER, "unit": TEXT})
CRUCIAL = record({"key": TEXT, "name": TEXT, "verdict": TEXT, "text": TEXT})
SHOW = document(
    "show",
    {
        **INFO, **STATUS, "verdict": VERDICT, "findings": list_of(FINDING), "steps": STEPS,
        "span": list_of(NUMBER), "writers": mapping_of(TEXT), "path": TEXT, "origin": nullable(ORIGIN),
        "trackers": list_of(record({"tracker": TEXT, "state": TEXT, "delivered": INTEGER})),
        "open_phases": list_of(TEXT), "moments": list_of(MOMENT), "config": mapping_of(ANY),
        "environment": mapping_of(ANY), "notices": list_of(TEXT), "source": nullable(TEXT), "unknown": list_of(TEXT),
        "ambiguous": mapping_of(ANY), "crucial": list_of(CRUCIAL), "last": mapping_of(LAST),
    },
)  # fmt: skip
PHASE = schema_of(PhaseSummary)
SPAN = record(
    {
        "name": TEXT, "writer": TEXT, "attempt": INTEGER, "step": INTEGER, "start": NUMBER, "end": nullable(NUMBER),
        "seconds": nullable(NUMBER), "lane": TEXT, "timer": FLAG, "failed": FLAG,
    }
)  # fmt: skip
TIMELINE = record(
    {
        "step": INTEGER, "start": NUMBER, "end": NUMBER, "unaccounted_share": NUMBER, "overlap_share": NUMBER,
        "spans": list_of(SPAN),
    }
)  # fmt: skip
PHASES = document("phases", {"id": TEXT, "name": TEXT, "phases": list_of(PHASE), "timeline": nullable(TIMELINE)})
SAMPLE = document(
    "samples",
    {"step": nullable(INTEGER)},
    {
        "prompt": TEXT, "completion": TEXT, "messages": list_of(ANY), "reward": VALUE, "rewards": mapping_of(VALUE),
        "advantage": VALUE, "task": TEXT, "group": TEXT, "finish_reason": TEXT, "length": INTEGER,
        "columns": mapping_of(ANY), "tokens": list_of(TEXT), "token_values": mapping_of(list_of(VALUE)),
    },
)  # fmt: skip
TOKEN_SUM = document(
    "token_sums",
    {
        "value": TEXT, "text": TEXT, "count": INTEGER, "share": nullable(NUMBER), "sum": VALUE, "mean": VALUE,
        "places": list_of(record({"value": VALUE, "place": TEXT, "token": INTEGER})),
    },
)  # fmt: skip
MEANING = schema_of(NameMeaning)
EXPLAINED = document(
    "explain",
    {
        "name": TEXT, "known": {"const": True}, "id": TEXT, "title": TEXT, "family": TEXT, "crucial": FLAG,
        "about": TEXT, "facts": list_of(list_of(TEXT)), "band": TEXT, "healthy": TEXT, "next": TEXT,
        "asked": list_of(MEANING), "readings": list_of(MEANING), "names": list_of(ANY), "traps": list_of(ANY),
        "close": list_of(ANY), "why": list_of(TEXT),
    },
)  # fmt: skip
AMBIGUOUS = document(
    "explain",
    {"name": TEXT, "known": {"const": True}, "ambiguous": {"const": True}, "meanings": list_of(MEANING),
     "why": list_of(TEXT)},
)  # fmt: skip
UNKNOWN = document("explain", {"name": TEXT, "known": {"const": False}, "nearest": list_of(TEXT)})
METRICS = document("metrics", {"families": mapping_of(list_of(TEXT))})
PART = schema_of(JudgedComparison)
QUERY = document("query", {**NAMED, "expression": TEXT, "answer": FLAG, "comparisons": list_of(PART)})
ENDS = {"mean": nullable(NUMBER), "low": nullable(NUMBER), "high": nullable(NUMBER), "runs": INTEGER}
INTERVAL = record(ENDS)
DIFFERENCE = record({**ENDS, "word": one_of("better", "worse", "higher", "lower", "undecided", "too few", "nothing")})
MEASURE = record({**ENDS, "values": list_of(nullable(NUMBER)), "difference": nullable(DIFFERENCE)})
COMPARED = record(
    {
        "metric": nullable(TEXT), "name": TEXT, "title": nullable(BILINGUAL), "direction": TEXT,
        "steps": nullable(list_of(NUMBER)),
        "groups": mapping_of(record({"last": MEASURE, "area": MEASURE})),
    }
)  # fmt: skip
GROUP = record({"name": TEXT, "runs": list_of(TEXT), "seeds": list_of(nullable(TEXT))})
JUDGED = record({**NAMED, "group": TEXT, "verdict": VERDICT, "findings": list_of(FIRST_FINDING)})
COMPARE = document(
    "compare",
    {
        "groups": list_of(GROUP), "config": mapping_of(mapping_of(ANY)), "metrics": list_of(COMPARED),
        "runs": list_of(JUDGED), "phases": mapping_of(mapping_of(INTERVAL)),
    },
)  # fmt: skip
SCHEMAS: dict[str, tuple[str, Schema]] = {
    "ls": ("barograph ls --json", list_of(LS)),
    "show": ("barograph show --json", SHOW),
    "doctor": ("barograph doctor --json", {"anyOf": [DIAGNOSIS, list_of({"anyOf": [DIAGNOSIS, ERROR]})]}),
    "fleet": ("barograph doctor DIR --fleet --json", FLEET),
    "rules": ("barograph doctor --explain RULE --json", list_of(RULE)),
    "phases": ("barograph phases --json", PHASES),
    "samples": ("a line of barograph samples --json", SAMPLE),
    "token_sums": ("a line of barograph samples --token-sums --json", TOKEN_SUM),
    "explain": ("barograph explain --json", {"anyOf": [EXPLAINED, AMBIGUOUS, UNKNOWN]}),
    "metrics": ("barograph explain --all --json", METRICS),
    "query": ("barograph query --json", QUERY),
    "compare": ("barograph compare --json", COMPARE),
    "error": ("an error of any command with --json", ERROR),
}


def schema_text(kind: str) -> str:
    """Return a schema as the text of its file."""
    title, schema = SCHEMAS[kind]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **schema}, indent=1, ensure_ascii=False) + "\n"


def write_schemas(dir: Path) -> None:
    """Write the files of all schemas."""
    dir.mkdir(parents=True, exist_ok=True)
    for kind in SCHEMAS:
        (dir / f"{kind}.json").write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
