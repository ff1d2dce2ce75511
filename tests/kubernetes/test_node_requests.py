"""A Job that waits for nodes on a real API server: what autoscalers see of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.kubernetes.jobbing import define, job, jobbing, status
from tests.kubernetes.operating import pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.controller_programs import build_controllers
from tests.support.kubernetes.nodes import nodes, until
from tests.support.kubernetes.real_controllers import define as define_folder

from roost.errors import RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    JOBS,
    NAMESPACES,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    Object,
    ResourceKind,
)
from roost.kubernetes.crds.permissions import roles
from roost.kubernetes.jobs.blueprint import Site

_RBAC = ("rbac.authorization.k8s.io", "v1")
ROLES = {
    "ClusterRole": ResourceKind(*_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    "Role": ResourceKind(*_RBAC, "roles", "Role"),
    "ClusterRoleBinding": ResourceKind(
        *_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "RoleBinding": ResourceKind(*_RBAC, "rolebindings", "RoleBinding"),
}
SPACE = "roost-system"


async def asked(api: Api) -> list[Object]:
    """Placeholders that say that no node has room for them."""
    found = await pods(api, labels="roost.dev/placeholder")
    return [
        pod
        for pod in found
        for condition in pod["status"].get("conditions") or ()
        if (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    ]


async def _is(api: Api, name: str, state: str) -> bool:
    return (await status(api, name)).get("state") == state


def test_a_job_asks_for_nodes_and_runs_when_they_come(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        async with jobbing(cluster, asks_for_nodes=True):
            await api.create(JOBS, job("train", workers=2, gpus=8))

            async def both() -> list[Object]:
                found = await asked(api)
                return found if len(found) == 2 else []

            found = await until(both)
            assert {pod["metadata"]["name"] for pod in found} == {
                "train-nodes-worker-0",
                "train-nodes-worker-1",
            }

            async def told() -> bool:
                said = str((await status(api, "train")).get("reason"))
                return "nodes for 2 workers were asked for at" in said

            await until(told)
            await nodes(api, 2, gpus=8)
            await until(lambda: _is(api, "train", "running"))

            async def gone() -> bool:
                return not await pods(api, labels="roost.dev/placeholder")

            await until(gone)
            workers = await pods(api, labels="roost.dev/job=train")
            assert [pod["status"]["phase"] for pod in workers] == ["Running", "Running"]
            for pod in workers:
                notes = pod["metadata"]["annotations"]
                assert notes["karpenter.sh/do-not-disrupt"] == "true"
                assert notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"

    runner.run(scenario())


async def grant(api: Api) -> None:
    """Let the user ``operator`` do what the operator may, and no more."""
    await api.create(NAMESPACES, {"metadata": {"name": SPACE}})
    for role in roles(SPACE):
        meta, kind = role["metadata"], role["kind"]
        if meta["name"] != "roost-operator":
            continue
        space = meta.get("namespace", "")
        await api.create(ROLES[kind], role, space)
        binding = {
            "metadata": {"name": meta["name"], **({"namespace": space} if space else {})},
            "roleRef": {"apiGroup": _RBAC[0], "kind": kind, "name": meta["name"]},
            "subjects": [{"apiGroup": _RBAC[0], "kind": "User", "name": "operator"}],
        }
        await api.create(ROLES[f"{kind}Binding"], binding, space)


async def answer(api: Api, name: str, condition: str, why: str) -> None:
    """What an autoscaler writes on a ProvisioningRequest."""
    said = {
        "type": condition,
        "status": "True",
        "reason": condition,
        "message": why,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"status": {"conditions": [said]}}
    await api.patch(PROVISIONING_REQUESTS, name, body, "default", sub="status")


def test_a_job_asks_by_a_provisioning_request_with_the_rights_of_its_role(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """What the API server of Cluster Autoscaler's own definition takes, and what it answers."""
    try:
        manifests = build_controllers().manifests
    except RoostError as error:
        pytest.skip(f"the definition of ProvisioningRequests is not to be had: {error}")

    async def said(words: str) -> bool:
        return words in str((await status(api, "train")).get("reason"))

    async def scenario() -> None:
        await define(api)
        await grant(api)
        if not await api.discover(PROVISIONING_REQUESTS):
            await define_folder(cluster, manifests / "provisioning")
        site = Site("roost-train", provisioning="best-effort-atomic-scale-up")
        async with jobbing(cluster, site, user="operator", asks_for_nodes=True, namespace=SPACE):
            await api.create(JOBS, job("train", workers=2, gpus=8))

            async def asked_for() -> Object:
                found, _ = await api.list(PROVISIONING_REQUESTS)
                return found[0] if found else {}

            found = await until(asked_for)
            assert [one["count"] for one in found["spec"]["podSets"]] == [2]
            (template,) = (await api.list(POD_TEMPLATES))[0]
            (ref,) = [one["podTemplateRef"]["name"] for one in found["spec"]["podSets"]]
            assert template["metadata"]["name"] == ref
            await answer(api, "train-nodes", "Provisioned", "")
            await until(lambda: said("they are provisioned"))
            await nodes(api, 2, gpus=8)
            await until(lambda: _is(api, "train", "running"))
            workers = await pods(api, labels="roost.dev/job=train")
            notes = workers[0]["metadata"]["annotations"]
            assert notes["autoscaling.x-k8s.io/consume-provisioning-request"] == "train-nodes"

            async def gone() -> bool:
                left = [await api.list(kind) for kind in (PROVISIONING_REQUESTS, POD_TEMPLATES)]
                return not any(found for found, _ in left)

            await until(gone)
            await api.delete(JOBS, "train", "default")
            await api.create(JOBS, job("more", workers=3, gpus=8))
            await until(asked_for)
            await answer(api, "more-nodes", "Failed", "there is no such machine")

            async def told() -> bool:
                words = "its ProvisioningRequest failed: there is no such machine"
                return words in str((await status(api, "more")).get("reason"))

            await until(told)
            await until(gone)

    runner.run(scenario())
    assert not [one for one in caplog.messages if "permission" in one]
