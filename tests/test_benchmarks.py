"""Benchmarks leave nothing behind."""

import re
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


def test_reading_measures_a_row_at_two_sizes_and_leaves_nothing_behind(tmp_path: Path):
    """It says of each number whether it is as it should be."""
    command = [sys.executable, "reading.py", "--only", "families", "--sizes", "2", "4", "--alone", "--dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    assert re.search(r"show CPU s +\S+ +\S+ +under 2 holds, linear holds", done.stdout)
    assert not [*tmp_path.iterdir()]


def test_rows_of_reading_have_names_of_their_own_and_two_sizes():
    """Growth shows only between two sizes."""
    program = """
import reading
rows = reading.all_rows()
print(len({row.name for row in rows}) == len(rows) > 0, all(len(row.sizes) > 1 and row.should_be for row in rows))
"""
    assert run_in_benchmarks(program) == "True True"


def test_bars_of_reading_compare_the_largest_size_with_a_limit_or_with_the_smallest():
    """Twice the size in three times the time is not linear."""
    program = """
from reading_rows.table import Flat, Linear, Under
found = {10: {"s": 1.0}, 20: {"s": 3.0}}
print(*(bar.holds(found) for bar in (Under("s", 4), Under("s", 2), Flat("s"), Flat("s", floor=2), Linear("s", 1.2))))
"""
    assert run_in_benchmarks(program) == "True False False True False"


def test_importing_opens_each_log_twice_and_leaves_nothing_behind(tmp_path: Path):
    """Also where it is told to write."""
    command = [sys.executable, "importing.py", "--scale", "0.01", "--dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    assert "trainer_state.json" in done.stdout
    assert not [*tmp_path.iterdir()]
