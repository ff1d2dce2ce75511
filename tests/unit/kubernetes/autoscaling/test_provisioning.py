"""Jobs that ask by ProvisioningRequests: what they ask, and what the answers do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.kubernetes.autoscaling.test_node_requests import placeholders
from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost.kubernetes.autoscaling import node_requests
from roost.kubernetes.client.kinds import (
    NODES,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    Object,
)
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.workload import SourceFactory

CLASS = "best-effort-atomic-scale-up"


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def asking(cluster: SmallCluster, by_class: str = CLASS, *, asks: bool = True) -> SmallCluster:
    """The same cluster with an operator that asks by requests of a class; by none: placeholders."""
    site = Site(provisioning=by_class)
    options = JobOptions(site, placer="consolidate", asks_for_nodes=asks)
    kinds = (*JobController.kinds, *JobController.asking_kinds)
    cluster.opening = SourceFactory(kinds, lambda context: JobController(context, options))
    return cluster


def requests(cluster: SmallCluster) -> dict[str, Object]:
    return {name: one for (_, name), one in cluster.objects(PROVISIONING_REQUESTS).items()}


async def answered(cluster: SmallCluster, name: str, *conditions: str, why: str = "") -> None:
    """What an autoscaler writes on a request."""
    said = [{"type": one, "status": "True", "reason": one, "message": why} for one in conditions]
    body = {"status": {"conditions": said}}
    await cluster.patch(PROVISIONING_REQUESTS, name, body, "default", sub="status")


def reason(cluster: SmallCluster, job: str = "train") -> str:
    return str(cluster.status(job).get("reason", ""))


def test_a_job_asks_for_its_whole_gang_with_one_request_and_runs_on_what_comes() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        async with cluster.led():
            await cluster.submit("train", workers=2, gpus=4, pod={"nodeSelector": {"pool": "a"}})
            await cluster.until(lambda: requests(cluster))
            (found,) = requests(cluster).values()
            assert found["metadata"]["name"] == "train-nodes"
            assert found["metadata"]["ownerReferences"][0]["name"] == "train"
            assert found["spec"] == {
                "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
                "podSets": [{"podTemplateRef": {"name": "train-nodes-0"}, "count": 2}],
            }
            template = cluster.objects(POD_TEMPLATES)["default", "train-nodes-0"]["template"]
            assert template["spec"]["nodeSelector"] == {"pool": "a"}
            (container,) = template["spec"]["containers"]
            assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
            await cluster.until(lambda: "2 workers were asked for at" in reason(cluster))
            await answered(cluster, "train-nodes", "Accepted")
            await cluster.until(lambda: "the autoscaler has accepted that" in reason(cluster))
            said = {"type": "Provisioned", "status": "False", "message": "capacity is not found"}
            body = {"status": {"conditions": [said]}}
            await cluster.patch(PROVISIONING_REQUESTS, "train-nodes", body, "default", sub="status")
            await cluster.until(
                lambda: "the autoscaler says: capacity is not found" in reason(cluster)
            )
            await answered(cluster, "train-nodes", "Accepted", "Provisioned")
            await cluster.until(lambda: "they are provisioned" in reason(cluster))
            for name in ("a", "b"):
                cluster.node(name)
                node = cluster.objects(NODES)["", name]
                node["metadata"]["labels"]["pool"] = "a"
                cluster.put(NODES, ("", name), node)
            await cluster.reaches("train", "running")
            notes = cluster.objects(PODS)["default", "train-1-worker-0"]["metadata"]["annotations"]
            assert notes["autoscaling.x-k8s.io/consume-provisioning-request"] == "train-nodes"
            assert notes["autoscaling.x-k8s.io/provisioning-class-name"].startswith(CLASS)
            await cluster.until(lambda: not requests(cluster))
            assert not cluster.objects(POD_TEMPLATES)
            assert placeholders(cluster) == []

    play(scenario())


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        (("Failed",), "its ProvisioningRequest failed: there is no such machine"),
        (("Provisioned", "BookingExpired"), "are kept no longer"),
        (("Provisioned", "CapacityRevoked"), "were taken away"),
    ],
)
def test_a_request_that_ends_without_nodes_is_told_and_made_again_after_a_rest(
    monkeypatch: pytest.MonkeyPatch, conditions: tuple[str, ...], told: str
) -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        async with cluster.led():
            await cluster.submit("train", gpus=4)
            await cluster.until(lambda: requests(cluster))
            first = requests(cluster)["train-nodes"]["metadata"]["uid"]
            await answered(cluster, "train-nodes", *conditions, why="there is no such machine")
            await cluster.until(lambda: told in reason(cluster))
            assert "asked for again at" in reason(cluster)
            await cluster.until(
                lambda: (
                    requests(cluster)
                    and requests(cluster)["train-nodes"]["metadata"]["uid"] != first
                )
            )

    monkeypatch.setattr(node_requests, "_REST_S", (0.3, 0.3))
    play(scenario())


def test_workers_of_other_needs_have_templates_of_their_own() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster(), "check-capacity")
        async with cluster.led():
            roles = {"server": {"workers": 2, "resources": {"cpu": 4}, "run": "serve"}}
            await cluster.submit("train", workers=3, gpus=1, roles=roles)
            await cluster.until(lambda: requests(cluster))
            spec = requests(cluster)["train-nodes"]["spec"]
            assert spec["provisioningClassName"] == "check-capacity.autoscaling.x-k8s.io"
            assert [one["count"] for one in spec["podSets"]] == [3, 2]
            assert len(cluster.objects(POD_TEMPLATES)) == 2

    play(scenario())


def test_without_such_a_kind_placeholders_ask_until_it_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        cluster.unserved.add(PROVISIONING_REQUESTS)
        async with cluster.led():
            await cluster.submit("train", gpus=4)
            await cluster.until(lambda: placeholders(cluster))
            assert not requests(cluster)
            cluster.unserved.clear()
            await cluster.until(lambda: requests(cluster) and not placeholders(cluster))
        said = [one for one in caplog.messages if "by placeholders until it has" in one]
        assert len(said) == 1, caplog.messages

    monkeypatch.setattr(node_requests, "_DISCOVER_S", 0.05)
    caplog.set_level(logging.INFO)
    play(scenario())


def test_another_way_withdraws_what_was_asked_by_the_first() -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster())
        await cluster.submit("train", gpus=4)
        async with cluster.led():
            await cluster.until(lambda: requests(cluster))
        asking(cluster, "check-capacity")
        async with cluster.led():
            await cluster.until(
                lambda: "check-capacity" in str(requests(cluster).get("train-nodes"))
            )
        asking(cluster, "")
        async with cluster.led():
            await cluster.until(lambda: placeholders(cluster) and not requests(cluster))
        asking(cluster)
        async with cluster.led():
            await cluster.until(lambda: requests(cluster) and not placeholders(cluster))
        asking(cluster, asks=False)
        async with cluster.led():
            await cluster.until(lambda: not requests(cluster) and not placeholders(cluster))

    play(scenario())


def test_lost_requests_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        cluster = asking(SmallCluster(seed=3, faults=0.5))
        async with cluster.led():
            await cluster.submit("train", workers=2, gpus=4)
            await cluster.until(lambda: requests(cluster))
            cluster.node("a")
            cluster.node("b")
            await cluster.reaches("train", "running")
            await cluster.until(
                lambda: not requests(cluster) and not cluster.objects(POD_TEMPLATES)
            )

    monkeypatch.setattr(node_requests, "_REST_S", (0.02, 0.1))
    play(scenario())


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare often, and keep what the cluster made on a day long ago."""
    monkeypatch.setattr(node_requests, "_LOOK_S", 0.01)
    monkeypatch.setattr(node_requests, "PATIENCE_S", 1e12)
