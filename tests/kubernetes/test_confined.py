"""An operator that is confined to namespaces, with the rights that ``deploy/`` gives it there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT
from tests.kubernetes.helm import helm
from tests.kubernetes.jobbing import job
from tests.kubernetes.operating import gang, operating
from tests.kubernetes.recording import recording
from tests.kubernetes.test_manifests import CRDS, OPERATOR, Kubectl
from tests.kubernetes.test_rights import by_kind, rendered
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until
from tests.unit.cli.told import roost

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, NODES, PODS, QUEUES, Object
from roost.kubernetes.crds import definitions
from roost.kubernetes.crds.permissions import needed
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.operator.loop import Operator
from roost.kubernetes.operator.workload import SourceFactory

SERVED = ("vision", "speech")
EXAMPLE = ROOT / "deploy" / "examples" / "confined"


@pytest.fixture
def kubectl(cluster: ControlPlane) -> Kubectl:
    """A cluster to which the example was applied, and a third namespace."""
    made = Kubectl(cluster)
    made.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=CRDS)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    made.does("wait", "--for=condition=Established", *names)
    for name in (*SERVED, "theirs", "roost-system"):
        made.does("create", "namespace", name)
    made.does("apply", "--server-side", "--force-conflicts", "-k", str(EXAMPLE))
    return made


@contextlib.asynccontextmanager
async def confined(plane: ControlPlane, **options: Any) -> AsyncIterator[Operator]:
    """An operator that is the service account of the example."""
    await plane.account_token("roost-system", "roost-operator")
    way = Path(plane.kubeconfig_of(OPERATOR))
    jobs = SourceFactory(JobController.kinds, JobController)
    given = {"namespaces": SERVED, "namespace": "roost-system", **options}
    async with operating(plane, [jobs], way, **given) as operator:
        yield operator


async def pods_in(api: Api, namespace: str) -> list[Object]:
    return (await api.list(PODS, namespace))[0]


async def state(api: Api, name: str, namespace: str) -> str:
    found = await api.get(JOBS, name, namespace)
    return str((found.get("status") or {}).get("state", ""))


@pytest.mark.usefixtures("kubectl")
def test_it_serves_its_namespaces_and_touches_no_other(
    api: Api,
    runner: asyncio.Runner,
    cluster: ControlPlane,
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = pod("big", namespace="theirs", gpus=6, scheduler="other", nodeName="node-0000")

    async def story() -> None:
        await nodes(api, 1, gpus=8)
        await create(api, PODS, [theirs, pod("waits", namespace="theirs")])
        await api.create(CLUSTER_QUEUES, {"metadata": {"name": "two"}, "spec": {"limit": 2}})
        await api.create(CLUSTER_QUEUES, {"metadata": {"name": "far"}, "spec": {"limit": 2}})
        for space, target in (("vision", "two"), ("theirs", "far")):
            meta = {"name": "q", "namespace": space}
            await api.create(QUEUES, {"metadata": meta, "spec": {"clusterQueue": target}})
        async with confined(cluster) as operator:
            asked.append(record.of(operator.api))
            await api.create(JOBS, job("birds", namespace="vision", queue="q"))
            await api.create(JOBS, job("cats", namespace="speech"))
            await api.create(JOBS, job("dogs", namespace="theirs"))
            await api.create(JOBS, job("large", namespace="speech", gpus=4))
            await until(lambda: runs("birds", "vision"))
            await until(lambda: runs("cats", "speech"))
            await until(lambda: told("large", "speech"))
            await until(counted)
            assert not is_bound(await api.get(PODS, "waits", "theirs"))
            assert await state(api, "dogs", "theirs") == ""
            assert not (await api.get(QUEUES, "q", "theirs")).get("status")
            assert not (await api.get(CLUSTER_QUEUES, "far")).get("status")
            await api.delete(JOBS, "birds", "vision")
            await until(lambda: gone("vision"))

    async def runs(name: str, namespace: str) -> bool:
        return await state(api, name, namespace) == "running"

    async def told(name: str, namespace: str) -> bool:
        """It waits: six of eight GPUs are taken where the operator has no say."""
        found = (await api.get(JOBS, name, namespace)).get("status") or {}
        return found.get("state") == "queued" and bool(found.get("reason"))

    async def counted() -> bool:
        return bool((await api.get(CLUSTER_QUEUES, "two")).get("status", {}).get("running"))

    async def gone(namespace: str) -> bool:
        return not await pods_in(api, namespace)

    asked: list[dict[str, set[str]]] = []
    with caplog.at_level(logging.WARNING), recording() as record:
        runner.run(story())
    assert "permission" not in caplog.text
    (sent,) = asked
    allowed = {str(one) for one in needed(SERVED)}
    assert set(sent) <= allowed
    everywhere = {str(one) for one in needed(SERVED) if not one.local and not one.namespace}
    for what, spaces in sent.items():
        assert spaces <= {*SERVED, "roost-system", *([""] if what in everywhere else [])}, what
    assert {"create pods", "list jobs.roost.dev", "patch jobs.roost.dev/status"} <= set(sent)


def test_it_may_do_nothing_elsewhere(
    kubectl: Kubectl, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb, resource in (
        *(("create", "pods"), ("delete", "pods"), ("create", "pods/binding")),
        *(("list", "jobs.roost.dev"), ("patch", "jobs.roost.dev"), ("delete", "secrets")),
        *(("create", "secrets"), ("patch", "configmaps"), ("create", "events.events.k8s.io")),
    ):
        for namespace, answer in (("theirs", "no"), ("kube-system", "no"), ("vision", "yes")):
            asked = kubectl.run("auth", "can-i", verb, resource, "--as", OPERATOR, "-n", namespace)
            assert asked.stdout.strip() == answer, (verb, resource, namespace)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    told = roost("kubernetes", "check", "--user", OPERATOR, "--namespaces", ",".join(SERVED))
    assert told.out == "nothing is lacking\n"
    told = roost("kubernetes", "check", "--user", OPERATOR, "--namespaces", "vision,theirs")
    assert "lacks  create pods/binding  in namespace theirs" in told.out.splitlines()
    assert not any("namespace vision" in line for line in told.out.splitlines())


def test_without_a_look_at_all_pods_only_promised_nodes_are_used(
    kubectl: Kubectl, api: Api, runner: asyncio.Runner, cluster: ControlPlane
) -> None:
    role = yaml.safe_load(kubectl.does("get", "clusterrole", "roost-cluster", "-o", "yaml"))
    rules = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    kubectl.does("replace", "-f", "-", given=yaml.safe_dump({**role, "rules": rules}))
    hidden = pod("big", namespace="theirs", gpus=6, scheduler="other", nodeName="node-0001")

    async def story() -> None:
        await nodes(api, 2, gpus=8)
        await create(api, PODS, [hidden])
        async with confined(cluster) as operator:
            assert operator.is_blind
            await create(api, PODS, gang("cats", 4, gpus=2, namespace="vision"))
            await until(lambda: waits("vision"))
            assert operator.leadership is not None
            assert len(operator.leadership.reconciler.nodes.unknown) == 2
            notes = {"metadata": {"annotations": {"roost.dev/others": "nvidia.com/gpu=6"}}}
            await api.patch(NODES, "node-0001", notes)
            await create(api, PODS, [pod("one", gpus=2, namespace="speech")])
            await until(lambda: placed("speech", 1))
            assert not any(map(is_bound, await pods_in(api, "vision")))
            notes["metadata"]["annotations"]["roost.dev/others"] = "none"
            await api.patch(NODES, "node-0000", notes)
            await until(lambda: placed("vision", 4))
            assert {one["spec"]["nodeName"] for one in await pods_in(api, "vision")} == {
                "node-0000"
            }

    async def waits(namespace: str) -> bool:
        found = await pods_in(api, namespace)
        return all(
            any(c["type"] == "PodScheduled" for c in one["status"].get("conditions", ()))
            for one in found
        )

    async def placed(namespace: str, count: int) -> bool:
        return sum(map(is_bound, await pods_in(api, namespace))) == count

    runner.run(story())


def test_rights_that_come_later_and_a_namespace_that_goes(
    kubectl: Kubectl, api: Api, runner: asyncio.Runner, cluster: ControlPlane
) -> None:
    binding = kubectl.does("get", "rolebinding", "roost-namespace", "-n", "speech", "-o", "yaml")
    kubectl.does("delete", "rolebinding", "roost-namespace", "-n", "speech")
    named = (*SERVED, "nowhere")

    async def story() -> None:
        await nodes(api, 1, gpus=8)
        async with confined(cluster, namespaces=named) as operator:
            assert operator.served == ("vision",)
            assert "no permission to" in operator.left_alone("speech")
            assert operator.left_alone("nowhere")
            await create(api, PODS, [pod("a", namespace="vision"), pod("b", namespace="speech")])
            await until(lambda: placed("vision"))
            assert not await placed("speech")
            made = yaml.safe_load(binding)
            for name in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                made["metadata"].pop(name, None)
            given = yaml.safe_dump(made)
            await asyncio.to_thread(kubectl.does, "create", "-f", "-", given=given)
            await until(lambda: placed("speech"), 120)

    async def placed(namespace: str) -> bool:
        return all(map(is_bound, await pods_in(api, namespace)))

    runner.run(story())


@pytest.mark.timeout(1800)  # the first build of helm takes minutes
def test_the_chart_confines_it_in_the_same_way(kubectl: Kubectl) -> None:
    assert helm().is_file()
    options = ("--namespace", "roost-system", "--kube-version", "1.34")
    made = rendered(*options, "--set", "namespaces={vision,speech},admissionPolicy.enabled=true")
    kubectl.does("delete", "deployment", "roost-operator", "-n", "roost-system")
    kubectl.does("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=made)
    chart, example = by_kind(made), by_kind(kubectl.does("kustomize", str(EXAMPLE)))
    assert ("ClusterRole", "roost-operator") not in chart
    assert ("ClusterRoleBinding", "roost-operator") not in example
    for key in (("ClusterRole", "roost-cluster"), ("Role", "roost-namespace")):
        assert chart[key]["rules"] == example[key]["rules"]
    roles = [one for one in yaml.safe_load_all(made) if one and one["kind"] == "Role"]
    assert {one["metadata"]["namespace"] for one in roles} == {*SERVED, "roost-system"}
    (container,) = chart["Deployment", "roost-operator"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "ROOST_NAMESPACES", "value": "vision,speech"} in container["env"]
