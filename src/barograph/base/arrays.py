"""Names of array types. This module loads NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
FloatsOfAnySize = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
