"""What is in ``deploy/``: generated files are fresh, copies are equal, rights are few."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.docs.pages import ROOT

from roost import __version__
from roost.cli import cli
from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.crds.__main__ import files
from roost.kubernetes.crds.permissions import (
    AGENT,
    CLUSTER,
    LOCAL,
    ClusterGrant,
    ClusterPermission,
    needed,
)
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.gangs.foreign_pods import ForeignPods
from roost.kubernetes.jobs.controller import JobController

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "roost"
DASHBOARD = "components/monitoring/roost.json"


def documents(path: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def deployment() -> Any:
    return documents(DEPLOY / "operator" / "deployment.yaml")[0]["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", files())
def test_generated_files_are_fresh(name: str) -> None:
    written = (DEPLOY / name).read_text(encoding="utf-8")
    assert written == files()[name], "run python -m roost.kubernetes.crds"


def test_the_chart_has_the_same_dashboard() -> None:
    assert (DEPLOY / DASHBOARD).read_bytes() == (CHART / "files" / "roost.json").read_bytes()


def test_versions_are_that_of_the_package() -> None:
    chart = documents(CHART / "Chart.yaml")[0]
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    kustomization = documents(DEPLOY / "operator" / "kustomization.yaml")[0]
    images = [
        {"name": name, "newName": name, "newTag": __version__} for name in ("roost", "roost-train")
    ]
    assert kustomization["images"] == images
    assert documents(DEPLOY / "agent" / "kustomization.yaml")[0]["images"] == images[:1]


def test_every_permission_is_for_a_kind_that_roost_uses() -> None:
    every = [*vars(kinds).values(), *kinds.KUEUE_KINDS]
    known = {(kind.group, kind.plural) for kind in every if isinstance(kind, ResourceKind)}
    for permission in needed():
        assert (permission.group, permission.resource.partition("/")[0]) in known, permission


def test_the_operator_follows_what_it_may_follow() -> None:
    sources = (GangSource.kinds, ForeignPods.kinds, JobController.kinds, (kinds.NODES, kinds.PODS))
    followed = (*sources, JobController.asking_kinds, *(one.kinds for one in NODE_FILTERS))
    mirrored = {(kind.group, kind.plural) for some in followed for kind in some}
    allowed = {(one.group, one.resource) for one in needed() if one.verb == "watch"}
    assert allowed == mirrored


def test_rights_are_few() -> None:
    every = {str(permission) for permission in needed()}
    assert not any("*" in permission for permission in every)
    assert not {permission for permission in every if permission.startswith("escalate")}
    for verb in ("get", "list", "watch", "update", "patch"):
        assert f"{verb} secrets" not in every
    assert {"create pods/binding", "create pods/eviction", "patch pods/status"} <= every
    assert [(grant.resources, grant.verbs) for grant in LOCAL] == [
        (("leases",), ("get", "create", "update")),
        (("pods",), ("patch",)),
    ]
    assert not any("leases" in grant.resources for grant in CLUSTER)


def test_a_permission_reads_as_the_api_server_names_it() -> None:
    assert str(ClusterPermission("create", "", "pods/binding")) == "create pods/binding"
    assert (
        str(ClusterPermission("patch", "roost.dev", "jobs/status")) == "patch jobs.roost.dev/status"
    )
    assert str(ClusterPermission("list", "policy", "poddisruptionbudgets")) == (
        "list poddisruptionbudgets.policy"
    )


def test_the_operator_is_confined() -> None:
    spec = deployment()
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"meeting": 8611, "metrics": 8612}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def agent() -> Any:
    (found,) = [
        one for one in documents(DEPLOY / "agent" / "daemonset.yaml") if one["kind"] == "DaemonSet"
    ]
    return found["spec"]["template"]["spec"]


def test_the_agent_may_do_what_it_has_to_and_no_more() -> None:
    spec = agent()
    (container,) = spec["containers"]
    allowed = container["securityContext"]
    assert allowed["capabilities"] == {
        "drop": ["ALL"],
        "add": ["DAC_OVERRIDE", "KILL", "SYS_PTRACE"],
    }
    assert "privileged" not in allowed
    assert allowed["readOnlyRootFilesystem"] is True
    assert {str(permission) for grant in AGENT for permission in _permissions(grant)} == {
        *("list pods", "watch pods", "patch pods"),
        *("get nodes", "patch nodes", "patch nodes/status"),
    }
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    # Containers mount parts of its home by the names that it has on the node.
    assert mounts["home"] == paths["home"] == "/var/lib/roost-agent"


def _permissions(grant: ClusterGrant) -> Iterator[ClusterPermission]:
    for resource in grant.resources:
        for verb in grant.verbs:
            yield ClusterPermission(verb, grant.group, resource)


def test_the_agent_understands_its_arguments() -> None:
    (container,) = agent()["containers"]
    verb, *arguments = container["args"]
    roost = click.Context(cli, **cli.context_settings)
    command = cli.get_command(roost, verb)
    assert command is not None
    params = command.make_context(verb, list(arguments), parent=roost).params
    assert (params["metrics_port"], params["home"]) == (8613, "/var/lib/roost-agent")
    assert params["kubelet"] == "/var/lib/kubelet"
    assert "ROOST_NODE_NAME" in {name for param in command.params for name in _variables(param)}


def test_the_operator_understands_its_arguments() -> None:
    (container,) = deployment()["containers"]
    verb, *arguments = container["args"]
    roost = click.Context(cli, **cli.context_settings)
    command = cli.get_command(roost, verb)
    assert command is not None
    context = command.make_context(verb, list(arguments), parent=roost)
    assert (context.params["metrics_port"], context.params["meeting_port"]) == (8612, 8611)
    read = {name for param in command.params for name in _variables(param)}
    assert {one["name"] for one in container["env"]} <= read


def _variables(param: click.Parameter) -> list[str]:
    given = param.envvar
    return [given] if isinstance(given, str) else list(given or ())


def containerfile() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    return [line for line in text.replace("\\\n", " ").splitlines() if line and line[0] != "#"]


def test_the_image_is_built_from_the_wheel_and_runs_as_nobody() -> None:
    lines = containerfile()
    assert re.search(r"python:3\.\d+\.\d+-slim-\w+$", lines[0])
    last = lines[max(at for at, line in enumerate(lines) if line.startswith("FROM ")) :]
    (user,) = (line.removeprefix("USER ") for line in last if line.startswith("USER "))
    assert user.partition(":")[0] == str(deployment()["securityContext"]["runAsUser"])
    assert not any(line.startswith("RUN") for line in last)
    assert any("pip wheel" in line for line in lines)
    sources = [
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {source.partition("/")[0] for source in sources} == {
        line[1:] for line in kept if line.startswith("!")
    }


def expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr":
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def test_the_dashboard_shows_figures_that_exist() -> None:
    dashboard = json.loads((DEPLOY / DASHBOARD).read_text(encoding="utf-8"))
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("server", "kubernetes/operator")
        for path in (ROOT / "src" / "roost" / folder).rglob("*.py")
    ).replace("roost_gpus_{name}", "roost_gpus_capacity roost_gpus_allocated roost_gpus_failed")
    wanted = {
        name
        for expression in expressions(dashboard)
        for name in re.findall(r"roost_\w+", expression)
    }
    assert len(wanted) > 4
    for name in wanted:
        bare = re.sub(r"_(total|bucket|sum|count)$", "", name)
        assert re.search(rf"\b{bare}\b", source), name
