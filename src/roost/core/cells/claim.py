"""A run's claim on a cell."""

from __future__ import annotations

from typing import NamedTuple


class CellClaim(NamedTuple):
    """A cell that a run stands in, and the promise to its queue by which it has it."""

    cell: str
    promise: str
