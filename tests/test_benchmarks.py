"""Benchmarks leave nothing behind."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run_in_benchmarks(program: str, *arguments: str) -> str:
    """Run a program that can import benchmarks; return its output."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_temporary_files_of_trackers_are_in_the_directory_that_log_cost_removes(tmp_path: Path):
    """MLflow does not remove its own."""
    program = "import sys, log_cost; from pathlib import Path; print(log_cost.environment(Path(sys.argv[1]))['TMPDIR'])"
    assert Path(run_in_benchmarks(program, str(tmp_path))).is_relative_to(tmp_path)


def test_temporary_files_of_trackers_are_in_the_directory_that_relay_removes():
    """In the benchmark's process and in those that it starts."""
    program = """
import os, tempfile, relay
with relay.surroundings() as scratch:
    made = tempfile.mkdtemp()
    print(os.environ["TMPDIR"] == str(scratch), made.startswith(str(scratch)), end=" ")
print(os.path.exists(made))
"""
    assert run_in_benchmarks(program).endswith("True True False")
