"""Nodes that come, change, are not ready for too long, and go."""

from __future__ import annotations

from tests.unit.kubernetes.operator.objects import node

from roost import placement, policies
from roost.core import Core, NodeChanged, NodeId, NodeJoined, NodeLost
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.constraints import Pools
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.operator.nodes import ClusterNodes

N = NodeId("n")


class Yard:
    """A fleet with a core that hears of it."""

    def __init__(self) -> None:
        self.core = Core(policies.policy("fifo"), placement.placer("pack"))
        self.pools = Pools()
        self.nodes = ClusterNodes(self.core, self.pools, lost_s=60.0)
        pod: Object = {"spec": {"containers": [{}]}, "metadata": {"name": "p"}}
        self.pool = self.pools.add(needs(pod).constraints)

    def told(self, now: float = 0.0) -> list[type]:
        """What the core hears now."""
        events = []
        for event in self.nodes.events(now):
            self.core.fold(event)
            events.append(type(event))
        return events


def test_a_node_joins_changes_and_is_lost() -> None:
    yard = Yard()
    yard.nodes.changed(None, node("n"))
    assert yard.told() == [NodeJoined]
    assert yard.pools[yard.pool] == {N}
    yard.nodes.changed(node("n"), node("n", 4))
    assert yard.told() == [NodeChanged]
    yard.nodes.changed(node("n", 4), None)
    assert yard.told() == [NodeLost]
    assert yard.pools[yard.pool] == frozenset()
    assert yard.nodes.is_gone("n")


def test_a_heartbeat_is_no_change() -> None:
    yard = Yard()
    yard.nodes.changed(None, node("n"))
    yard.told()
    beat = node("n")
    beat["metadata"]["resourceVersion"] = "17"
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "now"
    yard.nodes.changed(node("n"), beat)
    assert not yard.nodes.dirty


def test_a_node_that_is_not_ready_leaves_its_pools_at_once_and_is_lost_later() -> None:
    yard = Yard()
    yard.nodes.changed(None, node("n"))
    yard.told()
    yard.nodes.changed(node("n"), node("n", ready=False))
    assert yard.told(10.0) == []
    assert yard.pools[yard.pool] == frozenset()
    assert yard.nodes.look(20.0) == 70.0
    assert yard.told(20.0) == []
    yard.nodes.look(70.0)
    assert yard.told(70.0) == [NodeLost]
    yard.nodes.changed(node("n", ready=False), node("n"))
    assert yard.told(80.0) == [NodeJoined]
    assert yard.pools[yard.pool] == {N}


def test_a_node_that_is_out_of_service_is_lost() -> None:
    yard = Yard()
    yard.nodes.changed(None, node("n"))
    yard.told()
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    yard.nodes.changed(node("n"), node("n", taints=[taint]))
    assert yard.told() == [NodeLost]
    assert yard.nodes.is_gone("n")


def test_a_shunned_node_is_in_no_pool_until_all_have_forgiven_it() -> None:
    yard = Yard()
    yard.nodes.changed(None, node("n"))
    yard.told()
    yard.nodes.close(N, "one")
    yard.nodes.close(N, "two")
    yard.nodes.reopen(N, "one")
    assert yard.pools[yard.pool] == frozenset()
    yard.nodes.reopen(N, "two")
    assert yard.pools[yard.pool] == {N}
    assert yard.nodes.closed == 0


def test_a_node_that_cannot_be_is_left_out() -> None:
    yard = Yard()
    odd = node("n")
    odd["status"]["allocatable"]["cpu"] = "many"
    yard.nodes.changed(None, odd)
    assert yard.told() == []
