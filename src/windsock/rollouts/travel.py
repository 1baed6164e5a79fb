"""How a gathering crosses processes and lies in the journal: a JSON head and its arrays, compressed."""

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
LEVEL = 1  # most of it is zeros and ones; more effort gains little


def pack(gathering: Gathering, plan: Plan) -> bytes:
    """Return everything that was gathered, to be merged elsewhere."""
    frame = gathering.frame()
    size = len(frame)
    head = {
        "plan": asdict(plan),
        "tasks": list(gathering.tasks),
        "runs": gathering.run_ids,
        "failed": sorted(gathering.failed),
        "answers": gathering.answers,
        "reasons": gathering.reasons,
        "columns": {metric: [column.statistic, column.nonfinite] for metric, column in gathering.columns.items()},
    }
    arrays = [frame.tasks.astype(np.float64)]
    for column in gathering.columns.values():
        arrays += [column.states(size), column.counts(size)]
        arrays += [column.times(size)] if column.statistic == "last" else []
    text = json.dumps(head, separators=(",", ":")).encode()
    return zlib.compress(HEAD.pack(len(text)) + text + b"".join(array.tobytes() for array in arrays), LEVEL)


def unpack(packed: bytes) -> tuple[Gathering, Plan]:
    """Return what ``pack`` was given; ValueError where that is not what this is."""
    try:
        data = zlib.decompress(packed)
        (length,) = HEAD.unpack_from(data)
        head = json.loads(data[HEAD.size : HEAD.size + length])
        return _restored(head, np.frombuffer(data[HEAD.size + length :], np.float64).copy())
    except (zlib.error, struct.error, KeyError, TypeError, IndexError, AttributeError, StopIteration) as problem:
        raise ValueError(f"not what was gathered: {problem}") from problem


def _restored(head: dict[str, Any], numbers: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Gathering, Plan]:
    given = head["plan"]
    plan = Plan(**{**given, **{key: tuple(given[key]) for key in ("over_tasks", "expected_names")}})
    gathering = Gathering(plan.statistic_of, plan.every_run)
    size = len(head["runs"])
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
