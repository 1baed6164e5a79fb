"""Packed form of a gathering, for other processes and the journal: a JSON head and arrays, compressed with zlib."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np

from windsock.rollouts.columns import Column
from windsock.rollouts.gathering import Gathering
from windsock.rollouts.plan import Plan

HEAD = struct.Struct("<I")
LEVEL = 1  # most of it is zeros and ones; a higher level gains little
STORED_NAMES = {"reductions": "declared"}  # fields of a plan that have another name on disk


def pack(gathering: Gathering, plan: Plan) -> bytes:
    """Return a gathering and its plan as bytes, to be merged elsewhere."""
    frame = gathering.frame()
    size = len(frame)
    head = {
        "plan": {STORED_NAMES.get(name, name): value for name, value in asdict(plan).items()},
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
    return zlib.compress(HEAD.pack(len(text)) + text + b"".join(array.tobytes() for array in arrays), LEVEL)


def unpack(packed: bytes) -> tuple[Gathering, Plan]:
    """Return the gathering and the plan that ``pack`` was given; ValueError for other bytes."""
    try:
        data = zlib.decompress(packed)
        (length,) = HEAD.unpack_from(data)
        head = json.loads(data[HEAD.size : HEAD.size + length])
        # A copy, because arrays on top of bytes are read-only.
        return _restored(head, np.frombuffer(data[HEAD.size + length :], np.float64).copy())
    except (zlib.error, struct.error, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        raise ValueError(f"not the state of a handle: {error}") from error


def _restored(head: dict[str, Any], numbers: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Gathering, Plan]:
    given = dict(head["plan"])
    for name, stored in STORED_NAMES.items():
        if stored in given:
            given[name] = given.pop(stored)
    plan = Plan(**{**given, **{key: tuple(given[key]) for key in ("over_tasks", "expected_names")}})
    gathering = Gathering(plan.statistic_of, plan.every_run)
    size = len(head["runs"])
    # With no runs there are no numbers, and reshape cannot infer a number of rows of length 0.
    rows = iter(numbers.reshape(-1, size)) if size else iter(())
    gathering.tasks = {task: place for place, task in enumerate(head["tasks"])}
    gathering.task_of = next(rows).astype(int).tolist() if size else []
    gathering.run_ids = head["runs"]
    gathering.failed = set(head["failed"])
    gathering.answers = {int(slot): answer for slot, answer in head["answers"].items()}
    gathering.reasons.update(head["reasons"])
    for metric, (statistic, nonfinite) in head["columns"].items():
        column = gathering.columns[metric] = Column(statistic)
        if size:
            values, counts = next(rows), next(rows)
            times = next(rows) if statistic == "last" else np.full(0, np.nan)
            column.restore(values, counts, times, nonfinite)
    return gathering, plan
