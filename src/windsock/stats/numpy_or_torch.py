"""Formulas are written once and run on NumPy arrays and on torch tensors; this module picks the library."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def numpy_or_torch(array: Any) -> Any:
    """Return the torch module for a tensor and the numpy module for everything else.

    Both have exp, clip, where, minimum and the other functions that the formulas use. torch is taken from
    ``sys.modules``: a process that never imported it has no tensors.
    """
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np
