"""A question that was answered, as a record."""

from __future__ import annotations

from typing import Any

from windsock.formatting import json_number
from windsock.questions import Answer


def question_record(expression: str, found: Answer) -> dict[str, Any]:
    """Return the answer to a question, with the comparisons that it is made of."""
    parts = [
        {
            "text": part.text,
            "left": _plain(part.left),
            "right": _plain(part.right),
            "holds": part.holds,
            "names": part.names,
        }
        for part in found.parts
    ]
    return {"expression": expression, "answer": found.holds, "comparisons": parts}


def _plain(value: object) -> object:
    return json_number(value) if isinstance(value, float) else value
