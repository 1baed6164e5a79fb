"""Values in the text of a log.

Numbers, steps and times; Python literals, read without running anything; JSON documents, read value by value, so
that a cut or damaged end costs only itself.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from barograph.base.model import Histogram


def json_of(text: str | bytes, default: Any = None) -> Any:
    """Return the value that a text is in JSON; a default for other texts."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return default


def object_of(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None if it is none."""
    text = text.strip()
    if text[:1] != "{" or text[-1:] != "}":
        return None
    found = json_of(text)
    return found if isinstance(found, dict) else None


def histogram_of(value: Mapping[str, Any]) -> Histogram | None:
    """Return a histogram; W&B has no minimum, maximum and sum, so that they are those of the bins."""
    counts, edges, packed = value.get("values"), value.get("bins"), value.get("packedBins")
    try:
        if edges is None and isinstance(packed, Mapping):
            # The number of bins is not believed: it could be any.
            edges = [packed["min"] + packed["size"] * n for n in range(len(counts or ()) + 1)]
        counts, edges = tuple(map(int, counts or ())), tuple(map(float, edges or ()))
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    if not counts or len(edges) != len(counts) + 1:
        return None
    total = sum(n * (left + right) / 2 for n, left, right in zip(counts, edges[:-1], edges[1:], strict=True))
    return Histogram(edges, counts, edges[0], edges[-1], total, sum(counts))


STEP_NAMES = (
    "step", "global_step", "_step", "training/global_step", "train/global_step", "trainer/global_step", "global_steps",
    "train_step", "training_step", "iteration", "iter", "steps", "update", "rollout/step", "train/step", "Step",
    "current_steps", "current_step", "rollout_id", "Iteration", "num_updates", "total_timesteps",
    "time/total_timesteps", "timesteps", "global_step/max_steps",
)  # fmt: skip

TIME_NAMES = (
    "_timestamp", "timestamp", "time", "wall_time", "datetime", "created_at", "ts", "date", "Wall time", "wall_clock",
    "@timestamp", "logged_at", "Timestamp",
)  # fmt: skip

SPECIAL = {
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "+inf": math.inf, "infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip

WORDS = {"True": 1.0, "False": 0.0}

TRL_TRAINERS = {
    "GRPO": "grpo", "RLOO": "rloo", "SFT": "sft", "DPO": "dpo", "KTO": "kto", "Reward": "reward", "PPO": "ppo",
    "PPOv2": "ppo", "OnlineDPO": "online-dpo", "PRM": "prm", "CPO": "cpo", "ORPO": "orpo", "BCO": "bco", "GKD": "gkd",
}  # fmt: skip
"""Names of TRL's trainers, less their ending, and the eras of the catalogue."""

TIMES = (1e9, 4.2e9)  # seconds from 2001 to 2103

SCALES = (1.0, 1e3, 1e6, 1e9)  # of seconds, milliseconds, …

ONLY_FLOATS = frozenset({float})

MAX_DEPTH = 8

MAX_STEP = 2**53

MAX_DIGITS = 40


def flat_numbers(found: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, float | None]:
    """Return the numbers in nested objects, with their names joined by slashes; nulls are kept, texts left out."""
    if not prefix and ONLY_FLOATS.issuperset(map(type, found.values())):
        return dict(found)  # most rows
    return dict(_flat(found, prefix, depth))


def _flat(found: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, float | None]]:
    for key, value in found.items():
        name = f"{prefix}{key}"
        if value is None:
            yield name, None
        elif isinstance(value, int | float):  # a truth value is one too
            yield name, to_float(value)
        elif isinstance(value, str):
            number = text_number(value)
            if number is not None:
                yield name, number
        elif isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _flat(value, f"{name}/", depth + 1)


def to_float(value: float) -> float:
    """Return a number as a float; an integer that is too large is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def text_number(text: str) -> float | None:
    """Return the number that a text is; None for other texts."""
    try:
        return float(text) if len(text) <= MAX_DIGITS and "_" not in text else None
    except ValueError:
        return None


def number_of(text: str) -> float | None:
    """Return the number that a text is, with ``np.float64(…)`` and the like around it; None if it is none."""
    text = text.strip()
    if text[-1:] == ")" and "(" in text:
        head, _, inner = text[:-1].partition("(")
        if head not in NUMBER_CALLS:
            return None
        text = inner.partition(",")[0]
    found = text_number(text)
    return WORDS.get(text) if found is None else found


NUMBER_CALLS = frozenset(
    f"{package}{kind}"
    for package in ("np.", "numpy.", "")
    for kind in (
        "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint32", "uint64", "bool_",
        "bool", "tensor", "float", "int",
    )
) | {"torch.tensor"}  # fmt: skip


def step_of(found: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the step of a row and the name under which it stands; None and "" if it has none."""
    for name in STEP_NAMES:
        if name in found and (step := as_step(found[name])) is not None:
            return step, name
    return None, ""


