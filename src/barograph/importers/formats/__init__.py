"""The formats of logs, one module each.

A format recognises its logs (`matches` for a file, `logs_in` for a directory) and has a `Reader`. Here is their
list, in the order in which they are asked; no format knows another, `consoles` has those of text that frameworks
print.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from barograph.base.formatting import describe_error
from barograph.importers.reading.log import FoundLogs, Seen

FORMATS: dict[str, str] = {
    # Directories whose files belong together come first, then files that have a signature, then texts.
    "event_files": "event_files",
    "wandb_offline": "wandb",
    "swanlab_store": "swanlab",
    "trackio_store": "trackio",
    "mlflow_store": "mlflow",
    "trainer_state": "trainer_state",
    "rollout_dumps": "rollout_dumps",
    "notebooks": "notebooks",
    "areal": "consoles.areal",
    "verl_console": "consoles.verl",
    "verl_file": "verl_file",
    "roll_console": "consoles.roll",
    "deepspeed_chat": "consoles.deepspeed_chat",
    "slime": "consoles.slime",
    "prime_rl": "consoles.prime_rl",
    "skyrl": "consoles.skyrl",
    "openrlhf": "consoles.openrlhf",
    "nemo_rl": "consoles.nemo_rl",
    "metric_tables": "consoles.metric_tables",
    "dict_lines": "consoles.dict_lines",
    "json_lines": "json_lines",
    "json_documents": "json_documents",
    "tables": "tables",
}
"""Module of each format, in the order in which they are asked: the first that recognises a log has it."""

FAILURES: deque[str] = deque(maxlen=20)
"""The last failures of formats that were asked about a log; none is expected."""


class Format(Protocol):
    """A module of a format. One of files has ``matches``, one of directories and stores ``logs_in``, or both."""

    TITLE: str
    """What a person calls it: "TensorBoard event files"."""

    Reader: Any
    """Called with a log and the state of an earlier reader (empty at first)."""

    def matches(self, seen: Seen) -> bool:
        """Return whether a file is a log of this format, by its content."""
        ...

    def logs_in(self, folder: Path, names: Sequence[str]) -> FoundLogs:
        """Return the logs in a directory that consist of several files, or are several runs of one file."""
        ...


@cache
def format_of(name: str) -> Any:
    """Return the module of a format."""
    return importlib.import_module(f"{__name__}.{FORMATS[name]}")


def recognise(seen: Seen) -> str | None:
    """Return the format of a file, by its content; None if no format knows it."""
    for name in FORMATS:
        if _ask(name, "matches", seen):
            return name
    return None


def grouped_logs(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the logs of all formats of directories and stores in a directory with these entries."""
    found = FoundLogs()
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
