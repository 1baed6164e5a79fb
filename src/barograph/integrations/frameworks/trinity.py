"""Trinity-RFT: ``monitor_type: barograph.trinity.Monitor``, or ``barograph`` where a plugin imports this module.

Trainer, explorers and the benchmark are processes of their own. All of them record one run, with their names as roles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trinity.utils import monitor as trinity_monitor
from trinity.utils.log import get_logger

from barograph.base.former_name import runs_folder
from barograph.integrations.frameworks.run import begin, record, source_of
from barograph.integrations.guard import unharmed
from barograph.recording.run import Run


class Monitor(trinity_monitor.Monitor):  # type: ignore[misc]
    """The monitor of one process of Trinity. ``monitor_args`` are settings of ``barograph.init``."""

    run: Run | None = None

    def __init__(self, project: str, group: str, name: str, role: str, config: Any = None) -> None:
        super().__init__(project=project, name=name, role=role, config=config)
        given = getattr(getattr(config, "monitor", None), "monitor_args", None)
        known = {"project": project, "name": name, "group": group, "role": role, **_place(project, group, name, config)}
        known = {setting: str(value) for setting, value in known.items() if value}
        self.run = begin(source_of("trinity", "trinity-rft"), config, given, **known)
        self.console_logger = get_logger(__name__, in_ray_actor=True)

    @unharmed
    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """Record the values of a step, and print them as Trinity's other monitors do."""
        if self.run is not None:
            record(self.run, data, step)
        self.console_logger.info(f"Step {step}: {dict(data)}")

    @unharmed
    def log_table(self, table_name: str, experiences_table: Any, step: int) -> None:
        """Record the rows of a table as samples."""
        if self.run is not None:
            self.run.samples([_sample(row) for row in experiences_table.to_dict(orient="records")], step=step)

    @unharmed
    def close(self) -> None:
        """End the run of this process; the destructor does too."""
        if self.run is not None:
            self.run.finish()


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row; in a table the reward of an experience without one is NaN."""
    return {name: value for name, value in row.items() if not (isinstance(value, float) and math.isnan(value))}


def _place(project: str, group: str, name: str, config: Any) -> dict[str, str]:
    """Return the directory and the id that all processes of a job derive; a job that is continued has the same.

    Trinity gives a job that begins anew a checkpoint directory of its own.
    """
    job = getattr(config, "checkpoint_job_dir", "")
    if not job:
        return {}
    key = "\0".join(str(part) for part in (project, group, name, Path(job).absolute()))
    root = Path(getattr(config, "checkpoint_root_dir", "") or job)
    return {"id": f"trinity-{blake2b(key.encode(), digest_size=6).hexdigest()}", "dir": str(runs_folder(root))}


if "barograph" not in trinity_monitor.MONITOR.modules:
    trinity_monitor.MONITOR.register_module("barograph", Monitor)