def as_step(value: Any) -> int | None:
    """Return a value as a step: a whole number, or a text that is one, also ``3/100``; None for others."""
    if isinstance(value, str):
        value = text_number(value.partition("/")[0])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < MAX_STEP and value == int(value) else None


def as_time(value: Any) -> float | None:
    """Return a value as a time: seconds or milliseconds since 1970, or an ISO date with a time; None for others."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = to_float(value)
        return next((number / scale for scale in SCALES if TIMES[0] <= number / scale <= TIMES[1]), None)
    if isinstance(value, str) and len(value) < 64 and value[:2] in ("19", "20"):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


MAX_LITERAL = 512 << 10

MAX_LITERAL_DEPTH = 32

NAMED_VALUES = {
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
    return json_of(text)


def literal_of(text: str) -> Any:
    """Return the value of a Python literal that is bounded in size and depth; None if it is none."""
    if len(text) > MAX_LITERAL:
        return None
    try:
        return _literal_value(ast.parse(text.strip(), FILE, mode="eval").body, 0)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
        return None


def _literal_value(node: ast.expr, depth: int) -> Any:
    """Return the value of a literal; raise ValueError for anything else."""
    if depth > MAX_LITERAL_DEPTH:
        raise ValueError("nested too deeply")
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {
                _literal_value(key, depth + 1): _literal_value(value, depth + 1)
                for key, value in pairs
                if key is not None
            }
        case ast.List(elts=inner) | ast.Set(elts=inner):
            return [_literal_value(value, depth + 1) for value in inner]
        case ast.Tuple(elts=inner):
            return tuple(_literal_value(value, depth + 1) for value in inner)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_literal_number(operand, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _literal_number(operand, depth + 1)
        case ast.Name(id=name) if name in NAMED_VALUES:
            return NAMED_VALUES[name]
        case ast.Call(func=function, args=[first, *_]) if ast.unparse(function) in NUMBER_CALLS:
            return _literal_value(first, depth + 1)
    raise ValueError(f"no literal: {type(node).__name__}")


def _literal_number(node: ast.expr, depth: int) -> Any:
    value = _literal_value(node, depth)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    return value


SPACE = re.compile(r"[ \t\r\n]*")

_decode = json.JSONDecoder().raw_decode


class DamagedDocumentError(ValueError):
    """The document ends, or is not JSON, at some line."""


class JsonScanner:
    """A place in the text of a document, which moves as values are read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def take(self, character: str) -> bool:
        """Move behind a character if it comes next; return whether it does."""
        space = SPACE.match(self.text, self.place)
        self.place = space.end() if space else self.place
        if self.text.startswith(character, self.place):
            self.place += len(character)
            return True
        return False

    def comes(self, character: str) -> bool:
        """Return whether a character comes next."""
        is_next = self.take(character)
        self.place -= is_next
        return is_next

    def expect(self, character: str) -> None:
        """Move behind a character that has to come next."""
        if not self.take(character):
            raise self._damaged(f"expected {character!r}")

    def value(self) -> Any:
        """Read the next value."""
        self.take("")
        try:
            value, self.place = _decode(self.text, self.place)
        except (ValueError, RecursionError) as problem:
            raise self._damaged(getattr(problem, "msg", "") or str(problem)) from None
        return value

    def members(self) -> Iterator[str]:
        """Yield the names of an object; its user reads each value before the next name."""
        self.expect("{")
        is_first = True
        while not self.take("}"):
            if not is_first:
                self.expect(",")
            is_first = False
            name = self.value()
            self.expect(":")
            yield str(name)

    def entries(self) -> Iterator[Any]:
        """Yield the values of an array."""
        self.expect("[")
        if not self.take("]"):
            yield self.value()
            yield from self.more_entries()

    def more_entries(self) -> Iterator[Any]:
        """Yield the values of an array of which one was read last."""
        while not self.take("]"):
            self.expect(",")
            yield self.value()

    def _damaged(self, reason: str) -> DamagedDocumentError:
        line = self.text.count("\n", 0, self.place) + 1
        if not self.text[self.place :].strip():
            return DamagedDocumentError(f"line {line}: the end is missing")
        return DamagedDocumentError(f"line {line}: {reason}")
