"""The formats of logs, each a `FORMAT` of its module.

A format recognises its logs (`matches` for a file, `logs_in` for a directory) and has a reader. Here is their
list, in the order in which they are asked; no format knows another, `consoles` has those of text that frameworks
print.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from barograph.base.formatting import describe_error
from barograph.importers.reading.log import Format, FoundLogs, Seen

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
    "verl_file": "json_rows:VERL_FILE",
    "roll_console": "consoles.roll",
    "deepspeed_chat": "consoles.deepspeed_chat",
    "slime": "consoles.slime",
    "prime_rl": "consoles.prime_rl",
    "skyrl": "consoles.blocks:SKYRL",
    "openrlhf": "consoles.openrlhf",
    "nemo_rl": "consoles.blocks:NEMO_RL",
    "metric_tables": "consoles.blocks:METRIC_TABLES",
    "dict_lines": "consoles.dict_lines",
    "json_lines": "json_rows:JSON_LINES",
    "json_documents": "json_rows:JSON_DOCUMENT",
    "tables": "tables",
}
"""Module of each format, with the variable if it has several, in the order in which they are asked: the first that
recognises a log has it."""

FAILURES: deque[str] = deque(maxlen=20)
"""The last failures of formats that were asked about a log; none is expected."""


@cache
def format_of(name: str) -> Format:
    """Return a format."""
    module, _, variable = FORMATS[name].partition(":")
    found: Format = getattr(importlib.import_module(f"{__name__}.{module}"), variable or "FORMAT")
    return found


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
    function = getattr(format_of(name), question)
    try:
        return None if function is None else function(*arguments)
    except Exception as problem:  # noqa: BLE001 - one odd file must not hide the other logs of a directory
        FAILURES.append(f"{name}.{question}: {describe_error(problem)}")
        return None
