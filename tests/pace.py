"""How slow the machine is just now: limits of time are those of a usual one."""

import time

LOOPS, USUAL_SECONDS = 1_000_000, 0.06


def slowness() -> float:
    """Return how many times the CPU time of a usual machine Python takes, at least 1.

    Processes that share a core, and slow machines, make CPU time longer too.
    """
    began = time.process_time()
    total = 0
    for number in range(LOOPS):
        total += number & 7
    return max(1.0, (time.process_time() - began) / USUAL_SECONDS)
