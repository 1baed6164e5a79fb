"""How a process of a distributed training ends."""

import atexit
import os
import sys
from typing import NoReturn


def end_process() -> NoReturn:
    """End this process after its exit functions, without the destructors of C++.

    Accelerate keeps its process group, whose threads abort about one of fifty processes that end as usual, with or
    without barograph: https://github.com/pytorch/pytorch/issues/190489.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
