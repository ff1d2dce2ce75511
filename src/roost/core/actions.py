"""Actions: what the core asks of a world. Imperative, immutable, each naming the event behind it.

A world answers every action with events: a launch or resume with ``Started`` or ``Exited``, a
resize or migrate with ``Resized``, a suspend with ``Suspended``, a stop with ``Exited``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.core.allocation import Allocation
from roost.core.events import Event
from roost.core.spec import JobSpec, RunId


@dataclass(frozen=True, slots=True)
class Launch:
    """Start all workers of a new run, or none."""

    run: RunId
    spec: JobSpec
    allocation: Allocation
    cause: Event | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a suspended run go on, there."""

    run: RunId
    allocation: Allocation
    cause: Event | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Resize:
    """Grow or shrink a run to that allocation while it lives."""

    run: RunId
    allocation: Allocation
    cause: Event | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a run to that allocation, keeping its size and its work."""

    run: RunId
    allocation: Allocation
    cause: Event | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Suspend:
    """Take a run off its devices, keeping its state."""

    run: RunId
    reason: str
    cause: Event | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """End a run; work since its last checkpoint is lost."""

    run: RunId
    reason: str
    cause: Event | None = field(default=None, compare=False, repr=False)


Action = Launch | Resume | Resize | Migrate | Suspend | Stop
