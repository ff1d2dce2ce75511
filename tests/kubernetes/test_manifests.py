"""The definitions and the files of ``deploy/`` on a real API server, with the real kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.docs.pages import ROOT, page
from tests.support.effort import examples
from tests.support.kubernetes.control_plane import ControlPlane
from tests.unit.cli.told import roost
from tests.unit.jobfile.test_model import VALUES
from tests.unit.kubernetes.crds.test_definitions import EXAMPLES

from roost import __version__
from roost.errors import InvalidSpec, RoostError
from roost.jobfile import JobFile
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CLUSTER_QUEUES, JOBS, Object, ResourceKind
from roost.kubernetes.crds import as_yaml, definitions, job_file, job_object

DEPLOY = ROOT / "deploy"
DEFINITIONS = ResourceKind(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)
OPERATOR = "system:serviceaccount:roost-system:roost-operator"
#: A definition of somebody else's, as far as a dry run needs it.
MONITORS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


class Kubectl:
    """kubectl as the administrator of the cluster."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def run(self, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own programs
            [str(self._plane.binaries.kubectl), *args],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "KUBECONFIG": str(self._plane.kubeconfig)},
            check=False,
        )

    def does(self, *args: str, given: str = "") -> str:
        done = self.run(*args, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuses(self, *args: str, given: str = "") -> str:
        done = self.run(*args, given=given)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> ControlPlane:
    """A control plane that knows Roost's kinds."""
    kubectl = Kubectl(control_plane)
    kubectl.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=CRDS)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    kubectl.does("wait", "--for=condition=Established", *names)
    return control_plane


CRDS = as_yaml(definitions())


@pytest.fixture
def kubectl(cluster: ControlPlane, defined: ControlPlane) -> Kubectl:
    assert cluster is defined
    return Kubectl(cluster)


def job(name: str = "birds", /, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "roost.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"run": "true", **spec},
        }
    )


