"""Which library an array belongs to: the functions here are written once, for NumPy and for torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def library(array: Any) -> Any:
    """Return torch for a tensor and NumPy for everything else; both know exp, clip, where, minimum, …"""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np
