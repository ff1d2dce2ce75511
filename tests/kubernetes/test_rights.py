"""The operator with the rights that ``deploy/`` gives it, and no others; and the Helm chart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT
from tests.kubernetes.helm import helm
from tests.kubernetes.operating import bound, gang, operating
from tests.kubernetes.recording import recording
from tests.kubernetes.test_manifests import CRDS, MONITORS, OPERATOR, Kubectl
from tests.kubernetes.volumes import CONTROLLERS, are_bound, provisioning, store
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until
from tests.support.kubernetes.storage import NOBODY, claim, mounting, storage_class, volume

from roost import __version__
from roost.errors import Forbidden
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, PODS, Object
from roost.kubernetes.crds import definitions
from roost.kubernetes.crds.permissions import needed
from roost.kubernetes.jobs.controller import JobController
from roost.kubernetes.operator.loop import Operator
from roost.kubernetes.operator.workload import SourceFactory

CHART = ROOT / "deploy" / "helm" / "roost"


@pytest.fixture
def kubectl(cluster: ControlPlane) -> Kubectl:
    made = Kubectl(cluster)
    made.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=CRDS)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    made.does("wait", "--for=condition=Established", *names)
    return made


@contextlib.asynccontextmanager
async def limited(plane: ControlPlane) -> AsyncIterator[Operator]:
    """An operator that is the service account of ``deploy/base``."""
    await plane.account_token("roost-system", "roost-operator")
    way = Path(plane.kubeconfig_of(OPERATOR))
    jobs = SourceFactory(JobController.kinds, JobController)
    async with operating(plane, [jobs], way, namespace="roost-system") as operator:
        yield operator


def test_the_rights_of_the_base_are_enough(
    kubectl: Kubectl,
    api: Api,
    runner: asyncio.Runner,
    cluster: ControlPlane,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kubectl.does("create", "namespace", "roost-system")
    kubectl.does("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "deploy" / "base"))
    body: Object = {
        "metadata": {"name": "birds", "namespace": "default"},
        "spec": {"image": "birds:1", "run": "python train.py", "workers": 2},
    }

    async def pods_of_job() -> list[Object]:
        found, _ = await api.list(PODS, "default", labels="roost.dev/job=birds")
        return [pod for pod in found if pod["spec"].get("nodeName")]

    async def state() -> str:
        found = await api.get(JOBS, "birds", "default")
        return str(found.get("status", {}).get("state", ""))

    async def ran() -> bool:
        return await state() == "running"

    async def ended() -> bool:
        return await state() == "succeeded"

    async def both() -> bool:
        return len(await pods_of_job()) == 2

    async def story() -> None:
        await nodes(api, 2, gpus=4)
        async with limited(cluster) as operator:
            asked.append(record.of(operator.api))
            await create(api, PODS, gang("cats", 3))
            await until(lambda: bound(api, 3))
            await api.create(JOBS, body)
            await until(both)
            await until(ran)
            note = {"metadata": {"annotations": {"roost.dev/pretend": "succeeds"}}}
            for pod in await pods_of_job():
                await api.patch(PODS, pod["metadata"]["name"], note, "default")
            await until(ended)
            too_large = gang("never", 40)
            await create(api, PODS, too_large)
            await until(lambda: _told(api))

    asked: list[dict[str, set[str]]] = []
    with caplog.at_level(logging.WARNING), recording() as record:
        runner.run(story())
    assert "permission" not in caplog.text
    (sent,) = asked
    assert set(sent) <= {str(one) for one in needed()}
    assert {"create pods/binding", "patch jobs.roost.dev/status", "create services"} <= set(sent)


def test_the_rights_of_the_base_are_enough_for_volumes(
    kubectl: Kubectl,
    api: Api,
    runner: asyncio.Runner,
    cluster: ControlPlane,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kubectl.does("create", "namespace", "roost-system")
    kubectl.does("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "deploy" / "base"))
    there = volume("v", storage_class="local")
    made = [storage_class("local", NOBODY), there, claim("disk", storage_class="local")]
    made += [storage_class("wffc"), claim("data", storage_class="wffc")]

    async def story() -> None:
        await nodes(api, 1, gpus=4, labels={"zone": "a"})
        await store(api, made)
        async with limited(cluster), provisioning(api):
            await create(api, PODS, [pod("train", **mounting("disk", "data"))])
            await until(lambda: bound(api, 1))
            assert await are_bound(api, ["disk", "data"])

    cluster.start_manager(CONTROLLERS)
    try:
        with caplog.at_level(logging.WARNING):
            runner.run(story())
    finally:
        cluster.stop_manager()
    assert "permission" not in caplog.text


async def _told(api: Api) -> bool:
    """Whether a pod that cannot be placed says why."""
    found = await api.get(PODS, "never-0", "default")
    return any(
        one.get("reason") == "Unschedulable" for one in found["status"].get("conditions", [])
    )


def test_the_operator_fits_into_its_restricted_namespace(
    kubectl: Kubectl, api: Api, runner: asyncio.Runner
) -> None:
    made = by_kind(kubectl.does("kustomize", str(ROOT / "deploy" / "operator")))
    kubectl.does("apply", "-f", "-", given=yaml.safe_dump(made["Namespace", "roost-system"]))
    spec = made["Deployment", "roost-operator"]["spec"]["template"]["spec"]
    body: Object = {"metadata": {"name": "operator", "namespace": "roost-system"}, "spec": spec}
    runner.run(api.create(PODS, body))
    loose = {**spec, "securityContext": {}}
    body = {"metadata": {"name": "loose", "namespace": "roost-system"}, "spec": loose}
    with pytest.raises(Forbidden, match="restricted"):
        runner.run(api.create(PODS, body))


EVERYTHING = (
    "serviceMonitor.enabled=true,dashboard.enabled=true,networkPolicy.enabled=true,"
    "agent.enabled=true"
)


def rendered(*more: str, chart: Path = CHART) -> str:
    done = subprocess.run(  # noqa: S603 - helm
        [str(helm()), "template", "roost", str(chart), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def by_kind(text: str) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


@pytest.mark.timeout(1800)  # the first build of helm takes minutes
@pytest.mark.parametrize("way", ["client", "server"])
@pytest.mark.parametrize("settings", ["replicas=3", EVERYTHING], ids=["usual", "everything"])
def test_the_chart_can_be_applied(kubectl: Kubectl, settings: str, way: str) -> None:
    options = ("--namespace", "roost-system", "--kube-version", "1.34")
    made = rendered(*options, "--set", settings)
    kubectl.does("apply", "-f", "-", given=MONITORS)
    kubectl.does("wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com")
    kubectl.does("create", "namespace", "roost-system")
    told = kubectl.does("apply", f"--dry-run={way}", "--validate=strict", "-f", "-", given=made)
    assert "deployment.apps/roost-operator created" in told
    assert ("servicemonitor" in told) == (settings == EVERYTHING)


@pytest.mark.timeout(1800)
def test_the_chart_and_the_base_say_the_same(kubectl: Kubectl) -> None:
    options = ("--namespace", "roost-system", "--kube-version", "1.34")
    chart = by_kind(rendered(*options))
    base = by_kind(kubectl.does("kustomize", str(ROOT / "deploy" / "base")))
    for key, made in chart.items():
        if "rules" in made:
            assert made["rules"] == base[key]["rules"], key

    def container(found: dict[tuple[str, str], Object]) -> Any:
        spec = found["Deployment", "roost-operator"]["spec"]["template"]["spec"]
        return spec["securityContext"], spec["containers"][0]

    (ours, one), (theirs, other) = container(chart), container(base)
    assert ours == theirs
    for name in ("image", "env", "ports", "resources", "securityContext", "readinessProbe"):
        assert one[name] == other[name], name
    told = set(base) - set(chart)
    assert {kind for kind, _ in told} == {"Namespace", "CustomResourceDefinition"}


@pytest.mark.timeout(1800)
def test_the_agent_is_the_same_in_the_chart(kubectl: Kubectl) -> None:
    options = ("--namespace", "roost-agent", "--kube-version", "1.34")
    chart = by_kind(rendered(*options, "--set", "agent.enabled=true"))
    found = by_kind(kubectl.does("kustomize", str(ROOT / "deploy" / "agent")))
    for key in (("ClusterRole", "roost-agent"), ("ClusterRoleBinding", "roost-agent")):
        for part in ("rules", "roleRef", "subjects"):
            assert chart[key].get(part) == found[key].get(part)
    key = ("DaemonSet", "roost-agent")
    ours, theirs = (one[key]["spec"]["template"]["spec"] for one in (chart, found))
    (one,), (other,) = ours.pop("containers"), theirs.pop("containers")
    assert set(other.pop("args")) < set(one.pop("args"))
    assert (ours, one) == (theirs, other)


@pytest.mark.timeout(1800)
def test_the_chart_is_sound_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - helm
        [str(helm()), "lint", "--strict", str(CHART)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    with pytest.raises(AssertionError, match="nonsense"):
        rendered("--kube-version", "1.34", "--set", "nonsense=1")


@pytest.mark.timeout(1800)
def test_the_chart_is_packaged_and_names_both_images(tmp_path: Path) -> None:
    subprocess.run(  # noqa: S603 - make
        ["make", "-C", ROOT, "chart", f"HELM={helm()}", f"PACKAGES={tmp_path}"],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=60,
    )
    (package,) = tmp_path.glob("*.tgz")
    assert package.name == f"roost-{__version__}.tgz"
    own = "image.repository=registry.example.org:5000/roost,image.tag=main"
    for settings, train in (
        (own, "registry.example.org:5000/roost-train:main"),
        (f"{own},trainImage.repository=library,trainImage.tag=two", "library:two"),
    ):
        made = by_kind(rendered("--kube-version", "1.34", "--set", settings, chart=package))
        spec = made["Deployment", "roost-operator"]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert container["image"] == "registry.example.org:5000/roost:main"
        assert env["ROOST_TRAIN_IMAGE"] == train
