"""What is observed of jobs while they train: time per step, device memory, gradient noise.

A record keeps the last word. Now and then, and whenever the size is another one, it goes into the
journal (``Measured``), from which the core learns the profile of each application.
"""

from __future__ import annotations

import math

from roost.core import Measured, Run
from roost.engines import Told
from roost.live.records import Record

#: How often the same size is measured, and how long a size has to last before it is, in seconds.
EVERY_S = 30.0
SETTLE_S = 2.0
_MOST_MIB = 1 << 30
_MOST_COUNT = 1 << 40
_MOST_LETTERS = 500


def observed(record: Record, told: Told) -> None:
    """Remember what a job says of its training, where it can be true."""
    if (step_s := _positive(told.step_s)) is not None:
        record.step_s = step_s
    if (noise := _positive(told.noise)) is not None:
        record.noise = noise
    if (batch := _count(told.batch, _MOST_COUNT)) is not None:
        record.batch = batch
    if (world := _count(told.world, _MOST_COUNT)) is not None:
        record.world = world
    if (seen := _count(told.memory_mib, _MOST_MIB)) is not None:
        record.memory_mib = max(seen, record.memory_mib or 0)
    if (predicted := _count(told.predicted_mib, _MOST_MIB)) is not None:
        record.predicted_mib = predicted
    if told.elastic is not None:
        record.resizable = bool(told.elastic)
    if told.busy is not None and 0 <= told.busy <= 1:
        record.busy = told.busy
    if told.note:
        record.note = told.note[:_MOST_LETTERS]


def measured(run: Run, record: Record, told: Told, now: float) -> list[Measured]:
    """A measurement for the journal, if it is time for one and the size is not in doubt."""
    step_s = _positive(told.step_s)
    size = told.world or run.workers
    if told.busy is not None and 0 <= told.busy <= 1 and run.settled:
        # What a framework takes without being asked says little of what it needs: no memory here.
        return [Measured(now, run.id, run.workers, 0.0, busy=told.busy)]
    if step_s is None or not run.settled or size != run.workers:
        return []
    if now - run.changed_at < SETTLE_S:
        return []
    if size == record.measured_workers and now - record.measured_at < EVERY_S:
        return []
    record.measured_at, record.measured_workers = now, size
    return [Measured(now, run.id, size, step_s, record.memory_mib or 0, record.noise)]


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _count(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 < value <= most else None
