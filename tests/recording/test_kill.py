"""Processes that really die."""

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kill.py"


def test_nothing_acknowledged_is_lost_when_writers_are_killed():
    """Ten rounds of four writers, killed while their threads log with the same new key sets."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--rounds", "10", "--seed", "5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = r"10 rounds of 4 writers with 3 threads: ([\d,]+) acknowledged rows, 0 lost, 0 wrong, 0 unreadable"
    found = re.search(counts, done.stdout)
    assert found
    assert int(found[1].replace(",", "")) > 500
