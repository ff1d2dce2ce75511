"""Names of the array types that models and solvers use."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
#: Real or whole numbers.
Numbers: TypeAlias = NDArray[np.float64 | np.int64]
