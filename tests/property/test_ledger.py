"""The ledger: whatever is taken, given back, lost and hidden, masks and sums fit the books."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.effort import examples

from roost.core import Ledger, Level, NodeId, NodeSpec, Part, Resources, Role, Shape
from roost.errors import Conflict
from roost.placement import PLACERS, placer
from roost.testing.builders import worker
from roost.testing.checks import mask_problems
from roost.testing.gang_checks import gang_problems, strangers
from roost.testing.strategies import POOLS, clusters, nodes, roles, workers
from roost.testing.usage import DeviceUsage

Taken = list[tuple[Part, Resources]]


class LedgerMachine(RuleBasedStateMachine):
    """Takes gangs through placers, gives them back in any order, and breaks things meanwhile."""

    @initialize(cluster=clusters())
    def begin(self, cluster: list[NodeSpec]) -> None:
        self.ledger = Ledger()
        self.cluster = {spec.id: spec for spec in cluster}
        self.taken: list[Taken] = []
        for spec in cluster:
            self.ledger.join(spec)

    @rule(
        data=st.data(),
        where=st.sampled_from(sorted(PLACERS)),
        need=workers(),
        count=st.sampled_from((1, 1, 2, 3, 6)),
        extra=roles(),
        hide=st.booleans(),
    )
    def take(
        self,
        data: st.DataObject,
        where: str,
        need: Resources,
        count: int,
        extra: tuple[Role, ...],
        hide: bool,  # noqa: FBT001
    ) -> None:
        within = data.draw(st.sampled_from((None, None, *Level)), label="within")
        shape = Shape(count, need, extra, within)
        reserved = placer("pack")(self.ledger, Shape(1, worker(1))) or () if hide else ()
        with self.ledger.hidden([(part, worker(1)) for part in reserved]):
            parts = placer(where)(self.ledger, shape)
        if parts is None:
            return
        assert gang_problems(self.ledger, shape, parts) == []
        assert strangers(self.ledger, shape, parts) == []
        devices = {(part.node, gpu) for part in parts for gpu in part.gpus}
        assert devices.isdisjoint((part.node, gpu) for part in reserved for gpu in part.gpus)
        needs = {role.name: role.resources for role in shape.roles}
        gang = [(part, needs.get(part.role, need)) for part in parts]
        for part, wanted in gang:
            self.ledger.take(part, wanted)
        self.taken.append(gang)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.taken) - 1), label="gang")
        for part, need in self.taken.pop(index):
            self.ledger.release(part, need)

    @rule(data=st.data())
    def lose_or_join(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster)), label="node")
        if self.ledger.nodes[name].up:
            self.ledger.lose(name)
        else:
            self.ledger.join(self.cluster[name])

    @rule(data=st.data(), pool=st.sampled_from(POOLS))
    def change_pool(self, data: st.DataObject, pool: str) -> None:
        names = st.sampled_from((*self.cluster, NodeId("unknown")))
        self.ledger.set_pool(pool, frozenset(data.draw(st.lists(names), label="members")))

    @rule(pool=st.sampled_from(POOLS))
    def drop_pool(self, pool: str) -> None:
        self.ledger.drop_pool(pool)
        assert pool not in self.ledger.pools
        assert not self.ledger.eligible(Resources(pool=pool))

    @rule(data=st.data())
    def change_node(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster)), label="node")
        other = data.draw(nodes(name), label="hardware")
        if self.ledger.nodes[name].up:
            booked = [each for gang in self.taken for each in gang if each[0].node == name]
            try:
                self.ledger.change(other, booked)
            except Conflict:
                return
            self.cluster[name] = other

    @rule(data=st.data(), healthy=st.booleans())
    def break_or_repair(self, data: st.DataObject, healthy: bool) -> None:  # noqa: FBT001
        devices = [(name, gpu) for name, spec in self.cluster.items() for gpu in range(spec.gpus)]
        if devices:
            name, gpu = data.draw(st.sampled_from(devices), label="GPU")
            self.ledger.set_health(name, gpu, healthy=healthy)

    @invariant()
    def fits(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert list(mask_problems(self.ledger)) == []
        total = DeviceUsage()
        for gang in self.taken:
            for part, need in gang:
                for gpu in part.gpus:
                    total.milli[part.node, gpu] += part.share_milli
                    total.limits.append((part.node, gpu, need))
                total.cpu[part.node] += part.workers * need.cpu_milli
                total.memory[part.node] += part.workers * need.memory_mib
                total.workers[part.node] += part.workers
        assert total.beyond(self.cluster) == []

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for gang in self.taken:
            for part, need in gang:
                self.ledger.release(part, need)
        for name, spec in self.cluster.items():
            node = self.ledger.nodes[name]
            assert (node.taken, node.shared) == (0, {})
            assert (node.cpu_left, node.memory_left) == (spec.cpu_milli, spec.memory_mib)
            assert node.workers_left == spec.workers
            for gpu in range(spec.gpus):
                self.ledger.set_health(name, gpu, healthy=True)
            if not node.up:
                self.ledger.join(spec)
        assert self.ledger.free_milli == sum(spec.gpus for spec in self.cluster.values()) * 1000
        self.taken = []
        self.fits()


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=examples(60), stateful_step_count=30)


@given(clusters(), workers(), st.integers(1, 6), roles(), st.data())
@settings(max_examples=examples(60))
def test_placers_agree_on_what_can_never_be_placed(
    cluster: list[NodeSpec],
    need: Resources,
    count: int,
    extra: tuple[Role, ...],
    data: st.DataObject,
) -> None:
    """Where the freest placer finds no room on an empty cluster, none does."""
    ledger = Ledger()
    for spec in cluster:
        ledger.join(spec)
    shape = Shape(count, need, extra)
    if placer("anywhere")(ledger, shape) is None and not extra:
        other = data.draw(st.sampled_from(sorted(PLACERS)), label="placer")
        assert placer(other)(ledger, shape) is None
