"""What identifies this process, for others on the machine, for Ray and for the launcher; and what it runs in.

Host, process id and start time tell another process whether this one still runs. Ray is never imported here: a worker
of Ray has imported it already. The launcher says the rank, the number of processes, and what identifies the job:

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

import functools
import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph.base.redaction import Redactor


def process_identity() -> dict[str, Any]:
    """Return the identity of this process: host, machine, pid and start time."""
    pid = os.getpid()
    return {"host": platform.node(), "machine": machine_id(), "pid": pid, "born": process_start(pid)}


@functools.cache
def machine_id() -> str:
    """Return an id of this boot of the machine and of its namespace of process ids: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def process_start(pid: int) -> float | None:
    """Return the start time of a process by a clock that is never set; None if it does not run."""
    try:
        # The second field is the command in parentheses, which may contain spaces and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] == b"Z" else float(fields[19])  # ticks since boot
    except OSError:
        return _process_start_elsewhere(pid) if not Path("/proc/self/stat").exists() else None


def _process_start_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time(), 2)
    except psutil.Error:
        return None


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
    import subprocess  # which most processes do not need

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
