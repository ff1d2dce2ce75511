"""Decisions: what a policy wrote on its plan and the core made binding.

The journal keeps them beside the events: folding both gives the same state without asking the
policy again, which in a newer version might decide otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.allocation import Allocation
from roost.core.cells.claim import CellClaim
from roost.core.spec import JobId


@dataclass(frozen=True, slots=True)
class Place:
    """Start a waiting job, or resume a suspended one, there, and by these claims on cells."""

    job: JobId
    allocation: Allocation
    claims: tuple[CellClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Reshape:
    """Give a running job another allocation: larger, smaller or elsewhere."""

    job: JobId
    allocation: Allocation
    reason: str = ""
    claims: tuple[CellClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Evict:
    """End a job's run; the job goes back to its line."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """Suspend a job's run; the job waits to be resumed."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Let a run have its place by these claims on cells; by none, as long as others let it."""

    job: JobId
    claims: tuple[CellClaim, ...] = ()


Decision = Place | Reshape | Evict | SetAside | Reclaim
