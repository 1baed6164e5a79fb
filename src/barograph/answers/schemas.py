"""The JSON schemas of what commands print with ``--json``; ``python -m barograph.answers.schemas DIR`` writes them.

``docs/schema`` has them as files. Records may have further fields: a reader ignores those that it does not know.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from barograph.answers.records import STATUS_SYMBOLS, VERSION
from barograph.diagnosis.diagnose import VERDICTS
from barograph.journal.findings import SEVERITIES

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
STEPS = nullable({"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2})
NAMED = {"run": TEXT, "name": TEXT, "path": TEXT}
STATUS = {"status": one_of(*STATUS_SYMBOLS), "reason": TEXT}
VERDICT = one_of(*VERDICTS)
ERROR = document("error", {"error": TEXT}, {"run": TEXT})
INFO = {
    "id": TEXT, "project": TEXT, "name": TEXT, "created": NUMBER, "vocabulary": TEXT, "producer": TEXT,
    "group": nullable(TEXT), "tags": list_of(TEXT), "notes": nullable(TEXT),
}  # fmt: skip
FIRST_FINDING = record({"rule": TEXT, "onset": INTEGER, "title": BILINGUAL})
HEALTH = record(
    {"verdict": VERDICT, "word": TEXT, "step": nullable(INTEGER), "findings": INTEGER, "first": nullable(FIRST_FINDING)}
)
LS = document(
    "ls",
    {
        **INFO, **STATUS, "health": nullable(HEALTH), "last_step": nullable(INTEGER), "last_heard": NUMBER,
        "bytes": INTEGER, "writers": INTEGER, "attempts": INTEGER, "path": TEXT,
    },
)  # fmt: skip
FINDING: Schema = record(
    {
        "rule": TEXT, "severity": one_of(*SEVERITIES), "onset": INTEGER, "last": INTEGER, "is_open": FLAG, "name": TEXT,
        "title": BILINGUAL, "text": BILINGUAL, "advice": list_of(BILINGUAL), "evidence": list_of(TEXT),
        "confidence": TEXT, "against": list_of(BILINGUAL), "explains": list_of({"type": "object"}),
    }
)  # fmt: skip
SIGN = record(
    {
        "key": TEXT, "title": BILINGUAL, "name": TEXT, "metric": TEXT, "word": TEXT, "verdict": BILINGUAL,
        "text": BILINGUAL, "note": nullable(BILINGUAL),
    }
)  # fmt: skip
DIAGNOSIS = document(
    "doctor",
    {
        **NAMED, "steps": STEPS, "verdict": VERDICT, "findings": list_of(FINDING), "past": list_of(FINDING),
        "fine": list_of(TEXT), "unmeasured": list_of(record({"rule": TEXT, "reason": BILINGUAL})),
        "reasons": list_of(BILINGUAL), "signs": list_of(SIGN),
    },
)  # fmt: skip
ONSET = record({"median": NUMBER, "first": INTEGER, "last": INTEGER, "first_run": TEXT, "last_run": TEXT})
RULE_SUM = record(
    {
        "rule": TEXT, "title": BILINGUAL, "runs": INTEGER, "share": NUMBER, "critical": INTEGER, "causes": INTEGER,
        "past": INTEGER, "onset": nullable(ONSET),
    }
)  # fmt: skip
GROUP_SUM = record(
    {
        "value": {"anyOf": [VALUE, TEXT, FLAG, {"type": "null"}]}, "runs": INTEGER, "verdicts": mapping_of(INTEGER),
        "rules": list_of(RULE_SUM),
    }
)  # fmt: skip
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
MOMENT = record({"kind": one_of("annotation", "restart", "checkpoint", "config"), "step": INTEGER, "text": TEXT})
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
PHASE = record(
    {
        "name": TEXT, "timer": FLAG, "count": INTEGER, "failed": INTEGER, "mean": NUMBER, "p95": NUMBER, "max": NUMBER,
        "writers": INTEGER, "slowest": TEXT, "share": nullable(NUMBER), "tokens_per_second": nullable(NUMBER),
        "token_kind": TEXT, "peak": nullable(NUMBER), "rss": nullable(NUMBER),
    }
)  # fmt: skip
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
MEANING = record({"source": TEXT, "id": TEXT, "title": TEXT, "note": TEXT})
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
PART = record({"text": TEXT, "left": ANY, "right": ANY, "holds": FLAG, "names": mapping_of(TEXT)})
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