@pytest.mark.usefixtures("kubectl")
def test_the_definitions_are_structural(api: Api, runner: asyncio.Runner) -> None:
    for one in definitions():
        found = runner.run(api.get(DEFINITIONS, one["metadata"]["name"]))
        conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize("way", ["client", "server"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_of_the_documentation_can_be_applied(
    kubectl: Kubectl, example: JobFile, way: str
) -> None:
    made = as_yaml([job_object(example, "default")])
    kubectl.does("apply", f"--dry-run={way}", "-f", "-", given=made)


def test_the_objects_of_the_documentation_can_be_applied(kubectl: Kubectl) -> None:
    blocks = [block.text for block in page("docs/kubernetes.md").blocks if block.language == "yaml"]
    # Kinds of other projects are tried where their definitions are, in test_examples.
    own = [block for block in blocks if "kubeflow.org/" not in block]
    objects = [block for block in own if block.startswith("apiVersion")]
    assert len(objects) > 1
    kubectl.does("create", "namespace", "birds")
    for block in objects:
        kubectl.does("apply", "--dry-run=server", "-f", "-", given=block)


async def kept(plane: ControlPlane, file: JobFile) -> Object:
    """What the API server makes of a job."""
    with contextlib.suppress(RoostError):  # another test may have made one of that name
        await plane.request("DELETE", JOBS.path("default", file.name))
    path = f"{JOBS.path('default')}?dryRun=All&fieldValidation=Strict"
    return await plane.request("POST", path, job_object(file, "default"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_survive_the_api_server(defined: ControlPlane, file: JobFile) -> None:
    assert job_file(asyncio.run(kept(defined, file))) == file


SCRIPTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).filter(
    lambda text: text.strip() != ""
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(fields=st.fixed_dictionaries({"run": SCRIPTS}, optional=VALUES))
def test_any_job_survives_the_api_server(defined: ControlPlane, fields: dict[str, Any]) -> None:
    file = JobFile.from_document(fields)
    assert job_file(asyncio.run(kept(defined, file))) == file


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to run": ({"run": None}, "spec.run: .*exactly one of them"),
    "blank": ({"run": " \n"}, "spec.run: .*exactly one of them"),
    "two things": ({"command": ["a"]}, "spec.run: .*exactly one of them"),
    "a guest with a priority": ({"guest": True, "priority": 5}, "spec.priority: .*a guest comes"),
    "a guest in a cell": ({"guest": True, "cell": "a"}, "spec.cell: .*leave out cell or guest"),
    "a guest that stays": (
        {"guest": True, "preemptible": False},
        "spec.preemptible: .*leave out preemptible or guest",
    ),
    "a cell without a name": ({"cell": ""}, "spec.cell: "),
    "an unknown field": ({"gpu_count": 1}, "unknown field .*spec.gpu_count"),
    "contradictory workers": ({"workers": "4..1"}, "spec.workers: .*such as 1..4"),
    "no workers": ({"workers": 0}, "spec.workers: "),
    "too many workers": ({"workers": "1..99999"}, "spec.workers: "),
    "words for workers": ({"workers": "some"}, "spec.workers: .*such as 1..4"),
    "a share above one": ({"gpus": 1.5}, "spec.gpus: .*a share of one"),
    "a share below nothing": ({"gpus": -0.5}, "spec.gpus: "),
    "too small a share": ({"gpus": 0.0004}, "spec.gpus: .*a share of one"),
    "a share of a kind above one": ({"resources": {"gpu": "A100:1.5"}}, "spec.resources.gpu: "),
    "no devices of a kind": ({"resources": {"gpu": "A100:0"}}, "spec.resources.gpu: "),
    "a range upside down": ({"resources": {"gpu": "8..2"}}, "the lower end of a range"),
    "a share of several": ({"gpus": 2, "sharing": {"cores": 50}}, "spec.sharing.cores: "),
    "a share of several of a kind": (
        {"resources": {"gpu": "A100:2"}, "sharing": {"cores": "50%"}},
        "spec.sharing.cores: ",
    ),
    "GPUs twice": ({"gpus": 1, "resources": {"gpu": 1}}, "spec.gpus: .*say the same"),
    "a priority below 0": ({"priority": -1}, "spec.priority: "),
    "a priority above 100": ({"priority": 101}, "spec.priority: "),
    "replicas outside of the range": ({"workers": "1..4", "replicas": 5}, "spec.replicas: .*range"),
    "replicas of a rigid job": ({"replicas": 2}, "spec.replicas: .*range"),
    "a kind that is none": ({"kind": "jax"}, "spec.kind: Unsupported value"),
    "a duration in words": ({"max_duration": "soon"}, "spec.max_duration: .*such as 90"),
    "a size without a unit": ({"resources": {"memory": "64"}}, "spec.resources.memory: .*unit"),
    "a grace of two hours": ({"checkpoint": {"grace": 7200}}, "spec.checkpoint.grace: "),
    "a variable of Roost's": ({"env": {"ROOST_JOB": "x"}}, "spec.env: Roost itself|Roost itself"),
    "a rank": ({"env": {"RANK": "0"}}, "Roost itself sets this variable"),
    "a variable with a dash": ({"env": {"A-B": "0"}}, "names of variables"),
    "a variable twice": ({"env": {"A": "0"}, "secrets": ["A"]}, "either in env or in secrets"),
    "a role called worker": ({"roles": {"worker": {}}}, "worker is the job itself"),
    "a role with two programs": (
        {"roles": {"ps": {"run": "a", "command": ["b"]}}},
        "exclude each other",
    ),
    "a folder and a repository": (
        {"workdir": {"path": "/a", "git": "https://host/a.git"}},
        "spec.workdir: .*exactly one of them",
    ),
    "a password in an address": ({"workdir": {"git": "https://a:b@host/a.git"}}, "workdir.git: "),
    "the host's network": ({"pod": {"hostNetwork": True}}, "unknown field .*hostNetwork"),
    "the host's disk": (
        {"pod": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}},
        "unknown field .*hostPath",
    ),
    "privileges": ({"pod": {"securityContext": {"privileged": True}}}, "unknown field"),
    "root": ({"pod": {"securityContext": {"runAsUser": 0}}}, "runAsUser: "),
    "a volume of nothing": ({"pod": {"volumes": [{"name": "a"}]}}, "exactly one of"),
    "a label of Roost's": ({"pod": {"labels": {"roost.dev/job": "x"}}}, "cannot be set"),
    "a priority of the system's": (
        {"pod": {"priorityClassName": "system-node-critical"}},
        "the cluster's own pods",
    ),
    "Roost's own folder": (
        {"pod": {"volumeMounts": [{"name": "a", "mountPath": "/roost/lib"}]}},
        "a folder other than",
    ),
    "a folder above": (
        {"pod": {"volumeMounts": [{"name": "a", "mountPath": "/a/../proc"}]}},
        "a folder other than",
    ),
    "suspended in words": ({"suspend": "stop"}, "spec.suspend: .*boolean"),
}


@pytest.mark.parametrize(("spec", "told"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_by_the_api_server_itself(
    defined: ControlPlane, spec: dict[str, Any], told: str
) -> None:
    body = json.loads(job(**spec))
    body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
    path = f"{JOBS.path('default')}?dryRun=All&fieldValidation=Strict"
    with pytest.raises(RoostError, match=told):
        asyncio.run(defined.request("POST", path, body))


def test_kubectl_refuses_nonsense_with_a_sentence(kubectl: Kubectl) -> None:
    told = kubectl.refuses("apply", "-f", "-", given=job(workers="4..1"))
    assert "a number of workers such as 4, or a range such as 1..4" in told
    assert 'unknown field "spec.gpu"' in kubectl.refuses("apply", "-f", "-", given=job(gpu=1))


@pytest.mark.parametrize("name", ["a" * 41, "birds.v2", "Birds"])
def test_a_name_that_pods_could_not_have_is_refused(kubectl: Kubectl, name: str) -> None:
    kubectl.refuses("apply", "--dry-run=server", "-f", "-", given=job(name))


def test_what_cannot_change_does_not(kubectl: Kubectl) -> None:
    kubectl.does("apply", "-f", "-", given=job(image="a:1", workers="1..4", env={"A": "1"}))

    def patch(**spec: Any) -> tuple[str, ...]:
        return "patch", "rj", "birds", "--type=merge", "-p", json.dumps({"spec": spec})

    for spec in (
        {"image": "a:2"},
        {"image": None},
        {"setup": "pip install x"},
        {"workers": "1..5"},
        {"queue": "other"},
        {"env": {"A": "2"}},
        {"env": {"B": "1"}},
        {"gpus": 2},
        {"pod": {"nodeSelector": {"a": "b"}}},
        {"when_suspended": "stop"},
    ):
        assert "cannot change once the job exists" in kubectl.refuses(*patch(**spec)), spec
    kubectl.does(*patch(suspend=True, ttl="1h", labels={"team": "a"}))
    kubectl.does(*patch(suspend=False, ttl=None, labels=None))


def test_a_job_is_scaled_within_its_range(kubectl: Kubectl) -> None:
    kubectl.does("apply", "-f", "-", given=job(workers="1..4"))
    kubectl.does("scale", "rj/birds", "--replicas=3")
    assert "within the range" in kubectl.refuses("scale", "rj/birds", "--replicas=5")
    status = {"replicas": 3, "selector": "roost.dev/job=birds"}
    told = json.dumps({"status": status})
    kubectl.does("patch", "rj/birds", "--subresource=status", "--type=merge", "-p", told)
    scale = json.loads(kubectl.does("get", "rj/birds", "--subresource=scale", "-o", "json"))
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, status)


def test_what_kubectl_prints(kubectl: Kubectl) -> None:
    kubectl.does("apply", "-f", "-", given=job(queue="vision", workers=2))
    status = {"state": "running", "replicas": 2, "gpus": 1.5, "reason": "all is well", "more": 1}
    told = json.dumps({"status": status})
    kubectl.does("patch", "rj/birds", "--subresource=status", "--type=merge", "-p", told)
    head, line = kubectl.does("get", "rj").splitlines()
    assert head.split() == ["NAME", "STATE", "WORKERS", "GPUS", "QUEUE", "REASON", "AGE"]
    assert line.split()[:-1] == ["birds", "running", "2", "1.5", "vision", "all", "is", "well"]
    assert "for an elastic job" in kubectl.does("explain", "jobs.roost.dev.spec.workers")


def test_queues(api: Api, runner: asyncio.Runner, kubectl: Kubectl) -> None:
    def queue(**spec: Any) -> Object:
        return {"metadata": {"name": "vision"}, "spec": spec}

    async def story() -> None:
        for spec in ({"quota": 9, "limit": 8}, {"quota": -1}, {"weight": 0}, {"quota": 0.0001}):
            with pytest.raises(InvalidSpec):
                await api.create(CLUSTER_QUEUES, queue(**spec))
        made = await api.create(CLUSTER_QUEUES, queue(quota=4, limit=8.5, priority=-3))
        assert made["spec"] == {
            "quota": 4,
            "limit": 8.5,
            "priority": -3,
            "weight": 1,
            "overflows": True,
        }

    runner.run(story())
    mine = "apiVersion: roost.dev/v1alpha1\nkind: Queue\nmetadata: {name: mine}\nspec: "
    kubectl.refuses("apply", "-f", "-", given=f"{mine}{{}}")
    kubectl.does("apply", "-f", "-", given=f"{mine}{{clusterQueue: vision}}")
    assert "vision" in kubectl.does("get", "rq")


KUSTOMIZATIONS = {
    "base": "resources: [../base]",
    "agent": "resources: [../base, ../agent]",
    "everything": "namespace: roost-system\nresources: [../base]\n"
    "components: [../components/monitoring, ../components/network-policy]",
}


@pytest.fixture(params=KUSTOMIZATIONS)
def built(
    request: pytest.FixtureRequest, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """What kustomize makes of ``deploy/``, and a server that knows the kinds in it."""
    folder = tmp_path_factory.mktemp("deploy") / "deploy"
    shutil.copytree(DEPLOY, folder)
    (folder / "overlay").mkdir()
    (folder / "overlay" / "kustomization.yaml").write_text(KUSTOMIZATIONS[request.param])
    made = kubectl.does("kustomize", str(folder / "overlay"))
    kubectl.does("apply", "-f", "-", given=MONITORS)
    kubectl.does("wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com")
    for name in ("roost-system", "roost-agent"):
        kubectl.does("create", "namespace", name)
    yield made
    kubectl.does("delete", "-f", "-", given=MONITORS)


@pytest.mark.parametrize("way", ["client", "server"])
def test_the_kustomize_base_can_be_applied(kubectl: Kubectl, built: str, way: str) -> None:
    told = kubectl.does("apply", f"--dry-run={way}", "--validate=strict", "-f", "-", given=built)
    assert "deployment.apps/roost-operator created" in told


def test_the_agent_may_be_where_it_is(kubectl: Kubectl) -> None:
    """Its namespace allows pods that see their node's processes; the operator's does not."""
    made = kubectl.does("kustomize", str(DEPLOY / "agent"))
    kubectl.does("apply", "--server-side", "-f", "-", given=made)
    (found,) = (one for one in yaml.safe_load_all(made) if one["kind"] == "DaemonSet")
    template = found["spec"]["template"]
    named = {"name": "agent", "namespace": "roost-agent", "labels": template["metadata"]["labels"]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}
    pod = json.dumps(body)
    kubectl.does("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=pod)


def test_both_images_have_their_versions(built: str) -> None:
    (found,) = (one for one in yaml.safe_load_all(built) if one["kind"] == "Deployment")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    images = (container["image"], env["ROOST_TRAIN_IMAGE"])
    assert images == (f"roost:{__version__}", f"roost-train:{__version__}")


def test_the_operator_has_the_rights_that_it_needs_and_users_theirs(
    kubectl: Kubectl, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    before = roost("kubernetes", "check", "--user", OPERATOR)
    assert before.status == 1
    assert "lacks  create pods/binding  in the whole cluster" in before.out.splitlines()
    assert (
        "lacks  update leases.coordination.k8s.io  in namespace roost-system"
        in before.out.splitlines()
    )

    kubectl.does("create", "namespace", "roost-system")
    kubectl.does("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY / "base"))
    assert roost("kubernetes", "check", "--user", OPERATOR).out == "nothing is lacking\n"
    assert roost("kubernetes", "check").out == "nothing is lacking\n"

    for verb, resource in (
        *(("get", "secrets"), ("update", "nodes"), ("create", "clusterroles")),
        *(("impersonate", "users"), ("delete", "nodes")),
    ):
        asked = kubectl.run("auth", "can-i", verb, resource, "--as", OPERATOR, "-n", "default")
        assert asked.stdout.strip() == "no", (verb, resource)
    others = kubectl.run("auth", "can-i", "update", "leases", "--as", OPERATOR, "-n", "default")
    assert others.stdout.strip() == "no"


@pytest.mark.usefixtures("kubectl")
def test_a_missing_right_is_named(cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig_of("alice")))
    told = roost("kubernetes", "check", "-n", "default")
    assert told.status == 1
    assert "lacks  patch jobs.roost.dev/status  in the whole cluster" in told.out.splitlines()


def test_finalizers_are_taken_off_and_what_is_left_is_told(
    api: Api,
    runner: asyncio.Runner,
    kubectl: Kubectl,
    cluster: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    assert roost("kubernetes", "release", "--yes").out == "nothing is left\n"
    for name, names in (("birds", ["roost.dev/job", "example.org/kept"]), ("cats", [])):
        kubectl.does("apply", "-f", "-", given=job(name))
        change = json.dumps({"metadata": {"finalizers": names}})
        kubectl.does("patch", f"rj/{name}", "--type=merge", "-p", change)

    told = roost("kubernetes", "release", "--yes")

    assert told.out == "job default/birds  released\nleft: 2 objects of jobs.roost.dev\n"
    found = runner.run(api.get(JOBS, "birds", "default"))
    assert found["metadata"]["finalizers"] == ["example.org/kept"]
    change = json.dumps({"metadata": {"finalizers": []}})
    kubectl.does("patch", "rj/birds", "--type=merge", "-p", change)


def test_the_command_prints_what_can_be_applied(kubectl: Kubectl) -> None:
    printed = roost("kubernetes", "crds").out
    assert printed == CRDS
    kubectl.does("apply", "--dry-run=client", "-f", "-", given=printed)
    kubectl.does(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("-f", "-"),
        given=printed,
    )
