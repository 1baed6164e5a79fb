"""A folder in which scripts train with real frameworks, and what they left there."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import barograph

SCRIPTS = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@dataclass(frozen=True)
class Trained:
    """A folder in which scripts have trained, with their runs."""

    folder: Path

    def log(self, training: str) -> list[dict[str, Any]]:
        """Return the rows that a training has logged, by its own account."""
        return list(json.loads((self.folder / f"{training}.json").read_text()))

    def view(self, name: str) -> barograph.View:
        """Return the run of a name."""
        return barograph.open(name, dir=self.folder / "runs")

    def run(self, script: str, *arguments: Any, launcher: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script of tests/frameworks, whose runs are recorded below the folder."""
        return subprocess.run(
            [*(launcher or [sys.executable]), str(SCRIPTS / script), *map(str, arguments)],
            env={**os.environ, "BAROGRAPH_DIR": str(self.folder / "runs"), "OMP_NUM_THREADS": "1"},
            cwd=self.folder, capture_output=True, text=True, timeout=600,
        )  # fmt: skip

    def train(self, script: str, *arguments: Any, launcher: list[str] | None = None) -> None:
        """Run a script, and fail with what it wrote unless it succeeds."""
        done = self.run(script, *arguments, launcher=launcher)
        assert done.returncode == 0, done.stderr  # whole: the cause is in the first of several tracebacks
