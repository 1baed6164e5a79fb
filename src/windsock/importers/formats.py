"""The formats of logs, and what each has to have."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from windsock.formatting import describe_error
from windsock.importers.seen import Seen

if TYPE_CHECKING:
    from windsock.importers.recorder import Recorder

FORMATS: tuple[str, ...] = (
    # Directories whose files belong together come first, then files that have a signature, then texts.
    "event_files",
    "wandb_offline",
    "swanlab_store",
    "trackio_store",
    "mlflow_store",
    "trainer_state",
    "rollout_dumps",
    "notebooks",
    "areal",
    "verl_console",
    "verl_file",
    "roll_console",
    "deepspeed_chat",
    "slime",
    "prime_rl",
    "skyrl",
    "openrlhf",
    "nemo_rl",
    "metric_tables",
    "dict_lines",
    "json_lines",
    "json_documents",
    "tables",
)
"""Modules of this package, in the order in which they are asked: the first that recognises a log has it."""

FAILURES: deque[str] = deque(maxlen=20)
"""The last failures of formats that were asked about a log; none is expected."""


@dataclass(frozen=True, slots=True)
class Log:
    """One run in a log: a file, a directory, or one of several runs in a store."""

    path: Path
    format: str
    member: str = ""  # which of the runs in a store

    @property
    def place(self) -> Path:
        """The path, with the run in a store: ``mlflow.db#7``."""
        return Path(f"{self.path}#{self.member}") if self.member else self.path


@dataclass(frozen=True, slots=True)
class Found:
    """The logs that a format has found in a directory, and the names of files and directories that belong to them."""

    logs: list[Log] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a log tells about its run as a whole; what is empty is made from the path."""

    name: str = ""
    project: str = ""
    producer: str = ""  # the framework, with trainer or version where known: ``trl/grpo``
    group: str | None = None
    created: float | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


class RewrittenError(Exception):
    """The log is not a longer version of the one that was read before: it has to be read from the beginning."""


class Reader(Protocol):
    """Reads one log. ``state`` is what the next reader of it needs to continue, as JSON."""

    state: dict[str, Any]

    def facts(self) -> Facts:
        """Return what the log tells about its run; called before the first ``read``."""
        ...

    def files(self) -> list[Path]:
        """Return the files of the log: if none has changed, there is nothing new."""
        ...

    def read(self, out: Recorder) -> None:
        """Record what is new."""
        ...


class Format(Protocol):
    """A module of a format. One of files has ``matches``, one of directories and stores ``logs_in``, or both."""

    TITLE: str
    """What a person calls it: "TensorBoard event files"."""

    Reader: Any
    """Called with a log and the state of an earlier reader (empty at first)."""

    def matches(self, seen: Seen) -> bool:
        """Return whether a file is a log of this format, by its content."""
        ...

    def logs_in(self, folder: Path, names: Sequence[str]) -> Found:
        """Return the logs in a directory that consist of several files, or are several runs of one file."""
        ...


@cache
def format_of(name: str) -> Any:
    """Return the module of a format."""
    return importlib.import_module(f"windsock.importers.{name}")


def recognise(seen: Seen) -> str | None:
    """Return the format of a file, by its content; None if no format knows it."""
    for name in FORMATS:
        if _ask(name, "matches", seen):
            return name
    return None


def grouped_logs(folder: Path, names: Sequence[str]) -> Found:
    """Return the logs of all formats of directories and stores in a directory with these entries."""
    found = Found()
    for name in FORMATS:
        one = _ask(name, "logs_in", folder, [entry for entry in names if entry not in found.taken])
        if one is not None:
            found.logs.extend(one.logs)
            found.taken.update(one.taken)
    return found


def _ask(name: str, question: str, *arguments: Any) -> Any:
    """Return what a format answers; None if it is not asked this, or fails: other formats may know the log."""
    function = getattr(format_of(name), question, None)
    try:
        return None if function is None else function(*arguments)
    except Exception as problem:  # noqa: BLE001 - one odd file must not hide the other logs of a directory
        FAILURES.append(f"{name}.{question}: {describe_error(problem)}")
        return None
