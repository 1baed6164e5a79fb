"""The core of a shared machine on which a timing is the least disturbed."""

from __future__ import annotations

import os
import timeit


def stay_on_fastest_core() -> None:
    """Keep this thread on one core, where the system can; the threads that exist already may use all."""
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores, key=_time_on)})


def _time_on(core: int) -> float:
    """Return the seconds that some work takes on a core; this thread stays there."""
    os.sched_setaffinity(0, {core})
    return min(timeit.repeat(lambda: [str(number) for number in range(1000)], number=10, repeat=9))
