"""What Ray knows about this process. Ray is never imported here: a worker of Ray has imported it already."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

COPY_FOLDER = "working_dir_files"  # of a Ray session: copies of the ``working_dir`` of runtime environments


def is_ray_worker() -> bool:
    """Return whether Ray started this process for tasks or an actor; a driver is not one."""
    return _context() is not None


def actor_id() -> str | None:
    """Return the id of the actor that this process is; a restarted actor keeps it. None outside of actors."""
    found: str | None = _asked(lambda context: context.get_actor_id())
    return found


def node_id() -> str | None:
    """Return the node of the Ray cluster on which this worker or driver runs; None if it is on none."""
    ray, client = sys.modules.get("ray"), sys.modules.get("ray.util.client")
    with suppress(Exception):  # as below
        is_client = client is not None and client.ray.is_connected()  # its process is outside of the cluster
        if ray is not None and ray.is_initialized() and not is_client:
            return str(ray.get_runtime_context().get_node_id())
    return None


def is_ray_imported() -> bool:
    """Return whether this process has imported Ray, and so may start or join a cluster."""
    return "ray" in sys.modules


def group_id() -> str | None:
    """Return the id of the placement group, which the workers of one trainer of Ray Train share."""
    found: str | None = _asked(lambda context: context.get_placement_group_id())
    return found


def worker_name() -> str | None:
    """Return what this worker is, such as ``ray actor Trainer``; None outside of workers."""
    if not is_ray_worker():
        return None
    classes = _asked(lambda context: [type(actor).__name__ for actor in context.worker.actors.values()])
    if classes:
        return f"ray actor {classes[0]}"
    return "ray actor" if actor_id() else "ray task worker"


def driver_command() -> list[str]:
    """Return the command line of the driver that this worker works for; empty if Ray does not tell."""
    ray_state = sys.modules.get("ray._private.state")
    job = _asked(lambda context: context.get_job_id())
    with suppress(Exception):  # not a public interface: it may change, and the control store may not answer
        for found in ray_state.state.job_table():  # type: ignore[union-attr]
            if found["JobID"] == job:
                interpreter, *arguments = shlex.split(found["Entrypoint"])
                return [Path(interpreter).name, *arguments]
    return []


def is_copied(path: Path) -> bool:
    """Return whether a path is in Ray's copy of a working directory, which other nodes and the driver do not see."""
    return COPY_FOLDER in path.absolute().parts


def _context() -> Any:
    """Return the runtime context of a worker; None in any other process."""
    ray = sys.modules.get("ray")
    with suppress(Exception):  # Ray is half imported, or has no connection
        if ray is not None and ray.is_initialized():
            context = ray.get_runtime_context()
            return context if context.worker.mode == ray.WORKER_MODE else None
    return None


def _asked(question: Callable[[Any], Any]) -> Any:
    context = _context()
    with suppress(Exception):  # the answer of another version of Ray
        return question(context) if context is not None else None
    return None
