"""Intact frames whose contents make no sense: no reader raises, hangs or takes much memory, no other run suffers."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from nonsense_runs import handmade

SCRIPT = Path(__file__).with_name("nonsense_surfaces.py")
BY_HAND = len(handmade())
MUTATIONS = 60  # of each seed; the script takes any number by hand
SECONDS = 250


def check(dir: Path, seed: int, first: int, stop: int) -> None:
    """Read some cases in a process of their own, and fail with what went wrong."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(dir), str(seed), str(first), str(stop)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    *problems, counts = map(json.loads, done.stdout.splitlines())
    print(f"seed {seed}: {counts['calls']} calls in {counts['seconds']} s")
    assert problems == []
    assert counts["cases"] == stop - first


@pytest.mark.parametrize("part", range(4))
def test_cases_made_by_hand(tmp_path: Path, part: int):
    """Wrong types, lengths, numbers, nesting, cycles, names and bombs, each in a run beside an innocent one."""
    check(tmp_path, 0, BY_HAND * part // 4, BY_HAND * (part + 1) // 4)


@pytest.mark.parametrize("seed", [1, secrets.randbelow(10**9)], ids=["first", "random"])
def test_mutations_of_a_recorded_run(tmp_path: Path, seed: int):
    """Changes at random places of a run with every kind of frame; the seed of a failure is in its message."""
    print(f"seed {seed}")
    check(tmp_path, seed, BY_HAND, BY_HAND + MUTATIONS)
