"""The admission policy that holds the operator to what it is for, on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT
from tests.kubernetes.jobbing import job, pretend, status
from tests.kubernetes.operating import gang, operating
from tests.kubernetes.test_manifests import CRDS, OPERATOR, Kubectl
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.errors import Forbidden, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.crds import definitions
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.operator.workload import SourceFactory

POLICY = ROOT / "deploy" / "components" / "admission-policy" / "policy.yaml"
OWNER = {"apiVersion": "roost.dev/v1alpha1", "kind": "Job", "name": "birds", "uid": "1-2-3"}


@pytest.fixture
def held(cluster: ControlPlane, runner: asyncio.Runner) -> Iterator[Path]:
    """The kubeconfig of an operator that the policy holds."""
    kubectl = Kubectl(cluster)
    kubectl.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=CRDS)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    kubectl.does("wait", "--for=condition=Established", *names)
    kubectl.does("create", "namespace", "roost-system")
    kubectl.does("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "deploy" / "base"))
    kubectl.does("apply", "-f", str(POLICY))
    runner.run(cluster.account_token("roost-system", "roost-operator"))
    way = Path(cluster.kubeconfig_of(OPERATOR))

    async def acts() -> bool:
        """Whether the policy is in force, which takes the API server some seconds."""
        mine = await Api.connect(kubeconfig=str(way))
        try:
            await mine.create(PODS, pod("probe"), is_rehearsal=True)
        except Forbidden as error:
            return "makes pods of Roost's Jobs" in str(error)
        finally:
            await mine.close()
        return False

    runner.run(until(acts))
    yield way
    kubectl.does("delete", "-f", str(POLICY))


def body(name: str = "x", *, owned: bool = True, labelled: bool = True, **more: Any) -> Object:
    meta: Object = {"name": name, "namespace": more.pop("namespace", "default")}
    if owned:
        meta["ownerReferences"] = [OWNER]
    if labelled:
        meta["labels"] = {"roost.dev/job": "birds"}
    return {"metadata": meta, **more}


def a_pod(**given: Any) -> Object:
    spec = {**pod("x")["spec"], **given.pop("spec", {})}
    return body(**given, spec=spec)


REFUSED: dict[str, tuple[ResourceKind, Object, str]] = {
    "a pod of nobody": (PODS, a_pod(owned=False), "makes pods of Roost's Jobs"),
    "a pod without the label": (PODS, a_pod(labelled=False), "makes pods of Roost's Jobs"),
    "a pod of the system": (PODS, a_pod(namespace="kube-system"), "nothing to do in this"),
    "a Secret of its own namespace": (SECRETS, body(namespace="roost-system"), "nothing to do in"),
    "the host's network": (PODS, a_pod(spec={"hostNetwork": True}), "nothing of their node"),
    "the host's disk": (
        PODS,
        a_pod(spec={"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
        "nothing of their node",
    ),
    "a Secret of nobody": (SECRETS, body(owned=False), "only what belongs to Roost's Jobs"),
    "a Service of nobody": (
        SERVICES,
        body(owned=False, spec={"ports": [{"port": 1}]}),
        "only what belongs to Roost's Jobs",
    ),
    "a ConfigMap of nobody": (CONFIG_MAPS, body(owned=False), "only what belongs to Roost's Jobs"),
}
GRANTED: dict[str, tuple[ResourceKind, Object]] = {
    "a pod": (PODS, a_pod()),
    "a Secret": (SECRETS, body()),
    "a Service": (SERVICES, body(spec={"ports": [{"port": 1}]})),
    "a ConfigMap": (CONFIG_MAPS, body()),
}


def test_what_the_operator_may_make_change_and_delete(
    held: Path, api: Api, runner: asyncio.Runner
) -> None:
    async def story() -> None:
        mine = await Api.connect(kubeconfig=str(held))
        with contextlib.suppress(NotFound):
            await all_of_it(mine)
        await mine.close()

    async def all_of_it(mine: Api) -> None:
        for what, (kind, made, told) in REFUSED.items():
            with pytest.raises(RoostError, match=told) as caught:
                await mine.create(kind, made, is_rehearsal=True)
            assert isinstance(caught.value, Forbidden), what
        for kind, made in GRANTED.values():
            await mine.create(kind, made, is_rehearsal=True)
        # What others made stays, whatever rights say.
        others = {
            PODS: pod("theirs", scheduler="default-scheduler"),
            SECRETS: {"metadata": {"name": "theirs", "namespace": "default"}},
            CONFIG_MAPS: {"metadata": {"name": "theirs", "namespace": "default"}},
            SERVICES: {
                "metadata": {"name": "theirs", "namespace": "default"},
                "spec": {"ports": [{"port": 1}]},
            },
        }
        for kind, made in others.items():
            await api.create(kind, made)
            with pytest.raises(Forbidden, match="Roost's operator"):
                await mine.delete(kind, "theirs", "default")
        with pytest.raises(Forbidden, match="Roost's operator"):
            await mine.patch(CONFIG_MAPS, "theirs", {"data": {"a": "b"}}, "default")
        await api.create(PODS, pod("waits"))
        await mine.delete(PODS, "waits", "default", grace_s=0)

    runner.run(story())


def test_the_operator_does_its_work_under_the_policy(
    held: Path, api: Api, runner: asyncio.Runner, cluster: ControlPlane
) -> None:
    async def story() -> None:
        await nodes(api, 2, gpus=4)
        jobs = SourceFactory(JobController.kinds, JobController)
        async with operating(cluster, [jobs], held, namespace="roost-system"):
            await create(api, PODS, gang("cats", 3))
            await api.create(JOBS, job("birds", workers=2))
            await api.create(JOBS, job("elastic", workers="1..2"))
            await until(lambda: is_("birds", "running"))
            await until(lambda: is_("elastic", "running"))
            found, _ = await api.list(PODS, labels="roost.dev/job=birds")
            for one in found:
                await pretend(api, one, "succeeds")
            await until(lambda: is_("birds", "succeeded"))
            await api.delete(JOBS, "elastic", "default")
            await until(gone)
            assert all(map(is_bound, (await api.list(PODS))[0]))

    async def is_(name: str, wanted: str) -> bool:
        return bool((await status(api, name)).get("state") == wanted)

    async def gone() -> bool:
        return not (await api.list(PODS, labels="roost.dev/job=elastic"))[0]

    runner.run(story())


def test_the_policy_of_the_chart_is_the_same() -> None:
    chart = (ROOT / "deploy/helm/roost/templates/admission.yaml").read_text(encoding="utf-8")
    lines = [line for line in chart.splitlines() if "labels:" not in line]
    plain = "\n".join(lines[1:-1]).replace("{{ .Release.Namespace }}", "roost-system")
    assert [*yaml.safe_load_all(plain)] == [*yaml.safe_load_all(POLICY.read_text("utf-8"))]
