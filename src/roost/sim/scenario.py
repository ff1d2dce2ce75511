"""A scenario: everything about a simulation except the policy and the seed.

It is a plain value that travels to other processes; ``setup`` makes a run of it. What a seed
changes: the generated workload, failures, and errors of run-time estimates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from roost.core.demand import Counts
from roost.core.spec import NodeId, NodeSpec, QueueSpec
from roost.errors import InvalidSpec
from roost.perf.speed import Speed, SpeedModel
from roost.placement import placer
from roost.policies import policy
from roost.sim.failures import Failures
from roost.sim.learning import Learning, one_kind_placer
from roost.sim.pairs import holding_memory, packable, with_memory
from roost.sim.simulation import MakeWorld, Setup
from roost.sim.worlds.rates import World
from roost.sim.worlds.sharing import SharingWorld
from roost.traces.generate import Synthetic, generate
from roost.traces.workload import TraceJob, Workload

#: Beyond that, estimates are infinite or zero.
_WILD = 10.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload, a cluster, and the physics between them.

    ``costs`` (by the names of the fields of ``Costs``) and ``min_run_s`` replace those of every
    job. ``estimate_error`` is the spread of a log-normal error on declared run times, at most 10;
    None: as the workload has them. ``packable``: jobs of one GPU may share it.
    With ``learning`` its jobs learn; ``speed`` is not used then.
    """

    workload: Workload | Synthetic
    nodes: Sequence[NodeSpec]
    queues: Sequence[QueueSpec] = ()
    speed: SpeedModel = field(default_factory=Speed)
    failures: Failures = field(default_factory=Failures)
    costs: Mapping[str, float] = field(default_factory=dict)
    min_run_s: float | None = None
    estimate_error: float | None = None
    #: Jobs declare their true run time with a log-normal error of this spread; None: as recorded.
    declared_error: float | None = None
    skip_impossible: bool = False
    timeline: bool = False
    learning: Learning | None = None
    #: What is known beforehand of what jobs ask for, to placers that go by that.
    typical: Counts = ()
    packable: bool = False

    def __post_init__(self) -> None:
        """Refuse errors that cannot be drawn, and two things of one name."""
        for name in ("estimate_error", "declared_error"):
            error = getattr(self, name)
            if error is not None and not 0 <= error <= _WILD:
                raise InvalidSpec(f"{name} must be from 0 to {_WILD:g}, got {error}")
        _check_names("queue", (queue.id for queue in self.queues))
        _check_names("node", (node.id for node in self.nodes))

    @property
    def random(self) -> bool:
        """Whether another seed gives another run."""
        failing = self.failures.node_mtbf_s is not None or self.failures.gpu_mtbf_s is not None
        wrong = bool(self.estimate_error or self.declared_error)
        return failing or wrong or isinstance(self.workload, Synthetic)

    @staticmethod
    def check_names(policy_text: str, placer_name: str) -> None:
        """Refuse names that nothing carries, before anything is read."""
        policy(policy_text)
        placer(placer_name)

    def setup(self, policy_text: str, placer_name: str, seed: int) -> Setup:
        """One run of this scenario."""
        workload, where = self._jobs(seed), placer(placer_name, self.typical)
        world: MakeWorld = World
        nodes, pairs = self.nodes, getattr(self.speed, "pairs", None)
        if pairs is not None:
            nodes, world = with_memory(nodes), SharingWorld
            workload = holding_memory(workload, nodes, pairs)
        if self.learning is not None:
            workload, world = self.learning.prepare(workload, self.nodes, policy_text)
            where = one_kind_placer(where, self.learning.tables, self.nodes)
        return Setup(
            workload=workload,
            nodes=nodes,
            policy=policy(policy_text),
            placer=where,
            world=world,
            policy_name=policy_text,
            placer_name=placer_name,
            queues=self.queues,
            speed=self.speed,
            failures=self.failures,
            seed=seed,
            skip_impossible=self.skip_impossible,
            timeline=self.timeline,
        )

    def _jobs(self, seed: int) -> Workload:
        workload = self.workload
        if isinstance(workload, Synthetic):
            workload = generate(replace(workload, seed=workload.seed + seed))
        if self.packable:
            workload = packable(workload)
        changes = (self.costs, self.min_run_s is not None, self.estimate_error)
        if not any(changes) and self.declared_error is None:
            return workload
        chance = Random(f"estimates/{seed}")  # noqa: S311 - not for secrets
        jobs = [self._changed(job, chance) for job in workload.jobs]
        return Workload(workload.name, jobs, workload.nodes, workload.skipped)

    def _changed(self, job: TraceJob, chance: Random) -> TraceJob:
        spec = job.spec
        if self.costs:
            spec = replace(spec, costs=replace(spec.costs, **self.costs))
        if self.min_run_s is not None:
            spec = replace(spec, min_run_s=self.min_run_s)
        if self.declared_error is not None:
            wrong = chance.lognormvariate(0.0, self.declared_error) if self.declared_error else 1.0
            spec = replace(spec, run_time_s=job.work_s * wrong)
        if self.estimate_error and spec.run_time_s is not None:
            wrong = spec.run_time_s * chance.lognormvariate(0.0, self.estimate_error)
            spec = replace(spec, run_time_s=wrong)
        return replace(job, spec=spec)


def uniform_cluster(  # noqa: PLR0913 - a cluster is what it is
    nodes: int,
    gpus_per_node: int,
    *,
    kind: str = "gpu",
    sockets: int = 1,
    nodes_per_switch: int = 0,
    first: int = 0,
) -> list[NodeSpec]:
    """Nodes that are all alike, hanging on switches in order."""
    if nodes < 1 or gpus_per_node < 1:
        raise InvalidSpec(f"a cluster needs nodes and GPUs, got {nodes} x {gpus_per_node}")
    return [
        NodeSpec(
            id=NodeId(f"node-{number:04d}"),
            gpus=gpus_per_node,
            kind=kind,
            sockets=sockets,
            switch=f"switch-{number // nodes_per_switch:03d}" if nodes_per_switch else "",
        )
        for number in range(first, first + nodes)
    ]


def _check_names(kind: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidSpec(f"{kind} {name!r} is given twice")
