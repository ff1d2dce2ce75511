"""Workloads for the world in which jobs learn (``worlds.learning``).

``Learning`` holds what is true of the applications, and turns the jobs of a workload into jobs
that learn. Rows of Sia's traces become what Sia's benchmark makes of them: adaptive jobs of 1 to 64
workers under policies that size jobs, else *tuned* ones with the workers and the batch of the row.
Any other job keeps its workers: a job with a range of them adapts its batch, a rigid one keeps the
batch that suits its size. It does as much work as takes its recorded run time at its least size.

No policy is told how long a job runs. It sees the application, the number of epochs, the limits
of the batch, and what was measured.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from roost.core.allocation import Part
from roost.core.ledger import Ledger
from roost.core.plan import Placer
from roost.core.spec import WHOLE, Costs, JobId, JobSpec, NodeSpec, Range, Shape, Training
from roost.errors import InvalidSpec
from roost.sim.simulation import MakeWorld
from roost.sim.worlds.learning import LearningWorld, limits_of, split, steps_at
from roost.traces.profiles import Application, Choice, Counts, Tables
from roost.traces.sia import SiaJob
from roost.traces.workload import TraceJob, Workload

#: Policies under which the jobs of a Sia trace adapt; under all others they are tuned jobs.
ADAPTIVE = frozenset({"sia", "pollux", "roost"})
#: Restart costs that are declared in Sia's benchmark, where they are not the true ones.
DECLARED_S = {"cifar10": 30.0, "yolov3": 45.0}
_SIA_WORKERS = Range(1, 64)


class Terms(NamedTuple):
    """On what terms a policy takes part.

    ``adaptive``: jobs of a Sia trace choose their size and batch, else they are tuned jobs.
    ``library``: what was measured of an application's jobs helps its later ones. ``capped``: the
    batch that a policy expects a job to use is at most that of the tuned job, a quirk of Sia's own
    simulation.
    """

    adaptive: bool
    library: bool = False
    capped: bool = False

    @classmethod
    def of(cls, text: str) -> Terms:
        """The terms of a policy by its name and parameters."""
        name, _, settings = text.partition(":")
        library = name == "roost" and "library=no" not in settings.split(",")
        return cls(name in ADAPTIVE, library, capped=name == "sia")


@dataclass(frozen=True, slots=True)
class Learning:
    """The truth about applications, and the rows of a Sia trace by job.

    ``any_application``: a job that names no application of the tables is given one of them,
    always the same for the same name. ``restart_s`` replaces what every restart costs.
    """

    tables: Tables
    rows: Mapping[JobId, SiaJob] = field(default_factory=dict)
    any_application: bool = False
    restart_s: float | None = None

    def prepare(
        self, workload: Workload, nodes: Sequence[NodeSpec], policy_text: str
    ) -> tuple[Workload, MakeWorld]:
        """The jobs that learn under a policy, and their world; raises InvalidSpec for others."""
        terms = Terms.of(policy_text)
        cluster = _Kinds(nodes)
        jobs: list[TraceJob] = []
        totals: dict[JobId, int] = {}
        for job in workload.jobs:
            found, total = self._job(job, cluster, terms)
            jobs.append(found)
            if total:
                totals[job.id] = total
        world = partial(
            LearningWorld,
            tables=self.tables,
            totals=totals,
            library=terms.library,
            restart_s=self.restart_s,
        )
        return Workload(workload.name, jobs, workload.nodes, workload.skipped), world

    def _job(self, job: TraceJob, cluster: _Kinds, terms: Terms) -> tuple[TraceJob, int]:
        application = self._application(job)
        cluster.check(application)
        row = self.rows.get(job.id)
        if row is None:
            found, total = _scaled(job, application, cluster)
        elif terms.adaptive:
            spec = adaptive(application, row, terms)
            found, total = replace(job, spec=spec, work_s=application.work), 0
        else:
            spec = tuned(application, row, cluster.gpus, cluster.per_node)
            work = steps_at(application, row.batch)[-1]
            found, total = replace(job, spec=spec, work_s=work), row.batch
        spec = replace(found.spec, min_run_s=job.spec.min_run_s)
        if self.restart_s is not None:
            spec = replace(spec, costs=Costs(restart_s=self.restart_s, resize_s=self.restart_s))
        return replace(found, spec=spec), total

    def _application(self, job: TraceJob) -> Application:
        name = job.spec.application
        known = self.tables.applications
        if name not in known and self.any_application:
            digest = hashlib.sha256((name or job.id).encode()).digest()
            return known[sorted(known)[digest[0] % len(known)]]
        if name not in known:
            raise InvalidSpec(
                f"job {job.id} cannot learn: there are no profiles of its application {name!r}; "
                f"there are those of {', '.join(known)}"
            )
        return known[name]


def one_kind(place: Placer, fastest: Sequence[str], ledger: Ledger, shape: Shape) -> Parts:
    """GPUs of one kind, the fastest on which there is room, as ``place`` finds them."""
    if shape.resources.kinds:
        return place(ledger, shape)
    for kind in fastest:
        resources = replace(shape.resources, kinds=(kind,))
        parts = place(ledger, replace(shape, resources=resources))
        if parts is not None:
            return parts
    return None


Parts = tuple[Part, ...] | None


def one_kind_placer(place: Placer, tables: Tables, nodes: Iterable[NodeSpec]) -> Placer:
    """A placer that never mixes GPU kinds: the tables have no speed of such a job."""
    kinds = {node.kind for node in nodes}
    first = next(iter(tables.applications.values()))
    fastest = sorted(
        (kind for kind in kinds if kind in first.steps), key=lambda kind: -first.steps[kind].alone()
    )
    return partial(one_kind, place, fastest)


class _Kinds:
    """GPUs of a cluster by kind: in all, and on a node."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self.gpus: dict[str, int] = defaultdict(int)
        self.per_node: dict[str, int] = defaultdict(int)
        for node in nodes:
            self.gpus[node.kind] += node.gpus
            self.per_node[node.kind] = max(self.per_node[node.kind], node.gpus)

    def check(self, application: Application) -> None:
        """Raise InvalidSpec for a kind of which the application has no step times."""
        for kind in self.gpus:
            if kind not in application.steps:
                raise InvalidSpec(
                    f"there are no profiles of {application.name} on GPUs of kind {kind!r}; "
                    f"there are those of {', '.join(application.steps)}"
                )


