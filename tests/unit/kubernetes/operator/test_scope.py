"""An operator that serves some namespaces: what it leaves alone, what it counts all the same."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import pytest
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node, pod

from roost.core import JobId, Launch, NodeId
from roost.errors import InvalidSpec, Retryable
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.faults import Unpermitted
from roost.kubernetes.client.kinds import JOBS, NAMESPACES, NODES, PODS, Object, ResourceKind
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.objects.nodes import node_spec
from roost.kubernetes.operator.loop import Operator, OperatorOptions
from roost.kubernetes.operator.scope import OTHERS, NamespaceScope, namespaces_of
from roost.kubernetes.operator.workload import SourceFactory


def annotated(found: Object, **notes: str) -> Object:
    made = copy.deepcopy(found)
    made["metadata"]["annotations"] = {OTHERS: notes["others"]} if notes else {}
    return made


def test_names_are_read_as_people_write_them() -> None:
    assert namespaces_of("") == ()
    assert namespaces_of(" a, b,a ,c-1,") == ("a", "b", "c-1")
    for text in ("a b", "A", "-a", "a-", "a/b", "*", ",", "a" * 64, "ü"):
        with pytest.raises(InvalidSpec):
            namespaces_of(text)


def test_all_are_served_unless_some_are_named() -> None:
    assert NamespaceScope().has("any")
    assert NamespaceScope(("a",)).has("a")
    assert not NamespaceScope(("a",)).has("b")


def in_space(found: Object, namespace: str) -> Object:
    made = copy.deepcopy(found)
    made["metadata"]["namespace"] = namespace
    return made


def test_pods_of_other_namespaces_take_room_and_are_left_alone() -> None:
    others = [in_space(one, "theirs") for one in gang("dogs", 2)]
    there = in_space(pod("big", 6), "theirs")
    there["spec"]["nodeName"] = "n1"
    cluster = Cluster(node("n1"), *gang("cats", 2), *others, there, scope=NamespaceScope((SPACE,)))

    actions = cluster.decide()

    assert [one.run.job for one in actions if isinstance(one, Launch)] == ["lab.group.cats"]
    assert cluster.core.ledger.free_milli == 0
    assert JobId("theirs.other.big") in cluster.core.jobs
    assert not any("dogs" in job for job in cluster.core.jobs)


def test_a_pod_of_a_job_elsewhere_is_no_orphan() -> None:
    worker = in_space(pod("birds-1-worker-0", 1), "theirs")
    worker["spec"]["nodeName"] = "n1"
    owner = {"apiVersion": JOBS.api_version, "kind": "Job", "name": "birds", "controller": True}
    worker["metadata"]["ownerReferences"] = [{**owner, "uid": "u"}]
    jobs = SourceFactory(JobController.kinds, JobController)
    cluster = Cluster(node("n1"), worker, sources=[jobs], scope=NamespaceScope((SPACE,)))
    assert list(cluster.core.jobs) == ["theirs.other.birds-1-worker-0"]


@pytest.mark.parametrize(
    ("text", "cpu", "memory", "gpus"),
    [
        ("none", 128_000, 1 << 20, 8),
        ("cpu=1500m,memory=4Gi", 126_500, (1 << 20) - 4096, 8),
        (" cpu = 1000 , nvidia.com/gpu=3 ", 1, 1 << 20, 5),
        ("example.org/none=5", 128_000, 1 << 20, 8),
    ],
)
def test_what_others_take_at_most_is_taken_off(text: str, cpu: int, memory: int, gpus: int) -> None:
    found = node("n1")
    found["status"]["allocatable"] |= {"cpu": "128", "memory": "1Ti"}
    spec = node_spec(NamespaceScope(("a",), is_blind=True).of_node(annotated(found, others=text)))
    assert (spec.cpu_milli, spec.memory_mib, spec.gpus) == (cpu, memory, gpus)


@pytest.mark.parametrize("text", ["", " ", "cpu", "cpu=", "=1", "cpu=-1", "cpu=1;memory=2", "all"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match=OTHERS):
        NamespaceScope(("a",), is_blind=True).of_node(annotated(node("n1"), others=text))


def test_a_blind_operator_uses_nodes_with_a_promise_alone() -> None:
    promised = annotated(node("n2"), others="nvidia.com/gpu=2")
    cluster = Cluster(
        *(node("n1"), promised, *gang("cats", 2, gpus=4)),
        scope=NamespaceScope((SPACE,), is_blind=True),
    )
    assert list(cluster.reconciler.nodes.unknown) == ["n1"]
    assert not any(isinstance(one, Launch) for one in cluster.decide())

    cluster.put(annotated(node("n1"), others="none"))
    (launch,) = [one for one in cluster.decide() if isinstance(one, Launch)]
    nodes = {part.node for part in launch.allocation.parts}
    assert "n1" in nodes
    assert not cluster.reconciler.nodes.unknown

    cluster.put(annotated(node("n1")))  # the promise is taken back: what runs there stays
    cluster.put(*gang("dogs", 1))
    assert cluster.core.ledger.nodes[NodeId("n1")].here
    assert all("n1" not in str(one) for one in cluster.decide())


class Closed:
    """An API server that lets some namespaces be read, and pods everywhere or not."""

    def __init__(self, *open_: str, pods: bool = True) -> None:
        self.open, self.pods = set(open_), pods
        self.asked = 0

    def objects(self, kind: ResourceKind) -> list[Object]:
        if kind is NODES:
            return [{**node("n1"), "metadata": {**node("n1")["metadata"], "resourceVersion": "1"}}]
        if kind is NAMESPACES:
            return [{"metadata": {"name": n, "resourceVersion": "1"}} for n in ("a", "b")]
        return []

    async def pages(self, kind: ResourceKind, namespace: str = "", **_: Any) -> Any:
        self.asked += 1
        everywhere = not kind.namespaced or (kind is PODS and self.pods and not namespace)
        if not everywhere and namespace not in self.open:
            raise Unpermitted("list", kind.resource, namespace)
        yield True, self.objects(kind), "1"

    async def list(self, kind: ResourceKind, namespace: str = "", **_: Any) -> Any:
        pages = self.pages(kind, namespace)
        _, *found = await anext(pages)
        return found

    async def watch(self, kind: ResourceKind, version: str, *_: Any, **__: Any) -> Any:
        yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
        await asyncio.sleep(3600)
        raise Retryable(f"{kind.plural} ended", 1.0)

    async def get(self, *_: Any) -> Any:
        raise Retryable("no lease here", 3600)


def operator(server: Closed, *namespaces: str) -> Operator:
    options = OperatorOptions(namespaces=namespaces, metrics_port=None)
    jobs = SourceFactory(JobController.kinds, JobController)
    return Operator(cast("Api", server), options, [jobs])


async def soon(made: Operator, look: Any) -> None:
    task = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(30):
            while not look():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_namespace_that_may_not_be_read_keeps_none_of_the_others() -> None:
    server = Closed("a")
    made = operator(server, "a", "b")

    asyncio.run(soon(made, lambda: made.synced))

    assert made.served == ("a",)
    assert made.left_alone("b").startswith("no permission to")
    assert not made.is_blind
    assert server.asked < 120  # no mirror asks again and again for what it may not have


def test_without_the_right_to_see_all_pods_it_knows_that_it_is_blind() -> None:
    made = operator(Closed("a", "b", pods=False), "a", "b")
    asyncio.run(soon(made, lambda: made.synced))
    assert made.served == ("a", "b")
    assert made.is_blind
