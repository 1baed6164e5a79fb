"""JSON of commands: records, and errors."""

from __future__ import annotations

import json
import sys
from typing import Any

from windsock.answers.records import versioned
from windsock.formatting import printable


def print_document(kind: str, record: dict[str, Any]) -> None:
    """Print a record as JSON."""
    print_json(versioned(kind, record))


def print_problem(problem: object, is_json: bool) -> None:
    """Print an error: as JSON, or as a line on standard error."""
    if is_json:
        print_document("error", {"error": str(problem)})
    else:
        print(printable(f"windsock: {problem}", newlines=True), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print strict JSON: NaN and infinities, of a config say, are strings."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False, default=str)
    except (ValueError, RecursionError):  # not finite, or nested too deeply
        from windsock.server.responses import to_strict_json

        text = json.dumps(to_strict_json(value), indent=1, allow_nan=False)
    print(text)
