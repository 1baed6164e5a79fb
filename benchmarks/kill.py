"""Kill writers with SIGKILL at random moments, and count the acknowledged rows that are missing.

Each round starts several processes that log to one run as fast as they can, each from several threads, which use the
same new key sets at the same time. A thread writes the last step whose ``log`` has returned to shared memory. All
processes are killed at random moments. Then the journal is read: every acknowledged step must be there with its value.
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
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import barograph

MAX_LIFE_SECONDS = 0.06
KEY_SET_ROWS = 4  # rows of a thread with the same names
KEY_SETS = 500
SWITCH_SECONDS = 1e-5  # of the interpreter between threads, so that they interrupt each other inside of a call
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


def write_until_killed(dir: Path, id: str, rank: int, threads: int, notes: mmap.mmap) -> None:
    """Log forever from several threads."""
    run = barograph.init(dir=dir, id=id, rank=rank)
    sys.setswitchinterval(SWITCH_SECONDS)
    for thread in range(1, threads):
        threading.Thread(target=log_forever, args=(run, rank, thread, threads, notes), daemon=True).start()
    log_forever(run, rank, 0, threads, notes)


def log_forever(run: barograph.Run, rank: int, thread: int, threads: int, notes: mmap.mmap) -> None:
    """Log every step of one thread; after each call, store the number of acknowledged rows."""
    count = 0
    while True:
        step = count * threads + thread
        names = f"set/{count // KEY_SET_ROWS % KEY_SETS}"
        if thread or count % 3:
            run.log({"x": value(step, rank), names: 1.0, "pad": 2.0}, step=step)
        else:
            run.log({"x": value(step, rank)})
            run.commit(step)
        count += 1
        struct.pack_into("<q", notes, (rank * threads + thread) * 8, count)


def one_round(dir: Path, id: str, writers: int, threads: int, chance: random.Random, tally: Tally) -> None:
    """Start the writers, kill them at random moments, and check the journal."""
    notes = mmap.mmap(-1, writers * threads * 8)
    children = []
    for rank in range(writers):
        child = os.fork()
        if not child:
            try:
                write_until_killed(dir, id, rank, threads, notes)
            finally:
                os._exit(1)
        children.append(child)
    if chance.random() < LATE_SHARE:  # wait for all of them; otherwise some die while they start
        while not all(struct.unpack_from(f"<{writers * threads}q", notes)):
            time.sleep(0.001)
    began = time.monotonic()
    moments = sorted((chance.uniform(0, MAX_LIFE_SECONDS), child) for child in children)
    for moment, child in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    counts = struct.unpack_from(f"<{writers * threads}q", notes)
    steps = [
        [count * threads + thread for thread in range(threads) for count in range(counts[rank * threads + thread])]
        for rank in range(writers)
    ]
    check(dir / "default" / id, steps, tally)


def check(folder: Path, acknowledged: list[list[int]], tally: Tally) -> None:
    """Compare the journal with the acknowledged steps of each rank."""
    tally.rounds += 1
    tally.acknowledged += sum(map(len, acknowledged))
    tally.silent += acknowledged.count([])
    if not any(acknowledged):
        return
    try:
        view = barograph.open(folder)
        damage = view.damage()
    except Exception as problem:  # noqa: BLE001 - any failure to read is what is counted here
        print(f"{folder}: {type(problem).__name__}: {problem}", file=sys.stderr)
        tally.unreadable += 1
        return
    tally.unreadable += bool(damage)
    for rank, steps in enumerate(acknowledged):
        if steps:
            series = view.series("x", rank=rank)
            found = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
            tally.lost += sum(step not in found for step in steps)
            tally.wrong += sum(found.get(step, value(step, rank)) != value(step, rank) for step in steps)


def main() -> int:
    """Run the rounds and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=3, help="of each writer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally, chance = Tally(), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as dir:
        for number in range(options.rounds):
            one_round(Path(dir), f"round{number}", options.writers, options.threads, chance, tally)
            if sys.stderr.isatty() and number % 10 == 0:
                print(f"\r{number} of {options.rounds} rounds", end="", file=sys.stderr)
    print(
        f"{tally.rounds} rounds of {options.writers} writers with {options.threads} threads: "
        f"{tally.acknowledged:,} acknowledged rows, "
        f"{tally.lost} lost, {tally.wrong} wrong, {tally.unreadable} unreadable journals "
        f"({tally.silent} writers died before their first row)"
    )
    return int(tally.lost + tally.wrong + tally.unreadable > 0)


if __name__ == "__main__":
    sys.exit(main())
