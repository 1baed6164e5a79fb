"""Python values in the text of a log, read without running anything of it."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from typing import Any

from windsock.importers.numbers import NUMBER_CALLS

MAX_LITERAL = 512 << 10
MAX_DEPTH = 32
NAMES = {
    "nan": math.nan, "NaN": math.nan, "inf": math.inf, "Infinity": math.inf,
    "true": True, "false": False, "null": None,
}  # fmt: skip
FILE = "<a line of a log>"
# What a log has is no code of the user, so that doubts about its syntax are none for him.
warnings.filterwarnings("ignore", category=SyntaxWarning, module=re.escape(FILE))
warnings.filterwarnings("ignore", category=DeprecationWarning, module=re.escape(FILE))
BARE = re.compile(r'(": -?)(nan|inf)(?=[,}])')
AS_JSON = {"nan": "NaN", "inf": "Infinity"}


def parse_dict(text: str) -> dict[str, Any] | None:
    """Return the dict that a text is, with NaN, infinities, ``np.float64(…)`` and ``tensor(…)``; None if it is none."""
    text = text.strip()
    if text[:1] != "{" or text[-1:] != "}":
        return None
    found = _simple_dict(text)
    if found is None:
        found = literal_of(text)
    if not isinstance(found, dict):
        return None
    return {str(name): value for name, value in found.items()}


def _simple_dict(text: str) -> Any:
    """Return a dict whose repr is JSON but for its quotes: this is most of them, and ten times as fast."""
    if '"' in text or "\\" in text:
        return None
    text = text.replace("'", '"')
    if "nan" in text or "inf" in text:
        text = BARE.sub(lambda found: found[1] + AS_JSON[found[2]], text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def literal_of(text: str) -> Any:
    """Return the value of a Python literal that is bounded in size and depth; None if it is none."""
    if len(text) > MAX_LITERAL:
        return None
    try:
        return _value(ast.parse(text.strip(), FILE, mode="eval").body, 0)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
        return None


def _value(node: ast.expr, depth: int) -> Any:
    """Return the value of a literal; raise ValueError for anything else."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, depth + 1): _value(value, depth + 1) for key, value in pairs if key is not None}
        case ast.List(elts=inner) | ast.Set(elts=inner):
            return [_value(value, depth + 1) for value in inner]
        case ast.Tuple(elts=inner):
            return tuple(_value(value, depth + 1) for value in inner)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(operand, depth + 1)
        case ast.Name(id=name) if name in NAMES:
            return NAMES[name]
        case ast.Call(func=function, args=[first, *_]) if ast.unparse(function) in NUMBER_CALLS:
            return _value(first, depth + 1)
    raise ValueError(f"no literal: {type(node).__name__}")


def _number(node: ast.expr, depth: int) -> Any:
    value = _value(node, depth)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    return value
