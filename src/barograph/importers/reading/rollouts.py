"""Records of rollout dumps, of JSON or Parquet, as the fields of samples. Parquet needs pyarrow, which is an extra.

=============  ================================================================================
veRL           ``input, output, gts, score, step``, and what the reward function gave besides
TRL            ``step, prompt, completion, advantage``, and a column for each reward function
slime, Relax   ``prompt, response, reward, response_length, status, group_index``
miles          ``prompt, messages, reward, status, group_index, sample_index``
prime-rl       ``prompt, completion, reward, metrics, task, example_id``, or episodes with ``traces``
=============  ================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from barograph.base.installation import install_command
from barograph.importers.reading.values import to_float
from barograph.importers.recorder import Recorder

PACKAGE = "pyarrow"


ROWS_AT_ONCE = 64

MAX_ROWS = 1_000_000

MAX_UNPACKED = 2 << 30  # bytes of a file, as it says itself


def missing_package() -> str:
    """Return what to do where Parquet files cannot be read."""
    return f"Parquet files need pyarrow: {install_command('parquet')}"


class UnreadableTableError(ValueError):
    """A file that is not read, with the reason."""


def parquet_rows(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file in lists; raise ImportError without pyarrow, else UnreadableTableError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            check_size(file.metadata)
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as problem:
        text = str(problem).strip().partition("\n")[0]
        raise UnreadableTableError(text or type(problem).__name__) from None


def check_size(metadata: Any) -> None:
    """Raise UnreadableTableError for a table that does not fit into the memory."""
    unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or unpacked > MAX_UNPACKED:
        raise UnreadableTableError(f"it has {metadata.num_rows:,} rows and {unpacked:,} bytes, which is too much")


def column_names(path: Path) -> list[str]:
    """Return the names of the columns; none if the file cannot be read."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return []
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):
        return []


PROMPTS = ("prompt", "input", "question", "problem")

COMPLETIONS = ("completion", "output", "response", "generation", "messages")

REWARDS = ("reward", "score", "final_reward", "rewards")

STEPS = ("step", "global_step", "rollout_id", "rollout_step", "training_step")

GROUPS = ("group_index", "group", "group_id", "uid", "example_id", "prompt_id")

RUNS = ("sample_index", "index", "request_id", "rollout_index")

TASKS = ("dataset", "data_source", "env", "env_name", "task")

ENDS = ("finish_reason", "stop_reason", "stop_condition", "status")

LENGTHS = ("response_length", "completion_length", "length")

VERSIONS = ("weight_version", "policy_version")

TOTALS = ("total_length", "prompt_length")

TAKEN = frozenset({
    *PROMPTS, *COMPLETIONS, *REWARDS, *STEPS, *GROUPS, *RUNS, *TASKS, *ENDS, *LENGTHS, *VERSIONS, *TOTALS,
    "advantage", "time", "timestamp",
})  # fmt: skip


def is_rollout(record: Any) -> bool:
    """Return whether a record is a prompt with its completion and reward, or an episode of prime-rl."""
    if not isinstance(record, Mapping):
        return False
    if isinstance(record.get("traces"), list) and isinstance(record.get("task"), Mapping):
        return True
    texts = (PROMPTS, COMPLETIONS) if "messages" not in record else (COMPLETIONS,)
    return all(any(_is_text(record.get(name)) for name in names) for names in texts) and any(
        name in record for name in REWARDS
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str | list)


