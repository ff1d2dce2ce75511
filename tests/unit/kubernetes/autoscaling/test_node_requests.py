"""Jobs that wait for room ask for nodes, and for no more than would help them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost.kubernetes.autoscaling import node_requests
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, NODES, PODS, QUEUES, Object
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.workload import SourceFactory


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def asking(cluster: SmallCluster, *, asks: bool = True) -> SmallCluster:
    """The same cluster with an operator that asks for nodes."""
    options = JobOptions(placer="consolidate", asks_for_nodes=asks)
    cluster.opening = SourceFactory(
        JobController.kinds, lambda context: JobController(context, options)
    )
    return cluster


def placeholders(cluster: SmallCluster) -> list[Object]:
    """Those that say that they wait."""
    found = [pod for pod in cluster.objects(PODS).values() if "-nodes-" in pod["metadata"]["name"]]
    return [pod for pod in found if (pod["status"].get("conditions") or [{}])[0].get("reason")]


def test_a_job_on_an_empty_cluster_asks_for_all_its_nodes_and_then_runs() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        async with cluster.led():
            await cluster.submit("train", workers=2, gpus=4, pod={"nodeSelector": {"pool": "a"}})
            await cluster.until(lambda: len(placeholders(cluster)) == 2)
            for pod in placeholders(cluster):
                (reference,) = pod["metadata"]["ownerReferences"]
                (container,) = pod["spec"]["containers"]
                assert (reference["name"], reference["controller"]) == ("train", False)
                assert pod["spec"]["schedulerName"] == "roost-placeholder"
                assert pod["spec"]["nodeSelector"] == {"pool": "a"}
                assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
                assert pod["status"]["conditions"][0]["reason"] == "Unschedulable"
            await cluster.until(
                lambda: (
                    "nodes for 2 workers were asked for"
                    in cluster.status("train").get("reason", "")
                )
            )
            node(cluster, "a")
            node(cluster, "b")
            await cluster.reaches("train", "running")
            await cluster.until(lambda: not placeholders(cluster))
            assert cluster.pods() == ["train-1-worker-0", "train-1-worker-1"]
            assert "asked for" not in cluster.status("train").get("reason", "")

    play(scenario())


def node(cluster: SmallCluster, name: str) -> None:
    """A node of the pool that the job asks for."""
    cluster.node(name)
    found = cluster.objects(NODES)["", name]
    found["metadata"]["labels"]["pool"] = "a"
    cluster.put(NODES, ("", name), found)


def test_a_job_that_waits_for_others_to_end_asks_until_they_do() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        cluster.node("a")
        async with cluster.led():
            await cluster.submit("first", gpus=4)
            await cluster.reaches("first", "running")
            await cluster.submit("second", gpus=4)
            await cluster.until(lambda: placeholders(cluster))
            cluster.end("first-1-worker-0", 0)
            await cluster.reaches("second", "running")
            await cluster.until(lambda: not placeholders(cluster))

    play(scenario())


def test_the_next_leader_finds_what_was_asked_and_one_that_does_not_ask_removes_it() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        await cluster.submit("train", gpus=4)
        async with cluster.led():
            await cluster.until(lambda: placeholders(cluster))
        before = [pod["metadata"]["uid"] for pod in placeholders(cluster)]
        async with cluster.led():
            await cluster.until(lambda: "asked for" in cluster.status("train").get("reason", ""))
            await asyncio.sleep(0.05)
            assert [pod["metadata"]["uid"] for pod in placeholders(cluster)] == before
        asking(cluster, asks=False)
        async with cluster.led():
            await cluster.until(lambda: not placeholders(cluster))

    play(scenario())


def test_a_queue_s_limit_bounds_what_is_asked() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        limit = {"metadata": {"name": "lab"}, "spec": {"limit": 4}}
        door = {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "lab"}}
        await cluster.create(CLUSTER_QUEUES, limit, "")
        await cluster.create(QUEUES, door, "default")
        async with cluster.led():
            await cluster.submit("large", gpus=8, queue="lab")
            await cluster.submit("one", gpus=4, queue="lab")
            await cluster.submit("two", gpus=4, queue="lab")
            await cluster.submit("held", gpus=4, suspend=True)
            await cluster.until(lambda: placeholders(cluster))
            await asyncio.sleep(0.1)
            assert [pod["metadata"]["name"] for pod in placeholders(cluster)] == [
                "one-nodes-worker-0"
            ]
            await cluster.remove(JOBS, "one")
            await cluster.until(
                lambda: (
                    [pod["metadata"]["name"] for pod in placeholders(cluster)]
                    == ["two-nodes-worker-0"]
                )
            )

    play(scenario())


def test_what_a_tree_of_queues_has_room_for_bounds_what_is_asked() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        promised = {"quota": 4, "parent": "all"}
        for name, spec in (("all", {}), ("lab", promised), ("other", promised)):
            await cluster.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec}, "")
        door = {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "lab"}}
        await cluster.create(QUEUES, door, "default")
        async with cluster.led():
            for name in ("one", "two", "three"):
                await cluster.submit(name, gpus=4, queue="lab")
            await cluster.until(lambda: len(placeholders(cluster)) == 2)
            await asyncio.sleep(0.1)
            # What it was promised, and what the other queue leaves unused.
            assert sorted(pod["metadata"]["name"] for pod in placeholders(cluster)) == [
                "one-nodes-worker-0",
                "two-nodes-worker-0",
            ]
            await cluster.remove(JOBS, "one")
            await cluster.until(
                lambda: (
                    {pod["metadata"]["name"] for pod in placeholders(cluster)}
                    == {"two-nodes-worker-0", "three-nodes-worker-0"}
                )
            )

    play(scenario())


def test_what_brings_nothing_is_withdrawn_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        # In the past: placeholders of this cluster are made on the first of January.
        cluster = asking(SmallCluster())
        async with cluster.led():
            await cluster.submit("train", gpus=4)
            await cluster.until(
                lambda: "no nodes came" in cluster.status("train").get("reason", "")
            )
            await cluster.until(lambda: not placeholders(cluster))

    monkeypatch.setattr(node_requests, "PATIENCE_S", 0.0)
    play(scenario())


def test_lost_requests_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster(seed=3, faults=0.5))
        async with cluster.led():
            await cluster.submit("train", workers=4, gpus=4)
            await cluster.until(lambda: len(placeholders(cluster)) == 4)
            for name in "abcd":
                cluster.node(name)
            await cluster.reaches("train", "running")
            await cluster.until(lambda: not placeholders(cluster))

    monkeypatch.setattr(node_requests, "_REST_S", (0.02, 0.1))
    play(scenario())


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare often, and keep what the cluster made on a day long ago."""
    monkeypatch.setattr(node_requests, "_LOOK_S", 0.01)
    monkeypatch.setattr(node_requests, "PATIENCE_S", 1e12)


def test_what_a_queue_was_promised_asks_for_nodes_although_others_borrowed_it() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        cluster.node("large", gpus=8)
        for name, spec in (
            ("org", {}),
            ("ours", {"parent": "org", "quota": 8}),
            ("theirs", {"parent": "org"}),
        ):
            await cluster.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec}, "")
            door = {"metadata": {"name": name}, "spec": {"clusterQueue": name}}
            await cluster.create(QUEUES, door, "default")
        async with cluster.led():
            await cluster.submit("other", gpus=8)
            await cluster.reaches("other", "running")
            cluster.node("small")
            await cluster.submit("lent", gpus=4, queue="theirs")
            await cluster.reaches("lent", "running")
            # The only node with eight is not the borrower's: room of the quota is not enough.
            await cluster.submit("wide", gpus=8, queue="ours")
            await cluster.until(lambda: placeholders(cluster))
            assert cluster.status("lent")["state"] == "running"

    play(scenario())
