"""What people ask for and what machines offer: the immutable half of the vocabulary.

Quantities are integers in the smallest unit that matters (milli-GPUs, milli-CPUs, MiB), so the
books of the ledger balance exactly. Names carry the unit when it is not an SI base unit.
What becomes of a job afterwards is in ``state``; where it runs is in ``allocation``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, NewType, TypeAlias

from roost.core.cells.promise import CellPromise, check_promises
from roost.core.cells.site import CellSite, check_site
from roost.core.extras import Extras, check_extras
from roost.core.quota import GPU, Quota, check_quotas
from roost.errors import InvalidSpec

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
QueueId = NewType("QueueId", str)

#: A user and an application: what the same user runs again and again.
ApplicationKey: TypeAlias = tuple[str, str]

#: The kind of a device that is none: a CPU that stands in for a GPU.
CPU_SLOT = "cpu-slot"

#: Milli-GPUs in one device: a share of 1000 is the whole GPU.
WHOLE = 1000


def _not_negative(name: str, value: float) -> None:
    if not value >= 0:  # also refuses NaN
        msg = f"{name} must be a number of seconds >= 0, got {value}"
        raise InvalidSpec(msg)


def _check_rates(name: str, rates: tuple[tuple[str, float], ...]) -> None:
    for kind, rate in rates:
        if not 0 < rate < math.inf:
            raise InvalidSpec(f"{name} of GPU kind {kind!r} must be positive, got {rate}")


class RunId(NamedTuple):
    """One attempt of a job; it fences late reports from older attempts."""

    job: JobId
    attempt: int

    def __str__(self) -> str:
        return f"{self.job}#{self.attempt}"


class Qos(StrEnum):
    """What a share of a GPU means when neighbours are idle or busy."""

    FIXED = "fixed"
    EQUAL = "equal"
    BEST_EFFORT = "best-effort"


class Way(StrEnum):
    """How workers share a device: by turns, or side by side at the same time."""

    TEMPORAL = "temporal"
    SPATIAL = "spatial"


class Level(IntEnum):
    """The levels of the topology tree, from a device up to everything."""

    GPU = 0
    SOCKET = 1
    NODE = 2
    SWITCH = 3
    BLOCK = 4
    ZONE = 5
    CLUSTER = 6


#: The levels above a node of which a node says where it is, from the inside out.
DOMAINS = (Level.SWITCH, Level.BLOCK, Level.ZONE)


class Range(NamedTuple):
    """How few and how many workers a job can run with; equal ends make it rigid."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one worker needs on its node.

    ``share_milli`` below 1000 asks for a part of one device; ``gpu_memory_mib`` limits the worker
    on each device (0: in proportion to its share). ``kinds`` lists the GPU kinds that will do;
    empty means any. ``way`` and ``qos`` matter only to shares. ``pool`` names the set of nodes
    that will do; empty means any, and an unknown pool has no nodes. ``extras`` are amounts of what
    else its node counts.
    """

    gpus: int = 1
    share_milli: int = WHOLE
    gpu_memory_mib: int = 0
    qos: Qos = Qos.FIXED
    kinds: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    way: Way = Way.TEMPORAL
    pool: str = ""
    extras: Extras = ()

    def __post_init__(self) -> None:
        """Refuse amounts that make no sense."""
        for name in ("gpus", "gpu_memory_mib", "cpu_milli", "memory_mib"):
            if getattr(self, name) < 0:
                msg = f"{name} must not be negative, got {getattr(self, name)}"
                raise InvalidSpec(msg)
        if not 0 < self.share_milli <= WHOLE:
            msg = f"share_milli must be in 1..{WHOLE}, got {self.share_milli}"
            raise InvalidSpec(msg)
        if self.share_milli < WHOLE and self.gpus != 1:
            msg = f"a share of a GPU needs gpus=1, got gpus={self.gpus}"
            raise InvalidSpec(msg)
        if self.extras:
            check_extras(self.extras, "a worker")

    @property
    def gpu_milli(self) -> int:
        """GPU demand of one worker in milli-GPUs."""
        return self.gpus * self.share_milli

    @property
    def whole_gpus_only(self) -> bool:
        """Whether a worker asks for at least one GPU, and for no part of one."""
        return self.gpus > 0 and self.share_milli == WHOLE

    @property
    def needs_host_resources(self) -> bool:
        """Whether a worker asks for CPUs, memory or extras of its node."""
        return bool(self.cpu_milli or self.memory_mib or self.extras)

    @property
    def needs_more_than_gpus(self) -> bool:
        """Whether GPUs alone do not tell if a worker fits: it asks for more, or for a pool."""
        return self.needs_host_resources or bool(self.gpu_memory_mib or self.pool)


@dataclass(frozen=True, slots=True)
class Role:
    """Extra workers beside the main ones, such as parameter servers.

    There are always as many of them or, where ``most`` is larger, up to ``most``.
    """

    name: str
    workers: int
    resources: Resources
    most: int = 0

    def __post_init__(self) -> None:
        """A role without workers is not a role."""
        if self.workers < 1:
            msg = f"role {self.name!r} needs at least one worker, got {self.workers}"
            raise InvalidSpec(msg)
        if self.most and self.most < self.workers:
            msg = f"role {self.name!r} has at least {self.workers} workers, so not {self.most}"
            raise InvalidSpec(msg)

    @property
    def sizes(self) -> Range:
        """How few and how many of them there can be."""
        return Range(self.workers, max(self.workers, self.most))


@dataclass(frozen=True, slots=True)
class Training:
    """How a job learns, as far as its user knows beforehand.

    ``batch`` is the number of samples per step for which it was tuned; up to ``batch_max`` it may
    choose itself (0: it stays as it is). ``epochs`` are passes over the data in all (0: unknown).
    ``local_min`` and ``local_max``, the latter by GPU kind and under ``""`` for kinds not named,
    bound the samples that a GPU takes at once. ``alone`` is how many samples per second one GPU of
    a kind was seen to do beforehand: only the ratios matter.

    A worker is one GPU, or a replica of the model with GPUs split over ``pipeline`` stages:
    micro-batches of ``micro`` samples then pass these one behind the other, and the bounds of
    samples are those of a replica.

    Work of such a job is counted in steps at its own ``batch``.
    """

    batch: int
    batch_max: int = 0
    epochs: float = 0.0
    local_min: int = 1
    local_max: tuple[tuple[str, int], ...] = ()
    alone: tuple[tuple[str, float], ...] = ()
    pipeline: int = 1
    micro: int = 1

    def __post_init__(self) -> None:
        """Refuse batches of nothing and speeds that are none."""
        if self.batch < 1 or self.local_min < 1 or any(most < 1 for _, most in self.local_max):
            raise InvalidSpec(f"batch sizes must be at least 1, got {self}")
        if self.batch_max and self.batch_max < self.batch:
            raise InvalidSpec(f"batch_max {self.batch_max} is below the batch {self.batch}")
        if self.pipeline < 1 or self.micro < 1:
            raise InvalidSpec(f"a pipeline needs at least one stage and sample, got {self}")
        if self.micro > min((self.batch, *(most for _, most in self.local_max))):
            raise InvalidSpec(f"micro {self.micro} is above the batch or local_max, got {self}")
        _not_negative("epochs", self.epochs)
        _check_rates("alone", self.alone)

    @property
    def adaptive(self) -> bool:
        """Whether the batch size may follow the number of workers."""
        return self.batch_max > self.batch

    def most_local(self, kind: str) -> int:
        """The most samples that a GPU of a kind takes at once."""
        found = dict(self.local_max)
        return found.get(kind, found.get("", max(self.batch, self.batch_max)))


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs a job to be disturbed, in seconds.

    ``checkpoint_every_s`` is the period between checkpoints: 0 saves all the time (a stop loses
    nothing), infinity never saves (a stop loses everything).
    """

    checkpoint_every_s: float = 0.0
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    resize_s: float = 0.0
    suspend_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative and undefined times."""
        for name in ("checkpoint_every_s", "checkpoint_s", "restart_s", "resize_s", "suspend_s"):
            _not_negative(name, getattr(self, name))


_RIGID = Range(1, 1)
_ONE_GPU = Resources()
_FREE = Costs()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user submits.

    ``run_time_s`` is an estimate of the run time with ``workers.min`` workers on the reference
    GPU, declared by the user or predicted; ``None`` if unknown. ``within`` asks for all
    workers inside one cell of that level. ``preemptible``: it may be disturbed for others, and
    ``preempts``: others may be disturbed for it. ``rates`` is the work per second that its least
    workers do on each GPU kind, where that was profiled beforehand. ``cell`` names a cell that its
    queue was promised by name, and in which it has to be; others stay out of it.
    """

    workers: Range = _RIGID
    resources: Resources = _ONE_GPU
    roles: tuple[Role, ...] = ()
    queue: QueueId = QueueId("default")
    priority: int = 0
    user: str = ""
    application: str = ""
    run_time_s: float | None = None
    costs: Costs = _FREE
    min_run_s: float = 0.0
    max_retries: int = 0
    preemptible: bool = True
    within: Level | None = None
    preempts: bool = True
    training: Training | None = None
    rates: tuple[tuple[str, float], ...] = ()
    cell: str = ""

    def __post_init__(self) -> None:
        """Refuse what can never run."""
        low, high = self.workers
        if not 1 <= low <= high:
            msg = f"workers must satisfy 1 <= min <= max, got {low}..{high}"
            raise InvalidSpec(msg)
        names = [role.name for role in self.roles]
        if "worker" in names or len(set(names)) < len(names):
            msg = f"roles need names of their own, other than 'worker', got {names}"
            raise InvalidSpec(msg)
        if self.run_time_s is not None:
            _not_negative("run_time_s", self.run_time_s)
        _not_negative("min_run_s", self.min_run_s)
        _check_rates("rates", self.rates)
        if self.training is not None and self.training.pipeline > 1:
            self._check_stages(self.training.pipeline)

    def _check_stages(self, stages: int) -> None:
        """Refuse workers with GPUs that cannot be split evenly over their pipeline."""
        if self.resources.share_milli < WHOLE:
            raise InvalidSpec(f"a pipeline of {stages} stages needs whole GPUs, not a share of one")
        if not self.resources.gpus or self.resources.gpus % stages:
            raise InvalidSpec(
                f"a pipeline of {stages} stages needs a multiple of {stages} GPUs for each worker,"
                f" got {self.resources.gpus}"
            )

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change."""
        return self.workers.max > self.workers.min

    @property
    def adaptable(self) -> bool:
        """Whether it is elastic, or it is known how it would do on other kinds of GPU."""
        return self.workers.max > self.workers.min or self.training is not None or bool(self.rates)

    @property
    def uniform(self) -> bool:
        """Whether all workers are equal, have whole GPUs, and stand anywhere or on one node."""
        anywhere = self.within in (None, Level.NODE, Level.CLUSTER)
        return self.resources.whole_gpus_only and not self.roles and anywhere

    @property
    def gpus(self) -> float:
        """GPUs needed to start, counting shares."""
        return self.gpu_milli(self.workers.min) / WHOLE

    def gpu_milli(self, workers: int) -> int:
        """GPU demand in milli-GPUs with that many workers, roles included."""
        own = workers * self.resources.gpu_milli
        if not self.roles:
            return own
        return own + sum(role.workers * role.resources.gpu_milli for role in self.roles)


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang as a placer sees it: all of these workers or none."""

    workers: int
    resources: Resources
    roles: tuple[Role, ...] = ()
    within: Level | None = None

    @property
    def gpu_milli(self) -> int:
        """GPU demand of the whole gang in milli-GPUs."""
        own = self.workers * self.resources.gpu_milli
        return own + sum(role.workers * role.resources.gpu_milli for role in self.roles)

    @property
    def has_roles(self) -> bool:
        """Whether there are extra workers beside the main ones."""
        return bool(self.roles)

    @property
    def needs_pool(self) -> bool:
        """Whether some of its workers run in a pool of nodes only."""
        return bool(self.resources.pool) or any(role.resources.pool for role in self.roles)

    @property
    def needs_extras(self) -> bool:
        """Whether some of its workers take extras of their nodes."""
        return bool(self.resources.extras) or any(role.resources.extras for role in self.roles)

    @property
    def only_gpus(self) -> int:
        """GPUs of the gang, if it asks for whole GPUs of any kind and nothing else; otherwise 0."""
        need = self.resources
        if self.roles or self.within is not None or need != Resources(gpus=need.gpus):
            return 0
        return self.workers * need.gpus


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A machine: its devices, and the switch it hangs on, in its block and zone.

    ``workers`` is how many workers it takes at once, whatever they need. What is 0 beside ``gpus``
    is not counted. Of what is not among its ``extras`` it has none. Where it is not ``mixed``, no
    whole GPU is given out while one is shared, and no share while one is taken whole. ``site`` is
    where it stands in a declared tree of cells.
    """

    id: NodeId
    gpus: int = 8
    kind: str = "gpu"
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    sockets: int = 1
    switch: str = ""
    workers: int = 0
    extras: Extras = ()
    mixed: bool = True
    block: str = ""
    zone: str = ""
    site: CellSite | None = None

    def __post_init__(self) -> None:
        """Refuse machines that cannot be."""
        for name in ("gpus", "gpu_memory_mib", "cpu_milli", "memory_mib", "workers"):
            if getattr(self, name) < 0:
                msg = f"node {self.id}: {name} must not be negative, got {getattr(self, name)}"
                raise InvalidSpec(msg)
        if self.sockets < 1:
            msg = f"node {self.id}: sockets must be at least 1, got {self.sockets}"
            raise InvalidSpec(msg)
        if self.extras:
            check_extras(self.extras, f"node {self.id}")
        if self.site is not None:
            check_site(self.site, self.gpus, f"node {self.id}")

    def domain(self, level: Level) -> str:
        """The switch, block or zone that it is in, as no other is called.

        Switches of two blocks are two, whatever they are called.
        """
        if not (self.block or self.zone):
            return self.switch if level is Level.SWITCH else ""
        path = (self.zone, self.block, self.switch)
        return "/".join(path[: Level.CLUSTER - level])

    def is_within(self, level: Level) -> bool:
        """Whether it is in a domain of that level: without a name a switch is one, others not."""
        if level is Level.BLOCK:
            return bool(self.block)
        return bool(self.zone) if level is Level.ZONE else True

    def socket_of(self, gpu: int) -> int:
        """The socket that a device hangs on; devices are spread evenly and in order."""
        return gpu * self.sockets // self.gpus


class Contingent(NamedTuple):
    """A part of a gang that has to be on some nodes."""

    workers: int
    nodes: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A tenant: what it was promised (``quota_milli``), its cap (``limit_milli``), its weight.

    ``quotas`` are promises of other resources than GPUs of all kinds. With a ``parent`` it borrows
    from the queues of its tree alone, and lends to them, of its GPUs ``lending_milli`` at most.
    ``cells`` are promises of places: what would run on them alone runs whatever others do.
    Where it does not overflow, its jobs run nowhere else, but for those of a negative priority.
    """

    id: QueueId
    quota_milli: int | None = None
    limit_milli: int | None = None
    weight: float = 1.0
    priority: int = 0
    parent: QueueId | None = None
    lending_milli: int | None = None
    quotas: tuple[Quota, ...] = ()
    cells: tuple[CellPromise, ...] = ()
    overflows: bool = True

    @property
    def promises(self) -> tuple[Quota, ...]:
        """All that it was promised, GPUs first; the limit is the quota and what may be borrowed."""
        quota, limit = self.quota_milli, self.limit_milli
        if quota is None:
            return self.quotas
        above = None if limit is None else limit - quota
        return (Quota(GPU, quota, above, self.lending_milli), *self.quotas)

    def __post_init__(self) -> None:
        """Refuse a promise above the cap, and weights that divide by zero."""
        if self.parent is not None or self.quotas or self.lending_milli is not None:
            self._check_tree()
        if self.cells:
            check_promises(self.cells, f"queue {self.id}")
        if not (self.weight > 0 and math.isfinite(self.weight)):
            msg = f"queue {self.id}: weight must be positive, got {self.weight}"
            raise InvalidSpec(msg)
        for name in ("quota_milli", "limit_milli"):
            value = getattr(self, name)
            if value is not None and value < 0:
                msg = f"queue {self.id}: {name} must not be negative, got {value}"
                raise InvalidSpec(msg)
        if None not in (self.quota_milli, self.limit_milli) and self.quota_milli > self.limit_milli:  # type: ignore[operator]
            msg = f"queue {self.id}: quota {self.quota_milli} is above the limit {self.limit_milli}"
            raise InvalidSpec(msg)

    def _check_tree(self) -> None:
        """Refuse what contradicts itself about a queue that borrows and lends."""
        whose = f"queue {self.id}"
        if self.parent == self.id:
            raise InvalidSpec(f"{whose} cannot be its own parent")
        check_quotas(self.quotas, whose)
        lends = [quota.resource for quota in self.quotas if quota.lending is not None]
        if self.lending_milli is not None:
            if not 0 <= self.lending_milli <= (self.quota_milli or 0):
                raise InvalidSpec(f"{whose}: what it lends of its GPUs must be within its quota")
            lends.append(GPU)
        if lends and self.parent is None:
            raise InvalidSpec(
                f"{whose} lends {', '.join(lends)}, but has no parent to lend through"
            )
