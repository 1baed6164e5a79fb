"""Kill writers with SIGKILL at random moments, and count the acknowledged rows that are missing.

Each round starts several processes that log to one run as fast as they can. A process writes the last step whose
``log`` has returned to shared memory. All are killed at random moments. Then the journal is read: every acknowledged
step must be there with its value.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import windsock

MAX_LIFE_SECONDS = 0.06
LATE_SHARE = 0.8  # share of rounds in which the clock starts after every writer has logged


@dataclass
class Tally:
    """Counts over all rounds."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0
    unreadable: int = 0
    silent: int = 0  # writers that were killed before their first log returned


def value(step: int, rank: int) -> float:
    return step * 1.25 + rank


def write_until_killed(dir: Path, id: str, rank: int, notes: mmap.mmap) -> None:
    """Log forever; after each call, store the acknowledged step."""
    run = windsock.init(dir=dir, id=id, rank=rank)
    step = 0
    while True:
        if step % 3:
            run.log({"x": value(step, rank), "pad/a": 1.0, "pad/b": 2.0}, step=step)
        else:
            run.log({"x": value(step, rank)})
            run.commit(step)
        struct.pack_into("<q", notes, rank * 8, step + 1)
        step += 1


def one_round(dir: Path, id: str, writers: int, chance: random.Random, tally: Tally) -> None:
    """Start the writers, kill them at random moments, and check the journal."""
    notes = mmap.mmap(-1, writers * 8)
    children = []
    for rank in range(writers):
        child = os.fork()
        if not child:
            try:
                write_until_killed(dir, id, rank, notes)
            finally:
                os._exit(1)
        children.append(child)
    if chance.random() < LATE_SHARE:  # wait for all of them; otherwise some die while they start
        while not all(struct.unpack_from(f"<{writers}q", notes)):
            time.sleep(0.001)
    began = time.monotonic()
    moments = sorted((chance.uniform(0, MAX_LIFE_SECONDS), child) for child in children)
    for moment, child in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    acknowledged = [struct.unpack_from("<q", notes, rank * 8)[0] for rank in range(writers)]
    check(dir / "default" / id, acknowledged, tally)


def check(folder: Path, acknowledged: list[int], tally: Tally) -> None:
    """Compare the journal with the acknowledged steps."""
    tally.rounds += 1
    tally.acknowledged += sum(acknowledged)
    tally.silent += acknowledged.count(0)
    if not any(acknowledged):
        return
    try:
        view = windsock.open(folder)
        damage = view.damage()
    except Exception as problem:  # noqa: BLE001 - any failure to read is what is counted here
        print(f"{folder}: {type(problem).__name__}: {problem}", file=sys.stderr)
        tally.unreadable += 1
        return
    tally.unreadable += bool(damage)
    for rank, count in enumerate(acknowledged):
        if count:
            series = view.series("x", rank=rank)
            found = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
            tally.lost += sum(step not in found for step in range(count))
            tally.wrong += sum(found[step] != value(step, rank) for step in found)


def main() -> int:
    """Run the rounds and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally, chance = Tally(), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as dir:
        for number in range(options.rounds):
            one_round(Path(dir), f"round{number}", options.writers, chance, tally)
            if sys.stderr.isatty() and number % 10 == 0:
                print(f"\r{number} of {options.rounds} rounds", end="", file=sys.stderr)
    print(
        f"{tally.rounds} rounds of {options.writers} writers: {tally.acknowledged:,} acknowledged rows, "
        f"{tally.lost} lost, {tally.wrong} wrong, {tally.unreadable} unreadable journals "
        f"({tally.silent} writers died before their first row)"
    )
    return int(tally.lost + tally.wrong + tally.unreadable > 0)


if __name__ == "__main__":
    sys.exit(main())
