"""Builders: the words of a test, so that a test reads as a list of events and what follows.

    core = core_with(fifo, node("n0"), node("n1"))
    actions = core.handle(Submitted(1.0, job("a"), spec(8, 900.0)))
    assert actions == [Launch(run("a"), spec(8, 900.0), held("n0", range(8)))]

Times are seconds, GPUs are per worker. What a world does with the actions is in ``engine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from roost.core import (
    WHOLE,
    WORKER,
    Action,
    Allocation,
    Core,
    Costs,
    JobId,
    JobSpec,
    Launch,
    Level,
    NodeId,
    NodeJoined,
    NodeSpec,
    Part,
    Policy,
    Qos,
    QueueId,
    QueueSpec,
    Range,
    Resources,
    Resume,
    Role,
    RunId,
    Started,
    Way,
)
from roost.core.extras import Extras
from roost.core.quota import Quota
from roost.placement import placer as placer_named

__all__ = [
    "NodeFields",
    "QueueFields",
    "SpecFields",
    "WorkerFields",
    "core_with",
    "held",
    "job",
    "node",
    "part",
    "queue",
    "role",
    "run",
    "shared",
    "spec",
    "started",
    "worker",
]


class NodeFields(TypedDict, total=False):
    """What else a node may have; see ``NodeSpec``."""

    kind: str
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    sockets: int
    switch: str
    block: str
    zone: str
    workers: int
    extras: Extras
    mixed: bool


class QueueFields(TypedDict, total=False):
    """What a queue may have; see ``QueueSpec``."""

    quota_milli: int | None
    limit_milli: int | None
    weight: float
    priority: int
    parent: QueueId | None
    lending_milli: int | None
    quotas: tuple[Quota, ...]


class WorkerFields(TypedDict, total=False):
    """What else a worker may need; see ``Resources``."""

    gpu_memory_mib: int
    qos: Qos
    kinds: tuple[str, ...]
    cpu_milli: int
    memory_mib: int
    way: Way
    pool: str
    extras: Extras


class SpecFields(WorkerFields, total=False):
    """What else a job may ask for; see ``JobSpec``. ``workers`` is a number or (min, max)."""

    workers: int | tuple[int, int]
    roles: tuple[Role, ...]
    queue: str
    priority: int
    user: str
    application: str
    costs: Costs
    min_run_s: float
    max_retries: int
    preemptible: bool
    within: Level | None
    preempts: bool


def job(name: str) -> JobId:
    """A job's id."""
    return JobId(name)


def run(name: str, attempt: int = 1) -> RunId:
    """The id of one attempt of a job."""
    return RunId(JobId(name), attempt)


def node(name: str = "n0", gpus: int = 8, **more: Unpack[NodeFields]) -> NodeSpec:
    """A machine."""
    return NodeSpec(NodeId(name), gpus, **more)


def queue(name: str = "default", **more: Unpack[QueueFields]) -> QueueSpec:
    """A tenant."""
    return QueueSpec(QueueId(name), **more)


def worker(gpus: float = 1, **more: Unpack[WorkerFields]) -> Resources:
    """What one worker needs; a number of GPUs below one is a share of a device."""
    if 0 < gpus < 1:
        return Resources(1, round(gpus * WHOLE), **more)
    return Resources(int(gpus), WHOLE, **more)


def role(name: str = "ps", workers: int = 1, gpus: float = 0, **more: Unpack[WorkerFields]) -> Role:
    """Extra workers beside the main ones, such as parameter servers."""
    return Role(name, workers, worker(gpus, **more))


def spec(gpus: float = 1, run_time_s: float | None = None, **more: Unpack[SpecFields]) -> JobSpec:
    """A job of one worker, or of ``workers``, with so many GPUs each."""
    need = worker(
        gpus,
        gpu_memory_mib=more.pop("gpu_memory_mib", 0),
        qos=more.pop("qos", Qos.FIXED),
        kinds=more.pop("kinds", ()),
        cpu_milli=more.pop("cpu_milli", 0),
        memory_mib=more.pop("memory_mib", 0),
        way=more.pop("way", Way.TEMPORAL),
        pool=more.pop("pool", ""),
        extras=more.pop("extras", ()),
    )
    workers = more.pop("workers", 1)
    size = Range(workers, workers) if isinstance(workers, int) else Range(*workers)
    tenant = QueueId(more.pop("queue", "default"))
    # What is left in ``more`` are fields of JobSpec; no type checker follows the pops.
    return JobSpec(size, need, queue=tenant, run_time_s=run_time_s, **more)  # type: ignore[arg-type, misc]


def part(
    name: str,
    gpus: Iterable[int] = (),
    workers: int = 1,
    share_milli: int = WHOLE,
    kind: str = WORKER,
) -> Part:
    """Workers of one role on one node."""
    return Part(NodeId(name), tuple(gpus), share_milli, workers, kind)


def held(name: str, gpus: Iterable[int] = (), workers: int = 1) -> Allocation:
    """Whole devices of one node."""
    return Allocation((part(name, gpus, workers),))


def shared(name: str, gpu: int, share_milli: int, workers: int = 1) -> Allocation:
    """Shares of one device, one for each worker."""
    return Allocation((part(name, (gpu,), 1, share_milli),) * workers)


def core_with(policy: Policy, *nodes: NodeSpec, placer: str = "first-fit") -> Core:
    """A core that knows some nodes since time zero."""
    core = Core(policy, placer_named(placer))
    core.handle(*(NodeJoined(0.0, spec) for spec in nodes))
    return core


def started(core: Core, actions: Sequence[Action], at: float) -> list[Action]:
    """Report that everything these actions launch or resume is up; return what follows."""
    begun = [action.run for action in actions if isinstance(action, Launch | Resume)]
    return core.handle(*(Started(at, run_id) for run_id in begun))
