"""Rollout dumps, read as samples: JSON lines or Parquet, a file per step or one file.

==========  ==================================================================
veRL        ``rollout_data_dir`` and ``validation_data_dir``: ``7.jsonl``
TRL         ``completions/completions_00007.parquet``
Relax       ``rollout_result/train/7.jsonl``
miles       ``trajectory/7.jsonl``, of evaluations ``eval_7.jsonl``
prime-rl    ``rollouts/step_7/train_rollouts.jsonl`` or ``…/train/all/traces.jsonl``
==========  ==================================================================

slime and miles also dump pickles, ``7.pt``, which are not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barograph.importers.reading.lines import is_settled
from barograph.importers.reading.log import Facts, Format, FoundLogs, Log, LogReader, RewrittenError, Seen, look_at
from barograph.importers.reading.rollouts import (
    PACKAGE,
    UnreadableTableError,
    column_names,
    is_rollout,
    missing_package,
    number_or_none,
    parquet_rows,
    record_samples,
    reward_name,
    samples_of,
    step_of_record,
)
from barograph.importers.reading.values import json_of
from barograph.importers.recorder import Recorder

EVAL = "eval"
NUMBERED = re.compile(r"(eval_)?(?:step_|rollout_|completions_)?(\d{1,15})\.(?:jsonl|parquet)")
STEP_FOLDER = re.compile(r"step_(\d{1,15})")
# In the folder of a step, of prime-rl; the first that is there has what the training used.
INSIDE = {
    "": ("train_rollouts.jsonl", "rollouts.jsonl", "train/effective/traces.jsonl", "train/all/traces.jsonl"),
    EVAL: ("eval_rollouts.jsonl", "eval/effective/traces.jsonl", "eval/all/traces.jsonl"),
}
MAX_RECORD = 64 << 20  # bytes of a line
RECORDS_AT_ONCE = 64
LOOKED_AT = 30  # lines that tell what a file is
PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True, order=True)
class Dump:
    """One file of a dump, and the step in its name."""

    step: int
    path: Path


def matches(seen: Seen) -> bool:
    """Return whether a file has samples with prompts, completions and rewards."""
    if seen.head[:4] == PARQUET:
        return is_rollout(dict.fromkeys(column_names(seen.path), "")) or seen.name.startswith("completions_")
    lines = [line for line in _first_lines(seen) if line.strip()][:LOOKED_AT]
    return bool(lines) and sum(is_rollout(json_of(line)) for line in lines) * 2 > len(lines)


def _first_lines(seen: Seen) -> list[bytes]:
    if seen.head.lstrip()[:1] != b"{":
        return []
    lines = seen.head.split(b"\n")
    # A sample may be longer than the beginning that is seen.
    return lines[:-1] or [_first_line(seen.path)]


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(MAX_RECORD)


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the dumps with a file or a folder per step; those of evaluations are logs of their own."""
    found = FoundLogs()
    for member in ("", EVAL):
        dumps = _dumps(folder, names, member)
        seen = look_at(dumps[0].path) if dumps else None
        # One file alone may have been given by its own path.
        if seen is None or not matches(seen) or (len(dumps) < 2 and dumps[0].path.parent == folder):
            continue
        found.logs.append(Log(folder, "rollout_dumps", member))
        found.taken.update(dump.path.relative_to(folder).parts[0] for dump in dumps)
    return found


def _dumps(folder: Path, names: Sequence[str], member: str) -> list[Dump]:
    """Return the files of the dump of the training or of the evaluations, by their steps."""
    found = []
    for name in names:
        if numbered := NUMBERED.fullmatch(name):
            if bool(numbered[1]) == (member == EVAL):
                found.append(Dump(int(numbered[2]), folder / name))
        elif inside := STEP_FOLDER.fullmatch(name):
            paths = (folder / name / path for path in INSIDE[member])
            found += [Dump(int(inside[1]), path) for path in paths if path.is_file()][:1]
    return sorted(found)


class Reader(LogReader):
    """Reads each file of a dump once, when it is complete."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("done", {})  # sizes of the files that were read

    def facts(self) -> Facts:
        """Return a name that tells evaluations from the training."""
        if self.log.path.is_file():
            return Facts()
        name = self.log.path.absolute().name
        return Facts(name=f"{name} ({self.log.member})" if self.log.member else name)

    def files(self) -> list[Path]:
        """Return the files of the dump."""
        return [dump.path for dump in self._all()]

    def read(self, out: Recorder) -> None:
        """Record the samples of the files that are new, and the mean reward of each."""
        dumps = self._all()
        for dump in dumps:
            self._check(dump)
        for dump in dumps:
            if str(dump.path) not in self.state["done"] and self._is_complete(dump, dumps[-1]):
                self.state["done"][str(dump.path)] = dump.path.stat().st_size
                self._read_file(dump, out)

    def _all(self) -> list[Dump]:
        path = self.log.path
        if path.is_dir():
            return _dumps(path, [entry.name for entry in path.iterdir()], self.log.member)
        numbered = NUMBERED.fullmatch(path.name)
        return [Dump(int(numbered[2]) if numbered else 0, path)]

    def _check(self, dump: Dump) -> None:
        """Raise RewrittenError if a file that was read is another one now."""
        known = self.state["done"].get(str(dump.path))
        if known is not None and dump.path.stat().st_size != known:
            raise RewrittenError

    @staticmethod
    def _is_complete(dump: Dump, last: Dump) -> bool:
        """Return whether a file is not being written any more: a later step has one, or it has not changed lately."""
        return dump != last or is_settled(dump.path)

    def _read_file(self, dump: Dump, out: Recorder) -> None:
        means: dict[int, dict[str, list[float]]] = {}
        counts: dict[int, int] = {}
        try:
            for records in _records(dump.path, out):
                record_samples(records, out, dump.step)
                for record in records:
                    _collect(record, dump.step, means, counts)
        except ImportError:
            self.state["needs"] = PACKAGE
            out.unread(dump.path.name, missing_package())
        except UnreadableTableError as problem:
            out.unread(dump.path.name, f"cannot be read: {problem}")
        for step, rewards in sorted(means.items()):
            # Of some of the samples only, it would not be the mean reward of the step.
            whole = {name: math.fsum(v) / len(v) for name, v in rewards.items() if len(v) == counts[step]}
            out.row(whole, step, keeps_attempt=True)


def _collect(
    record: Mapping[str, Any], step: int, means: dict[int, dict[str, list[float]]], counts: dict[int, int]
) -> None:
    """Add the reward of a record to those of its step, under the name that it has in the dump."""
    own = step_of_record(record)
    step = step if own is None else own
    name = reward_name(record)
    rewards = [number_or_none(record[name])] if name else [sample.get("reward") for sample in samples_of(record)]
    counts[step] = counts.get(step, 0) + len(rewards)
    place = means.setdefault(step, {}).setdefault(name or "reward", [])
    place.extend(reward for reward in rewards if reward is not None)


def _records(path: Path, out: Recorder) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the records of a file, some at a time."""
    if path.suffix == ".parquet":
        yield from parquet_rows(path)
        return
    found: list[Mapping[str, Any]] = []
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_RECORD):
            number += 1
            record = json_of(line)
            if is_rollout(record):
                found.append(record)
            elif line.strip():
                out.unread(f"{path.name} line {number}", "no sample with a prompt, a completion and a reward")
            if len(found) >= RECORDS_AT_ONCE:
                yield found
                found = []
    yield found


FORMAT = Format("rollout dump", Reader, matches, logs_in)
