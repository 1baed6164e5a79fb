"""Fixtures that several tests share."""

import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import barograph.session

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
}
FOREIGN = ("HF_", "MLFLOW_", "SWANLAB_", "TRACKIO_", "WANDB_")
LAUNCHERS = ("BAROGRAPH_", "SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_")
MAX_TEST_SECONDS = 300

# A busy machine must not fail a property test: a timing is never an assertion.
settings.register_profile("barograph", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("barograph")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that keeps screenshots of the page tests."""
    parser.addoption("--screenshots", type=Path, help="folder to write screenshots of the page to")


def pytest_configure(config: pytest.Config) -> None:
    """Restore the SIGINT handler and choose Trackio's folder before any test runs."""
    # Under nohup and in shell background jobs SIGINT is ignored, and child processes inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Trackio reads the variable once, at import.
    folder = tempfile.TemporaryDirectory(prefix="trackio-")
    os.environ["TRACKIO_DIR"] = folder.name
    config.add_cleanup(folder.cleanup)


@pytest.fixture(autouse=True)
def _max_duration() -> Iterator[None]:
    """Fail a test that takes longer than MAX_TEST_SECONDS, whatever it waits for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: object) -> None:
        pytest.fail(f"test took longer than {MAX_TEST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, MAX_TEST_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(autouse=True)
def _no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill the processes that a test started and left running, with their process group where they lead one.

    Processes of module and session fixtures are started before this fixture and stay.
    """
    started: list[subprocess.Popen[Any]] = []
    start = subprocess.Popen.__init__
    others = set(multiprocessing.active_children())

    def record(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        start(process, *args, **kwargs)
        started.append(process)

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    yield
    for process in started:
        kill(process)
    for child in set(multiprocessing.active_children()) - others:
        child.kill()
        child.join(10)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process that is still running, or its whole process group."""
    if process.poll() is not None:
        return
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(10)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@pytest.fixture(autouse=True)
def _clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Remove the machine's variables, write runs to a temporary directory, and finish runs that were left open."""
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BAROGRAPH_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("BAROGRAPH_DOCTOR", "off")  # a further process for each run with a relay
    monkeypatch.setenv("BAROGRAPH_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    for run in list(barograph.session._runs):
        run.finish()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Work in a fresh home directory, without the user's tracker settings and logins."""
    for name in list(os.environ):
        if name.startswith(FOREIGN) and name != "TRACKIO_DIR":
            monkeypatch.delenv(name)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def demo_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of forty trainings of the demo, and of one in three vocabularies; tests leave it as it is."""
    from demo_sweep import shared_sweep

    return shared_sweep(tmp_path_factory)
