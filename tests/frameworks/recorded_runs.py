"""Scripts of the framework tests, run in processes of their own, and what the page says about the runs they record."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from barograph.answers.runs.listing import RunDirectory
from barograph.answers.views.overview import overview

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "frameworks"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
}


def answers_of(script: str, folder: Path, *arguments: str, **environ: str) -> dict[str, Any]:
    """Run a script in a folder; return the JSON of its last line, and its standard error as ``stderr``."""
    temporary = tempfile.mkdtemp(prefix="ray-")  # not below the folder: the path of a socket must be short
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BAROGRAPH_")}
    environ = {**inherited, **QUIET, "HOME": str(folder), "RAY_TMPDIR": temporary, **environ}
    command = [sys.executable, str(HERE / script), *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=280)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


def overview_of(dir: Path, id: str) -> dict[str, Any]:
    """Return what the page's overview of a run shows."""
    directory = RunDirectory(dir)
    try:
        with directory.open_runs.use(id) as opened:
            return overview(opened, 100)
    finally:
        directory.close()


def block_of(page: str, language: str, having: str) -> str:
    """Return the block of code of a page that has a text in it."""
    blocks = (DOCS / page).read_text().split("```")[1::2]
    [found] = [block for block in blocks if block.startswith(f"{language}\n") and having in block]
    return found.partition("\n")[2]
