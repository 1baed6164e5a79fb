"""Running a driver of a Ray cluster in a process of its own, once for all tests that look at what it answered."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


def answers_of(
    factory: pytest.TempPathFactory, driver: Path, prefix: Sequence[str] = (), **environment: str
) -> tuple[dict[str, Any], Path]:
    """Run a driver once, also where several processes of pytest run its tests: a cluster takes long to start.

    Return the JSON of its last line, and its working directory. ``prefix`` is what its command begins with.
    """
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / driver.stem
    folder.mkdir(exist_ok=True)
    answers = folder / "answers.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answers.exists():
            answers.write_text(_run(driver, folder, prefix, environment))
    return json.loads(answers.read_text()), folder


def _run(driver: Path, folder: Path, prefix: Sequence[str], environment: dict[str, str]) -> str:
    temporary = tempfile.mkdtemp(prefix="ray-")  # not below the other one: the path of a socket must be short
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BAROGRAPH_")}
    environ |= {**QUIET, **environment, "HOME": str(folder)}
    command = [*prefix, sys.executable, str(driver), temporary]
    # Ray writes the address of a cluster there, and does not make it where a cluster has another folder.
    (Path(tempfile.gettempdir()) / "ray").mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
