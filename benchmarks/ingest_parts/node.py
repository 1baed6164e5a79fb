"""A node of ``ingest.py rounds``: a process that logs until it is killed, and notes what was acknowledged.

``python node.py NOTES RANK SECONDS [TICKET]``: with a ticket it joins a run whose directory it does not have, else it
begins the run ``BAROGRAPH_RUN_ID``; without BAROGRAPH_SERVER it is a local run, for comparison.
"""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

import barograph

NAMES = tuple(f"metric/{number}" for number in range(50))
PAUSE_SECONDS = 0.002


def main(notes: Path, rank: int, seconds: float, ticket: str | None = None) -> None:
    """Log a row for each step after the last acknowledged one, and note the step and the time of the call."""
    run = barograph.join(ticket, rank=rank) if ticket else barograph.init(rank=rank, world_size=2)
    step = last_step(notes)
    until = time.monotonic() + seconds
    with notes.open("ab", buffering=0) as file:
        while time.monotonic() < until:
            step += 1
            values = dict.fromkeys(NAMES, step / 7)
            began = time.perf_counter()
            run.log(values, step=step)
            took = time.perf_counter() - began
            file.write(struct.pack("<qd", step, took))
            time.sleep(PAUSE_SECONDS)
    run.finish()


def read_notes(notes: Path) -> list[tuple[int, float]]:
    """Return the acknowledged steps and the seconds of each call."""
    data = notes.read_bytes() if notes.exists() else b""
    return list(struct.iter_unpack("<qd", data[: len(data) // 16 * 16]))


def last_step(notes: Path) -> int:
    """Return the last acknowledged step, or 0."""
    return max((step for step, _ in read_notes(notes)), default=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:5])
