"""What the launcher of this process says: its rank, the number of processes, and what identifies the job.

=====================================================  ========================================
torchrun, DeepSpeed, Accelerate, Ray Train             ``RANK``, ``WORLD_SIZE``
Open MPI                                               ``OMPI_COMM_WORLD_RANK``, ``…_SIZE``
MPICH, Intel MPI, Cray MPI                             ``PMI_RANK``, ``PMI_SIZE``
SLURM, in a step that ``srun`` started                 ``SLURM_PROCID``, ``SLURM_STEP_NUM_TASKS``
PMIx                                                   ``PMIX_RANK``; the number is not told
=====================================================  ========================================

``multiprocessing`` and Ray give their children no rank. They inherit the variables of their parent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from windsock.process import process_start
from windsock.ray_worker import group_id, is_ray_worker

FIRST_RESERVED_STEP = 0xFFFFFFF0  # of SLURM: the batch script, and the shell of salloc, are no steps of srun
MAX_ANCESTORS = 32
MAX_ID = 24  # characters; lists of runs show it


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launcher says about this process; None is unknown."""

    rank: int | None = None
    world_size: int | None = None
    run_id: str | None = None  # that all processes of the job derive


def launch_from(environ: Mapping[str, str]) -> Launch:
    """Return what the variables of the launcher say."""
    rank, world_size = _place(environ)
    if world_size == 1 and _is_child():  # it is the parent that is alone
        return Launch()
    return Launch(rank, world_size, shared_run_id(environ))


def shared_run_id(environ: Mapping[str, str]) -> str | None:
    """Derive one run id for all processes of a launched job, so that they join without configuration.

    The job is identified by SLURM's job and step, by the rendezvous id of torchrun, by the job of MPI, or on one node
    by the launcher's own process. A restart of the workers of torchrun is a new attempt of the same run. None if the
    processes share nothing, or are one.
    """
    rank, world_size = _place(environ)
    if world_size == 1 or (rank is None and world_size is None):
        return None
    if is_ray_worker():  # the parent is Ray's, and runs many jobs
        group = group_id()
        return f"ray-{group[:16]}" if group else None
    # Only some processes of mpirun in a job of SLURM are in a step, so the job of MPI comes first.
    if "RANK" not in environ and "OMPI_COMM_WORLD_RANK" in environ:
        return _mpi_job(environ)
    if environ.get("SLURM_JOB_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}-{environ.get('SLURM_STEP_ID', '0')}"
    if "RANK" not in environ:
        return _mpi_job(environ) or _hydra_job(environ)
    elastic = environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"torchrun-{_as_id(elastic)}"
    # LOCAL_SIZE is of DeepSpeed.
    if environ.get("WORLD_SIZE") in (environ.get("LOCAL_WORLD_SIZE", ""), environ.get("LOCAL_SIZE", "")):
        return f"torchrun-{_process_id(os.getppid())}"
    return None


def _place(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return rank and number of processes. MPI comes before SLURM: mpirun in a job keeps the variables of the job."""
    for rank, sizes in (
        ("RANK", ("WORLD_SIZE",)),
        ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
        ("PMI_RANK", ("PMI_SIZE",)),
        ("SLURM_PROCID" if _is_slurm_step(environ) else "", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
        ("PMIX_RANK", ()),
    ):
        if (found := _number(environ, rank)) is not None:
            known = (size for name in sizes if (size := _number(environ, name)) is not None)
            return found, next(known, None) or None
    return None, _number(environ, "WORLD_SIZE") or None


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Return whether srun started this process; a batch script has SLURM_PROCID and SLURM_NTASKS too."""
    step = _number(environ, "SLURM_STEP_ID")
    return step is not None and step < FIRST_RESERVED_STEP


def _mpi_job(environ: Mapping[str, str]) -> str | None:
    """Return an id of a job of Open MPI or PMIx, the same on all nodes."""
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    # The job's number is made from a process id, which is used again; the key of Open MPI 4 is random.
    key = environ.get("OMPI_MCA_orte_precondition_transports", "")[:8]
    return f"mpi-{_as_id(f'{job}-{key}' if key else job)}" if job else None


def _hydra_job(environ: Mapping[str, str]) -> str | None:
    """Return an id of a job of MPICH on one node, which has no number: its launcher's process."""
    if environ.get("PMI_SIZE") != environ.get("MPI_LOCALNRANKS", ""):
        return None
    proxy = _ancestor("hydra")
    return f"mpi-{_process_id(proxy)}" if proxy else None


def _ancestor(name: str) -> int | None:
    """Return the nearest ancestor whose name begins so: between it and this process may be a shell."""
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(MAX_ANCESTORS):
            command, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            if command.partition("(")[2].startswith(name):
                return pid
            pid = int(fields.split()[1])
    return None


def _process_id(pid: int) -> str:
    return f"{pid}-{int(process_start(pid) or 0)}"  # the start time tells a reused pid apart


def _is_child() -> bool:
    """Return whether ``multiprocessing`` or Ray started this process."""
    library = sys.modules.get("multiprocessing")  # a child has imported it
    return is_ray_worker() or (library is not None and library.parent_process() is not None)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isdigit() else None


def _as_id(text: str) -> str:
    """Return a part of a run id for any text; a long one is cut, and told apart by its hash."""
    safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
    return safe if len(safe) <= MAX_ID else f"{safe[:8]}-{blake2b(text.encode(), digest_size=4).hexdigest()}"
