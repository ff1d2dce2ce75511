"""Controllers of other projects, run against a control plane.

    controllers = RealControllers(plane, folder, build_controllers())
    await controllers.start("kubeflow", "jobset")

Their kinds are defined first; where they have webhooks, the API server is told of them, with one
certificate that vouches for itself. Both then belong to the control plane: ``wipe`` leaves them.
``Karpenter`` is run in the same way, with types of machines that the test says.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.support.kubernetes import keys
from tests.support.kubernetes.control_plane import ControlPlane, NotStarted
from tests.support.kubernetes.controller_programs import ControllerPrograms
from tests.support.kubernetes.nodes import until
from tests.support.kubernetes.processes import Process, free_ports

from roost.errors import RoostError

_CERTIFICATE = "webhooks"
#: Of each project with webhooks: how far its port is from the first, and the label that the pods
#: have which they are for.
_WEBHOOKS = {
    "jobset": (0, "jobset.sigs.k8s.io/jobset-name"),
    "lws": (1, "leaderworkerset.sigs.k8s.io/name"),
}
_START_S = 120.0


class RealControllers:
    """One process with the controllers of several projects."""

    def __init__(self, plane: ControlPlane, folder: Path, programs: ControllerPrograms) -> None:
        self._plane, self._folder, self._programs = plane, folder, programs
        self._process = Process("controllers", folder)

    async def start(self, *projects: str) -> None:
        """Define their kinds and start them; they work when this returns."""
        for project in projects:
            await define(self._plane, self._programs.manifests / project)
        certificate, key = keys.write_certificate(self._folder, _CERTIFICATE)
        certificate.rename(self._folder / "tls.crt")
        key.rename(self._folder / "tls.key")
        first = _neighbouring_ports(len(_WEBHOOKS))
        self._process.start(
            [
                self._programs.controllers,
                f"--kubeconfig={self._plane.kubeconfig}",
                f"--webhook-port={first}",
                f"--webhook-certificates={self._folder}",
                *projects,
            ]
        )
        for project in projects:
            if project in _WEBHOOKS:
                port = first + _WEBHOOKS[project][0]
                await until(lambda port=port: self._listens(port), _START_S)  # type: ignore[misc]
                await self._tell_of_webhooks(project, port)
        await self._plane.etcd.remember()

    def stop(self) -> None:
        """End it."""
        self._process.kill()

    def log(self) -> str:
        """The end of what it said."""
        return self._process.tail()

    async def _listens(self, port: int) -> bool:
        if not self._process.runs:
            raise NotStarted(f"the controllers ended:\n{self.log()}")
        return await asyncio.to_thread(_answers, port)

    async def _tell_of_webhooks(self, project: str, port: int) -> None:
        authority = base64.b64encode((self._folder / "tls.crt").read_bytes()).decode()
        for found in _documents(self._programs.manifests / project):
            if not found["kind"].endswith("WebhookConfiguration"):
                continue
            found["metadata"]["name"] += f"-{project}"
            for hook in found["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {
                    "url": f"https://127.0.0.1:{port}{path}",
                    "caBundle": authority,
                }
                if hook["rules"][0]["resources"] == ["pods"]:
                    only = [{"key": _WEBHOOKS[project][1], "operator": "Exists"}]
                    hook["objectSelector"] = {"matchExpressions": only}
            plural = f"{found['kind'].lower()}s"
            path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
            await self._plane.request("POST", path, found)


class Karpenter:
    """An autoscaler whose machines are nodes of KWOK."""

    def __init__(self, plane: ControlPlane, folder: Path, programs: ControllerPrograms) -> None:
        self._plane, self._folder, self._programs = plane, folder, programs
        self._process = Process("karpenter", folder)

    async def start(self, machines: Mapping[str, Mapping[str, str]]) -> None:
        """Start it; ``machines`` are what can be bought: the resources of each type."""
        await define(self._plane, self._programs.manifests / "karpenter")
        types = self._folder / "machines.json"
        types.write_text(json.dumps([_machine(*each) for each in machines.items()]))
        self._process.start(
            [
                "env",
                f"KUBECONFIG={self._plane.kubeconfig}",
                self._programs.karpenter,
                f"--instance-types-file-path={types}",
                "--disable-leader-election=true",
                "--metrics-port=0",
                "--health-probe-port=0",
                "--batch-idle-duration=500ms",
                "--batch-max-duration=2s",
            ]
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()

    def log(self) -> str:
        """The end of what it said."""
        return self._process.tail()


async def define(plane: ControlPlane, folder: Path) -> None:
    """Let the API server know the kinds in a folder, and wait until it does."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for found in _documents(folder):
        if found["kind"] != "CustomResourceDefinition":
            continue
        # Versions are converted by webhooks that are not needed here: one version is stored.
        found["spec"].pop("conversion", None)
        await plane.request("POST", path, found)
        names.append(found["metadata"]["name"])

    async def known() -> bool:
        for name in names:
            told = (await plane.request("GET", f"{path}/{name}")).get("status") or {}
            conditions = told.get("conditions") or ()
            if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return False
        return True

    await until(known)


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        for found in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if found:
                yield found


def _machine(name: str, resources: Mapping[str, str]) -> dict[str, Any]:
    where = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    requirements = [
        {"key": key, "operator": "In", "values": [value]} for key, value in where.items()
    ]
    price = 0.1 + float(resources.get("nvidia.com/gpu", "0"))
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": dict(resources),
        # As in life: a machine costs what its GPUs cost.
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
    }


def _neighbouring_ports(count: int) -> int:
    """The first of several free ports in a row."""
    for _ in range(100):
        (first,) = free_ports(1)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                probe = stack.enter_context(contextlib.closing(socket.socket()))
                probe.bind(("127.0.0.1", port))
            return first
    raise RoostError("there are no free ports in a row")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except OSError:
        return False
    return True
