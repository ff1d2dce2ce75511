"""What is observed of jobs while they train: time per step, device memory, gradient noise.

A record keeps the last word. Now and then, and whenever the size is another one, it goes into the
journal (``Measured``), with where the job ran and what its workers took at once. From that the core
learns the profile of each application, and ``roost.perf`` makes models of it. What jobs say is
untrusted text: only what can be true is taken.
"""

from __future__ import annotations

import math
from typing import Any

from roost.core import WHOLE, WORKER, Core, Measured, Run
from roost.core.occupancy import neighbours
from roost.engines import ProgressReport
from roost.jobs.record import JobRecord

#: How often the same size is measured, and how long a size has to last before it is, in seconds.
EVERY_S = 30.0
SETTLE_S = 2.0
#: How long the same neighbours have to be there before what they do to a job is measured.
COMPANY_S = 10.0
_MOST_MIB = 1 << 30
_MOST_COUNT = 1 << 40
_MOST_EPOCHS = 1e9
_MOST_LETTERS = 500
#: The role with workers that keep the parameters for the others, in TensorFlow and here.
_SERVER = "ps"


def observed(record: JobRecord, told: ProgressReport) -> None:
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
    if told.note is not None:
        record.note = told.note[:_MOST_LETTERS]


def measured(
    core: Core, run: Run, record: JobRecord, told: ProgressReport, now: float
) -> list[Measured]:
    """A measurement for the journal, if it is time for one and the size is not in doubt."""
    step_s, epochs = _positive(told.step_s), _within(told.epochs, _MOST_EPOCHS)
    size = told.world or run.workers
    if told.busy is not None and 0 <= told.busy <= 1 and run.settled:
        # What a framework takes without being asked says little of what it needs: no memory here.
        return [Measured(now, run.id, run.workers, 0.0, busy=told.busy)]
    if (step_s is None and epochs is None) or not run.settled or size != run.workers:
        return []
    if now - run.changed_at < SETTLE_S or not _settled_company(core, run, record, now):
        return []
    timed_elsewhere = step_s is not None and (
        size != record.measured_workers or record.measured_at < record.beside_since
    )
    if not timed_elsewhere and now - record.measured_at < EVERY_S:
        return []
    record.measured_at = now
    if step_s is not None:
        record.measured_workers = size
    return [
        Measured(
            *(now, run.id, size, step_s or 0.0, record.memory_mib or 0, record.noise),
            **_where(core, run),
            local_batch=_local_batch(told, size),
            sync_s=None if step_s is None else _within(told.sync_s, step_s),
            epochs=epochs,
            loss=told.loss if told.loss is not None and math.isfinite(told.loss) else None,
            beside=record.beside,
        )
    ]


def _settled_company(core: Core, run: Run, record: JobRecord, now: float) -> bool:
    """Whether the neighbours on its devices are the same for a while: steps are mixed before."""
    beside = tuple(sorted(other.job.application_key for other in neighbours(run, core.ledger)))
    if beside != record.beside:
        record.beside, record.beside_since = beside, now
    return not record.beside_since or now - record.beside_since >= COMPANY_S


def _where(core: Core, run: Run) -> dict[str, Any]:
    """The kind of device that the main workers hold, on how many nodes, and their servers.

    Shares of a device are a kind of their own, written as in a job file; so are several kinds.
    """
    main = [part for part in run.allocation.parts if part.role == WORKER]
    specs = {part.node: core.ledger.nodes[part.node].spec for part in main}
    need = run.job.spec.resources
    kind = "+".join(sorted({spec.kind for spec in specs.values()})) if need.gpus else ""
    if kind and need.share_milli < WHOLE:
        kind = f"{kind}:{need.share_milli / WHOLE:g}"
    servers = sum(part.workers for part in run.allocation.parts if part.role == _SERVER)
    return {"kind": kind, "nodes": len(specs), "servers": servers}


def _local_batch(told: ProgressReport, workers: int) -> int:
    """What a worker takes at once: what it says, else its part of the batch; 0: unknown."""
    if (own := _count(told.local_batch, _MOST_COUNT)) is not None:
        return own
    batch = _count(told.batch, _MOST_COUNT)
    return 0 if batch is None else -(-batch // workers)


def _within(value: float | None, most: float) -> float | None:
    return value if value is not None and 0 <= value <= most else None


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _count(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 < value <= most else None
