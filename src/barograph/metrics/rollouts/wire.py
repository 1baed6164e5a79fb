"""Packed form of a gathering, for other processes and the journal: a JSON head and arrays, compressed with zlib."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.files import compression
from barograph.base.files.compression import Budget, load_json
from barograph.metrics.rollouts.gathering import STATISTICS, Gathering, RolloutColumn
from barograph.metrics.rollouts.plan import RolloutPlan, checked

HEAD = struct.Struct("<I")
LEVEL = 1  # most of it is zeros and ones; a higher level gains little
KINDS = ("rollout", "eval", "bench", "validation", "group", "drawn")
MAX_BYTES = 32 << 20  # of an unpacked state: 100,000 runs with twenty metrics
MAX_SENT_BYTES = 1 << 30  # of a state that a program sends to another one of its own
BYTES_PER_VALUE = 10  # at least, of JSON and numbers together: a run has an id and a task
RUN_COST = 64  # bytes that a reader counts for a run in addition: it becomes objects of Python
MAX_COUNT = 2**53  # integers are exact in a float64 up to it
STORED_NAMES = {"reductions": "declared"}  # fields of a plan that have another name on disk


@dataclass(frozen=True, slots=True)
class Encoded:
    """The packed form before its compression, which takes most of the time of ``pack``."""

    data: bytes
    runs: int


def pack(gathering: Gathering, plan: RolloutPlan, limit: int = MAX_BYTES) -> bytes:
    """Return a gathering and its plan as bytes, to be merged elsewhere; ValueError if they are too large for that."""
    return compressed(encode(gathering, plan, limit))


def compressed(encoded: Encoded) -> bytes:
    """Return the packed form of what ``encode`` returned."""
    return compression.pack(encoded.data, LEVEL, len(encoded.data) + RUN_COST * encoded.runs)


def encode(gathering: Gathering, plan: RolloutPlan, limit: int = MAX_BYTES) -> Encoded:
    """Return a gathering and its plan as bytes to be compressed; ValueError if they are too large to be merged."""
    frame = gathering.frame()
    size = len(frame)
    # What barograph.define declared is known in this process only.
    plan = plan.declaring(gathering.columns)
    head = {
        # Without ks if there are none: older versions do not know the field.
        "plan": {STORED_NAMES.get(name, name): value for name, value in asdict(plan).items() if name != "ks" or value},
        "tasks": list(gathering.tasks),
        "runs": gathering.run_ids,
        "failed": sorted(gathering.failed),
        "answers": gathering.answers,
        "reasons": gathering.reasons,
        "columns": {metric: [column.statistic, column.nonfinite] for metric, column in gathering.columns.items()},
    }
    # Everything is float64, so that the arrays are one buffer; integers are exact in it up to 2^53.
    arrays = [frame.tasks.astype(np.float64)]
    for column in gathering.columns.values():
        arrays += [column.states(size), column.counts(size)]
        arrays += [column.times(size)] if column.statistic == "last" else []
    text = json.dumps(head, separators=(",", ":")).encode()
    size = HEAD.size + len(text) + sum(array.nbytes for array in arrays)
    if size > limit:
        raise ValueError(
            f"{len(gathering):,} runs with {len(gathering.columns):,} metrics take {size:,} bytes, "
            f"of which {limit:,} can be merged with those of other processes: report fewer runs in a step"
        )
    return Encoded(HEAD.pack(len(text)) + text + b"".join(array.tobytes() for array in arrays), len(frame))


def unpack(packed: bytes, budget: Budget | None = None, limit: int = MAX_BYTES) -> tuple[Gathering, RolloutPlan]:
    """Return the gathering and the plan that ``pack`` was given; ValueError for other bytes.

    ``budget`` bounds the bytes of all states that are unpacked with it.
    """
    budget = budget or Budget()
    try:
        data = budget.unpack(packed, limit)
        (length,) = HEAD.unpack_from(data)
        if length > len(data) - HEAD.size:
            raise ValueError("its head is cut off")
        head = load_json(data[HEAD.size : HEAD.size + length], limit // BYTES_PER_VALUE)
        budget.spend(RUN_COST * len(head["runs"]))
        # A copy, because arrays on top of bytes are read-only.
        numbers = np.frombuffer(data, np.uint8)[HEAD.size + length :].copy().view(np.float64)
        return _restored(head, numbers)
    except (struct.error, KeyError, TypeError, IndexError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(f"not the state of a handle: {error}") from error


def _restored(head: dict[str, Any], numbers: NDArray[np.float64]) -> tuple[Gathering, RolloutPlan]:
    plan = _plan(head["plan"])
    gathering = Gathering(plan.statistic_of, plan.every_run)
    tasks, runs, columns = head["tasks"], head["runs"], head["columns"]
    _require(_are(tasks, str) and len(set(tasks)) == len(tasks), "tasks must be different names")
    _require(_are(runs, int, str, type(None)), "the id of a run must be an int, a string or None")
    _require(isinstance(columns, dict), "columns must be named")
    size = len(runs)
    # Checked before any array is made: the head can claim more runs than there are numbers.
    widths = [3 if statistic == "last" else 2 for statistic, _ in columns.values()]
    _require(len(numbers) == size * (1 + sum(widths)), f"{len(numbers):,} numbers for {size:,} runs")
    rows = iter(numbers.reshape(-1, size)) if size else iter([np.empty(0)] * (1 + sum(widths)))
    gathering.tasks = {task: place for place, task in enumerate(tasks)}
    gathering.task_of = _places(next(rows), len(tasks))
    gathering.run_ids = runs
    gathering.failed = {_slot(slot, size) for slot in head["failed"]}
    gathering.answers = {_slot(int(slot), size): answer for slot, answer in head["answers"].items()}
    _require(_are(list(gathering.answers.values()), str), "answers must be texts")
    gathering.reasons.update({str(reason): _count(count) for reason, count in head["reasons"].items()})
    for metric, (statistic, nonfinite) in columns.items():
        _require(statistic in STATISTICS, f"{statistic!r} is not a reduction")
        column = gathering.columns[metric] = RolloutColumn(statistic)
        values, counts = next(rows), next(rows)
        _require(bool(((counts >= 0) & (counts <= MAX_COUNT)).all()), "counts must be numbers from 0 on")
        times = next(rows) if statistic == "last" else np.full(0, np.nan)
        column.restore(values, counts, times, _count(nonfinite))
    return gathering, plan


def _plan(record: Mapping[str, Any]) -> RolloutPlan:
    given = dict(record)
    for name, stored in STORED_NAMES.items():
        if stored in given:
            given[name] = given.pop(stored)
    given["ks"] = given.get("ks", [])
    _require(_are(given["ks"], int), "ks must be integers")
    plan = RolloutPlan(**{**given, **{key: tuple(given[key]) for key in ("over_tasks", "expected_names", "ks")}})
    _require(plan.kind in KINDS, f"{plan.kind!r} is not a kind of report")
    _require(_are([plan.taskset, plan.failures, *plan.over_tasks, *plan.expected_names], str), "names must be texts")
    _require(isinstance(plan.reductions, dict) and _are(list(plan.reductions.values()), str), "reductions are wrong")
    _require(_are([plan.failed_value], int, float), "the value of failed runs must be a number")
    float(plan.failed_value)
    for count in (plan.expected_tasks, plan.repeats):
        _count(0 if count is None else count)
    return checked(plan, _refuse)


def _are(values: Any, *types: type) -> bool:
    """Return whether values are a list of these types; a bool is no int here."""
    return isinstance(values, list) and set(map(type, values)) <= set(types)


def _places(numbers: NDArray[np.float64], count: int) -> list[int]:
    _require(bool(((numbers >= 0) & (numbers < count)).all()), "a run has no task")
    places: list[int] = numbers.astype(np.int64).tolist()
    return places


def _slot(slot: Any, size: int) -> int:
    _require(type(slot) is int and 0 <= slot < size, f"there is no run {slot!r}")
    return int(slot)


def _count(count: Any) -> int:
    _require(type(count) is int and 0 <= count <= MAX_COUNT, f"{count!r} is not a count")
    return int(count)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        _refuse(problem)


def _refuse(problem: str) -> None:
    raise ValueError(problem)
