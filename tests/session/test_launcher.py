"""What launchers say by their variables, and what the settings make of it."""

import multiprocessing
import os
from typing import Any

import pytest

from barograph.base.errors import SettingsError
from barograph.base.process.identity import Launch, launch_from, shared_run_id
from barograph.base.settings import resolve

SRUN = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
BATCH = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_MCA_ess_base_jobid": "235798529",
    "OMPI_MCA_orte_precondition_transports": "a438cfebed7cd6ea-d9045cfe6f472000",
    "PMIX_NAMESPACE": "235798529",
    "PMIX_RANK": "1",
}
OPEN_MPI_5 = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-node7-4711@1"}


@pytest.mark.parametrize(
    ("environ", "rank", "world_size", "run_id"),
    [
        ({}, None, None, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, 0, 1, None),
        ({"RANK": "9", "WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "job/7"}, 9, 16, "torchrun-job-7"),
        ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"}, 9, 16, None),
        ({"RANK": "9"}, 9, None, None),
        ({"WORLD_SIZE": "4"}, None, 4, None),
        (SRUN, 3, 4, "slurm-17-2"),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "8"}, 3, 8, "slurm-17-2"),
        ({**SRUN, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, 0, 1, None),
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4", "PMIX_RANK": "3"}, 3, 4, "slurm-17-2"),
        (BATCH, None, None, None),
        ({**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, None, None, None),
        ({**SRUN, "RANK": "9", "WORLD_SIZE": "16"}, 9, 16, "slurm-17-2"),
        (OPEN_MPI, 1, 2, "mpi-235798529-a438cfeb"),
        ({**BATCH, **OPEN_MPI}, 1, 2, "mpi-235798529-a438cfeb"),
        ({**SRUN, **OPEN_MPI}, 1, 2, "mpi-235798529-a438cfeb"),
        (OPEN_MPI_5, 1, 2, "mpi-prterun-node7-4711-1"),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, 5, 8, None),
        ({"PMIX_RANK": "5", "PMIX_NAMESPACE": "prte.42"}, 5, None, "mpi-prte-42"),
    ],
)
def test_a_launcher_tells_rank_number_of_processes_and_job(
    environ: dict[str, str], rank: int | None, world_size: int | None, run_id: str | None
):
    """A shell of SLURM has rank and number too, but nothing was started in it yet; mpirun counts for itself."""
    assert launch_from(environ) == Launch(rank, world_size, run_id)


@pytest.mark.parametrize("local", ["LOCAL_WORLD_SIZE", "LOCAL_SIZE"])
def test_processes_of_torchrun_and_deepspeed_on_one_node_share_a_run_id(local: str):
    """Without a rendezvous id it is derived from the launcher's process."""
    environ = {"RANK": "0", "WORLD_SIZE": "2", local: "2", "TORCHELASTIC_RUN_ID": "none"}
    found = str(shared_run_id(environ))
    assert found == shared_run_id({**environ, "RANK": "1"})
    assert found.startswith(f"torchrun-{os.getppid()}-")


@pytest.mark.parametrize(
    ("keywords", "environ", "alone"),
    [
        ({}, {}, None),
        ({}, BATCH, None),
        ({"world_size": 1}, {}, True),
        ({"world_size": 1, "rank": 0}, {}, True),
        ({}, {"RANK": "0", "WORLD_SIZE": "1"}, True),
        ({"world_size": 2}, {}, False),
        ({}, {"BAROGRAPH_WORLD_SIZE": "2"}, False),
        ({"world_size": 1, "rank": 1}, {}, False),
        ({"rank": 0}, {}, False),
        ({}, {"BAROGRAPH_RANK": "0"}, False),
        ({}, {"PMIX_RANK": "0"}, False),
        ({}, {**SRUN, "SLURM_PROCID": "0"}, False),
    ],
)
def test_a_process_is_alone_if_it_is_said_to_be(keywords: dict[str, Any], environ: dict[str, str], alone: bool | None):
    """One that was given a rank is not, unless it is the only one; without a word from anyone it is unknown."""
    assert resolve(None, keywords, environ).alone is alone


def test_the_number_of_processes_and_the_replica_are_settings():
    """Keyword, environment and file; the launcher's number is used if none is given."""
    source = {"barograph": {"world_size": 8, "replica": 1}}
    settings = resolve(source, {"replica": 3}, {"BAROGRAPH_WORLD_SIZE": "4", "WORLD_SIZE": "2"})
    assert (settings.world_size, settings.replica) == (4, 3)
    assert resolve(None, {}, {"WORLD_SIZE": "2"}).world_size == 2
    with pytest.raises(SettingsError, match="world_size: expected 1 or more, got 0"):
        resolve(None, {"world_size": 0}, {})


def _alone(answers: Any) -> None:
    answers.put(resolve(None, {}, {"RANK": "0", "WORLD_SIZE": "1"}).alone)


def test_a_child_of_multiprocessing_is_not_alone_because_its_parent_was():
    """It inherits the variables of its parent, of which there may be many children."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=_alone, args=(answers,))
    child.start()
    child.join(60)
    assert answers.get() is None