def record_samples(
    records: Iterable[Mapping[str, Any]],
    out: Recorder,
    step: int | None = None,
    reward_names: Collection[str] | None = None,
) -> None:
    """Record the samples of records, each at the step that it names, else at a given one."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        own = step_of_record(record)
        place = by_step.setdefault(next((s for s in (own, step) if s is not None), 0), [])
        place.extend(samples_of(record, reward_names))
    for number, samples in by_step.items():
        out.samples(samples, number)


def samples_of(record: Mapping[str, Any], reward_names: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the samples of a record. ``reward_names`` are the numbers in it that are parts of the reward, if known."""
    if isinstance(record.get("traces"), list):
        yield from (_of_trace(record, trace) for trace in record["traces"] if isinstance(trace, Mapping))
        return
    reward = next((number for name in REWARDS if (number := number_or_none(record.get(name))) is not None), None)
    fields = {
        "prompt": _first(record, PROMPTS),
        "completion": _first(record, COMPLETIONS[:-1]),
        "messages": _messages(record.get("messages")),
        "reward": reward,
        "rewards": rewards_of(record, reward_names),
        "advantage": number_or_none(record.get("advantage")),
        "length": _first(record, LENGTHS),
        "weight_version": _whole(_first(record, VERSIONS)),
        "group": _label(_first(record, GROUPS)),
        "run": _label(_first(record, RUNS)),
        "task": _label(_first(record, TASKS)),
        "finish_reason": _label(_first(record, ENDS)),
    }
    yield {name: value for name, value in fields.items() if value not in (None, {}, [])}


def reward_name(record: Mapping[str, Any]) -> str:
    """Return the name of the number that is the reward of a record; "" if there is none."""
    return next((name for name in REWARDS if number_or_none(record.get(name)) is not None), "")


def rewards_of(record: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, float]:
    """Return the parts of the reward: numbers by name, in an object of their own or beside the reward."""
    parts: dict[str, Any] = {}
    for name in (*REWARDS, "metrics"):
        if isinstance(record.get(name), Mapping):
            parts |= record[name]
    parts |= {name: value for name, value in record.items() if name not in TAKEN}
    chosen = {name: number_or_none(value) for name, value in parts.items() if names is None or name in names}
    return {name: number for name, number in chosen.items() if number is not None}


def step_of_record(record: Mapping[str, Any]) -> int | None:
    """Return the step that a record names."""
    work = _inner(_inner(record.get("run")).get("work"))
    return next((step for name in STEPS if (step := _whole(record.get(name))) is not None), _whole(work.get("step")))


def number_or_none(value: Any) -> float | None:
    """Return a number as a float; None for anything else."""
    return to_float(value) if isinstance(value, int | float) else None


def _of_trace(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sample of one agent's trace: the messages up to the last one, and weighted rewards."""
    rewards = {name: _inner(reward) for name, reward in _inner(trace.get("rewards")).items()}
    scores = {name: number_or_none(reward.get("score")) for name, reward in rewards.items()}
    weighted = [
        score * (1.0 if (weight := number_or_none(rewards[name].get("weight"))) is None else weight)
        for name, score in scores.items()
        if score is not None
    ]
    task = _inner(episode.get("task"))
    fields = {
        "messages": _path(trace.get("nodes")),
        "reward": sum(weighted) if weighted else None,
        "rewards": {name: score for name, score in scores.items() if score is not None},
        "group": _label(_inner(episode.get("group")).get("id")),
        "task": _label(_inner(episode.get("env")).get("name") or _inner(episode.get("env")).get("id")),
        "run": _label(_inner(task.get("data")).get("idx")),
        "finish_reason": _label(trace.get("stop_condition")),
        "length": _whole(trace.get("num_output_tokens")),
    }
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _path(nodes: Any) -> list[Any]:
    """Return the messages from the root of a graph to its last node; a node has the number of the one before it."""
    if not isinstance(nodes, list):
        return []
    found: list[Any] = []
    place: Any = len(nodes) - 1
    while type(place) is int and 0 <= place < len(nodes) and len(found) <= len(nodes):
        node = _inner(nodes[place])
        found.append(node.get("message"))
        place = node.get("parent")
    return [message for message in reversed(found) if isinstance(message, Mapping)]


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _inner(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _messages(value: Any) -> list[Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) >= 2**53:
        return None
    return int(value) if value == int(value) else None


def _label(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
