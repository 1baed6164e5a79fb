"""Numbers in parsed logs: which entries are values, which one is the step, and which one the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

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


def time_of(found: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the time of a row in seconds since 1970, and its name; None and "" if it has none."""
    for name in TIME_NAMES:
        if name in found and (at := as_time(found[name])) is not None:
            return at, name
    return None, ""


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
