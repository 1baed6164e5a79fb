"""Description of the environment of a run: machine, command, git commit, packages, accelerators."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from typing import Any

from barograph.base.process.identity import driver_command, worker_name
from barograph.base.redaction import Redactor

PACKAGES = (
    "barograph", "torch", "numpy", "transformers", "trl", "accelerate", "deepspeed", "verl", "roll", "trinity-rft",
    "vllm", "sglang", "ray", "megatron-core", "flash-attn", "peft", "datasets", "triton", "jax",
)  # fmt: skip


def describe_environment(redactor: Redactor) -> dict[str, Any]:
    """Return the environment. It runs git and reads package metadata, so it is called in the background."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "command": _command(redactor),
        "directory": redactor.redact_text(os.getcwd()),
        "cpus": os.cpu_count(),
        "git": _git(redactor),
        "packages": _packages(),
        "accelerators": _accelerators(),
    }


def _command(redactor: Redactor) -> list[str]:
    """Return the command line; of a worker of Ray, which Ray has started, what it is and the driver's command line."""
    worker = worker_name()
    if worker is None:
        return redactor.command_line([sys.executable, *sys.argv])
    driver = " ".join(redactor.command_line(driver_command()))
    return [sys.executable, f"{worker} (driver: {driver})" if driver else worker]


def _packages() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _git(redactor: Redactor) -> dict[str, Any] | None:
    """Return the commit of the working directory, its branch and origin, and whether it is clean."""
    commit = _run_git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {
        "commit": commit,
        "branch": _run_git("rev-parse", "--abbrev-ref", "HEAD"),
        "origin": redactor.redact_text(_run_git("config", "--get", "remote.origin.url") or ""),
        "clean": _run_git("status", "--porcelain", "--untracked-files=no") == "",
    }


def _run_git(*arguments: str) -> str | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        answer = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, env=environment, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _accelerators() -> list[str]:
    """Return the names of the accelerators if torch has initialised CUDA; asking would initialise it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    return [cuda.get_device_name(index) for index in range(cuda.device_count())]