# -- jobs of Sia's traces ----------------------------------------------------------------------


def adaptive(application: Application, row: SiaJob, terms: Terms) -> JobSpec:
    """A job that chooses its size and its batch."""
    most = max(row.batch, application.batch) if terms.capped else application.batch_max
    return JobSpec(
        workers=_SIA_WORKERS,
        application=application.name,
        costs=_costs(application),
        training=_training(application, application.batch, most),
    )


def tuned(
    application: Application, row: SiaJob, gpus: Mapping[str, int], per_node: Mapping[str, int]
) -> JobSpec:
    """A job with the workers and the batch of its row, and its true speed on every kind."""
    return JobSpec(
        workers=Range(row.workers, row.workers),
        application=application.name,
        costs=_costs(application),
        training=_training(application, row.batch, 0),
        rates=_rates(application, row.workers, row.batch, gpus, per_node),
    )


def _rates(
    application: Application,
    workers: int,
    batch: int,
    gpus: Mapping[str, int],
    per_node: Mapping[str, int],
) -> tuple[tuple[str, float], ...]:
    return tuple(
        (kind, steps_per_s(application, kind, packed(per_node[kind], workers), batch))
        for kind, count in gpus.items()
        if workers <= count
    )


def packed(per_node: int, gpus: int) -> Counts:
    """So many GPUs on as few nodes as can be: full ones, and a rest."""
    whole, rest = divmod(gpus, per_node)
    return (*[per_node] * whole, *([rest] if rest else []))


def steps_per_s(application: Application, kind: str, counts: Counts, batch: int) -> float:
    """Steps per second of a job with a fixed batch."""
    local, accumulation = _fixed(application, kind, counts, batch)
    time = application.steps[kind].time(counts, local)
    return 1 / time.accumulated(accumulation) / application.slowdown


def _fixed(application: Application, kind: str, counts: Counts, batch: int) -> Choice:
    local, accumulation = split(batch, sum(counts), limits_of(application, kind))
    return Choice(min(local, application.steps[kind].most_local(counts)), accumulation)


def _costs(application: Application) -> Costs:
    declared_s = DECLARED_S.get(application.name, application.penalty_s)
    return Costs(restart_s=declared_s, resize_s=declared_s)


def _training(application: Application, batch: int, batch_max: int) -> Training:
    steps = application.steps
    return Training(
        batch=batch,
        batch_max=batch_max,
        epochs=application.epochs,
        local_min=min(own.local_min for own in steps.values()),
        local_max=tuple((kind, own.local_max) for kind, own in steps.items()),
        alone=tuple((kind, own.alone()) for kind, own in steps.items()),
    )


# -- jobs of other workloads -------------------------------------------------------------------


def _scaled(job: TraceJob, application: Application, cluster: _Kinds) -> tuple[TraceJob, int]:
    """A job that takes its run time at its least size, and its batch if that is fixed."""
    spec = job.spec
    per_worker = _gpus_per_worker(job)
    workers = Range(spec.workers.min * per_worker, spec.workers.max * per_worker)
    kind = _reference(job, cluster, workers.min)
    counts = packed(cluster.per_node[kind], workers.min)
    batch = min(max(application.batch, workers.min), application.batch_max)
    own = replace(
        spec,
        workers=workers,
        resources=replace(spec.resources, gpus=1),
        application=application.name,
        run_time_s=None,
        costs=Costs(restart_s=application.penalty_s, resize_s=application.penalty_s),
    )
    if workers.min < workers.max:
        training = _training(application, application.batch, application.batch_max)
        choice = _fixed(application, kind, counts, batch)
        rate, total = application.rate(kind, counts, choice, 0), 0
    else:
        training = _training(application, batch, 0)
        rate, total = steps_per_s(application, kind, counts, batch), batch
        rates = _rates(application, workers.min, batch, cluster.gpus, cluster.per_node)
        own = replace(own, rates=rates)
    return (
        replace(
            job,
            spec=replace(own, training=training),
            work_s=job.work_s * rate,
            fails_at_s=tuple(at * rate for at in job.fails_at_s),
        ),
        total,
    )


def _gpus_per_worker(job: TraceJob) -> int:
    """GPUs of a worker, each of which becomes a worker; raises InvalidSpec for what cannot be."""
    needs = job.spec.resources
    why = ""
    if job.spec.roles:
        why = "it has workers of several roles"
    elif needs.gpus < 1:
        why = "it uses no GPU"
    elif needs.share_milli != WHOLE:
        why = "it uses a part of a GPU"
    if why:
        raise InvalidSpec(f"job {job.id} cannot learn: {why}, and a learner has whole GPUs")
    return needs.gpus


def _reference(job: TraceJob, cluster: _Kinds, workers: int) -> str:
    """The GPU kind on which the run time was recorded: the first that the job may use."""
    allowed = job.spec.resources.kinds or tuple(cluster.gpus)
    for kind in allowed:
        if cluster.gpus.get(kind, 0) >= workers:
            return kind
    return next((kind for kind in allowed if kind in cluster.gpus), next(iter(cluster.gpus)))
