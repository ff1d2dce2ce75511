"""Decisions: what a policy wrote on its plan and the core made binding.

The journal keeps them beside the events: folding both gives the same state without asking the
policy again, which in a newer version might decide otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.allocation import Allocation
from roost.core.spec import JobId


@dataclass(frozen=True, slots=True)
class Place:
    """Start a waiting job, or resume a suspended one, there."""

    job: JobId
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Reshape:
    """Give a running job another allocation: larger, smaller or elsewhere."""

    job: JobId
    allocation: Allocation
    reason: str = ""


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


Decision = Place | Reshape | Evict | SetAside
