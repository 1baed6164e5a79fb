"""Ray: the processes of a job find the run that one of them began, without getting it as an argument."""

from __future__ import annotations

import ray
from ray.experimental import internal_kv

from barograph.recording.run import Run
from barograph.session import join

NAMESPACE = b"barograph"


def share(run: Run, name: str = "run") -> None:
    """Let every process of this Ray job find the run with ``shared_run``. A later run of that name replaces it.

    Without Ray nothing happens.
    """
    if not ray.is_initialized():  # asking for the job would start a cluster
        return
    internal_kv._internal_kv_put(_key(name), run.ticket().encode(), overwrite=True, namespace=NAMESPACE)


def shared_run(name: str = "run", role: str | None = None, rank: int | None = None) -> Run | None:
    """Join the run that a process of this Ray job shares, and return it; None while there is none.

    It asks Ray each time, which takes about a millisecond: keep the run. Role and rank are those of ``barograph.join``.
    """
    if not ray.is_initialized():
        return None
    ticket = internal_kv._internal_kv_get(_key(name), namespace=NAMESPACE)
    return None if ticket is None else join(ticket.decode(), role=role, rank=rank)


def _key(name: str) -> bytes:
    return f"{ray.get_runtime_context().get_job_id()}/{name}".encode()
