"""Measuring of memory and CPU time of work in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_MB = 200
LIMIT_SECONDS = 1.0  # of CPU time, on a usual machine
ADDRESS_SPACE = 3 << 30  # a bomb that is not stopped ends in a MemoryError, not in the machine's swap
MAX_WAIT_SECONDS = 60

PROLOGUE = f"""
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE}, {ADDRESS_SPACE}))
import numpy, sqlite3, barograph
from pace import slowness
from pathlib import Path
from barograph.journal.view import View
import barograph.journal.merge, barograph.journal.merge.rollouts, barograph.journal.merge.measurements
import barograph.journal.samples.index
barograph.metrics.rollouts.statistics.spell("rollout/coverage/late", "roll")  # loads the catalogue
folder = Path(sys.argv[1])
result = None
began = time.process_time()
"""
EPILOGUE = f"""
seconds = time.process_time() - began
if seconds >= {LIMIT_SECONDS}:
    seconds /= slowness()
# Not ru_maxrss: on Linux it begins with the memory of the process that forked.
mb = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({{"seconds": seconds, "mb": mb, "result": result}}))
"""


def bounded(folder: Path, work: str) -> Any:
    """Run Python statements on a run's ``folder``, check memory and time, and return their ``result``."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + work + EPILOGUE, str(folder)],
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_SECONDS,
        env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["mb"] < LIMIT_MB, str(found)[:200]
    assert found["seconds"] < LIMIT_SECONDS, str(found)[:200]
    return found["result"]
