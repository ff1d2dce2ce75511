"""Gangs that have to stay inside a switch, a block or a zone, and nodes that gangs keep."""

from __future__ import annotations

import pytest
from tests.unit.kubernetes.operator.objects import Cluster, gang, node, pod

from roost.core import JobId, JobState, Launch
from roost.kubernetes.client.kinds import PYTORCH_JOBS, Object
from roost.kubernetes.gangs import seat_plans
from roost.kubernetes.gangs.discovery import GangSource

GANG = JobId("lab.group.team")
WITHIN = "roost.dev/within"
SAFE, STAY = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"


def placed(name: str, gpus: int, **where: str) -> Object:
    """A node that says where it is."""
    made = node(name, gpus)
    made["metadata"]["labels"] |= {f"roost.dev/{level}": at for level, at in where.items()}
    return made


def two_blocks() -> list[Object]:
    """Two switches in each of two blocks, with a node of two GPUs each."""
    return [
        placed(f"{block}{switch}", 2, block=block, switch=switch)
        for block in "ab"
        for switch in "12"
    ]


@pytest.mark.parametrize("placer", ["consolidate", "topology", "spread", "compact"])
@pytest.mark.parametrize(("level", "size"), [("switch", 2), ("block", 4)])
def test_a_gang_stays_inside_what_it_demands(placer: str, level: str, size: int) -> None:
    cluster = Cluster(*two_blocks(), *gang("team", size, labels={WITHIN: level}), placer=placer)
    (launch,) = cluster.decide()

    assert isinstance(launch, Launch)
    assert len({name[: 2 if level == "switch" else 1] for name in launch.allocation.nodes}) == 1


def test_a_gang_waits_until_one_domain_has_room_for_all_of_it() -> None:
    first = pod("first", 2, node="a1")
    cluster = Cluster(*two_blocks(), first, *gang("team", 4, labels={WITHIN: "block"}))
    assert isinstance(cluster.decide()[0], Launch)

    cluster = Cluster(*two_blocks(), first, pod("second", 1, node="b2"))
    cluster.put(*gang("team", 4, labels={WITHIN: "block"}))
    assert cluster.decide() == []
    job = cluster.core.jobs[GANG]
    assert job.state is JobState.QUEUED
    cluster.remove(first)
    (launch,) = cluster.decide()
    assert isinstance(launch, Launch)
    assert set(launch.allocation.nodes) == {"a1", "a2"}


def test_a_demand_that_makes_no_sense_is_told_and_placed_nowhere() -> None:
    cluster = Cluster(*two_blocks(), *gang("team", 2, labels={WITHIN: "rack"}))
    assert cluster.decide() == []
    (source,) = (one for one in cluster.reconciler.sources if isinstance(one, GangSource))
    assert source.gangs[GANG].problem == (
        "roost.dev/within is socket, node, switch, block, zone, not 'rack'"
    )


def test_a_demand_that_is_added_to_its_owner_later_counts() -> None:
    master = {"training.kubeflow.org/job-name": "bert"}
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "u"}
    pods = [
        pod(f"bert-{n}", labels=master, ownerReferences=[{**owner, "controller": True}])
        for n in range(4)
    ]
    replicas = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    job: Object = {"metadata": {"name": "bert", "namespace": "lab"}, "spec": replicas}
    known = {PYTORCH_JOBS: {("lab", "bert"): job}}
    full = [pod("first", 2, node="a2"), pod("second", 2, node="b1"), pod("third", 1, node="a1")]
    cluster = Cluster(*two_blocks(), *full, *pods, objects=known)
    assert cluster.decide() == []

    after = {**job, "metadata": {**job["metadata"], "annotations": {WITHIN: "block"}}}
    known[PYTORCH_JOBS][("lab", "bert")] = after
    cluster.reconciler.observe(PYTORCH_JOBS, job, after)
    cluster.remove(full[2])  # room for all, in two blocks
    assert cluster.decide() == []
    cluster.remove(full[0])
    (launch,) = cluster.decide()
    assert isinstance(launch, Launch)
    assert set(launch.allocation.nodes) == {"a1", "a2"}


def test_no_autoscaler_takes_a_node_of_a_gang_unless_its_pod_allows_it() -> None:
    pods = gang("team", 2)
    pods[1]["metadata"]["annotations"][SAFE] = "true"
    cluster = Cluster(node("n", 4), *pods, pod("alone"))
    launches = {one.run.job: one for one in cluster.decide() if isinstance(one, Launch)}

    def notes(job: str, *of_it: Object) -> list[tuple[str | None, str | None]]:
        run = cluster.core.runs[launches[JobId(job)].run]
        known = {one["metadata"]["uid"]: one for one in of_it}
        vacant = seat_plans.vacant(run.allocation, ())
        found = dict(zip(known, vacant, strict=True))
        made = seat_plans.bindings(run, found, known, 64).values()
        return [(one.annotations.get(SAFE), one.annotations.get(STAY)) for one in made]

    assert notes(GANG, *pods) == [("false", "true"), (None, "true")]
    assert notes("lab.pod.alone", pod("alone")) == [(None, None)]
